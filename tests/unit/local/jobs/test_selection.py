"""Labels that are to select the pods which print metrics: what a kind says its pods will have, and what nothing has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from katib.engine.runtime.objects import Kind, Object
from katib.places.machine.findings import Findings, Part
from katib.places.machine.jobs.kind import PER_TRIAL, PodStart, check_pod_labels
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.jobs.networks import LocalWiring, PortTable
from tests.support.golden import Golden

ROLE, TYPE, INDEX = (f"training.kubeflow.org/{name}" for name in ("job-role", "replica-type", "replica-index"))
COMPLETION, REPLICATED = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/replicatedjob-name"
KINDS = JobKinds()
MASTER_AND_WORKERS = {"Master": (1, {}), "Worker": (3, {})}
MPI = {"Launcher": (1, {}), "Worker": (2, {})}
Replicas = dict[str, tuple[Any, dict[str, str]]]


def pod_template(labels: dict[str, str], command: str = "work") -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i", "command": [command]}]}}


def replicated(kind: str, field: str, replicas: Replicas, version: str = "v1", command: str = "work") -> Object:
    specs = {
        type_: {"replicas": count, "template": pod_template(labels, command)}
        for type_, (count, labels) in replicas.items()
    }
    return {"apiVersion": f"kubeflow.org/{version}", "kind": kind, "metadata": METADATA, "spec": {field: specs}}


METADATA = {"name": "j", "namespace": "n", "uid": "u"}
JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": METADATA,
    "spec": {"template": pod_template({"a": "b"})},
}
INDEXED: Object = {**JOB, "spec": {**JOB["spec"], "completionMode": "Indexed", "completions": 3}}
JOBSET: Object = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": METADATA,
    "spec": {
        "replicatedJobs": [
            {"name": "lead", "groupName": "g", "template": {"spec": {"template": pod_template({"part": "lead"})}}},
            {"name": "work", "replicas": 2, "groupName": "g", "template": {"spec": {"template": pod_template({})}}},
        ],
        "coordinator": {"replicatedJob": "lead"},
    },
}
TRAIN_JOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": METADATA,
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"], "numNodes": 2}},
}
TF = replicated("TFJob", "tfReplicaSpecs", {"Chief": (1, {}), "PS": (2, {}), "Worker": (2, {})})
PYTORCH = replicated("PyTorchJob", "pytorchReplicaSpecs", MASTER_AND_WORKERS)
MPI_V1 = replicated("MPIJob", "mpiReplicaSpecs", MPI)
MPI_V2 = replicated("MPIJob", "mpiReplicaSpecs", MPI, "v2beta1")
PADDLE = replicated("PaddleJob", "paddleReplicaSpecs", {"Master": (2, {}), "Worker": (2, {})})
JAX = replicated("JAXJob", "jaxReplicaSpecs", {"Worker": (2, {})})
XGBOOST = replicated("XGBoostJob", "xgbReplicaSpecs", MASTER_AND_WORKERS)
ALL = [JOB, INDEXED, TF, PYTORCH, XGBOOST, PADDLE, JAX, MPI_V1, MPI_V2, JOBSET, TRAIN_JOB]


def found(job: Object, labels: dict[str, str]) -> list[str]:
    findings = Findings()
    check_pod_labels(KINDS[Kind.of(job)].pod_labels(job), Part(labels, "labels", findings))
    return [str(error) for error in findings.errors]


def starts(job: Object) -> Sequence[PodStart]:
    """Return the pods of a job of the table above."""
    if job["kind"] == "Job":
        return [PodStart(i) for i in range(3)] if job is INDEXED else [PodStart()]
    if job["kind"] == "TrainJob":
        return [PodStart(i, "node-0") for i in range(2)]
    if job["kind"] == "JobSet":
        return [PodStart(0, role) for role in ("lead-0", "work-0", "work-1")]
    [specs] = job["spec"].values()
    return [PodStart(i, role.lower()) for role, replica in specs.items() for i in range(replica["replicas"])]


@pytest.mark.parametrize("job", ALL, ids=lambda job: f"{job['kind']}-{job['apiVersion']}-{len(str(job))}")
def test_what_a_kind_says_of_its_pods_is_what_they_have(job: Object) -> None:
    kind = KINDS[Kind.of(job)]
    said = [{**pod.own, **pod.others}.keys() for pod in kind.pod_labels(job)]
    for start in starts(job):
        pod = kind.pod(job, start, LocalWiring(PortTable()))
        labels = {**(pod.template.get("metadata") or {}).get("labels", {}), **pod.labels}

        alike = {name: text for name, text in labels.items() if name not in PER_TRIAL}
        assert found(job, alike) == []
        assert all(found(job, {name: labels[name]}) for name in labels.keys() - alike.keys())
        assert any(labels.keys() <= names for names in said)
        for name in labels:
            if not name.endswith(("name", "uid", "attempt", "key", "replicas", "coordinator", "global-index")):
                assert found(job, {**alike, name: "another"}), name


def test_every_kind_is_looked_at() -> None:
    assert {Kind.of(job) for job in ALL} == set(KINDS)


@pytest.mark.parametrize(
    ("job", "labels"),
    [
        pytest.param(MPI_V1, {"mpi-job-role": "launcher"}, id="MPI operator"),
        pytest.param(MPI_V2, {"mpi-job-role": "launcher"}, id="MPI operator of today"),
        pytest.param(MPI_V1, {"mpi_role_type": "worker", "group_name": "kubeflow.org"}, id="first MPI operator"),
        pytest.param(TF, {"tf-replica-type": "ps", "tf-replica-index": "1"}, id="TF operator"),
        pytest.param(PYTORCH, {"pytorch-replica-type": "worker", "job-role": "master"}, id="none has both"),
        pytest.param(PYTORCH, {"controller-name": "pytorch-operator", "job-role": "master"}, id="PyTorch operator"),
        pytest.param(XGBOOST, {"xgboost-job-role": "master", "replica-index": "0"}, id="XGBoost operator"),
        pytest.param(PADDLE, {"replica-type": "worker", "group-name": "kubeflow.org"}, id="earlier training operator"),
    ],
)
def test_labels_of_earlier_operators_select_pods(
    request: pytest.FixtureRequest, job: Object, labels: dict[str, str]
) -> None:
    assert bool(found(job, labels)) == ("none has both" in request.node.name)


def test_a_label_of_an_earlier_operator_that_a_template_uses_for_itself_stays_its_own() -> None:
    job = replicated("PyTorchJob", "pytorchReplicaSpecs", {"Master": (1, {"job-role": "mine", "operator-name": "me"})})
    pod = KINDS[Kind.of(job)].pod(job, PodStart(0, "master"), LocalWiring(PortTable()))

    assert "job-role" not in pod.labels
    assert pod.labels["pytorch-job-role"] == pod.labels[ROLE] == "master"
    assert found(job, {"job-role": "mine"}) == []
    assert found(job, {"job-role": "master"}) != []


@pytest.mark.parametrize(
    ("job", "labels"),
    [
        pytest.param(JOB, {"foo": "bar"}, id="Job"),
        pytest.param({**JOB, "spec": {"template": pod_template({})}}, {"foo": "bar"}, id="bare"),
        pytest.param(INDEXED, {COMPLETION: "3"}, id="index"),
        pytest.param(INDEXED, {COMPLETION: "01"}, id="01"),
        pytest.param(XGBOOST, {ROLE: "worker"}, id="replicas"),
        pytest.param(
            replicated("MPIJob", "mpiReplicaSpecs", MPI, command="sleep"),
            {"mpi-job-role": "worker"},
            id="workers that only wait have no pods here",
        ),
        pytest.param(JOBSET, {REPLICATED: "driver"}, id="JobSet"),
        pytest.param(TRAIN_JOB, {ROLE: "master"}, id="TrainJob"),
    ],
)
def test_labels_that_no_pod_will_have_are_refused_with_those_there_will_be(
    job: Object, labels: dict[str, str], golden: Golden
) -> None:
    golden(found(job, labels))


def test_several_labels_have_to_be_those_of_one_pod(golden: Golden) -> None:
    assert found(XGBOOST, {ROLE: "master", TYPE: "master"}) == []
    [error] = found(XGBOOST, {ROLE: "master", TYPE: "worker"})
    golden(error)


@pytest.mark.parametrize(
    ("template", "labels"),
    [
        pytest.param({"foo": "${trialParameters.x}"}, {"foo": "bar"}, id="value"),
        pytest.param({"${trialParameters.x}": "bar"}, {"foo": "bar"}, id="name"),
    ],
)
def test_what_a_placeholder_stands_for_may_be_what_is_wanted(template: dict[str, str], labels: dict[str, str]) -> None:
    assert found({**JOB, "spec": {"template": pod_template(template)}}, labels) == []


def test_a_number_of_replicas_that_only_the_trial_knows_allows_every_index() -> None:
    job = replicated("JAXJob", "jaxReplicaSpecs", {"Worker": ("${trialParameters.n}", {})})

    assert found(job, {INDEX: "7"}) == []
    assert found(job, {INDEX: "7", ROLE: "master"}) != []


def test_a_huge_number_of_replicas_costs_nothing() -> None:
    job = replicated("PaddleJob", "paddleReplicaSpecs", {"Master": (10**12, {})})

    assert found(job, {INDEX: "999999999", ROLE: "master"}) == []


def test_a_placeholder_in_the_labels_themselves_is_never_filled_in(golden: Golden) -> None:
    [error] = found(JOB, {"a": "${trialParameters.x}"})

    golden(error)


@pytest.mark.parametrize(
    "job",
    [
        replicated("PyTorchJob", "pytorchReplicaSpecs", {"Mastr": (1, {})}),
        {**PYTORCH, "spec": None},
        {**JOBSET, "spec": {"replicatedJobs": "x"}},
        {**TRAIN_JOB, "spec": {"runtimeRef": {"name": "unknown"}}},
    ],
    ids=["type", "spec", "list", "runtime"],
)
def test_what_is_not_understood_is_left_to_other_rules(job: Object) -> None:
    assert found(job, {"foo": "bar"}) == []
