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
    ("template", "error"),
    [
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {}},
         "t.spec.pytorchReplicaSpecs: it is missing; describe the replicas there: Master, Worker"),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": [], "sepc": {}},
         "t.sepc: unknown field; did you mean spec"),
        (job(PYTORCH, Master=1, Chief=1),
         ('t.spec.pytorchReplicaSpecs.Chief: the kind PyTorchJob has no replicas of type "Chief"; use one of '
         "Master, Worker")),
        (job(PYTORCH, Master=1, Wroker=1),
         ('t.spec.pytorchReplicaSpecs.Wroker: the kind PyTorchJob has no replicas of type "Wroker"; did you mean '
         "Worker? use one of Master, Worker")),
        (job(PYTORCH, Worker=1, worker=1),
         ("t.spec.pytorchReplicaSpecs.worker: it is the same type as Worker: letter case does not count; keep one "
         "of them")),
        (job(PYTORCH, Master=2),
         ("t.spec.pytorchReplicaSpecs.Master.replicas: 2 is not 1, the only number of Master replicas that the "
         "kind PyTorchJob allows; write 1")),
        (job(PYTORCH, Master=1, Worker=0),
         "t.spec.pytorchReplicaSpecs.Worker.replicas: 0 replicas never succeed; give 1 or more, or remove the type"),
        (job(PYTORCH, Worker=-1), "t.spec.pytorchReplicaSpecs.Worker.replicas: -1 is negative; give 0 or more"),
        (job(PYTORCH, Worker={"replicas": "two", "template": {"spec": {"containers": [container(PYTORCH)]}}}),
         't.spec.pytorchReplicaSpecs.Worker.replicas: "two" is not a whole number; give a whole number'),
        (job(PYTORCH, Worker=replica(1, container(PYTORCH), policy="Always")),
         ("t.spec.pytorchReplicaSpecs.Worker.restartPolicy: with Always a program is started again even after it "
         "succeeded, so the job can never succeed; use OnFailure")),
        (job(PYTORCH, Worker=replica(1, container(PYTORCH), policy="OnFail")),
         ('t.spec.pytorchReplicaSpecs.Worker.restartPolicy: "OnFail" is not known; did you mean OnFailure? use one '
         "of Never, OnFailure, ExitCode")),
        (job(PYTORCH, Worker={"replicas": 1}),
         "t.spec.pytorchReplicaSpecs.Worker.template: it is missing; give a pod template"),
        (job(PYTORCH, Worker=replica(1, container(PYTORCH, name="trainer"))),
         ("t.spec.pytorchReplicaSpecs.Worker.template.spec.containers: no container is named pytorch; name the one "
         "that trains pytorch: the operator looks for it")),
        (job(PYTORCH, Worker=replica(1, {"name": "pytorch", "command": ["sh", "-c", "true"]})),
         ("t.spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].image: it is missing, and the operator of "
         "a cluster refuses such a job; name any image")),
        (job(PYTORCH, policy={"managedBy": "kueue.x-k8s.io/multikueue"}, Worker=1),
         ('t.spec.runPolicy.managedBy: "kueue.x-k8s.io/multikueue" does not run on this machine, so nothing would '
         "run the job; remove it, or submit the experiment to Kubernetes")),
        (job(PYTORCH, policy={"backofLimit": 1}, Worker=1),
         "t.spec.runPolicy.backofLimit: unknown field; did you mean backoffLimit"),
        (job(PYTORCH, policy={"backoffLimit": -1}, Worker=1),
         "t.spec.runPolicy.backoffLimit: -1 is negative; give 0 or more"),
        (job(PYTORCH, policy={"cleanPodPolicy": "Al"}, Worker=1),
         't.spec.runPolicy.cleanPodPolicy: "Al" is not known; did you mean All? use one of None, Running, All'),
        (job(PYTORCH, {"nprocPerNode": "many"}, Worker=1),
         't.spec.nprocPerNode: "many" is not known; use a number in quotes, or auto, cpu or gpu'),
        (job(PYTORCH, {"nprocPerNode": 2}, Worker=1), "t.spec.nprocPerNode: 2 is not text; write it in quotes"),
        (job(PYTORCH, {"nprocPerNode": "2", "elasticPolicy": {"nProcPerNode": 2}}, Worker=1),
         ("t.spec.elasticPolicy.nProcPerNode: it is given beside nprocPerNode, which means the same; keep "
         "nprocPerNode")),
        (job(PYTORCH, {"elasticPolicy": {}}, Master=1),
         "t.spec.elasticPolicy: only workers are elastic, and there are none; add a Worker"),
        (job(PYTORCH, {"elasticPolicy": {"rdzvBackend": "etcd"}}, Worker=1),
         ("t.spec.elasticPolicy.rdzvBackend: there is no etcd on this machine that we know of; use c10d, or give "
         "rdzvHost and rdzvPort")),
        (job(PYTORCH, {"elasticPolicy": {"rdzvBackend": "c10"}}, Worker=1),
         't.spec.elasticPolicy.rdzvBackend: "c10" is not known; did you mean c10d? use one of c10d, etcd, etcd-v2'),
        (job(TF, Chief=1, Master=1), "t.spec.tfReplicaSpecs: Chief and Master are the same role; keep one of them"),
        (job(TF, PS=1, Evaluator=1),
         "t.spec.tfReplicaSpecs: without Chief, Master or Worker a TFJob never succeeds; add a Worker"),
        (job(TF, {"enableDynamicWorker": True}, Worker=1),
         "t.spec.enableDynamicWorker: workers cannot be added while a job runs on this machine; remove it"),
        (job(TF, {"successPolicy": "AllWorker"}, Worker=1),
         ('t.spec.successPolicy: "AllWorker" is not known; did you mean AllWorkers? use AllWorkers, or remove it: '
         "the first worker decides")),
        (job(XGBOOST, Worker=1),
         ("t.spec.xgbReplicaSpecs.Master: it is missing, and the kind XGBoostJob needs it; add a Master with "
         "replicas: 1")),
        (job(JAX, Worker=0),
         "t.spec.jaxReplicaSpecs.Worker.replicas: 0 replicas never succeed; give 1 or more, or remove the type"),
        (job(PADDLE, {"elasticPolicy": {"maxReplica": 1}}, Worker=1),
         "t.spec.elasticPolicy.maxReplica: unknown field; did you mean maxReplicas"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_run_here_is_one_line(template: dict[str, Any], error: str) -> None:
    assert error in errors_of(template)


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
    ("kind", "variables"),
    [(PYTORCH, "MASTER_ADDR and MASTER_PORT"), (TF, "TF_CONFIG")],
    ids=["pytorch", "tensorflow"],
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
    ("template", "notice"),
    [
        (job(PYTORCH, policy={"schedulingPolicy": {"queue": "q"}}, Worker=1),
         "t.spec.runPolicy.schedulingPolicy: all replicas start together here, and no queue is kept"),
        (job(PYTORCH, policy={"cleanPodPolicy": "None"}, Worker=1),
         "t.spec.runPolicy.cleanPodPolicy: replicas that still run when the job is over are stopped here"),
        (job(PYTORCH, policy={"suspend": True}, Worker=1),
         ("t.spec.runPolicy.suspend: every trial starts suspended and waits until its job is resumed, "
         "unless it names a queue of Kueue, which is not here")),
        (job(PYTORCH, policy={"ttlSecondsAfterFinished": 0}, Worker=1),
         ("t.spec.runPolicy.ttlSecondsAfterFinished: with 0 a cluster may remove the job before its trial is "
         "judged; here it stays until then")),
        (job(PYTORCH, Worker=replica(1, container(PYTORCH), restartPolicy="Always")),
         ("t.spec.pytorchReplicaSpecs.Worker.template.spec.restartPolicy: it is replaced by the restart policy of "
         "the replicas, OnFailure, as on a cluster")),
        (job(PYTORCH, {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}, Worker=2),
         "t.spec.elasticPolicy: the number of replicas does not change while a job runs on this machine"),
        (job(PYTORCH, {"nprocPerNode": "auto"}, Worker=2),
         ("t.spec.nprocPerNode: the replicas share this machine: each starts as many processes as it requests "
         "GPUs, or one")),
        (job(PYTORCH, Master=replica(None, container(PYTORCH))),
         "t.spec.pytorchReplicaSpecs.Master.replicas: the operator of a cluster wants it written: replicas: 1"),
        (job(XGBOOST, Master=1, Worker=2),
         ("t.spec.xgbReplicaSpecs.Worker: the workers share one address here and each gets a WORKER_PORT of its "
         "own; LightGBM finds the addresses of all in KATIB_PEERS")),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_different_here_is_said(template: dict[str, Any], notice: str) -> None:
    assert notice in found_in(template)[1]


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
