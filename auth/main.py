"""The command `prism-inference-key`: makes a new key file that only its owner may read.

It refuses to overwrite, and shows the key only when asked to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from auth.errors import AuthError
from auth.key_file import write_key_file
from auth.keys import Key


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 9 when no key file could be made."""
    parser = argparse.ArgumentParser(
        prog="prism-inference-key",
        description="Make a new random key for prism-inference-server, in a file of mode 0600.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, help="the file to create; an existing one is never overwritten")
    parser.add_argument(
        "--print", dest="show", action="store_true", help="also print the key on standard output"
    )
    options = parser.parse_args(arguments)
    key = Key.generate()
    try:
        write_key_file(options.file, key)
    except AuthError as error:
        print(f"prism-inference-key: {error}", file=sys.stderr)
        return 9
    if options.show:
        print(key.reveal())
    else:
        print(f"prism-inference-key: wrote a new key to {options.file}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
