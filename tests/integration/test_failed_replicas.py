"""What a user reads of a trial whose replica failed, the same for every kind of job, and which readings count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.model.types import Experiment
from katib.places.machine import open_engine
from katib.service.explaining.replicas import trouble_of
from katib.service.tuning.replicas import replica_name
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import failure_of, is_completed

pytestmark = pytest.mark.slow

NS = "default"
PRIMARY = "loss=${trialParameters.lr}"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TuningService]:
    with open_engine(tmp_path_factory.mktemp("data")) as engine:
        engine.start()
        yield engine.service


def fails(where: str) -> str:
    """Return a script that fails where the host name fits, and continues elsewhere."""
    return f'case "$HOSTNAME" in {where}) echo early; echo boom; exit 3;; esac; echo {PRIMARY}; exec sleep 60'


def container(name: str, script: str) -> Json:
    return {"name": name, "image": "none", "command": ["sh", "-c", script]}


def replicas(name: str, script: str, count: int = 1, restart: str = "Never") -> Json:
    return {
        "replicas": count,
        "restartPolicy": restart,
        "template": {"spec": {"containers": [container(name, script)]}},
    }


def training(kind: str, field: str, roles: Mapping[str, Json], **policy: Any) -> Json:
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "spec": {"runPolicy": policy, field: roles}}


def batch(*containers: Json, restart: str = "Never", init: tuple[Json, ...] = (), **spec: Any) -> Json:
    pod = {"restartPolicy": restart, "initContainers": list(init), "containers": list(containers)}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {**spec, "template": {"spec": pod}}}


def jobset(script: str, restart: str = "Never", **spec: Any) -> Json:
    def one(name: str) -> Json:
        pod = {"restartPolicy": restart, "containers": [container("main", script)]}
        return {"name": name, "template": {"spec": {"backoffLimit": 1, "template": {"spec": pod}}}}

    jobs = [one("lead"), one("work")]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": jobs, **spec}}


INDEXED = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
WORKER = fails("*worker-1*")
MPI_WORKER = {"replicas": 1, "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}}
LEAD = {"jobset.sigs.k8s.io/replicatedjob-name": "lead"}
TRAINER = {"command": ["sh", "-c", fails("*node-0-1*")], "numNodes": 2}
CASES = {
    "job": (batch(container("main", fails("*"))), "", {}),
    "job-retried": (batch(container("main", fails("*")), restart="OnFailure", backoffLimit=1), "", {}),
    "job-init": (batch(container("main", f"echo {PRIMARY}"), init=(container("prepare", fails("*")),)), "", {}),
    "job-two": (batch(container("main", f"echo {PRIMARY}"), container("other", fails("*"))), "", {}),
    "job-indexed": (batch(container("main", fails("*-1")), **INDEXED), "1", {}),
    "tfjob": (
        training(
            "TFJob",
            "tfReplicaSpecs",
            {"Worker": replicas("tensorflow", WORKER, 2), "PS": replicas("tensorflow", WORKER)},
        ),
        "worker-1",
        {"primaryPodLabels": {"training.kubeflow.org/replica-type": "ps"}},
    ),
    "pytorchjob": (
        training(
            "PyTorchJob",
            "pytorchReplicaSpecs",
            {"Master": replicas("pytorch", WORKER), "Worker": replicas("pytorch", WORKER, 2)},
        ),
        "worker-1",
        {},
    ),
    "pytorchjob-restarted": (
        training(
            "PyTorchJob",
            "pytorchReplicaSpecs",
            {"Master": replicas("pytorch", WORKER), "Worker": replicas("pytorch", WORKER, 2, "OnFailure")},
            backoffLimit=1,
        ),
        "worker-1",
        {},
    ),
    "xgboostjob": (
        training(
            "XGBoostJob",
            "xgbReplicaSpecs",
            {"Master": replicas("xgboost", WORKER), "Worker": replicas("xgboost", WORKER, 2)},
        ),
        "worker-1",
        {},
    ),
    "paddlejob": (
        training("PaddleJob", "paddleReplicaSpecs", {"Worker": replicas("paddle", WORKER, 2)}),
        "worker-1",
        {},
    ),
    "jaxjob": (
        training("JAXJob", "jaxReplicaSpecs", {"Worker": replicas("jax", WORKER, 2)}),
        "worker-1",
        {"primaryPodLabels": {"training.kubeflow.org/replica-index": "0"}},
    ),
    "mpijob": (
        training("MPIJob", "mpiReplicaSpecs", {"Launcher": replicas("main", fails("*")), "Worker": MPI_WORKER}),
        "",
        {},
    ),
    "jobset": (jobset(fails("*work*")), "work-0", {"primaryPodLabels": LEAD}),
    "jobset-restarted": (jobset(fails("*work*"), restart="OnFailure"), "work-0", {"primaryPodLabels": LEAD}),
    "jobset-anew": (jobset(fails("*work*"), failurePolicy={"maxRestarts": 1}), "work-0", {"primaryPodLabels": LEAD}),
    "trainjob": (
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": TRAINER},
        },
        "node-1",
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_line_of_the_replica_that_failed_is_what_one_reads(service: TuningService, name: str) -> None:
    job, replica, template = CASES[name]
    trial = only_trial(service, name, job, template)
    pods = [pod for pod in service.pods("Trial", NS, trial.name) if replica_name(dict(pod)) == replica]
    of_trial, of_experiment = service.why(NS, trial.name), service.why(NS, name)

    assert failure_of(trial) == (f"replica {replica}: boom (exit code 3)" if replica else "boom (exit code 3)")
    if name != "job-two":
        assert b"".join(service.logs(NS, trial.name)).endswith(b"early\nboom\n")
    assert of_trial.verdict.endswith("boom (exit code 3).")
    assert of_trial.log_tail[-2:] == ("early", "boom")
    assert of_experiment.log_tail[-2:] == ("early", "boom")
    if replica:
        assert f"because its replica {replica} failed" in of_trial.verdict
        assert trouble_of(dict(pods[-1])).startswith("failed with exit code")
        assert trouble_of(dict(pods[-1])).endswith("; last output: boom")


def once_more(script: str) -> Json:
    pod = {"restartPolicy": "Never", "containers": [container("main", script)]}
    job = {"name": "work", "template": {"spec": {"template": {"spec": pod}}}}
    spec = {"replicatedJobs": [job], "failurePolicy": {"maxRestarts": 1}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}


TAKEN = "OSError: [Errno 98] Address already in use"
AGAIN = {
    "port-pytorchjob": (
        lambda script: training(
            "PyTorchJob",
            "pytorchReplicaSpecs",
            {"Master": replicas("pytorch", script), "Worker": replicas("pytorch", "exec sleep 60")},
        ),
        TAKEN,
        ["7"],
    ),
    "port-trainjob": (
        lambda script: {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["sh", "-c", script]}},
        },
        TAKEN,
        ["7"],
    ),
    "retried-job": (lambda script: batch(container("main", script), backoffLimit=1), "boom", ["7"]),
    "restarted-pytorchjob": (
        lambda script: training(
            "PyTorchJob", "pytorchReplicaSpecs", {"Master": replicas("pytorch", script, 1, "OnFailure")}
        ),
        "boom",
        ["7"],
    ),
    "restarted-jobset": (once_more, "boom", ["7"]),
}
"""A job of a script, the last line of its first try, and the readings that are there in the end."""


@pytest.mark.parametrize("name", AGAIN)
def test_the_readings_of_a_trial_are_those_of_the_try_that_ended_it(
    service: TuningService, tmp_path: Path, name: str
) -> None:
    make, last, expected = AGAIN[name]
    first = f"if [ ! -e {tmp_path}/again ]; then touch {tmp_path}/again; echo loss=5; echo '{last}'; exit 1; fi"
    trial = only_trial(service, name, make(f"{first}; : {PRIMARY}; echo loss=7"), {})

    assert [reading.value for reading in service.metrics(NS, trial.name)] == expected


def test_every_failed_try_is_an_event_also_when_the_next_one_fails_at_once(
    service: TuningService, tmp_path: Path
) -> None:
    script = f"echo x >>{tmp_path}/tries; echo boom $(wc -l <{tmp_path}/tries); exit 130; : {PRIMARY}"
    roles = {"Master": replicas("pytorch", "exec sleep 60"), "Worker": replicas("pytorch", script, 1, "ExitCode")}
    trial = only_trial(service, "tries", training("PyTorchJob", "pytorchReplicaSpecs", roles, backoffLimit=3), {})

    events = service.events("Trial", NS, trial.name)
    tries = [event.message.partition(": ")[2] for event in events if event.reason == "JobRetrying"]
    assert tries[:2] == [f"replica worker-0: boom {n} (exit code 130); try {n + 1} of 3" for n in (1, 2)]


def primary_container(job: Json) -> str:
    """Return the name that the operator of a kind looks for."""
    names = {
        "TFJob": "tensorflow",
        "PyTorchJob": "pytorch",
        "XGBoostJob": "xgboost",
        "PaddleJob": "paddle",
        "JAXJob": "jax",
        "TrainJob": "node",
    }
    return names.get(job["kind"], "main")


def only_trial(service: TuningService, name: str, job: Json, template: Json) -> Json:
    """Run an experiment of one trial and return the trial."""
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": "random"},
        "parallelTrialCount": 1,
        "maxTrialCount": 1,
        "maxFailedTrialCount": 0,
        "parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}],
        "trialTemplate": {
            "primaryContainerName": primary_container(job),
            "trialParameters": [{"name": "lr", "reference": "lr"}],
            "trialSpec": job,
            **template,
        },
    }
    document = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name, "namespace": NS},
        "spec": spec,
    }
    service.submit(yaml.safe_dump(document), source="demo.yaml")
    for change in service.changes(NS, name, timeout_seconds=60):
        if isinstance(change.object, Experiment) and is_completed(change.object):
            return service.trials(NS, name).items[0]
    raise AssertionError(service.why(NS, name))
