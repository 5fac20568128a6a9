"""Experiments in pods, from the file that is applied to the best trial."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.pod_cluster import GONE_SECONDS, OURS, Room, condition_of, experiment, is_true, python_job, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

PARABOLA = """
import os
lr = float(os.environ['lr'])
for step in range(3):
    print(f'step {step}: loss={(lr - 0.5) ** 2 + 1 / (step + 1)}')
"""
SLOW = f"{PARABOLA}\nimport time\ntime.sleep(6)"


def assigned(trial: dict[str, Any]) -> float:
    return float(trial["spec"]["parameterAssignments"][0]["value"])


def metric(trial: dict[str, Any], name: str = "loss") -> dict[str, Any]:
    return next(m for m in trial["status"]["observation"]["metrics"] if m["name"] == name)


def running(room: Room, name: str) -> int:
    return sum(1 for trial in room.trials(name) if is_true(trial, "Running"))


def test_a_batch_job_is_tuned_by_what_it_prints(room: Room) -> None:
    room.apply(experiment("printed", python_job(PARABOLA), trials=3))

    ended = room.ended("printed")

    trials = room.trials("printed")
    best = min(trials, key=lambda t: abs(assigned(t) - 0.5))
    assert ended["status"]["trialsSucceeded"] == len(trials) == 3
    assert condition_of(ended, "Succeeded")["reason"] == "ExperimentMaxTrialsReached"
    assert ended["status"]["currentOptimalTrial"]["bestTrialName"] == best["metadata"]["name"]
    for trial in trials:
        loss = (assigned(trial) - 0.5) ** 2
        assert float(metric(trial)["min"]) == pytest.approx(loss + 1 / 3)
        assert float(metric(trial)["max"]) == pytest.approx(loss + 1)
    wait_for(
        lambda: not any(room.cluster.items(kind, room.namespace) for kind in ("jobs", "deployments")),
        "the jobs and the service to be removed",
        GONE_SECONDS,
        room.picture,
    )


def test_a_file_of_json_lines_is_read(room: Room) -> None:
    script = (
        "import json, os\n"
        "with open('/katib/metrics.json', 'w') as out:\n"
        "    for step in range(4):\n"
        "        print(json.dumps({'loss': float(os.environ['lr']) / (step + 1), 'epoch': str(step)}), file=out)"
    )
    collector = {
        "collector": {"kind": "File"},
        "source": {"fileSystemPath": {"path": "/katib/metrics.json", "kind": "File", "format": "JSON"}},
    }
    objective = {"type": "minimize", "objectiveMetricName": "loss", "additionalMetricNames": ["epoch"]}
    job = python_job(script)
    room.apply(experiment("lines", job, trials=2, metricsCollectorSpec=collector, objective=objective))

    room.ended("lines")

    assert len(room.trials("lines")) == 2
    for trial in room.trials("lines"):
        assert float(metric(trial)["latest"]) == pytest.approx(assigned(trial) / 4)
        assert metric(trial, "epoch")["max"] == "3"


def test_a_trial_that_does_worse_than_the_others_is_stopped_early(room: Room) -> None:
    """Every reading is worse than all earlier ones, so every trial but the first one is hopeless."""
    script = "import time\nfor step in range(3):\n    print(f'loss={time.time()}')\n    time.sleep(0.3)\ntime.sleep(20)"
    settings = [{"name": "min_trials_required", "value": "1"}, {"name": "start_step", "value": "2"}]
    stopping = {"algorithmName": "medianstop", "algorithmSettings": settings}
    room.apply(experiment("hopeless", python_job(script), trials=3, parallel=1, earlyStopping=stopping))

    ended = room.ended("hopeless")

    def stopped_and_observed() -> list[dict[str, Any]]:
        trials = [trial for trial in room.trials("hopeless") if is_true(trial, "EarlyStopped")]
        return trials if all("observation" in trial["status"] for trial in trials) else []

    stopped = wait_for(stopped_and_observed, "the observations of what was stopped", 30, room.picture)
    assert (ended["status"]["trialsSucceeded"], ended["status"]["trialsEarlyStopped"]) == (1, 2)
    assert len(stopped) == 2
    assert all(float(metric(trial)["latest"]) > 1e9 for trial in stopped)


def test_a_template_may_be_kept_in_a_config_map(room: Room) -> None:
    script = "print('loss=${trialParameters.lr}')"
    container = f"""
            - name: training-container
              image: docker.io/library/python:3.11-slim
              imagePullPolicy: IfNotPresent
              command: [python3, -c, "{script}"]"""
    text = f"""
apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      restartPolicy: Never
      containers:{container}
"""
    source = {"configMapName": "kept", "configMapNamespace": room.namespace, "templatePath": "job.yaml"}
    template = {
        "trialSpec": None,
        "configMap": source,
        "successCondition": 'status.conditions.#(type=="Complete")#|#(status=="True")#',
        "failureCondition": 'status.conditions.#(type=="Failed")#|#(status=="True")#',
    }
    room.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"job.yaml": text}})
    wanted = experiment("from-map", None, trials=2, template=template)
    del wanted["spec"]["trialTemplate"]["trialSpec"]
    room.apply(wanted)

    room.ended("from-map")

    assert all(float(metric(trial)["latest"]) == assigned(trial) for trial in room.trials("from-map"))


def test_parallelism_can_be_lowered_while_trials_run(room: Room) -> None:
    room.apply(experiment("slower", python_job(SLOW), trials=5, parallel=3))
    wait_for(lambda: running(room, "slower") == 3, "three trials to run", 60, room.picture)

    room.patch("slower", {"parallelTrialCount": 1})

    wait_for(lambda: running(room, "slower") <= 1, "the other two to end", 60, room.picture)
    most = 0
    until = time.monotonic() + 150
    while not is_true(room.experiment("slower"), "Succeeded") and time.monotonic() < until:
        most = max(most, running(room, "slower"))
        time.sleep(0.1)
    assert room.ended("slower")["status"]["trialsSucceeded"] == 5
    assert most == 1


def test_an_experiment_goes_on_with_a_larger_budget(room: Room) -> None:
    room.apply(experiment("longer", python_job(PARABOLA), trials=2, resumePolicy="LongRunning"))
    room.ended("longer")
    first = {trial["metadata"]["name"] for trial in room.trials("longer")}
    assert room.cluster.find("deployment", "longer-random", room.namespace) is not None

    room.patch("longer", {"maxTrialCount": 4})

    wait_for(lambda: is_true(room.experiment("longer"), "Restarting"), "the experiment to restart", 30, room.picture)
    wait_for(lambda: len(room.trials("longer")) == 4, "two more trials", 90, room.picture)
    assert room.ended("longer")["status"]["trialsSucceeded"] == 4
    assert first < {trial["metadata"]["name"] for trial in room.trials("longer")}


def test_nothing_is_left_of_an_experiment_that_is_deleted_while_it_runs(room: Room) -> None:
    room.apply(experiment("gone", python_job(SLOW), trials=6, parallel=2))
    wait_for(lambda: running(room, "gone") == 2, "two trials to run", 60, room.picture)

    room.delete("gone")

    wait_for(lambda: not room.left_over(), "everything to be gone", GONE_SECONDS, room.picture)


def test_every_mistake_of_an_experiment_is_named_at_once(room: Room) -> None:
    wrong = experiment("wrong", python_job(PARABOLA), trials=-1, algorithm={"algorithmName": "guess"})
    wrong["metadata"]["namespace"] = room.namespace
    wrong["spec"]["parameters"][0]["feasibleSpace"] = {"min": "2", "max": "1"}

    answer = room.cluster.run("apply", "-f", "-", stdin=json.dumps(wrong), check=False)

    for path in ("spec.maxTrialCount", "spec.algorithm.algorithmName", "spec.parameters[0].feasibleSpace"):
        assert path in answer
    assert room.cluster.items(OURS[0], room.namespace) == []
