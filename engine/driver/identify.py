"""`identify FILE` and `pin FILE`: what a GGUF file is, and a manifest that pins it.

Works for every readable GGUF, with or without a graph for it here. Both commands hash the file that they
find; whether it is the right file is for the user to compare, or for the list of published files to know.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from engine.artifact import Pin, measure
from engine.catalogue import find_published, published_files
from engine.driver import values
from engine.driver.file_facts import describe_file
from engine.driver.option_table import Once, Parser
from engine.driver.output import write_bytes, write_text
from engine.driver.progress import ProgressBar
from engine.errors import InvalidInputError
from engine.gguf import MAX_HEADER_BYTES, Header, parse_header
from engine.manifest import Manifest, format_manifest
from engine.paths import openable


def identify(arguments: Sequence[str]) -> None:
    """Prints the facts as comments and the manifest after them, so that the output is a manifest."""
    parser = Parser(
        prog="prism-inference identify",
        description="Say what a GGUF file is. The output is a manifest with the facts in comments.",
        epilog=f"published files: {', '.join(file.name for file in published_files())}",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=values.path, help="the model file")
    given = parser.parse_strictly(arguments)
    pin, header = _examine(given.file)
    write_text(_manifest(pin, header, None))


def pin_file(arguments: Sequence[str]) -> None:
    """Writes the manifest; an existing file is never replaced."""
    parser = Parser(
        prog="prism-inference pin",
        description="Write a manifest that pins a GGUF file by path, length and SHA-256.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=values.path, help="the model file")
    parser.add_argument(
        "--output", action=Once, type=values.path, metavar="MANIFEST", help="(default: FILE.toml)"
    )
    given = parser.parse_strictly(arguments)
    output: Path = given.output or given.file.with_name(given.file.name + ".toml")
    output = output.absolute()
    if openable(output).exists():
        raise InvalidInputError(f"{output} exists already; remove it or choose another with --output")
    pin, header = _examine(given.file)
    text = _manifest(pin, header, output.parent)
    try:
        with openable(output).open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInputError(f"cannot write {output}: {error.strerror or error}") from None
    write_bytes(os.fsencode(output) + b"\n")


def _examine(file: Path) -> tuple[Pin, Header]:
    with ProgressBar("hashing") as bar:
        pin, start = measure(file.absolute(), MAX_HEADER_BYTES, bar)
    return pin, parse_header(start, pin.nbytes)


def _manifest(pin: Pin, header: Header, folder: Path | None) -> str:
    published = find_published(pin.nbytes, pin.sha256)
    manifest = Manifest(pin, published.name if published else None)
    return format_manifest(manifest, folder, describe_file(pin, header))
