"""A connection to a server that answers what the test scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from katib.places.cluster.client import ApiConnection, open_connection
from tests.unit.cluster.client.scripted_server import ScriptedServer, serving


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving() as server:
        yield server


@pytest.fixture
def connection(server: ScriptedServer, tmp_path: Path) -> Iterator[ApiConnection]:
    with open_connection(server.kubeconfig(tmp_path)) as connection:
        yield connection
