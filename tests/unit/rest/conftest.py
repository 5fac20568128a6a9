from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.service.tuning.service import TuningService
from tests.support.tuning import MemoryTuningService, document


@pytest.fixture
def service() -> MemoryTuningService:
    """A service in which the experiment `demo` ran three trials."""
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    return service


class Current:
    """Stands for the service of the test that runs, so that all tests share a server, which takes long to start."""

    service: MemoryTuningService

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service, name)


@pytest.fixture(scope="session")
def current() -> Current:
    return Current()


@pytest.fixture(scope="session")
def shared_server(current: Current) -> Iterator[Server]:
    with Server(cast("TuningService", current), host="127.0.0.1", port=0) as running:
        yield running


@pytest.fixture
def server(shared_server: Server, current: Current, service: MemoryTuningService) -> Server:
    current.service = service
    return shared_server


@pytest.fixture(scope="session")
def shared_http(shared_server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, trust_env=False) as client:
        yield client


@pytest.fixture
def http(server: Server, shared_http: httpx.Client) -> httpx.Client:
    shared_http.cookies.clear()
    return shared_http
