"""`prism-inference-server` for an owner who may die: it stops, as if asked to, when its standard input ends.

The owner holds the other end of a pipe and never writes. However the owner ends, the system closes the
pipe, on every system; no server stays behind. Takes the server's own options.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from server.main import main

STANDARD_INPUT = 0


def stop_with_owner() -> None:
    """Wait for the end of standard input, then ask this process to stop."""
    while os.read(STANDARD_INPUT, 1024):
        pass
    signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=stop_with_owner, name="owner", daemon=True).start()
    sys.exit(main())
