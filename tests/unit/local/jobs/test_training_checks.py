"""What is refused and what is noted about training jobs when they are submitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from katib.places.machine.admission import HostCapacity, check_job
from katib.places.machine.jobs.replicated.frameworks import JAXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob
from katib.places.machine.jobs.replicated.training_kind import TrainingKind
from tests.support.golden import Golden
from tests.support.training_jobs import replica, training_job

PYTORCH, TF, XGBOOST, PADDLE, JAX = PyTorchJob(), TFJob(), XGBoostJob(), PaddleJob(), JAXJob()


def container(kind: TrainingKind, **fields: Any) -> dict[str, Any]:
    return {"name": kind.container, "image": "none", "command": ["sh", "-c", "true"], **fields}


def job(kind: TrainingKind, fields: Any = None, policy: Any = None, **roles: Any) -> dict[str, Any]:
    given = {
        type_: replica(found, container(kind)) if isinstance(found, int) else found for type_, found in roles.items()
    }
    found = training_job(kind, fields=fields, policy=policy, **given)
    del found["metadata"]
    return found


def found_in(template: dict[str, Any]) -> tuple[list[str], list[str]]:
    errors, notices = check_job(template, "t", host=HostCapacity.detect())
    kept = [notice for notice in notices if "images are not run" not in notice and "tries forever" not in notice]
    return [str(error) for error in errors], kept


def errors_of(template: dict[str, Any]) -> list[str]:
    return found_in(template)[0]


@pytest.mark.parametrize(
    "template",
    [
        job(PYTORCH, Master=1, Worker=2),
        job(PYTORCH, Worker=2),
        job(PYTORCH, master=1, WORKER=2),
        job(TF, Chief=1, PS=2, Worker=2, Evaluator=1),
        job(XGBOOST, Master=1, Worker=1),
        job(PADDLE, Worker=2),
        job(JAX, Worker=2),
        job(PYTORCH, Master=1, Worker={**replica(None, container(PYTORCH)), "replicas": "${trialParameters.n}"}),
    ],
    ids=["master", "workers", "lower-case", "tensorflow", "xgboost", "paddle", "jax", "placeholder"],
)
def test_an_ordinary_job_is_taken_without_a_word(template: dict[str, Any]) -> None:
    assert found_in(template) == ([], [])


@pytest.mark.parametrize(
    ("template", "place"),
    [
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {}}, "t.spec.pytorchReplicaSpecs"),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": [], "sepc": {}}, "t.sepc"),
        (job(PYTORCH, Master=1, Chief=1), "t.spec.pytorchReplicaSpecs.Chief"),
        (job(PYTORCH, Master=1, Wroker=1), "t.spec.pytorchReplicaSpecs.Wroker"),
        (job(PYTORCH, Worker=1, worker=1), "t.spec.pytorchReplicaSpecs.worker"),
        (job(PYTORCH, Master=2), "t.spec.pytorchReplicaSpecs.Master.replicas"),
        (job(PYTORCH, Master=1, Worker=0), "t.spec.pytorchReplicaSpecs.Worker.replicas"),
        (job(PYTORCH, Worker=-1), "t.spec.pytorchReplicaSpecs.Worker.replicas"),
        (
            job(PYTORCH, Worker={"replicas": "two", "template": {"spec": {"containers": [container(PYTORCH)]}}}),
            "t.spec.pytorchReplicaSpecs.Worker.replicas",
        ),
        (
            job(PYTORCH, Worker=replica(1, container(PYTORCH), policy="Always")),
            "t.spec.pytorchReplicaSpecs.Worker.restartPolicy",
        ),
        (
            job(PYTORCH, Worker=replica(1, container(PYTORCH), policy="OnFail")),
            "t.spec.pytorchReplicaSpecs.Worker.restartPolicy",
        ),
        (job(PYTORCH, Worker={"replicas": 1}), "t.spec.pytorchReplicaSpecs.Worker.template"),
        (
            job(PYTORCH, Worker=replica(1, container(PYTORCH, name="trainer"))),
            "t.spec.pytorchReplicaSpecs.Worker.template.spec.containers",
        ),
        (
            job(PYTORCH, Worker=replica(1, {"name": "pytorch", "command": ["sh", "-c", "true"]})),
            "t.spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].image",
        ),
        (job(PYTORCH, policy={"managedBy": "kueue.x-k8s.io/multikueue"}, Worker=1), "t.spec.runPolicy.managedBy"),
        (job(PYTORCH, policy={"backofLimit": 1}, Worker=1), "t.spec.runPolicy.backofLimit"),
        (job(PYTORCH, policy={"backoffLimit": -1}, Worker=1), "t.spec.runPolicy.backoffLimit"),
        (job(PYTORCH, policy={"cleanPodPolicy": "Al"}, Worker=1), "t.spec.runPolicy.cleanPodPolicy"),
        (job(PYTORCH, {"nprocPerNode": "many"}, Worker=1), "t.spec.nprocPerNode"),
        (job(PYTORCH, {"nprocPerNode": 2}, Worker=1), "t.spec.nprocPerNode"),
        (
            job(PYTORCH, {"nprocPerNode": "2", "elasticPolicy": {"nProcPerNode": 2}}, Worker=1),
            "t.spec.elasticPolicy.nProcPerNode",
        ),
        (job(PYTORCH, {"elasticPolicy": {}}, Master=1), "t.spec.elasticPolicy"),
        (job(PYTORCH, {"elasticPolicy": {"rdzvBackend": "etcd"}}, Worker=1), "t.spec.elasticPolicy.rdzvBackend"),
        (job(PYTORCH, {"elasticPolicy": {"rdzvBackend": "c10"}}, Worker=1), "t.spec.elasticPolicy.rdzvBackend"),
        (job(TF, Chief=1, Master=1), "t.spec.tfReplicaSpecs"),
        (job(TF, PS=1, Evaluator=1), "t.spec.tfReplicaSpecs"),
        (job(TF, {"enableDynamicWorker": True}, Worker=1), "t.spec.enableDynamicWorker"),
        (job(TF, {"successPolicy": "AllWorker"}, Worker=1), "t.spec.successPolicy"),
        (job(XGBOOST, Worker=1), "t.spec.xgbReplicaSpecs.Master"),
        (job(JAX, Worker=0), "t.spec.jaxReplicaSpecs.Worker.replicas"),
        (job(PADDLE, {"elasticPolicy": {"maxReplica": 1}}, Worker=1), "t.spec.elasticPolicy.maxReplica"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_run_here_is_one_line(template: dict[str, Any], place: str, golden: Golden) -> None:
    [error] = [error for error in errors_of(template) if error.startswith(f"{place}: ")]

    golden(error)


def test_a_master_that_is_twice_wrong_has_two_errors() -> None:
    errors = errors_of(job(XGBOOST, Master=replica(3, container(XGBOOST), policy="Always")))

    assert [error.partition(":")[0] for error in errors] == [
        "t.spec.xgbReplicaSpecs.Master.restartPolicy",
        "t.spec.xgbReplicaSpecs.Master.replicas",
    ]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"command": ["sh", "-c", "ping ${trialParameters.name}-master-0"]}, "command[2]"),
        ({"args": ["--master=tcp://$(JOB)-master-0:23456"]}, "args[0]"),
        ({"args": ["--peers", "$JOB-worker-0,$JOB-worker-1"]}, "args[1]"),
        ({"env": [{"name": "PEERS", "value": "demo-worker-0.default.svc.cluster.local:2222"}]}, "env[0].value"),
        ({"args": ["demo-worker-0:2222"]}, "args[0]"),
        ({"args": ["${trialParameters.name}-worker-$(INDEX)"]}, "args[0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_of_peers_are_found_and_the_way_out_is_named(fields: dict[str, Any], place: str, golden: Golden) -> None:
    errors = errors_of(job(PYTORCH, Worker=replica(2, container(PYTORCH, **fields))))

    [error] = [error for error in errors if "name of a replica" in error]
    assert error.startswith(f"t.spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].{place}: ")
    golden(error)


@pytest.mark.parametrize(
    ("word", "pod", "expected"),
    [
        ("$JOB-worker-0:2222", {}, []),
        ("demo-worker-0:2222", {}, []),
        ("demo-worker-0.default.svc.cluster.local:2222", {}, []),
        ("demo-worker-0:2222", {"hostNetwork": True}, ["replica-peer-name"]),  # it stays on that of the machine
    ],
)
def test_in_a_network_of_its_own_names_lead_somewhere_with_and_without_the_domain(
    word: str, pod: dict[str, Any], expected: list[str]
) -> None:
    host = replace(HostCapacity.detect(), runs_images=True, names_pods=True)
    template = job(PYTORCH, Worker=replica(2, container(PYTORCH, args=[word]), **pod))

    assert [error.origin for error in check_job(template, "t", host=host)[0]] == expected


@pytest.mark.parametrize(
    ("kind", "variables"), [(PYTORCH, "MASTER_ADDR and MASTER_PORT"), (TF, "TF_CONFIG")], ids=["pytorch", "tensorflow"]
)
def test_ports_are_a_notice_that_says_where_a_job_listens(kind: TrainingKind, variables: str) -> None:
    template = job(kind, Worker=replica(1, container(kind, ports=[{"name": "x", "containerPort": 2222}])))
    named = replace(HostCapacity.detect(), runs_images=True, names_pods=True)
    place = f"t.spec.{kind.replicas_field}.Worker.template.spec.containers[0].ports"

    why = f"each job has free ports of its own here, in {variables}; a port written into a command may collide"
    assert f"{place}: {why}" in found_in(template)[1]
    assert not [notice for notice in check_job(template, "t", host=named)[1] if ".ports" in notice]


@pytest.mark.parametrize(
    "word", ["--out=/data/run-worker-0.txt", "--log=${trialParameters.lr}-worker-0.log", "--my-worker-option", "a-ps-b"]
)
def test_other_words_with_a_role_in_them_are_left_alone(word: str) -> None:
    assert errors_of(job(TF, Worker=replica(2, container(TF, args=[word])))) == []


@pytest.mark.parametrize(
    ("template", "place"),
    [
        (job(PYTORCH, policy={"schedulingPolicy": {"queue": "q"}}, Worker=1), "t.spec.runPolicy.schedulingPolicy"),
        (job(PYTORCH, policy={"cleanPodPolicy": "None"}, Worker=1), "t.spec.runPolicy.cleanPodPolicy"),
        (job(PYTORCH, policy={"suspend": True}, Worker=1), "t.spec.runPolicy.suspend"),
        (job(PYTORCH, policy={"ttlSecondsAfterFinished": 0}, Worker=1), "t.spec.runPolicy.ttlSecondsAfterFinished"),
        (
            job(PYTORCH, Worker=replica(1, container(PYTORCH), restartPolicy="Always")),
            "t.spec.pytorchReplicaSpecs.Worker.template.spec.restartPolicy",
        ),
        (job(PYTORCH, {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}, Worker=2), "t.spec.elasticPolicy"),
        (job(PYTORCH, {"nprocPerNode": "auto"}, Worker=2), "t.spec.nprocPerNode"),
        (job(PYTORCH, Master=replica(None, container(PYTORCH))), "t.spec.pytorchReplicaSpecs.Master.replicas"),
        (job(XGBOOST, Master=1, Worker=2), "t.spec.xgbReplicaSpecs.Worker"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_different_here_is_said(template: dict[str, Any], place: str, golden: Golden) -> None:
    [notice] = [notice for notice in found_in(template)[1] if notice.startswith(f"{place}: ")]

    golden(notice)


def test_unlimited_restarts_are_noted_only_without_a_limit() -> None:
    notices = [
        check_job(job(PYTORCH, policy=policy, Worker=1), "t", host=HostCapacity.detect())[1]
        for policy in (None, {"backoffLimit": 3})
    ]

    assert [any("tries forever" in notice for notice in found) for found in notices] == [True, False]


def test_replicas_together_may_not_need_more_than_the_machine() -> None:
    host = HostCapacity.detect()
    half = {"requests": {"cpu": str(int(host.cpus * 0.6) or 1)}}
    errors, _ = check_job(job(PYTORCH, Worker=replica(9, container(PYTORCH, resources=half))), "t", host=host)

    assert [error.origin for error in errors] == ["pod-resources"]


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, True, [1], {"a": None}])
@pytest.mark.parametrize("place", ["spec", "policy", "replicas", "replica", "template", "pod", "containers"])
def test_malformed_jobs_are_refused_and_never_break_the_check(place: str, value: Any) -> None:
    template = job(PYTORCH, policy={"backoffLimit": 1}, Worker=1)
    spec = template["spec"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]
    holder, key = {
        "spec": (template, "spec"),
        "policy": (spec, "runPolicy"),
        "replicas": (spec, "pytorchReplicaSpecs"),
        "replica": (spec["pytorchReplicaSpecs"], "Worker"),
        "template": (worker, "template"),
        "pod": (worker["template"], "spec"),
        "containers": (worker["template"]["spec"], "containers"),
    }[place]
    holder[key] = value

    assert errors_of(template) or (place == "policy" and not value) or value == {"a": None}
