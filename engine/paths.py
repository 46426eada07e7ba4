"""The paths that users give, in the form in which the system opens them, whatever their length.

Every open of a path from a command line or a manifest goes through here. It opens nothing itself, and it
imports nothing but the standard library.
"""

from __future__ import annotations

import errno
import ntpath
import os
import sys
from pathlib import Path

LONGEST = 247  # characters that Windows takes without the long form, also for a folder


def openable(path: Path) -> Path:
    """`path` as the system wants it; `OSError` if the system's encoding lacks some of its characters."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "the system's encoding lacks characters of this path") from None
    return Path(long_form(str(path), sys.platform))


def long_form(path: str, platform: str) -> str:
    r"""On Windows, `\\?\` and the absolute path if that is too long for the usual form; else `path`.

    The form has no limit of 260 characters, but Windows takes it literally: it must be absolute, with
    backslashes alone and without `.` and `..`.
    """
    if platform != "win32":
        return path
    full = ntpath.abspath(path)
    if len(full) <= LONGEST or full.startswith(("\\\\?\\", "\\\\.\\")):
        return path
    return "\\\\?\\UNC" + full[1:] if full.startswith("\\\\") else "\\\\?\\" + full
