"""What happens to pods, machines and databases in real life, and what becomes of experiments meanwhile."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from katib.model.names import TRIAL_LABEL
from tests.support.pod_cluster import (
    CORE,
    GONE_SECONDS,
    IMAGE,
    Json,
    Room,
    condition_of,
    experiment,
    is_true,
    python_job,
    wait_for,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = """
import os, time
for step in range(8):
    print('loss=' + str(float(os.environ['lr']) + 1 / (step + 1)))
    time.sleep(0.5)
"""


def container_of(job: Json) -> Json:
    container: Json = job["spec"]["template"]["spec"]["containers"][0]
    return container


def told(room: Room, name: str, condition: str, reason: str) -> str:
    """Return what a trial's condition says once it has this reason."""
    for trial in room.trials(name):
        found = condition_of(trial, condition)
        if found.get("reason") == reason:
            return str(found["message"])
    return ""


def trial_pods(room: Room) -> list[Json]:
    return room.cluster.items("pods", room.namespace, "katib.kubeflow.org/trial")


def core_pods(room: Room, component: str) -> list[Json]:
    return room.cluster.items("pods", CORE, f"katib.kubeflow.org/component={component}")


def readings(room: Room, name: str) -> list[dict[str, Any]]:
    return [m for t in room.trials(name) for m in t["status"]["observation"]["metrics"] if m["name"] == "loss"]


def test_a_pod_that_is_deleted_runs_again_and_its_trial_succeeds(room: Room) -> None:
    room.apply(experiment("lost", python_job(STEPS, backoffLimit=4), trials=2, parallel=2))
    wait_for(lambda: [p for p in trial_pods(room) if p["status"].get("phase") == "Running"], "a pod to run", 60)
    victim = trial_pods(room)[0]["metadata"]["name"]
    room.cluster.run("delete", "pod", victim, "-n", room.namespace, "--wait=false")

    assert room.ended("lost")["status"]["trialsSucceeded"] == 2


def test_a_container_that_runs_out_of_memory_is_said_to_have(room: Room) -> None:
    """A busy kubelet may miss why a container was killed, and then says no more than its exit code: two tries may."""
    job = python_job("x = bytearray(200 << 20); print('loss=1', len(x))", backoffLimit=2)
    container_of(job)["resources"] = {"limits": {"memory": "40Mi"}}
    room.apply(experiment("hungry", job, trials=1, parallel=1))

    def retried() -> str:
        message = told(room, "hungry", "Running", "TrialRetrying")
        return message if "ran out of memory" in message else ""

    message = wait_for(retried, "the next try", 90, room.picture)
    assert re.search(r"ran out of memory; raise its memory limit; try [23] of 3$", message)
    room.ended("hungry", state="Failed")
    (trial,) = room.trials("hungry")
    assert re.search(
        "ran out of memory; raise its memory limit|exit code 137", condition_of(trial, "Failed")["message"]
    )


def test_an_image_that_is_nowhere_stands_in_the_trial_s_condition(room: Room) -> None:
    job = python_job("print('loss=1')")
    container_of(job)["image"] = "nowhere.invalid/no/such:1"
    room.apply(experiment("imageless", job, trials=1, parallel=1))

    def refused() -> str:
        message = told(room, "imageless", "Running", "TrialWaiting")
        return message if message.endswith("cannot be pulled") else ""

    message = wait_for(refused, "the reason", 90, room.picture)
    assert 'image "nowhere.invalid/no/such:1" of container training-container' in message


def test_an_image_that_takes_long_stands_in_the_trial_s_condition(room: Room) -> None:
    """Its registry takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as registry:
        image = f"localhost:{registry.getsockname()[1]}/slow:1"
        job = python_job("print('loss=1')")
        container_of(job)["image"] = image
        room.apply(experiment("slow", job, trials=1, parallel=1))

        message = wait_for(lambda: told(room, "slow", "Running", "TrialWaiting"), "the reason", 90, room.picture)
        assert re.search(rf'^Trial waits: pod slow-\S+ pulls image "{image}" since \d{{4}}-\S+Z$', message)


def test_the_cause_of_a_failure_is_that_of_the_last_try_that_ended_by_itself(room: Room) -> None:
    """The controller of a Job ends the try that follows the last one it allows, which is no failure of its own."""
    script = "import time\nprint('loss=1', flush=True)\ntime.sleep(3)\nraise SystemExit('CUDA out of memory')"
    job = python_job(script, backoffLimit=2)
    job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    cause = "CUDA out of memory (exit code 1)"
    room.apply(experiment("restarted", job, trials=1, parallel=1, maxFailedTrialCount=0))

    retried = wait_for(lambda: told(room, "restarted", "Running", "TrialRetrying"), "a restart", 90, room.picture)
    room.ended("restarted", state="Failed")
    events = room.cluster.run("get", "events", f"--namespace={room.namespace}", "-o", "json")
    failed = [event["message"] for event in json.loads(events)["items"] if event["reason"] == "JobFailed"]

    assert re.search(rf": {re.escape(cause)}; try [23] of 3$", retried)
    assert told(room, "restarted", "Failed", "TrialFailed") == f"Trial has failed: {cause}"
    assert len(failed) == 1
    assert re.fullmatch(rf"Job \S+ has failed: {re.escape(cause)}; [^.]+ \(BackoffLimitExceeded\)\.", failed[0])


def test_a_pod_that_fits_nowhere_stands_in_the_trial_s_condition(room: Room) -> None:
    job = python_job("print('loss=1')")
    container_of(job)["resources"] = {"requests": {"cpu": "1000"}}
    room.apply(experiment("giant", job, trials=1, parallel=1))

    message = wait_for(lambda: told(room, "giant", "Running", "TrialWaiting"), "the reason", 60, room.picture)
    assert "cannot be scheduled" in message
    assert "Insufficient cpu" in message


def test_a_missing_metric_is_explained_by_the_collector(room: Room) -> None:
    room.apply(experiment("mistaken", python_job("print('accuracy=0.9')"), trials=1, parallel=1))

    room.ended("mistaken", state="Failed")
    (trial,) = room.trials("mistaken")
    assert 'none matched "loss"' in condition_of(trial, "MetricsUnavailable")["message"]


KILL_COLLECTOR = """
import os, signal, time
print('loss=0.5', flush=True)
time.sleep(4)
for pid in filter(str.isdigit, os.listdir('/proc')):
    if b'metrics_collector' in open(f'/proc/{pid}/cmdline', 'rb').read().split(b'\\0'):
        os.kill(int(pid), signal.SIGKILL)
print('loss=0.25', flush=True)
"""
"""A program that sees its collector, because its pod shares processes, and ends it."""


def test_a_collector_that_is_killed_loses_no_reading(room: Room) -> None:
    """It is a native sidecar: started again, it continues where it was."""
    job = python_job(KILL_COLLECTOR)
    job["spec"]["template"]["spec"]["shareProcessNamespace"] = True
    room.apply(experiment("killed", job, trials=1, parallel=1))

    room.ended("killed")

    assert [(reading["max"], reading["latest"]) for reading in readings(room, "killed")] == [("0.5", "0.25")]


PROXY = {
    "name": "proxy",
    "image": IMAGE,
    "imagePullPolicy": "IfNotPresent",
    "restartPolicy": "Always",
    "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"],
}


def test_another_native_sidecar_holds_up_no_trial(room: Room) -> None:
    grace_seconds = 90
    job = python_job("print('loss=1')")
    job["spec"]["template"]["spec"].update(initContainers=[PROXY], terminationGracePeriodSeconds=grace_seconds)
    room.apply(experiment("meshed", job, trials=1, parallel=1, template={"retain": True}))

    room.ended("meshed")
    (pod,) = [pod for pod in room.pods() if TRIAL_LABEL in pod["metadata"].get("labels", {})]
    status = pod["status"]
    ends = [
        datetime.fromisoformat(one["state"]["terminated"]["finishedAt"])
        for one in [*status["containerStatuses"], *status["initContainerStatuses"]]
    ]
    assert (max(ends) - min(ends)).total_seconds() < grace_seconds / 3


@pytest.mark.alone
def test_a_controller_that_is_killed_again_and_again_loses_no_trial(room: Room) -> None:
    room.apply(experiment("stubborn", python_job(STEPS, backoffLimit=4), trials=6, parallel=3))
    for _ in range(4):
        time.sleep(2)
        for pod in core_pods(room, "controller"):
            room.cluster.run(
                "delete", "pod", pod["metadata"]["name"], "-n", CORE, "--force", "--grace-period=0", check=False
            )

    assert room.ended("stubborn", 240)["status"]["trialsSucceeded"] == len(room.trials("stubborn")) == 6
    assert len(readings(room, "stubborn")) == 6


@pytest.fixture
def other_room(room: Room) -> Iterator[Room]:
    """A second namespace, which may hold experiments."""
    other = room.cluster.make_namespace(f"{room.namespace}-2")
    yield other
    room.cluster.run("delete", "namespace", other.namespace, "--wait=false", "--ignore-not-found")


def two_run(room: Room, name: str) -> None:
    """Wait until two trials run."""
    wait_for(lambda: sum(is_true(t, "Running") for t in room.trials(name)) == 2, "two trials to run", 60, room.picture)


@pytest.mark.alone
def test_while_the_database_is_away_readings_wait_and_an_experiment_can_be_deleted(
    room: Room, other_room: Room
) -> None:
    endless = "import time\nprint('loss=1', flush=True)\ntime.sleep(600)"
    other_room.apply(experiment("alone", python_job(endless), trials=4, parallel=2))
    two_run(other_room, "alone")
    room.apply(experiment("patient", python_job(STEPS), trials=2, parallel=2))
    two_run(room, "patient")
    scale = ("scale", "deployment", "katib-db-manager", "-n", CORE)
    room.cluster.run(*scale, "--replicas=0")
    began = time.monotonic()
    try:
        wait_for(lambda: not core_pods(room, "db-manager"), "the DB manager to be gone", GONE_SECONDS)

        other_room.delete("alone")

        wait_for(lambda: not other_room.left_over(), "everything to be gone", GONE_SECONDS, other_room.picture)
        time.sleep(max(0.0, 60 - (time.monotonic() - began)))  # the programs end meanwhile, and their pods wait
    finally:
        room.cluster.run(*scale, "--replicas=1")

    assert room.ended("patient", 200)["status"]["trialsSucceeded"] == 2
    for reading in readings(room, "patient"):
        assert float(reading["max"]) - float(reading["min"]) == pytest.approx(1 - 1 / 8)


@pytest.mark.alone
def test_a_broken_webhook_certificate_is_replaced(room: Room) -> None:
    room.cluster.run(
        "patch", "secret", "katib-webhook-cert", "-n", CORE, "--type=merge", "-p", '{"data":{"tls.crt":"AAAA"}}'
    )

    def is_mended() -> bool:
        secret = room.cluster.find("secret", "katib-webhook-cert", CORE)
        return secret is not None and secret["data"]["tls.crt"] != "AAAA"

    wait_for(is_mended, "a new certificate", 60)
    wrong = experiment("wrong", python_job("print('loss=1')"), trials=-1)
    wrong["metadata"]["namespace"] = room.namespace

    def answer() -> str:
        said = room.cluster.run("create", "-f", "-", stdin=json.dumps(wrong), check=False)
        return said if "spec.maxTrialCount" in said else ""

    assert wait_for(answer, "the webhook to answer again", 60)


def test_a_namespace_may_be_deleted_under_a_running_experiment(room: Room) -> None:
    room.apply(experiment("doomed", python_job(STEPS), trials=6, parallel=3))
    wait_for(lambda: trial_pods(room), "pods", 60)
    room.cluster.run("delete", "namespace", room.namespace, "--wait=false")

    wait_for(lambda: room.cluster.find("namespace", room.namespace) is None, "the namespace to be gone", 150)
