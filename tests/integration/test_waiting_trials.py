"""Trials that wait: for room or because their job is suspended, and what every way in says of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.model.types import Experiment, Trial
from katib.places.machine import open_engine
from katib.service.tuning.reading import duration_of, message_of
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import failure_of, is_completed, running_condition, state_of
from tests.support.cli import katib_here
from tests.support.waiting import eventually

NS = "default"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with open_engine(tmp_path_factory.mktemp("data")) as engine:
        engine.start()
        with Server(engine.service, host="127.0.0.1", port=0) as server:
            yield server
        engine.stop()


@pytest.fixture
def service(server: Server) -> Iterator[TuningService]:
    with HttpTuningService(server.url) as client:
        yield client


def pod(script: str, cpu: str = "") -> Json:
    container: Json = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script]}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    return {"restartPolicy": "Never", "containers": [container]}


def batch(script: str, cpu: str = "", **spec: Any) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {**spec, "template": {"spec": pod(script, cpu)}}}


def training(script: str, **policy: Any) -> Json:
    master = {"replicas": 1, "template": {"spec": pod(script)}}
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": master}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}


def submit(service: TuningService, name: str, job: Json, trials: int = 1) -> None:
    parameter = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "0.9"}}
    experiment = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"},
            "algorithm": {"algorithmName": "random"},
            "parallelTrialCount": trials,
            "maxTrialCount": trials,
            "parameters": [parameter],
            "trialTemplate": {
                "primaryContainerName": "pytorch",
                "trialParameters": [{"name": "lr", "reference": "lr"}],
                "trialSpec": job,
            },
        },
    }
    service.submit(yaml.safe_dump(experiment), source="test")


def trials_of(service: TuningService, name: str) -> list[Trial]:
    return list(service.trials(NS, name).items)


def states(service: TuningService, name: str) -> list[str]:
    return sorted(map(state_of, trials_of(service, name)))


def only(service: TuningService, name: str) -> Trial:
    (trial,) = trials_of(service, name)
    return trial


LOSS = "echo loss=${trialParameters.lr}"


def test_one_of_two_that_need_the_whole_machine_waits_and_is_not_called_running(
    service: TuningService, tmp_path: Path
) -> None:
    cpus = str(len(os.sched_getaffinity(0)))
    submit(service, "queue", batch(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; {LOSS}", cpus), trials=2)
    eventually(lambda: states(service, "queue") == ["Pending", "Running"], "one to run and one to wait")
    waiting = next(trial for trial in trials_of(service, "queue") if state_of(trial) == "Pending")
    eventually(lambda: message_of(service.get(Trial, NS, waiting.name)).startswith("waits for "), "a cause")

    assert duration_of(waiting) == ""
    assert "waits for " in service.why(NS, waiting.name).verdict
    eventually(lambda: "1 trial running, 1 waiting" in service.why(NS, "queue").verdict, "both to be counted")
    (tmp_path / "go").touch()
    eventually(lambda: is_completed(service.get(Experiment, NS, "queue")), "the end")
    times = [(trial.status.start_time, trial.status.completion_time) for trial in trials_of(service, "queue")]
    (_, first_end), (second_start, _) = sorted(times, key=str)
    assert None not in (first_end, second_start)
    assert str(second_start) >= str(first_end)


@pytest.mark.parametrize(
    ("name", "job", "field"),
    [
        ("batch", batch(LOSS, suspend=True), "spec.suspend"),
        ("training", training(LOSS, suspend=True), "spec.runPolicy.suspend"),
    ],
    ids=["Job", "PyTorchJob"],
)
def test_a_trial_that_is_suspended_from_the_start_says_so_and_the_printed_remedy_starts_it(
    server: Server, service: TuningService, tmp_path: Path, name: str, job: Json, field: str
) -> None:
    submit(service, name, job)
    eventually(lambda: [message_of(t) for t in trials_of(service, name)] == ["waits: its job is suspended"], "a cause")
    trial = only(service, name)
    told = service.why(NS, trial.name)

    assert (state_of(trial), duration_of(trial)) == ("Pending", "")
    assert f"({field} is true)" in told.verdict
    (remedy,) = told.remedies
    command = remedy.split("`")[1].split()
    assert command[:2] == ["katib", "resume"]
    done = katib_here(*command[1:], cwd=tmp_path, KATIB_SERVER=server.url)
    assert (done.returncode, done.stdout) == (0, f"trial/{trial.name}: resumed\n")
    eventually(lambda: states(service, name) == ["Succeeded"], "the trial to succeed")


def test_a_job_that_names_a_queue_of_kueue_starts_here_where_nothing_queues_it(service: TuningService) -> None:
    """As files for Kueue have it, which say that the job starts suspended."""
    job = batch(LOSS, suspend=True)
    submit(service, "kueue", {**job, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}})
    eventually(lambda: states(service, "kueue") == ["Succeeded"], "the trial to succeed")


def test_a_running_trial_is_suspended_and_starts_anew_and_that_is_no_failure(
    server: Server, service: TuningService, tmp_path: Path
) -> None:
    starts, go = tmp_path / "starts", tmp_path / "go"
    submit(service, "pause", batch(f"echo $$ >>{starts}; while [ ! -e {go} ]; do sleep 0.01; done; {LOSS}"))
    eventually(lambda: states(service, "pause") == ["Running"], "the trial to run")
    eventually(starts.exists, "its program to begin")
    name = only(service, "pause").name
    done = katib_here("pause", f"trial/{name}", cwd=tmp_path, KATIB_SERVER=server.url)
    assert done.stdout == f"trial/{name}: paused; `katib resume {name}` resumes it\n"
    eventually(lambda: message_of(service.get(Trial, NS, name)) == "waits: its job is suspended", "the pause")
    eventually(lambda: not Path(f"/proc/{starts.read_text().split()[0]}").exists(), "its program to end")
    held = service.get(Trial, NS, name)
    assert (state_of(held), failure_of(held)) == ("Pending", "")
    since, start = running_condition(held).last_transition_time, held.status.start_time
    assert since is not None
    assert start is not None
    assert 0 <= (held.status.run_seconds or 0.0) <= (since - start).total_seconds() + 1

    katib_here("resume", name, cwd=tmp_path, KATIB_SERVER=server.url)
    eventually(lambda: len(starts.read_text().split()) == 2, "its program to begin again")
    go.touch()
    eventually(lambda: states(service, "pause") == ["Succeeded"], "the trial to succeed")


def test_what_cannot_be_suspended_is_refused_with_what_to_do(
    server: Server, service: TuningService, tmp_path: Path
) -> None:
    submit(service, "over", batch(LOSS))
    eventually(lambda: is_completed(service.get(Experiment, NS, "over")), "the end")
    name = only(service, "over").name
    ended = katib_here("pause", name, cwd=tmp_path, KATIB_SERVER=server.url)
    whole = katib_here("pause", "over", cwd=tmp_path, KATIB_SERVER=server.url)
    nothing = katib_here("resume", "ghost", cwd=tmp_path, KATIB_SERVER=server.url)

    assert ended.stderr.startswith(f"error: trial {name}: ")
    assert whole.stderr.startswith("error: experiment over: ")
    assert '"ghost"' in nothing.stderr
