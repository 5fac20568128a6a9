"""Whole numbers of jobs and pods that are too low: refused in every kind, as the API server and the operators do."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from katib.engine.runtime.objects import Object
from katib.errors import KatibError
from katib.places.machine.admission import check_job
from katib.places.machine.jobs.replicated.frameworks import PaddleJob, PyTorchJob, TFJob
from katib.places.machine.jobs.replicated.mpijob import MPIJob, MPIOperatorJob
from tests.support.admission import HOST, a_job
from tests.support.api_server import ApiServer
from tests.support.training_jobs import training_job

IMAGES = replace(HOST, runs_images=True)
JOB = a_job(image="busybox", pod={"terminationGracePeriodSeconds": 1})
INDEXED = a_job(image="busybox", spec={"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1})
JOBSET: Object = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "spec": {"replicatedJobs": [{"name": "work", "template": {"spec": JOB["spec"]}}]},
}
TRAIN_JOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"], "image": "x"}},
}
POD = "spec.template.spec"

OF_A_JOB = [
    *((f"spec.{field}", 0) for field in ("backoffLimit", "completions", "parallelism", "ttlSecondsAfterFinished")),
    ("spec.activeDeadlineSeconds", 1),
    (f"{POD}.containers.0.ports.0.containerPort", 1),
    *((f"{POD}.securityContext.{field}", 0) for field in ("runAsUser", "fsGroup")),
    (f"{POD}.securityContext.supplementalGroups.0", 0),
    (f"{POD}.containers.0.securityContext.runAsUser", 0),
]
GRACE = "terminationGracePeriodSeconds"


def of_policy(job: Object) -> list[tuple[Object, str, int]]:
    """Return what all training jobs have."""
    lowest = {"activeDeadlineSeconds": 1, "backoffLimit": 0, "ttlSecondsAfterFinished": 0}
    [replicas] = job["spec"]
    return [
        *((job, f"spec.runPolicy.{field}", number) for field, number in lowest.items()),
        (job, f"spec.{replicas}.Worker.template.spec.{GRACE}", 0),
    ]


PYTORCH, PADDLE = training_job(PyTorchJob(), Master=1, Worker=1), training_job(PaddleJob(), Worker=1)
MPI = training_job(MPIJob(), Launcher=1, Worker=1)
CASES: list[tuple[Object, str, int]] = [
    *((JOB, path, lowest) for path, lowest in OF_A_JOB),
    (JOB, f"{POD}.{GRACE}", 0),
    (INDEXED, "spec.backoffLimitPerIndex", 0),
    (INDEXED, "spec.maxFailedIndexes", 0),
    (INDEXED, "spec.successPolicy.rules.0.succeededCount", 1),
    *of_policy(training_job(TFJob(), Worker=1)),
    *of_policy(PYTORCH),
    *of_policy(MPI),
    *of_policy(training_job(MPIOperatorJob(), Launcher=1, Worker=1)),
    (training_job(TFJob(), Worker=1, PS=1), "spec.tfReplicaSpecs.PS.replicas", 0),
    (MPI, "spec.slotsPerWorker", 1),
    *((PYTORCH, f"spec.elasticPolicy.{field}", 1) for field in ("minReplicas", "maxReplicas", "nProcPerNode")),
    (PYTORCH, "spec.elasticPolicy.maxRestarts", 0),
    (PYTORCH, "spec.elasticPolicy.rdzvPort", 1),
    *((PADDLE, f"spec.elasticPolicy.{field}", 1) for field in ("minReplicas", "maxReplicas")),
    (PADDLE, "spec.elasticPolicy.maxRestarts", 0),
    *((JOBSET, f"spec.{field}", 0) for field in ("ttlSecondsAfterFinished", "failurePolicy.maxRestarts")),
    *((JOBSET, f"spec.coordinator.{field}", 0) for field in ("jobIndex", "podIndex")),
    (JOBSET, "spec.replicatedJobs.0.replicas", 0),
    (JOBSET, "spec.replicatedJobs.0.template.spec.activeDeadlineSeconds", 1),
    (JOBSET, f"spec.replicatedJobs.0.template.{POD}.{GRACE}", 0),
    (TRAIN_JOB, "spec.activeDeadlineSeconds", 1),
]


def with_value(job: Object, path: str, value: object) -> Object:
    """Return the job with a value at a path; what is missing on the way is made."""
    whole = copy.deepcopy(job)
    *way, last = [int(word) if word.isdecimal() else word for word in path.split(".")]
    place: Any = whole
    for word, after in zip(way, [*way[1:], last], strict=True):
        if isinstance(place, dict):
            place.setdefault(word, [] if isinstance(after, int) else {})
        elif len(place) <= word:
            place.append({})
        place = place[word]
    if isinstance(place, list) and len(place) <= last:
        place.append(value)
    else:
        place[last] = value
    return whole


def refusals(job: Object, path: str, value: int) -> list[str]:
    """Return what is said about this value alone."""
    before, _ = check_job(job, "t", host=IMAGES)
    after, _ = check_job(with_value(job, path, value), "t", host=IMAGES)
    return [str(error) for error in after if error not in before]


def shown(path: str) -> str:
    return "".join(f"[{word}]" if word.isdecimal() else f".{word}" for word in path.split("."))


@pytest.mark.parametrize(
    ("job", "path", "lowest"), CASES, ids=[f"{job['kind']}-{i}-{path}" for i, (job, path, _) in enumerate(CASES)]
)
def test_the_lowest_number_of_a_field_is_taken_and_no_lower_one(job: Object, path: str, lowest: int) -> None:
    assert refusals(job, path, lowest) == []
    for number in range(-1, lowest):
        [error] = refusals(job, path, number)
        assert error.startswith(f"t{shown(path)}: {number} is ")
        assert error.endswith(f"; give {lowest} or more")


@pytest.mark.cluster
@pytest.mark.parametrize(("path", "lowest"), OF_A_JOB, ids=[path for path, _ in OF_A_JOB])
def test_an_api_server_takes_and_refuses_the_same(api_server: ApiServer, path: str, lowest: int) -> None:
    """But for a deadline of 0 s, which it documents as wrong and takes."""
    job = {**JOB, "metadata": {"generateName": "lowest-"}}
    answers = {number: _answer(api_server, with_value(job, path, number)) for number in (-1, 0, 1)}

    taken_by_server = 0 if path == "spec.activeDeadlineSeconds" else lowest
    assert answers == {number: number >= taken_by_server for number in (-1, 0, 1)}


def _answer(api_server: ApiServer, job: Object) -> bool:
    """Return whether a server would make a Job."""
    try:
        api_server.admin.request("POST", "/apis/batch/v1/namespaces/default/jobs", query={"dryRun": "All"}, body=job)
    except KatibError:
        return False
    return True
