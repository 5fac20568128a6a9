"""Reading pods: which replica each is, and how it is in the words of kubectl."""

from __future__ import annotations

from typing import Any

import pytest

from katib.errors import NotFoundError
from katib.service.tuning.replicas import (
    exit_words,
    find_replica,
    has_failed,
    newest_of_each,
    place_words,
    ready_words,
    replica_counts,
    replica_name,
    state_words,
    waiting_words,
)
from tests.support.golden import Golden
from tests.support.tuning import make_pod

TRAINING = "training.kubeflow.org"
JOB_SET = "jobset.sigs.k8s.io"
INDEX = "batch.kubernetes.io/job-completion-index"


def labelled(**parts: str) -> dict[str, Any]:
    return {"metadata": {"name": "the-pod", "labels": parts}}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(
            {f"{TRAINING}/replica-type": "Worker", f"{TRAINING}/replica-index": "1"}, "worker-1", id="training"
        ),
        pytest.param({f"{TRAINING}/replica-type": "launcher"}, "launcher", id="MPI launcher"),
        pytest.param({f"{TRAINING}/job-role": "launcher"}, "launcher", id="MPI operator"),
        pytest.param(
            {f"{JOB_SET}/replicatedjob-name": "node", f"{JOB_SET}/job-index": "0", INDEX: "3"}, "node-3", id="TrainJob"
        ),
        pytest.param(
            {
                f"{JOB_SET}/replicatedjob-name": "ps",
                f"{JOB_SET}/replicatedjob-replicas": "2",
                f"{JOB_SET}/job-index": "1",
                INDEX: "0",
            },
            "ps-1-0",
            id="JobSet of several jobs",
        ),
        pytest.param({INDEX: "4"}, "4", id="Indexed Job"),
        pytest.param({}, "the-pod", id="Job"),
    ],
)
def test_a_replica_is_named_by_its_role_and_index(labels: dict[str, str], expected: str) -> None:
    assert replica_name(labelled(**labels)) == expected


def test_a_wrong_name_is_answered_with_the_nearest_and_with_all(golden: Golden) -> None:
    pods = [make_pod("a", replica="master-0"), make_pod("b", replica="worker-0")]

    with golden.raises(NotFoundError):
        find_replica(pods, "wroker-0", "t")
    with pytest.raises(NotFoundError, match="it has none yet"):
        find_replica([], "worker-0", "t")
    assert find_replica(pods, "b", "t") == [pods[1]]


def test_the_newest_pod_of_a_replica_counts() -> None:
    old, new = make_pod("x", replica="worker-0", code=1), make_pod("x", replica="worker-0")

    assert newest_of_each([old, make_pod("m", replica="master-0"), new])[0] is new


WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
FAILED = {"terminated": {"exitCode": 3, "reason": "Error"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
RUNNING = {"running": {}}


def pod_of(*states: dict[str, Any], init: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [{"name": f"c{i}", "state": state, "ready": "running" in state} for i, state in enumerate(states)]
    inits = {"initContainerStatuses": [{"name": "init", "state": init}]} if init else {}
    spec = {"containers": [{"name": s["name"]} for s in statuses], "nodeName": "node-7"}
    return {"metadata": {}, "spec": spec, "status": {"containerStatuses": statuses, **inits, **status}}


@pytest.mark.parametrize(
    ("pod", "state", "ready"),
    [
        pytest.param(pod_of(RUNNING, phase="Running"), "Running", "1/1", id="running"),
        pytest.param(pod_of(RUNNING, DONE, phase="Running"), "Running", "1/2", id="half done"),
        pytest.param(pod_of(DONE, phase="Succeeded"), "Completed", "0/1", id="succeeded"),
        pytest.param(pod_of(DONE, FAILED, phase="Failed"), "Error", "0/2", id="failed"),
        pytest.param(pod_of(WAITING, phase="Running"), "CrashLoopBackOff", "0/1", id="restarting"),
        pytest.param(pod_of(init=FAILED, phase="Pending"), "Init:Error", "0/0", id="init failed"),
        pytest.param(pod_of(RUNNING, init=RUNNING, phase="Running"), "Running", "1/1", id="sidecar"),
        pytest.param(pod_of(phase="Failed", reason="Evicted"), "Evicted", "0/0", id="with a reason"),
        pytest.param(pod_of(phase="Pending"), "Pending", "0/0", id="pending"),
        pytest.param({"metadata": {"deletionTimestamp": "x"}}, "Terminating", "0/0", id="deleted"),
    ],
)
def test_the_state_of_a_pod_is_told_as_by_kubectl(pod: dict[str, Any], state: str, ready: str) -> None:
    assert (state_words(pod), ready_words(pod)) == (state, ready)


def test_exit_codes_name_their_signal() -> None:
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    hungry = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}

    assert exit_words(pod_of(FAILED)) == "3"
    assert exit_words(pod_of(killed)) == "137 (SIGKILL)"
    assert exit_words(pod_of(hungry)) == "137 (OOMKilled)"
    assert exit_words(pod_of(DONE, phase="Succeeded")) == "0"
    assert exit_words(pod_of(RUNNING, phase="Running")) == ""


def test_the_states_and_places_of_a_pod_are_read() -> None:
    assert has_failed(make_pod("a", code=143))
    assert not has_failed(make_pod("a", code=143, reason="Stopped"))

    assert place_words(make_pod("a")) == "pid 4711"
    assert place_words(make_pod("a", code=0)) == ""
    assert place_words(pod_of(RUNNING)) == "node-7"


def test_what_a_pod_waits_for_is_said_and_running_ones_counted() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "waits for 2 cpu"}

    assert waiting_words(pod_of(conditions=[unscheduled])) == "waits for 2 cpu"
    assert (
        waiting_words(pod_of({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}))
        == "no such image"
    )

    gang = [make_pod("g-0", "gang", replica="master-0"), make_pod("g-1", "gang", replica="worker-0", code=1)]

    assert replica_counts([*gang, make_pod("s-0", "single")]) == {"gang": "1/2"}
