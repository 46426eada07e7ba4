from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import InvalidInputError
from server.limits import Limits
from server.options import DEFAULT_CHECKPOINT_BYTES, parse_options

MODEL = str(Path(__file__).resolve().parent / "model.gguf")
PIN = ["--model", MODEL, "--bytes", "7", "--sha256", "AB" * 32]
GOOD = [*PIN, "--token-file", "key"]


def test_the_least_that_is_needed() -> None:
    """A pinned model and a key; everything else has a default."""
    options = parse_options(GOOD)
    assert options.model.pin.sha256 == "ab" * 32
    assert options.model.pin.nbytes == 7
    assert options.model.memory_bytes >= 7
    assert options.model.checkpoint_bytes == DEFAULT_CHECKPOINT_BYTES
    assert options.model.context is None
    assert options.model.activation_bits == 16
    assert options.key_file == Path("key")
    assert (options.host, options.port) == ("127.0.0.1", 0)
    assert options.origins.allowed == frozenset()
    assert options.limits == Limits()
    assert parse_options([*PIN, "--token-stdin"]).key_file is None


def test_every_option_arrives() -> None:
    """Each value is where it belongs."""
    options = parse_options(
        [
            *GOOD,
            *("--context", "512", "--memory-bytes", "100", "--state-bytes", "5", "--checkpoint-bytes", "0"),
            *("--activation-bits", "8", "--threads", "3", "--kernel", "numpy"),
            *("--chat-template", "chatml", "--model-id", "a b"),
            *("--host", "::1", "--port", "8080", "--allow-origin", "http://a.example"),
            *("--allow-origin", "http://b.example:3000", "--queue", "0", "--body-bytes", "2048"),
            *("--generation-seconds", "1.5", "--heartbeat-seconds", "2", "--drain-seconds", "0"),
        ]
    )
    model = options.model
    assert (model.context, model.memory_bytes, model.state_bytes, model.checkpoint_bytes) == (512, 100, 5, 0)
    assert (model.activation_bits, model.threads, model.kernel) == (8, 3, "numpy")
    assert model.chat_template == "chatml"
    assert (options.model_id, options.host, options.port) == ("a b", "::1", 8080)
    assert options.origins.allowed == {b"http://a.example", b"http://b.example:3000"}
    assert options.limits == Limits(
        queue=0, body_bytes=2048, generation_seconds=1.5, heartbeat_seconds=2, drain_seconds=0
    )


def test_a_manifest_replaces_the_three(tmp_path: Path) -> None:
    """Its name and its chat template count too, unless options say otherwise."""
    manifest = tmp_path / "m.toml"
    manifest.write_text(
        f'schema = 1\npath = "model.gguf"\nbytes = 7\nsha256 = "{"ab" * 32}"\n'
        'name = "mine"\nchat_template = "qwen3"\n'
    )
    options = parse_options(["--manifest", str(manifest), "--token-stdin"])
    assert options.model.pin.path == tmp_path / "model.gguf"
    assert options.model_id == "mine"
    assert options.model.chat_template == "qwen3"
    options = parse_options(
        ["--manifest", str(manifest), "--token-stdin", "--model-id", "other", "--chat-template", "chatml"]
    )
    assert (options.model_id, options.model.chat_template) == ("other", "chatml")


def test_a_name_of_the_catalogue() -> None:
    """The entry says length, hash, context, chat format and stops; options win over it."""
    catalogued = ["--catalogue", "Swift-Bonsai-2-PQ2_0", "--model", MODEL, "--token-stdin"]
    options = parse_options(catalogued)
    assert (options.model.pin.nbytes, options.model.pin.sha256[:8]) == (7_206_168_928, "5912bb73")
    assert (options.model_id, options.model.context) == ("Swift-Bonsai-2-PQ2_0", 8192)
    assert options.model.chat_template == "qwen3.8"
    assert options.model.stop_tokens == (248044, 248046, 248063, 248064, 248065)
    options = parse_options([*catalogued, "--context", "512", "--chat-template", "chatml"])
    assert (options.model.context, options.model.chat_template) == (512, "chatml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "token"),
        (["--catalogue", "Nobody-1B", "--model", MODEL, "--token-stdin"], "no such name; it has"),
        (["--catalogue", "Bonsai-8B-Q1_0", *GOOD], "--manifest is needed"),
        (PIN, "exactly one of --token-file and --token-stdin"),
        ([*PIN, "--token-stdin", "--token-stdin"], "--token-stdin is given twice"),
        ([*GOOD, "--chat-template", "unheard-of"], "no such chat template"),
        ([*GOOD, "--token-stdin"], "exactly one of --token-file and --token-stdin"),
        (["--token-stdin"], "--manifest is needed"),
        (["--token-stdin", *PIN[:4]], "--manifest is needed"),
        (["--manifest", "m", *GOOD], "exclude each other"),
        ([*GOOD, "--port", "1", "--port", "2"], "--port.*twice"),
        ([*GOOD, "--host", "127.0.0.1", "--host", "0.0.0.0"], "--host.*twice"),
        ([*GOOD, "--token-file", "other"], "--token-file.*twice"),
        ([*GOOD, "--host", "0.0.0.0"], "not a loopback"),
        ([*GOOD, "--hos", "127.0.0.1"], "no option --hos"),
        ([*GOOD, "--api-key", "sentinel"], "no option --api-key"),
        ([*GOOD, "sentinel"], "belongs to no option"),
        ([*GOOD, "--port", "65536"], "--port"),
        ([*GOOD, "--activation-bits", "12"], "--activation-bits"),
        ([*GOOD, "--queue", "-1"], "--queue"),
        ([*GOOD, "--body-bytes", "10"], "--body-bytes"),
        ([*GOOD, "--heartbeat-seconds", "0"], "--heartbeat-seconds: must be from"),
        ([*GOOD, "--generation-seconds", "1e300"], "--generation-seconds: must be from"),
        ([*GOOD, "--generation-seconds", "nan"], "--generation-seconds"),
        ([*GOOD, "--idle-seconds", "-1"], "--idle-seconds"),
        ([*GOOD, "--allow-origin", "*"], "--allow-origin"),
        ([*GOOD, "--model-id", "a\nb"], "--model-id"),
        ([*PIN[:4], "--sha256", "xyz", "--token-stdin"], "--sha256"),
        (["--model", "relative", *PIN[2:], "--token-stdin"], "absolute"),
    ],
)
def test_wrong_command_lines_are_refused(arguments: list[str], words: str) -> None:
    """One sentence that names the option; values that might be keys are not repeated."""
    with pytest.raises(InvalidInputError, match=words) as caught:
        parse_options(arguments)
    assert "sentinel" not in str(caught.value)
