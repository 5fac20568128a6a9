"""Events of a cluster, against a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from katib.model.types import Experiment, ObjectMeta
from katib.places.cluster.client import ApiConnection, RequestInfo
from katib.places.cluster.store import KubernetesEvents
from katib.places.cluster.store import events as events_module
from tests.support.api_server import ApiServer
from tests.support.clock import VirtualClock
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

NAMESPACE = "store-test-events"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"


@pytest.fixture
def connection(api_server: ApiServer) -> Iterator[ApiConnection]:
    api_server.namespace(NAMESPACE)
    api_server.admin.request("DELETE", EVENTS)
    with api_server.connect() as connection:
        yield connection


@pytest.fixture
def writes(connection: ApiConnection) -> list[str]:
    told: list[str] = []
    connection.observe(lambda info, _status: told.append(info.verb) if is_event(info) else None)
    return told


def is_event(info: RequestInfo) -> bool:
    return info.resource == "events" and info.is_write


def experiment(name: str = "a", namespace: str = NAMESPACE) -> Experiment:
    return Experiment(metadata=ObjectMeta(name=name, namespace=namespace, uid="0b0e1a1c-0000-4000-8000-000000000000"))


def kept(connection: ApiConnection) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = connection.request("GET", EVENTS)["items"]
    return sorted(items, key=lambda item: str(item["reason"]))


def test_an_event_names_its_object_as_kubectl_describe_wants_it(connection: ApiConnection) -> None:
    events = KubernetesEvents(connection, "katib-controller")
    events.start()
    events.record(experiment(), warning=True, reason="Failed", message="x" * 2000)
    events.stop()

    (event,) = kept(connection)
    about = {name: event["involvedObject"][name] for name in ("apiVersion", "kind", "namespace", "name")}
    assert about == {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "namespace": NAMESPACE, "name": "a"}
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "Failed", 1)
    assert event["source"] == {"component": "katib-controller"}
    assert event["message"] == "x" * 1021 + "..."
    assert event["firstTimestamp"] == event["lastTimestamp"]


def test_what_repeats_is_counted_with_few_writes(
    connection: ApiConnection, writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "REPEAT_SECONDS", 0.5)
    events = KubernetesEvents(connection, "katib-controller")
    events.start()
    for _ in range(50):
        events.record(experiment(), warning=False, reason="Again", message="the same")
    eventually(lambda: [event["count"] for event in kept(connection)] == [50])
    events.record(experiment(), warning=False, reason="Again", message="another")
    events.record(experiment("b"), warning=False, reason="Again", message="the same")
    events.stop()

    assert sorted(event["count"] for event in kept(connection)) == [1, 1, 50]
    assert writes.count("create") == 3
    assert writes.count("patch") <= 5


def test_an_event_that_the_server_forgot_is_written_anew(
    connection: ApiConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "REPEAT_SECONDS", 0.0)
    events = KubernetesEvents(connection, "katib-controller")
    events.start()
    events.record(experiment(), warning=False, reason="Again", message="the same")
    eventually(lambda: len(kept(connection)) == 1)
    connection.request("DELETE", EVENTS)
    events.record(experiment(), warning=False, reason="Again", message="the same")
    events.stop()

    assert [event["count"] for event in kept(connection)] == [1]


def test_what_cannot_be_written_is_dropped_and_the_rest_goes_on(
    connection: ApiConnection, caplog: pytest.LogCaptureFixture
) -> None:
    events = KubernetesEvents(connection, "katib-controller")
    events.start()
    events.record(experiment(namespace="store-test-nowhere"), warning=False, reason="Lost", message="m")
    events.record(experiment(), warning=False, reason="Kept", message="m")
    events.stop()

    assert [event["reason"] for event in kept(connection)] == ["Kept"]
    assert "namespace store-test-nowhere: not found" in caplog.text


@pytest.mark.slow
def test_an_outage_delays_events_and_loses_none(api_server: ApiServer, connection: ApiConnection) -> None:
    events = KubernetesEvents(connection, "katib-controller")
    events.start()
    api_server.stop()
    started = time.monotonic()
    for number in range(20):
        events.record(experiment(), warning=False, reason=f"R{number:02}", message="m")
    assert time.monotonic() - started < 30
    api_server.start()

    eventually(lambda: len(kept(connection)) == 20)
    events.stop()


def test_recording_is_bounded_when_nobody_writes(connection: ApiConnection) -> None:
    events = KubernetesEvents(connection, "katib-controller", VirtualClock())
    for number in range(3_000):
        events.record(experiment(), warning=False, reason="Many", message=str(number))

    assert len(events._waiting) == 2_000
    assert events._waiting.all()[-1].message == "2999"
