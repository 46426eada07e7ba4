"""llama.cpp beside our engine: the same file, the same threads, in turns.

It runs in a process of its own, under an interpreter that the caller names, because the project does not
depend on it: an environment with the package `xllamacpp` (a wheel, AVX2 code) or `llama-cpp-python` (built
there for this very processor). Both read Q1_0, Q2_0 in groups of 64 and ggml's own types; the Prism
fork's types are unknown to them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.subject import Subject

PROGRAM = Path(__file__).with_name("peer_process.py")
FORK_TYPES = ("PQ2_0", "PTQ1_0")


class Peer:
    """A running peer; `facts` say which one."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log
        self.facts: dict[str, Any] = self._answer()

    @property
    def process(self) -> int:
        """Its process id."""
        return self._process.pid

    def prefill(self, prompt: Sequence[int]) -> float:
        """Tokens a second of a prompt."""
        return len(prompt) / self._run(prompt, 0)[0]

    def decode(self, prompt: Sequence[int], tokens: int) -> float:
        """Tokens a second, one after another behind a prompt."""
        return tokens / self._run(prompt, tokens)[1]

    def _run(self, prompt: Sequence[int], predict: int) -> tuple[float, float]:
        """Seconds to evaluate the prompt, and then `predict` single tokens after it."""
        assert self._process.stdin is not None
        print(json.dumps({"prompt": list(prompt), "predict": predict}), file=self._process.stdin, flush=True)
        answer = self._answer()
        return float(answer["prompt_seconds"]), float(answer["predict_seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)  # its last words may come after it closed its output
            last = self._log.read_text("utf-8", errors="replace").splitlines()[-5:]
            raise BenchmarkError("\n".join(["the peer ended; its last lines:", *last]))
        answer: dict[str, Any] = json.loads(line)
        return answer


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    """The option that brings the peer in."""
    group = parser.add_argument_group("beside a peer")
    group.add_argument(
        "--peer-python",
        type=Path,
        metavar="PYTHON",
        help="interpreter of an environment with llama-cpp-python or xllamacpp: run llama.cpp on the same "
        "file in turns, and give the ratio (it reads Q1_0, Q2_0, Q4_1 and Q8_0 only)",
    )


@contextmanager
def peer_beside(python: Path | None, subject: Subject, threads: int, context: int) -> Iterator[Peer | None]:
    """The peer with the subject's file loaded, or None if none is wanted."""
    if python is None:
        yield None
        return
    if subject.type in FORK_TYPES or subject.folded:
        raise BenchmarkError(
            f"llama.cpp does not read {subject.type} or folded files; leave --peer-python out"
        )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [str(python), str(PROGRAM), str(subject.path), str(threads), str(context)]
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
            ) as process,
        ):
            try:
                yield Peer(process, log)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
