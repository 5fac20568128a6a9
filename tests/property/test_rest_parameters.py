"""Parameters of routes in any digits that people write: refused as wrong, never a bug of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from katib.doors.rest.server import Server
from tests.support.page_routes import rest_paths
from tests.support.tuning import MemoryTuningService, document

FREE_TEXT = {"namespace", "metric", "source", "last-event-id", "replica", "container", "command"}
"""Any text is right there, or no number is meant."""


def parameters() -> list[tuple[str, str, str]]:
    """Return the method, path and name of each query parameter that is not just any text."""
    return [
        (method, path, parameter["name"])
        for path, methods in rest_paths().items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter["name"] not in FREE_TEXT
    ]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    with (
        Server(service, host="127.0.0.1", port=0) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        yield client


def test_there_are_parameters_to_try() -> None:
    names = {name for _, _, name in parameters()}

    assert names >= {"limit", "cursor", "tail", "follow", "state", "order", "timeoutSeconds"}


@pytest.mark.parametrize(("method", "path", "name"), parameters())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(digits=st.text(st.characters(categories=["Nd", "Nl", "No"], min_codepoint=0x80), min_size=1, max_size=20))
def test_odd_digits_are_refused(http: httpx.Client, method: str, path: str, name: str, digits: str) -> None:
    place: dict[str, Any] = {"namespace": "default", "name": "demo-0000" if "/trials/{name}" in path else "demo"}
    answer = http.request(method, path.format(**place), params={name: digits})

    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
