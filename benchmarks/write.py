"""Writes model files of real shapes with random weights, for the other commands and for other programs."""

from __future__ import annotations

import argparse

from benchmarks.subject import add_subject_options, open_subject

DESCRIPTION = """\
Write: make the model file of a shape and type, and its manifest, unless they are there already.

The other commands do the same when they need a file; this one prepares it ahead, or for another program,
such as the server or llama.cpp. It prints where the file is.

  python -m benchmarks write --model 27b --type PQ2_0 --folder /data/models
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_subject_options(parser)


def run(options: argparse.Namespace) -> None:
    """Write and print."""
    subject = open_subject(options)
    print(f"model     {subject.path}")
    print(f"manifest  {subject.path.with_suffix('.toml')}")
    print(f"bytes     {subject.manifest.pin.nbytes}")
    print(f"sha256    {subject.manifest.pin.sha256}")
