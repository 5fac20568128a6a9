"""The connection that all pages of a browser share, without a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.service.tuning.service import Json
from tests.support.tuning import MemoryTuningService, condition, document, make_trial

RUNS = condition("Running", "TrialRunning", "Trial is running")
LIVE = "data/experiments/default/demo/live"
LOG = "api/v1/namespaces/default/trials/demo-run/logs?follow=true"


@pytest.fixture
def service() -> MemoryTuningService:
    made = MemoryTuningService()
    made.submit(document("demo"), source="demo.yaml")
    made.put(make_trial("demo-run", RUNS, index=10, x="0.7"))
    made.write_log("default", "demo-run", "größer\n".encode())
    return made


@pytest.fixture
def client(service: MemoryTuningService) -> Iterator[httpx.Client]:
    with (
        Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server,
        httpx.Client(base_url=f"{server.url}/katib/", trust_env=False, timeout=60) as made,
    ):
        yield made


def told(lines: Iterator[str]) -> Iterator[Json]:
    """Yield what the stream says of its parts."""
    for line in lines:
        if line.startswith("data: ") and line != "data: {}":
            yield json.loads(line.removeprefix("data: "))


def ask(client: httpx.Client, *close: str, **addresses: str) -> int:
    body = {"open": {key: {"address": address} for key, address in addresses.items()}, "close": close}
    return client.post("data/live/mine", json=body).status_code


def test_one_connection_carries_streams_and_logs_until_they_are_left(
    service: MemoryTuningService, client: httpx.Client
) -> None:
    with client.stream("GET", "data/live?id=mine") as answer:
        lines = answer.iter_lines()
        assert "event: ready" in [next(lines) for _ in range(3)]
        found = told(lines)
        assert ask(client, table=LIVE) == 204
        first = [next(found), next(found)]
        ask(client, "table", log=LOG)
        service.put(make_trial("demo-run", condition("Failed"), index=10))
        service.write_log("default", "demo-run", b"more\n")
        text = ""
        while "more" not in text:
            if (one := next(found))["to"] == "log":
                text += one["data"] or ""
            else:
                assert not text  # it was left before

    assert [one["name"] for one in first] == ["begin", "change"]
    assert first[1]["data"]["experiment"]["name"] == "demo"
    assert text == "größer\nmore\n"


def test_a_refusal_of_one_part_leaves_the_others(client: httpx.Client) -> None:
    with client.stream("GET", "data/live?id=mine") as answer:
        found = told(answer.iter_lines())
        ask(client, ghost="data/experiments/default/ghost/live")
        problem, over = next(found), next(found)
        ask(client, table=LIVE)

        assert (problem["name"], problem["data"]["reason"], over["name"]) == ("problem", "NotFound", "over")
        assert next(found)["to"] == "table"


@pytest.mark.parametrize("address", ["data/live?id=mine", "new", "../readyz", "data/experiments/default/demo/table"])
def test_only_streams_are_carried(client: httpx.Client, address: str) -> None:
    with client.stream("GET", "data/live?id=mine") as answer:
        lines = answer.iter_lines()  # kept: what reads a stream closes it when it goes
        next(lines)

        assert ask(client, other=address) == 422


def test_a_connection_that_there_is_not_cannot_be_changed(client: httpx.Client) -> None:
    assert ask(client, table=LIVE) == 404
