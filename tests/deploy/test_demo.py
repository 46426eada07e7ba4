"""The demo as a user sees it: a process, its terminal, and what is left when it is gone."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deploy.paths import DEMO, MODEL_MANIFEST, ROOT
from deploy.registry_file import PinnedFile

PROGRAM = (
    "import sys, pathlib as p, deploy.demo as d; d.run_demo(p.Path(sys.executable), {model}, once={once})"
)
SMOLLM2 = f"p.Path({str(MODEL_MANIFEST)!r})"
SECONDS = 60

pytestmark = pytest.mark.timeout(180)


@contextmanager
def demo(*, once: bool, model: str = "None") -> Iterator[subprocess.Popen[str]]:
    """The demo in this environment, in a process group of its own."""
    command = [sys.executable, "-c", PROGRAM.format(once=once, model=model)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """What the demo prints, up to the first line that matches."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if re.search(pattern, line):
            return seen
    raise AssertionError(f"the demo ended without {pattern!r}:\n{seen}")


def status(port: int, key: str | None) -> int:
    """What the server says to a request for its models."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request("GET", "/v1/models", headers=headers)
        return connection.getresponse().status


def wait_until_gone(port: int) -> None:
    """Return when nothing listens on the port any more."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            status(port, None)
        except OSError:
            return
        time.sleep(0.1)
    raise AssertionError("the server outlived the demo")


@pytest.mark.parametrize("model", ["None", SMOLLM2], ids=["embedded", "smollm2"])
def test_once(model: str) -> None:
    """With `once` the demo streams the right answer, says what it took, and leaves nothing behind."""
    if model == SMOLLM2 and not PinnedFile.from_manifest(MODEL_MANIFEST).path.is_file():
        pytest.skip("python -m deploy model fetches the model")
    before = set(DEMO.glob("run-*"))
    with demo(once=True, model=model) as process:
        output = read_until(process, r"\d+ tokens in, \d+ out")
        assert process.wait(SECONDS) == 0
    assert "\n> What is the capital of France?\n\nThe capital of France is Paris.\n" in output
    assert set(DEMO.glob("run-*")) == before
    wait_until_gone(int(re.findall(r"127\.0\.0\.1:(\d+)", output)[0]))


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to consoles, not to processes")
def test_serves_until_interrupted() -> None:
    """The printed curl line works as it is; the key is private and needed; Ctrl-C ends all with code 0."""
    with demo(once=False) as process:
        output = read_until(process, "^curl ")
        (line,) = re.findall("^curl .*$", output, re.MULTILINE)
        port, file = (
            int(re.findall(r"127\.0\.0\.1:(\d+)", line)[0]),
            Path(re.findall(r"\$\(cat (.*?)\)", line)[0]),
        )
        assert file.stat().st_mode & 0o777 == 0o600
        assert status(port, None) == 401
        assert status(port, file.read_text("ascii").strip()) == 200
        if shutil.which("curl"):
            answer = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
            assert answer.stdout.startswith((":", "data: "))
            assert answer.stdout.endswith("data: [DONE]\n\n")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(SECONDS) == 0
    assert not file.exists()
    wait_until_gone(port)


def test_no_server_outlives_the_demo() -> None:
    """The server stops even if the demo is killed without a chance to stop it."""
    with demo(once=False) as process:
        output = read_until(process, "another terminal, paste")
        port, run = re.findall(r"(?s)--token-file \S*(run-\w+).*127\.0\.0\.1:(\d+)", output)[0][::-1]
        process.kill()
        process.wait(SECONDS)
    wait_until_gone(int(port))
    shutil.rmtree(DEMO / run)  # which the killed demo could not do
