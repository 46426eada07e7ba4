from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.running import Running, running
from tests.server.scripted import Script, ScriptedBackend


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[ScriptedBackend, Running]]:
    """One server for a whole module."""
    backend = ScriptedBackend()
    with running(backend) as server:
        yield backend, server


@pytest.fixture
def backend(shared: tuple[ScriptedBackend, Running]) -> Iterator[ScriptedBackend]:
    """The backend of the module's server, with its script reset before and after the test."""
    backend, _ = shared
    backend.scripts[:] = [Script()]
    backend.played.clear()
    yield backend
    backend.scripts[:] = [Script()]
    backend.reasoning = "off"


@pytest.fixture
def port(shared: tuple[ScriptedBackend, Running], backend: ScriptedBackend) -> int:  # noqa: ARG001
    """The port of the module's server."""
    return shared[1].port
