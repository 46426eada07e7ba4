"""Reads the words of a command line by a table of options, and prints the help that the table gives.

Refused are abbreviations, repetitions, unknown options and words that belong to none; messages never repeat
a value. What the values mean together is judged elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence

from engine.driver.option_table import OPTIONS, Option, Parser
from engine.errors import InvalidInputError

DESCRIPTION = """\
Run a verified GGUF model on the CPU.

  prism-inference --demo --prompt TEXT --output text
                                    ask the small model that comes with this program
  prism-inference --manifest MODEL.toml --prompt TEXT --max-tokens N --checkpoint-bytes N
  prism-inference --mode tokenize --manifest MODEL.toml --prompt TEXT
  prism-inference --mode score --manifest MODEL.toml --tokens-file IDS.json
  prism-inference replay RECEIPT --manifest MODEL.toml --prompt-file PATH
                                    run again what --receipt recorded, and say whether all agrees
  prism-inference identify FILE     say what a GGUF file is, and print a manifest for it
  prism-inference pin FILE          write that manifest to FILE.toml (or --output MANIFEST)
  prism-inference self-test         have every kernel repeat a known answer, and compare the bits
  prism-inference --capabilities    say what this build can compute (takes no other option)
"""

EPILOG = """\
Standard output carries JSON lines only. Generated tokens are provisional until the accounting record,
which comes last and only on success. Errors are one line on standard error.

exit codes:
  0 success, 1 internal error, 2 wrong option or input, 3 memory budget, 4 not the pinned file,
  5 not a usable model, 6 output cannot be written, 7 engine fault, 8 deadline,
  11 a replay differs from its receipt, 130 interrupted
"""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the modes by name, None where not given; `--help` prints them and exits."""
    given, words = read_words(arguments, OPTIONS, _help)
    if words:
        raise InvalidInputError("an argument belongs to no option")
    return given


def read_words(
    arguments: Sequence[str], groups: Mapping[str, Sequence[Option]], show_help: Callable[[], None]
) -> tuple[argparse.Namespace, list[str]]:
    """The values of options by name, None where not given, and the words that belong to no option.

    The word after an option is its value, whatever it looks like; argparse cannot read `--prompt --`.
    """
    options = {option.flag: option for group in groups.values() for option in group}
    given = argparse.Namespace(**{option.name: None for option in options.values()})
    words: list[str] = []
    rest = iter(arguments)
    for word in rest:
        flag, equals, joined = word.partition("=")
        if word in ("-h", "--help"):
            show_help()
            raise SystemExit(0)
        if flag not in options:
            if word.startswith("-"):
                raise InvalidInputError(_unknown(flag))
            words.append(word)
            continue
        options[flag].store(given, _value(options[flag], joined if equals else None, rest))
    return given, words


def _value(option: Option, joined: str | None, rest: Iterator[str]) -> str:
    """The option's value: joined to it, or the next word; for a switch, its own name."""
    if not option.metavar:
        if joined is not None:
            raise InvalidInputError(f"{option.flag} takes no value")
        return option.name
    value = next(rest, None) if joined is None else joined
    if value is None:
        raise InvalidInputError(f"{option.flag}: expected one argument")
    return value


def _unknown(flag: str) -> str:
    if flag == "--capabilities":
        return "--capabilities takes no other option"
    named = flag.startswith("--") and flag[2:].replace("-", "").isalnum()
    return f"there is no option {flag}" if named else "an argument belongs to no option"


def _help() -> None:
    parser = Parser(
        prog="prism-inference",
        usage="prism-inference [option ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    print_help(parser, OPTIONS)


def print_help(parser: Parser, groups: Mapping[str, Sequence[Option]]) -> None:
    """Print the parser's help with all options."""
    for title, options in groups.items():
        group = parser.add_argument_group(title)
        for option in options:
            if not option.metavar:
                group.add_argument(option.flag, action="store_true", help=option.help)
            else:
                group.add_argument(option.flag, metavar=option.metavar, help=option.help)
    parser.print_help()
