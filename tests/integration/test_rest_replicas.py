"""Pods and the output of replicas over HTTP, of an engine that runs jobs with several replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.errors import NotFoundError
from katib.model.types import Experiment
from katib.places.machine import open_engine
from katib.service.tuning.replicas import replica_name, state_words
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import is_completed
from tests.support.golden import Golden
from tests.support.waiting import eventually

NS = "/api/v1/namespaces/default"
REPLICAS = ["master-0", "worker-0", "worker-1"]
STAYS = "exec sleep 600"

Json = dict[str, Any]


class World(NamedTuple):
    """A server, its address, a trial that runs, and one that has failed in its second worker."""

    http: httpx.Client
    url: str
    running: str
    failed: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_engine(tmp_path_factory.mktemp("data")) as engine:
        engine.start()
        with (
            Server(engine.service, host="127.0.0.1", port=0) as server,
            httpx.Client(base_url=server.url, trust_env=False) as http,
        ):
            failing = f'case "$HOSTNAME" in *worker-1*) echo boom; exit 3;; esac; {STAYS}'
            submit(engine.service, "fails", failing)
            submit(engine.service, "runs", STAYS)
            running = eventually(lambda: trial_of(engine.service, "runs"))
            pods = f"{NS}/trials/{running}/pods"
            eventually(lambda: [state_words(pod) for pod in http.get(pods).json()["items"]] == ["Running"] * 3)
            eventually(lambda: http.get(f"{NS}/trials/{running}/logs?replica=worker-1&container=side").is_success)
            eventually(lambda: is_completed(engine.service.get(Experiment, "default", "fails")))
            yield World(http, server.url, running, trial_of(engine.service, "fails"))


def submit(service: TuningService, name: str, script: str) -> None:
    """Start an experiment of one trial: a master and two workers, each with a second container."""
    beside = f'echo side; case "$HOSTNAME" in *worker-1*) exit 0;; esac; {STAYS}'
    told = f'echo "here is $HOSTNAME"; echo "loss=${{trialParameters.lr}}"; {script}'
    containers = [
        {"name": "pytorch", "image": "none", "command": ["sh", "-c", told]},
        {"name": "side", "image": "none", "command": ["sh", "-c", beside]},
    ]
    replica = {"restartPolicy": "Never", "template": {"spec": {"containers": containers}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Master": {**replica, "replicas": 1}, "Worker": {**replica, "replicas": 2}}},
    }
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": "random"},
        "parallelTrialCount": 1,
        "maxTrialCount": 1,
        "maxFailedTrialCount": 0,
        "parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}],
        "trialTemplate": {
            "primaryContainerName": "pytorch",
            "trialParameters": [{"name": "lr", "reference": "lr"}],
            "trialSpec": job,
        },
    }
    metadata = {"name": name, "namespace": "default"}
    document = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": metadata, "spec": spec}
    service.submit(yaml.safe_dump(document), source=f"{name}.yaml")


def trial_of(service: TuningService, experiment: str) -> str:
    """Return the name of the only trial of an experiment; empty while there is none."""
    return next((trial.name for trial in service.trials("default", experiment).items), "")


def items(world: World, path: str) -> list[Json]:
    answer = world.http.get(f"{NS}/{path}")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def test_the_pods_of_a_trial_are_those_of_its_experiment(world: World) -> None:
    of_trial = items(world, f"trials/{world.running}/pods")

    assert sorted(map(replica_name, of_trial)) == REPLICAS
    assert items(world, "experiments/runs/pods") == of_trial


def test_of_a_trial_that_has_ended_the_last_pod_of_each_replica_is_known_and_of_its_experiment_none(
    world: World,
) -> None:
    states = {replica_name(pod): state_words(pod) for pod in items(world, f"trials/{world.failed}/pods")}

    assert states == {"master-0": "Stopped", "worker-0": "Stopped", "worker-1": "Error"}
    assert items(world, "experiments/fails/pods") == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("", "here is {trial}-master-0", id="the primary one"),
        pytest.param("?replica=worker-1", "here is {trial}-worker-1", id="a role and an index"),
        pytest.param("?replica={trial}-worker-0", "here is {trial}-worker-0", id="the name of a pod"),
        pytest.param("?replica=worker-1&container=side", "side", id="another container of a replica"),
        pytest.param("?container=side", "side", id="another container of the primary one"),
    ],
)
def test_the_output_of_any_replica_can_be_read(world: World, query: str, expected: str) -> None:
    answer = world.http.get(f"{NS}/trials/{world.running}/logs{query.format(trial=world.running)}")

    assert answer.status_code == 200
    assert answer.text.splitlines()[0] == expected.format(trial=world.running)


def test_the_output_of_a_replica_that_failed_outlives_its_job(world: World) -> None:
    assert world.http.get(f"{NS}/trials/{world.failed}/logs?replica=worker-1&tail=1").text == "boom\n"


@pytest.mark.parametrize("trial", ["running", "failed"])
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("replica=worker-7", id="replica"),
        pytest.param("replica=worker-1&container=sidecar", id="container of a replica"),
        pytest.param("container=other", id="container"),
    ],
)
@pytest.mark.parametrize("follow", ["", "&follow=true"], ids=["once", "followed"])
def test_what_is_not_there_is_one_line_that_names_what_is(
    world: World, trial: str, query: str, follow: str, golden: Golden
) -> None:
    name = getattr(world, trial)
    answer = world.http.get(f"{NS}/trials/{name}/logs?{query}{follow}")

    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")
    golden(answer.json()["detail"].replace(name, "TRIAL"))


@pytest.mark.parametrize("path", ["trials/ghost/pods", "trials/ghost/logs?replica=worker-0", "experiments/ghost/pods"])
def test_what_belongs_to_nothing_is_not_found(world: World, path: str) -> None:
    answer = world.http.get(f"{NS}/{path}")

    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")
    assert '"ghost"' in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]


@pytest.mark.parametrize("parameter", ["replica", "container"])
def test_a_name_that_nothing_could_have_is_refused(world: World, parameter: str) -> None:
    answer = world.http.get(f"{NS}/trials/{world.running}/logs?{parameter}={'x' * 300}")

    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")


def test_the_client_returns_and_raises_what_the_service_does(world: World, golden: Golden) -> None:
    with HttpTuningService(world.url) as client:
        pods = client.pods("Experiment", "default", "runs")
        read = b"".join(client.logs("default", world.running, replica="worker-0", container="side"))
        with golden.raises(NotFoundError):
            list(client.logs("default", world.running, replica="boss"))

    assert sorted(replica_name(pod) for pod in pods) == REPLICAS
    assert read == b"side\n"
