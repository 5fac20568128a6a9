"""What becomes of pods that are refused or start in a gap, and that a common start leaves no warning."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.support.pod_cluster import CORE, PodCluster, Room, condition_of, experiment, python_job, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

CONTROLLERS = "katib.kubeflow.org/component=controller"


def warnings_of(cluster: PodCluster, namespace: str, reason: str) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/{namespace}/events"
    found = cluster.connection.request("GET", path, query={"fieldSelector": f"reason={reason}"})
    return list(found["items"])


def test_a_pod_that_can_never_be_collected_from_fails_its_trial_at_once(room: Room) -> None:
    job = python_job("print('loss=1')")
    job["spec"]["template"]["spec"]["os"] = {"name": "windows"}
    room.apply(experiment("refused", job, trials=1, parallel=1, template={"retain": True}))

    room.ended("refused", 60, state="Failed")
    (trial,) = room.trials("refused")
    failed = condition_of(trial, "Failed")
    assert failed["reason"] == "TrialPodsRefused"
    assert "spec.os.name: windows" in failed["message"]
    wait_for(lambda: not room.cluster.items("jobs", room.namespace), "its job to be gone", 30, room.picture)


def assert_quiet_starts(cluster: PodCluster, namespace: str, pods: list[dict[str, Any]]) -> None:
    """Assert that no probe of a pod failed while it started, unless the machine was so busy that it took too long."""
    assert pods
    warnings = warnings_of(cluster, namespace, "Unhealthy")
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        (status,) = pod["status"]["containerStatuses"]
        started = datetime.fromisoformat(status["state"]["running"]["startedAt"])
        ready = datetime.fromisoformat(condition_of(pod, "Ready")["lastTransitionTime"])
        told = [w["message"] for w in warnings if w["involvedObject"].get("uid") == pod["metadata"]["uid"]]
        probe = container.get("startupProbe") or {}
        usual = probe.get("initialDelaySeconds", 0) + 1
        if "exec" in probe or (ready - started).total_seconds() <= usual:  # a command waits
            assert [message for message in told if message.startswith("Startup")] == []


def test_the_start_of_a_suggestion_service_leaves_no_warning_of_a_probe(room: Room) -> None:
    job = python_job("print('loss=1')")
    room.apply(experiment("calm", job, trials=1, parallel=1, resumePolicy="LongRunning"))
    room.ended("calm")

    pods = room.cluster.items("pods", room.namespace, "katib.kubeflow.org/deployment=calm-random")
    assert_quiet_starts(room.cluster, room.namespace, pods)


def test_the_start_of_the_controllers_left_no_warning_of_a_probe(cluster: PodCluster) -> None:
    assert_quiet_starts(cluster, CORE, cluster.items("pods", CORE, CONTROLLERS))


@pytest.mark.alone
def test_pods_that_start_while_the_controllers_are_replaced_get_their_collector(room: Room) -> None:
    """Every trial's pod does, at once: none is found without one and replaced."""
    room.apply(experiment("upgraded", python_job("import time; time.sleep(1); print('loss=1')"), trials=12, parallel=3))
    wait_for(lambda: room.trials("upgraded"), "trials", 60, room.picture)
    room.cluster.run("rollout", "restart", "deployment/katib-controller", "-n", CORE)
    room.cluster.run("rollout", "status", "deployment/katib-controller", "-n", CORE, "--timeout=180s")

    assert room.ended("upgraded", 240)["status"]["trialsSucceeded"] == 12
    assert warnings_of(room.cluster, room.namespace, "PodWithoutCollector") == []
