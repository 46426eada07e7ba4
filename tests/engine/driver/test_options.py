from __future__ import annotations

from pathlib import Path

import pytest

from engine.driver.option_table import OPTIONS
from engine.driver.options import parse_options
from engine.errors import ContextError, EngineError, InvalidInputError

MODEL = Path.cwd() / "m.gguf"
PIN = ["--model", str(MODEL), "--bytes", "1000", "--sha256", "ab" * 32]
GENERATE = [*PIN, "--max-tokens", "8", "--checkpoint-bytes", "1000"]
TOKENIZE = ["--mode", "tokenize", *PIN]
SCORE = ["--mode", "score", *PIN]
SECRET = "SECRET prompt"


def test_generate_defaults() -> None:
    """The shortest generation: greedy, literal, one prompt token a block."""
    options = parse_options([*GENERATE, "--prompt", "hi"])
    assert (options.mode, options.pin.path, options.pin.nbytes) == ("generate", MODEL, 1000)
    assert (options.source.kind, options.source.value) == ("prompt", "hi")
    assert (options.special_input, options.insert_special) == ("literal", "none")
    assert (options.memory_bytes, options.context, options.threads) == (None, None, None)
    assert (options.prefill_block_tokens, options.activation_bits, options.text_output) == (1, 16, False)
    assert (options.stop_tokens, options.timeout_seconds, options.save_logits) == ((), None, None)
    assert options.sampler.describe() == {"mode": "greedy"}


def test_every_generation_option() -> None:
    """All options at once, with `=` or a space."""
    options = parse_options(
        [
            *(*GENERATE, "--mode=generate", "--memory-bytes=5000", "--context", "512", "--tokens=42,17,42"),
            *("--stop-tokens", "7,9,7", "--output", "text", "--timeout-seconds=3600"),
            *("--prefill-block-tokens", "256", "--sampling", "reference", "--seed", str(2**64 - 1)),
            *(
                "--temperature",
                "0.7",
                "--top-k",
                "0",
                "--top-p",
                "1",
                "--activation-bits",
                "8",
                "--threads",
                "3",
            ),
        ]
    )
    assert options.source.value == (42, 17, 42)
    assert (options.memory_bytes, options.context, options.max_tokens) == (5000, 512, 8)
    assert (options.stop_tokens, options.text_output, options.timeout_seconds) == ((7, 9), True, 3600)
    assert (options.prefill_block_tokens, options.activation_bits, options.threads) == (256, 8, 3)
    described = options.sampler.describe()
    assert [described[name] for name in ("mode", "seed", "temperature", "top_k", "top_p")] == [
        *("reference", 2**64 - 1, 0.7, 0, 1.0)
    ]


def test_reference_defaults() -> None:
    """The reference sampler's own defaults are 1, 20 and 0.95."""
    options = parse_options([*GENERATE, "--prompt", "x", "--sampling", "reference", "--seed", "0"])
    described = options.sampler.describe()
    assert [described[name] for name in ("temperature", "top_k", "top_p")] == [1.0, 20, 0.95]


def test_other_modes() -> None:
    """Tokenizing reserves nothing by default; scoring evaluates 64 tokens a block."""
    assert parse_options([*TOKENIZE, "--prompt", "x"]).max_tokens == 0
    assert parse_options([*SCORE, "--tokens", "1"]).prefill_block_tokens == 64
    assert parse_options([*SCORE, "--tokens-file", "ids.json"]).source.value == "ids.json"


@pytest.mark.parametrize(
    "prompt",
    [
        *("-x", "--prompt", "--mode=score", "- item", "-h", "--help", "=", "a=b", " ", "-", "--", "---"),
        *("-- x", "--=", "--capabilities", "\ufeffa\r\nb\r\n\n", "\ta\v"),
    ],
)
def test_prompts_may_look_like_options(prompt: str) -> None:
    """The word after an option is its value, whatever it looks like."""
    assert parse_options([*GENERATE, "--prompt", prompt]).source.value == prompt
    assert parse_options([*GENERATE, f"--prompt={prompt}"]).source.value == prompt


@pytest.mark.parametrize("value", ["--", "--mode", "-h", "=", "--x=y"])
def test_every_value_is_the_next_word(value: str) -> None:
    """Not only prompts: a file may be called like an option, and a wrong value is judged as a value."""
    assert str(parse_options([*GENERATE, "--prompt", "x", "--receipt", value]).receipt) == value
    for flag, words in (("--prompt-file", "must be an absolute path"), ("--stop-tokens", "must be unsigned")):
        with pytest.raises(InvalidInputError, match=f"^{flag}: {words}"):
            parse_options([*GENERATE, flag, value])


GENERATION_ONLY = {
    "--checkpoint-bytes": "1",
    "--stop-tokens": "1",
    "--output": "text",
    "--timeout-seconds": "1",
    "--receipt": "r",
    "--sampling": "greedy",
    "--seed": "1",
    "--temperature": "1",
    "--top-k": "1",
    "--top-p": "1",
}
COMPUTING_ONLY = {
    "--prefill-block-tokens": "1",
    "--activation-bits": "8",
    "--kernel": "numpy",
    "--threads": "1",
    "--save-logits": "l",
}


@pytest.mark.parametrize(("flag", "value"), (GENERATION_ONLY | COMPUTING_ONLY).items())
def test_tokenizing_takes_nothing_of_computing(flag: str, value: str) -> None:
    """Options that only a generation or a computation has are refused where nothing is computed."""
    with pytest.raises(InvalidInputError, match=f"^{flag} is no option of --mode tokenize"):
        parse_options([*TOKENIZE, "--prompt", "x", flag, value])


@pytest.mark.parametrize(("flag", "value"), GENERATION_ONLY.items())
def test_scoring_takes_nothing_of_generating(flag: str, value: str) -> None:
    """Options that only a generation has are refused where nothing is generated."""
    with pytest.raises(InvalidInputError, match=f"^{flag} is no option of --mode score"):
        parse_options([*SCORE, "--tokens", "1", flag, value])


def test_sha256_may_be_upper_case() -> None:
    """Some tools print digests in upper case."""
    arguments = [*GENERATE, "--prompt", "x"]
    arguments[5] = "AB" * 32
    assert parse_options(arguments).pin.sha256 == "ab" * 32


REFUSED = {
    "no options": ([], "--max-tokens is required"),
    "no input": (
        GENERATE,
        "exactly one of --prompt, --prompt-file, --tokens, --tokens-file is needed, but 0",
    ),
    "two inputs": ([*GENERATE, "--prompt", "x", "--tokens", "1"], "but 2 are given"),
    "no max-tokens": ([*PIN, "--prompt", "x", "--checkpoint-bytes", "1"], "--max-tokens is required"),
    "max-tokens 0": ([*PIN, "--prompt", "x", "--checkpoint-bytes", "1", "--max-tokens", "0"], "at least 1"),
    "no checkpoint": ([*PIN, "--prompt", "x", "--max-tokens", "1"], "--checkpoint-bytes is required"),
    "no model": (["--max-tokens", "1", "--checkpoint-bytes", "1", "--prompt", "x"], "--manifest is needed"),
    "half a pin": ([*GENERATE[:2], *GENERATE[6:], "--prompt", "x"], "together"),
    "both pins": ([*GENERATE, "--prompt", "x", "--manifest", "m"], "--manifest and --model exclude"),
    "relative model": ([*GENERATE, "--prompt", "x", "--mode", "score"], "no option of --mode score"),
    "twice": ([*GENERATE, "--prompt", "x", "--bytes", "1000"], "--bytes is given twice"),
    "twice, equal": ([*GENERATE, "--prompt", "x", "--prompt", "x"], "--prompt is given twice"),
    "abbreviated": ([*GENERATE, "--promp", SECRET], "there is no option --promp"),
    "unknown with a value": ([*GENERATE, f"--secret={SECRET}"], "there is no option --secret"),
    "left over": ([*GENERATE, "--prompt", "x", SECRET], "an argument belongs to no option"),
    "odd option": ([*GENERATE, f"--{SECRET}"], "an argument belongs to no option"),
    "short option": ([*GENERATE, f"-p{SECRET}"], "an argument belongs to no option"),
    "no value": ([*GENERATE, "--prompt"], "--prompt: expected one argument"),
    "mode": (["--mode", SECRET], "--mode: must be one of generate, tokenize, score"),
    "empty prompt": ([*GENERATE, "--prompt", ""], "the prompt is empty"),
    "prompt not UTF-8": ([*GENERATE, "--prompt", "\udcff"], "not valid UTF-8"),
    "prompt too long": ([*GENERATE, "--prompt", "x" * (2**20 + 1)], "larger than 1048576"),
    "relative prompt file": (
        [*GENERATE, "--prompt-file", "p.txt"],
        "--prompt-file: must be an absolute path",
    ),
    "empty prompt file": ([*GENERATE, "--prompt-file", ""], "--prompt-file: must be an absolute path"),
    "relative tokens file": ([*TOKENIZE, "--tokens-file", "ids"], "--tokens-file: must be an absolute path"),
    "empty tokens file": ([*SCORE, "--tokens-file", ""], "--tokens-file: must be an absolute path"),
    "policy with tokens": (
        [*GENERATE, "--tokens", "1", "--special-input", "parse"],
        "--special-input is for text",
    ),
    "insertion with tokens": (
        [*TOKENIZE, "--tokens-file", "-", "--insert-special", "none"],
        "--insert-special is for text",
    ),
    "special policy": ([*GENERATE, "--prompt", "x", "--special-input", SECRET], "one of literal, parse"),
    "insertion policy": ([*GENERATE, "--prompt", "x", "--insert-special", "all"], "one of none, model"),
    "seed alone": ([*GENERATE, "--prompt", "x", "--seed", "1"], "--seed needs --sampling reference"),
    "top-k and greedy": (
        [*GENERATE, "--prompt", "x", "--sampling", "greedy", "--top-k", "1"],
        "--top-k needs --sampling reference",
    ),
    "no seed": ([*GENERATE, "--prompt", "x", "--sampling", "reference"], "needs --seed"),
    "checkpoint and tokenize": (
        [*TOKENIZE, "--prompt", "x", "--checkpoint-bytes", "1"],
        "no option of --mode tok",
    ),
    "output and tokenize": ([*TOKENIZE, "--prompt", "x", "--output", "text"], "--output is no option"),
    "logits and generate": ([*GENERATE, "--prompt", "x", "--save-logits", "f"], "--save-logits is no option"),
    "sampling and score": ([*SCORE, "--tokens", "1", "--sampling", "greedy"], "--sampling is no option"),
    "empty logits": ([*SCORE, "--tokens", "1", "--save-logits", ""], "--save-logits: must be a path"),
    "257 stops": ([*GENERATE, "--stop-tokens", ",".join(map(str, range(257)))], "257 different ids"),
    "empty kernel": ([*GENERATE, "--prompt", "x", "--kernel", ""], "available: numpy"),
    "capabilities": ([*GENERATE, "--capabilities"], "--capabilities takes no other option"),
    "unknown kernel": ([*GENERATE, "--prompt", "x", "--kernel", "abacus"], "available: numpy"),
    "wrong hash": ([*GENERATE[:4], "--sha256", SECRET], "--sha256: must be 64 hex digits"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(arguments: list[str], words: str) -> None:
    """What is wrong is said in one line that repeats no value."""
    with pytest.raises(InvalidInputError) as caught:
        parse_options(arguments)
    assert words in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_relative_model() -> None:
    """The model's path must be absolute."""
    with pytest.raises(InvalidInputError, match="absolute"):
        parse_options(["--model", "m.gguf", *GENERATE[2:], "--prompt", "x"])


NUMBERS = {
    "--bytes": ["0", "-1", "+1", "1.0", "1e3", "01", " 1", "1 ", "1_000", "0x10", "", "١", str(2**63)],
    "--memory-bytes": ["0", "1GiB", str(2**63)],
    "--context": ["0", "262145"],
    "--max-tokens": ["-1", "262145", "1,000"],
    "--checkpoint-bytes": ["0"],
    "--timeout-seconds": ["0", "3601", "1.5"],
    "--prefill-block-tokens": ["0", "257"],
    "--seed": ["-1", str(2**64)],
    "--top-k": ["-1", "1.5"],
    "--temperature": ["nan", "inf", "-1", "1_0", ".5", "1e", "", "0x1", "1e9999"],
    "--top-p": ["nan", "-0.1"],
    "--tokens": ["", ",", "1,", "1,,2", " 1", "1, 2", "-1", "4294967296", "[1]", "1.0", "01"],
    "--stop-tokens": ["", "1,x", "4294967296"],
    "--activation-bits": ["4", "12", "08"],
    "--threads": ["0", "257"],
}


@pytest.mark.parametrize(("flag", "value"), [(flag, value) for flag, bad in NUMBERS.items() for value in bad])
def test_numbers_are_strict(flag: str, value: str) -> None:
    """Numbers are plain decimals within their bounds."""
    with pytest.raises(InvalidInputError, match=f"^{flag}: must be"):
        parse_options([flag, value])


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--temperature", "0"), ("--temperature", "1e999"), ("--top-p", "0"), ("--top-p", "1.01")],
)
def test_sampling_bounds(flag: str, value: str) -> None:
    """The sampler's bounds hold before anything is read."""
    with pytest.raises(InvalidInputError):
        parse_options([*GENERATE, "--prompt", "x", "--sampling", "reference", "--seed", "1", flag, value])


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ([*GENERATE, "--prompt", "x"], 9),
        ([*GENERATE, "--tokens", "1,2,3"], 11),
        ([*TOKENIZE, "--tokens", "1,2,3"], 3),
        ([*TOKENIZE, "--prompt-file", "-", "--max-tokens", "5"], 6),
    ],
)
def test_capacity_is_checked_first(arguments: list[str], needed: int) -> None:
    """A prompt that cannot fit beside the output is refused from the command line alone."""
    assert parse_options([*arguments, "--context", str(needed)]).context == needed
    with pytest.raises(ContextError):
        parse_options([*arguments, "--context", str(needed - 1)])


def test_manifest(tmp_path: Path) -> None:
    """A manifest stands for the three options; a bad one is a wrong option."""
    path = tmp_path / "m.toml"
    path.write_text(f'schema = 1\npath = "m.gguf"\nbytes = 7\nsha256 = "{"ab" * 32}"\n')
    options = parse_options(["--manifest", str(path), *GENERATE[6:], "--prompt", "x"])
    assert (options.pin.path, options.pin.nbytes) == (tmp_path / "m.gguf", 7)
    path.write_text("schema = 1\n")
    with pytest.raises(InvalidInputError, match="manifest"):
        parse_options(["--manifest", str(path), *GENERATE[6:], "--prompt", "x"])


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` explains every option, every command and the exit codes."""
    with pytest.raises(SystemExit) as caught:
        parse_options(["--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert all(f"{option.flag} " in text for options in OPTIONS.values() for option in options)
    assert all(word in text for word in ("identify FILE", "pin FILE", "--capabilities", "exit codes:"))


def test_no_option_is_unread() -> None:
    """Every refusal is an error of the engine, whatever the words are."""
    for words in (["--prompt", "--prompt", "--prompt"], ["=", "--"], ["--help=1"], ["-x1"], ["--mode"]):
        with pytest.raises(EngineError):
            parse_options(words)
