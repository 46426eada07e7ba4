"""The command `prism-inference-server`: options, key, socket, then the service until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path

from auth.errors import AuthError, KeyFileError
from auth.key_file import read_key_file, read_key_stream
from auth.keys import Key
from engine.errors import InvalidInputError
from server import logs
from server.backend import Backend
from server.exit_codes import ExitCode
from server.listener import ListenError, bind
from server.model_backend import load_backend
from server.options import Options, parse_options
from server.records import take_standard_output
from server.service import Service, Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; return one of `ExitCode`."""
    if isinstance(sys.stderr, TextIOWrapper):  # whatever the system's encoding is
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        announce = take_standard_output()
        key = _key(options)
        listener = bind(options.host, options.port)
    except InvalidInputError as error:
        return _refuse(error, ExitCode.USAGE)
    except AuthError as error:
        return _refuse(error, ExitCode.KEY)
    except ListenError as error:
        return _refuse(error, ExitCode.LISTEN)
    except OSError as error:
        return _refuse(error, ExitCode.OUTPUT)
    log = logs.configure(sys.stderr)
    settings = Settings(
        host=options.host,
        key=key,
        origins=options.origins,
        limits=options.limits,
        model_id=partial(_model_id, options),
    )
    service = Service(settings, listener, partial(load_backend, options.model), announce)
    code = asyncio.run(service.run())
    log.finish()
    if service.busy:  # threads that cannot be interrupted must not delay the end
        os._exit(code)
    return code


def _key(options: Options) -> Key:
    if options.key_file is not None:
        return read_key_file(options.key_file)
    if sys.stdin is None:
        raise KeyFileError("standard input is closed; there is no key to read")
    return read_key_stream(sys.stdin.buffer)


def _refuse(error: Exception, code: ExitCode) -> int:
    print(f"prism-inference-server: {error}", file=sys.stderr)
    return code


def _model_id(options: Options, backend: Backend) -> str:
    """The name given, or the file's own if it is presentable, or the name of the file."""
    own = backend.facts.name
    presentable = 1 <= len(own) <= 128 and own.isprintable()
    return options.model_id or (own if presentable else Path(options.model.pin.path).stem)


if __name__ == "__main__":
    sys.exit(main())
