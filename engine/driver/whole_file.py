"""A file that appears whole when its writer succeeds, and not at all when it fails.

It grows under another name in the same folder and replaces an older file only at the end.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from engine.errors import InvalidInputError
from engine.paths import openable


@contextmanager
def whole_file(path: Path, flag: str) -> Iterator[BinaryIO]:
    """The file to write to, open before the work begins; `flag` names the option in messages.

    Raises `InvalidInputError` if there can be no such file, and the `OSError` of a failed write.
    """
    try:
        place = openable(path)
        if place.is_symlink():
            place = place.resolve()
        if place.exists() and not place.is_file():
            raise InvalidInputError(f"{flag}: there is something else than a file", flag[2:])
        unfinished = place.with_name(f"{place.name}.{secrets.token_hex(4)}.unfinished")
        file = unfinished.open("xb")
    except OSError as error:
        raise InvalidInputError(f"{flag}: {error.strerror or error}", flag[2:]) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(place)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
