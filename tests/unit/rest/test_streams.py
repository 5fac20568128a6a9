"""Server-sent events: what they say, how they continue, how they end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.errors import UnavailableError
from tests.support.golden import Golden
from tests.support.tuning import KEPT_CHANGES, MemoryTuningService, condition, make_experiment, make_trial
from tests.support.waiting import eventually

CHANGES = "/api/v1/namespaces/default/experiments/demo/changes"
Event = dict[str, str]


def events(lines: Iterator[str]) -> Iterator[Event]:
    event: Event = {}
    for line in lines:
        if line:
            key, _, value = line.partition(": ")
            event[key] = value
        elif event:
            yield event
            event = {}


def test_the_stream_opens_with_everything_as_it_is(http: httpx.Client) -> None:
    with http.stream("GET", f"{CHANGES}?timeoutSeconds=0.3") as answer:
        seen = [e for e in events(answer.iter_lines()) if "event" in e]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [e["event"] for e in seen] == ["ADDED"] * 4
    assert json.loads(seen[0]["data"])["object"]["metadata"]["name"] == "demo"


def test_a_reconnected_client_gets_what_it_missed_and_nothing_twice(
    http: httpx.Client, service: MemoryTuningService
) -> None:
    with http.stream("GET", f"{CHANGES}?timeoutSeconds=0.3") as answer:
        last = [e["id"] for e in events(answer.iter_lines()) if "id" in e][-1]
    service.put(make_experiment("demo", condition("Running")))
    with http.stream("GET", CHANGES, headers={"last-event-id": last}) as answer:
        seen = events(answer.iter_lines())
        first = next(e for e in seen if "event" in e)
        service.delete("default", "demo")
        rest = [e["event"] for e in seen if "event" in e]

    assert first["event"] == "MODIFIED"
    assert set(rest) == {"DELETED", "end"}


def test_a_place_that_is_no_longer_kept_starts_over(http: httpx.Client, service: MemoryTuningService) -> None:
    with http.stream("GET", f"{CHANGES}?timeoutSeconds=0.3") as answer:
        last = [e["id"] for e in events(answer.iter_lines()) if "id" in e][-1]
    for count in range(KEPT_CHANGES + 1):
        service.put(make_experiment("demo", trials=count + 10))
    with http.stream("GET", f"{CHANGES}?timeoutSeconds=0.3", headers={"last-event-id": last}) as answer:
        seen = [e for e in events(answer.iter_lines()) if "event" in e]

    assert [e["event"] for e in seen] == ["ADDED"] * 4


def test_the_stream_ends_with_the_experiment(http: httpx.Client, service: MemoryTuningService) -> None:
    with http.stream("GET", CHANGES) as answer:
        stream = events(answer.iter_lines())
        first = next(e for e in stream if "event" in e)
        service.delete("default", "demo")
        seen = [e["event"] for e in stream]

    assert first["event"] == "ADDED"
    assert seen[-2:] == ["DELETED", "end"]


def test_an_error_in_mid_stream_is_an_event(
    http: httpx.Client, service: MemoryTuningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_kwargs: object) -> Iterator[None]:
        raise UnavailableError("the disk is full")
        yield

    monkeypatch.setattr(service, "_on_changes", fail)
    with http.stream("GET", CHANGES) as answer:
        seen = [e for e in events(answer.iter_lines()) if "event" in e]

    assert [e["event"] for e in seen] == ["problem"]
    assert json.loads(seen[0]["data"])["detail"] == "the disk is full"


def test_output_that_cannot_go_on_is_cut_off_and_the_log_says_why_in_a_line(
    http: httpx.Client,
    service: MemoryTuningService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    golden: Golden,
) -> None:
    def fail(*_args: object, **_options: object) -> Iterator[bytes]:
        yield b"first"
        raise UnavailableError("the node is gone")

    monkeypatch.setattr(service, "_on_logs", fail)
    with pytest.raises(httpx.RemoteProtocolError):
        http.get("/api/v1/namespaces/default/trials/demo-0000/logs")

    eventually(lambda: len(caplog.messages) == 2)
    golden(caplog.messages[0])
    assert "Traceback" not in caplog.text


def test_a_missing_experiment_is_a_problem_and_no_stream(http: httpx.Client) -> None:
    answer = http.get(CHANGES.replace("demo", "ghost"))

    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")


def test_silence_is_broken_by_comments(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("katib.doors.rest.streams.HEARTBEAT_SECONDS", 0.25)
    with http.stream("GET", CHANGES) as answer:
        assert next(line for line in answer.iter_lines() if line.startswith(":"))


def test_a_stream_outlives_the_slices_in_which_it_waits(
    http: httpx.Client, service: MemoryTuningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("katib.doors.rest.streams.SLICE_SECONDS", 0.05)
    with http.stream("GET", f"{CHANGES}?timeoutSeconds=1") as answer:
        seen = [e["event"] for e in events(answer.iter_lines()) if "event" in e]

    assert seen == ["ADDED"] * 4


def test_stopping_the_server_ends_its_streams(service: MemoryTuningService) -> None:
    server = Server(service, host="127.0.0.1", port=0)
    with HttpTuningService(server.url) as client:
        changes = client.changes("default", "demo")
        next(changes)
        began = time.monotonic()
        stopper = threading.Thread(target=server.close)
        stopper.start()
        with pytest.raises(UnavailableError, match="ended the stream"):
            list(changes)
        stopper.join()

    assert time.monotonic() - began < 30


def test_the_thread_of_a_stream_ends_with_its_reader(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("katib.doors.rest.streams.SLICE_SECONDS", 0.1)
    others = _stream_threads()
    with http.stream("GET", CHANGES) as answer:
        lines = answer.iter_lines()  # kept: a forgotten iterator closes the connection
        next(line for line in lines if line.startswith("event"))  # the first line comes before there is a thread
        (mine,) = _stream_threads() - others

    eventually(lambda: not mine.is_alive())


def test_a_silent_log_is_let_go_when_its_reader_leaves(http: httpx.Client, service: MemoryTuningService) -> None:
    others = _stream_threads()
    service.put(make_trial("slow", condition("Running")))
    service.write_log("default", "slow", b"first\n")
    with http.stream("GET", "/api/v1/namespaces/default/trials/slow/logs?follow=true") as answer:
        chunks = answer.iter_bytes()  # kept: a forgotten iterator closes the connection
        next(chunks)
        (mine,) = _stream_threads() - others

    eventually(lambda: not mine.is_alive())


def _stream_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "katib-stream"}
