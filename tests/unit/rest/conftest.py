from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from katib.rest.server import Server
from tests.support.tuning import FakeTuningService, document


@pytest.fixture
def service() -> FakeTuningService:
    """A service in which the experiment `demo` ran three trials."""
    service = FakeTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    return service


@pytest.fixture
def server(service: FakeTuningService) -> Iterator[Server]:
    with Server(service, host="127.0.0.1", port=0) as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client
