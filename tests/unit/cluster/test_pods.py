"""What a pod's status says about its trial."""

from __future__ import annotations

from typing import Any

import pytest

from katib.cluster.pods.reading import POD, PodFacts, TrialPods, facts_of
from katib.controllers.ports import NO_NEWS, PodNews
from katib.runtime.clock import SystemClock
from katib.runtime.objects import Key
from katib.stores.memory import MemoryStore
from tests.support.planning import trial
from tests.support.stores import eventually

UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def pod(name: str = "demo-1-x", *, trial_name: str = "demo-1", **status: Any) -> dict[str, Any]:
    labels = {"katib.kubeflow.org/trial": trial_name}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


def container(name: str = "main", last: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    return {"name": name, "image": "img:1", "state": state, "lastState": last or {}}


def terminated(code: int, reason: str = "Error", at: str = "2024-05-01T12:00:00Z", **fields: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at, **fields}}


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        ({"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ContainerCreating"})]}, ""),
        ({"phase": "Running", "containerStatuses": [container(running={})]}, ""),
        (
            {"containerStatuses": [container(waiting={"reason": "ErrImagePull"})]},
            'image "img:1" of container main in pod demo-1-x cannot be pulled',
        ),
        (
            {"containerStatuses": [container(waiting={"reason": "ImagePullBackOff"})]},
            'image "img:1" of container main in pod demo-1-x cannot be pulled',
        ),
        (
            {"initContainerStatuses": [container("init", waiting={"reason": "InvalidImageName"})]},
            'image "img:1" of container init in pod demo-1-x cannot be pulled',
        ),
        (
            {
                "containerStatuses": [
                    container(waiting={"reason": "CreateContainerConfigError", "message": "no secret"})
                ]
            },
            "container main in pod demo-1-x cannot be started: no secret",
        ),
        (
            {"containerStatuses": [container(last=terminated(3), waiting={"reason": "CrashLoopBackOff"})]},
            "container main in pod demo-1-x ended with exit code 3 and is restarted with growing pauses",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no cpu"}
                ]
            },
            "pod demo-1-x cannot be scheduled: no cpu",
        ),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], waiting: str) -> None:
    assert facts_of(pod(**status)).waiting == waiting


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        ({"containerStatuses": [container(**terminated(0, "Completed"))]}, ""),
        ({"containerStatuses": [container(**terminated(2))]}, "Container main in pod demo-1-x ended with exit code 2"),
        (
            {"containerStatuses": [container(**terminated(137, "OOMKilled"))]},
            "Container main in pod demo-1-x was killed because it ran out of memory; raise its memory limit",
        ),
        ({"containerStatuses": [container("metrics-logger-and-collector", **terminated(1))]}, ""),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "disk"},
            "Pod demo-1-x failed: Evicted: disk",
        ),
    ],
)
def test_how_a_pod_failed(status: dict[str, Any], failure: str) -> None:
    assert facts_of(pod(**status)).failure == failure


def test_the_collector_s_last_words_are_its_report() -> None:
    said = terminated(0, "Completed", message='3 lines, none matched "loss"\n')

    facts = facts_of(pod(containerStatuses=[container(), container("metrics-logger-and-collector", **said)]))

    assert facts.report == '3 lines, none matched "loss"'


def test_what_a_failed_program_printed_last_is_part_of_how_it_failed() -> None:
    said = terminated(0, "Completed", message="last output: ValueError: no data")
    statuses = [container(**terminated(1)), container("metrics-logger-and-collector", **said)]

    facts = facts_of(pod(containerStatuses=statuses))

    assert facts.failure == "Container main in pod demo-1-x ended with exit code 1; last output: ValueError: no data"
    assert facts.report == ""


def test_a_pod_without_status_says_nothing() -> None:
    bare = pod()
    del bare["status"]

    assert facts_of(bare) == PodFacts(Key("default", "demo-1"))


def test_news_follow_the_pods_and_a_failure_outlives_its_pod() -> None:
    store = MemoryStore(frozenset())
    pods = TrialPods(store, SystemClock())
    woken: list[Key] = []
    pods.on_change(woken.append)
    pods.informer.start()
    try:
        store.create(pod(containerStatuses=[container(**terminated(2))]))
        eventually(lambda: pods.news_of(trial("demo-1")).last_failure)
        store.delete(POD, Key("default", "demo-1-x"))
        eventually(lambda: not pods.has_pods(Key("default", "demo-1")))
        remembered = pods.news_of(trial("demo-1"))
        pods.forget(Key("default", "demo-1"))

        assert remembered == PodNews(last_failure="Container main in pod demo-1-x ended with exit code 2")
        assert pods.news_of(trial("demo-1")) == NO_NEWS
        assert set(woken) == {Key("default", "demo-1")}
    finally:
        pods.informer.stop()
