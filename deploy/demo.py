"""The demo: a server with a fresh key on a small model, and one answer streamed through HTTP.

What a user would do by hand, in the same order: make a key, start the server, wait for its ready record,
send a request with the key, read the events as they come. Only the standard library is used here.
"""

from __future__ import annotations

import http.client
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

from deploy.errors import SetupError
from deploy.paths import DEMO, ROOT

QUESTION = "What is the capital of France?"
NEXT_QUESTION = "Tell me a story about an owl."
STOP_SECONDS = 20
SILENCE_SECONDS = 60  # without one byte from the server, which sends a comment every few seconds


def run_demo(python: Path, manifest: Path | None, *, once: bool) -> None:
    """Stream one answer to the terminal; then, unless `once`, serve until Ctrl-C.

    `manifest` pins the model; None means the one that the package carries.
    """
    model: list[str | Path] = ["--demo"] if manifest is None else ["--manifest", manifest]
    DEMO.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=DEMO) as folder:
        key_file, log_file = Path(folder) / "key", Path(folder) / "server.log"
        _make_key(python, key_file)
        with _server(python, model, key_file, log_file) as (process, ready):
            print(f"\n> {QUESTION}\n", flush=True)
            _stream_answer(ready["port"], key_file.read_text(encoding="ascii").strip())
            if once:
                return
            print("\nThe server goes on until Ctrl-C. To ask from another terminal, paste:\n")
            print(_command(ready["base_url"], key_file), flush=True)
            with suppress(KeyboardInterrupt):  # the terminal sends it to the server too
                if process.wait():
                    raise _ended(process, log_file)


def _make_key(python: Path, key_file: Path) -> None:
    """A new key of this run alone, in a file that only its owner may read."""
    command: list[str | Path] = [python, "-I", "-m", "auth.main", key_file]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SetupError(f"no key could be made: {result.stderr.strip()}")


@contextmanager
def _server(
    python: Path, model: list[str | Path], key_file: Path, log_file: Path
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The running server and its ready record; afterwards it has stopped, by itself if it can."""
    program: list[str | Path] = [python, "-I", ROOT / "deploy" / "owned_server.py"]
    options: list[str | Path] = [*model, "--token-file", key_file, "--port", "0"]
    print(f"Starting prism-inference-server {' '.join(map(_shown, options))}", flush=True)
    with (
        log_file.open("wb") as log,
        subprocess.Popen([*program, *options], stdin=PIPE, stdout=PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # empty if the server ends without being ready
            if not line:
                raise _ended(process, log_file)
            ready = json.loads(line)
            print(f"Ready at {ready['base_url']}: {ready['model']}, kernel {ready['kernel']}", flush=True)
            yield process, ready
        finally:
            _stop(process)


def _ended(process: subprocess.Popen[bytes], log_file: Path) -> SetupError:
    """The error to raise when the server ended, or is about to, although nobody asked it to."""
    code = process.wait()
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    return SetupError("\n".join([f"the server ended with exit code {code}; its last lines:", *lines]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's input, which asks it to stop, and insist if it takes too long."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except BaseException:
        process.kill()
        raise


def _stream_answer(port: int, key: str) -> None:
    """Ask the question and print the answer's pieces as they arrive, then what it took."""
    request = {
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    usage: dict[str, Any] = {}
    started = time.monotonic()
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SILENCE_SECONDS)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(request), headers)
            for event in _events(connection.getresponse()):
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    print(choice["delta"].get("content") or "", end="", flush=True)
    except (OSError, http.client.HTTPException) as error:
        raise SetupError(f"the connection to the server broke: {error}") from None
    took = f"{usage['prompt_tokens']} tokens in, {usage['completion_tokens']} out"
    print(f"\n\n({took}, {time.monotonic() - started:.2f} s)", flush=True)


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON objects of an event stream up to its end mark, without which the answer is not whole."""
    if response.status != 200:
        raise SetupError(f"the server answered {response.status}: {response.read().decode()}")
    for line in response:
        if not line.startswith(b"data: "):
            continue
        if (data := line.removeprefix(b"data: ").strip()) == b"[DONE]":
            return
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            raise SetupError(f"the answer broke off: {event['error']['message']}")
        yield event
    raise SetupError("the answer broke off without an end mark")


def _command(url: str, key_file: Path) -> str:
    """A line to paste into another terminal; it reads the key from its file."""
    body = {"messages": [{"role": "user", "content": NEXT_QUESTION}]}
    if os.name == "nt":
        return (
            f"(Invoke-RestMethod {url}/chat/completions -Method Post -ContentType application/json "
            f"-Headers @{{Authorization = \"Bearer $(Get-Content '{key_file}')\"}} "
            f"-Body '{json.dumps(body)}').choices[0].message.content"
        )
    return (
        f'curl -N {url}/chat/completions -H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})" '
        f"-H 'Content-Type: application/json' -d '{json.dumps({**body, 'stream': True})}'"
    )


def _shown(argument: str | Path) -> str:
    return str(argument.relative_to(ROOT)) if isinstance(argument, Path) else argument
