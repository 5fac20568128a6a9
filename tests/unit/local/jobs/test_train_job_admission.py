from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from katib.engine.runtime.objects import Key
from katib.places.machine.admission import check_job
from katib.places.machine.admission.pod_rules import OFFER
from katib.places.machine.jobs.jobset.runtimes import RUNTIME, SHIPPED, shipped_runtime
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.submission import LocalHome
from tests.support.admission import HOST
from tests.support.golden import Golden
from tests.unit.local.jobs.test_train_job_plan import Shelf, own_runtime

SHELL = ["sh", "-c", "echo loss=1"]
TORCH = {"name": "torch-distributed"}
OWN = {"name": "mine", "kind": "TrainingRuntime"}


def shelf_with(spec: dict[str, Any]) -> Shelf:
    """Return a shelf as admission sees it: the namespace of a template is not known."""
    shelf = Shelf()
    shelf.objects[RUNTIME, Key("", "mine")] = {"spec": spec}
    return shelf


def check(job: dict[str, Any], shelf: Shelf | None = None) -> tuple[list[str], list[str]]:
    """Return errors and notices, without the path of the template."""
    errors, notices = check_job(job, "T", host=HOST, kinds=JobKinds((shelf or Shelf()).find))
    return [str(error).removeprefix("T.spec.") for error in errors], [n.replace("T.spec.", "") for n in notices]


def train_job(shelf: Shelf | None = None, **spec: Any) -> tuple[list[str], list[str]]:
    whole = {"runtimeRef": TORCH, "trainer": {"command": SHELL}, **spec}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": whole}
    return check(job, shelf)


def jobset(**spec: Any) -> tuple[list[str], list[str]]:
    whole = {"replicatedJobs": [replicated()], **spec}
    return check({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": whole})


def replicated(name: str = "a", **fields: Any) -> dict[str, Any]:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "command": SHELL}]}}}}
    return {"name": name, "template": template, **fields}


def test_a_plain_train_job_and_a_plain_jobset_run_without_a_word() -> None:
    assert train_job() == ([], [])
    assert train_job(trainer={"command": SHELL, "numNodes": "${trialParameters.n}", "numProcPerNode": 2}) == ([], [])
    assert jobset() == ([], [])


@pytest.mark.parametrize(
    "name", ["torch-distributed", "jax-distributed", "xgboost-distributed", "deepspeed-distributed"]
)
def test_each_shipped_runtime_needs_only_a_command(name: str, golden: Golden) -> None:
    [error] = train_job(runtimeRef={"name": name}, trainer={})[0]

    assert train_job(runtimeRef={"name": name}) == ([], [])
    golden(error)


@pytest.mark.parametrize(
    "spec",
    [
        {"runtimeRef": {"name": "torch-distributd"}},
        {"runtimeRef": {"name": "other"}},
        {"runtimeRef": {"name": "torch-distributed", "kind": "Runtime"}},
        {"runtimeRef": {}},
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        {"trainer": {"command": SHELL, "env": [{"name": "PET_NNODES", "value": "2"}]}},
        {"trainer": {"command": SHELL, "numNodes": 0}},
        {"trainer": {"command": SHELL, "numProcPerNode": "many"}},
        {"trainer": {"command": ["no-such-program"]}},
        {"trainer": {"command": ["tune", "run"]}},
        {"trainer": {"command": SHELL, "args": ["--peer=${trialSpec.Name}-node-0-1:29500"]}},
        {"trainer": {"command": SHELL, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}, "numNodes": 2}},
        {"trainer": {"command": SHELL, "nodes": 2}},
        {"trainr": {}},
        {"initializer": {"dataset": {"storageUri": "hf://x"}}},
        {"podSpecOverrides": [{"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}]}]},
        {"activeDeadlineSeconds": 0},
    ],
)
def test_what_cannot_run_here_is_an_error_of_one_line(spec: dict[str, Any], golden: Golden) -> None:
    errors = [text.removeprefix("T.spec: ") for text in train_job(**spec)[0]]

    golden(errors[:1])
    assert len(errors) == 1 or spec.get("trainer", {}).get("command") == ["tune", "run"]  # which is not here, either


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"podTemplateOverrides": [{"targetJobs": [{"name": "nod"}]}]}, "podTemplateOverrides[0].targetJobs[0].name"),
        ({"podSpecOverrides": [{"targetJobs": [{"name": "nod"}]}]}, "podSpecOverrides[0].targetJobs[0].name"),
        (
            {
                "runtimePatches": [
                    {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "nod"}]}}}}
                ]
            },
            "runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name",
        ),
    ],
)
def test_an_override_names_a_job_of_the_runtime(spec: dict[str, Any], path: str, golden: Golden) -> None:
    errors, _ = train_job(**spec)

    golden(errors)


@pytest.mark.parametrize("name", ["mlx-distributed", "torchtune-llama3.2-1b"])
def test_runtimes_that_need_their_images_say_so(name: str, golden: Golden) -> None:
    [error] = train_job(runtimeRef={"name": name})[0]

    golden(error)


def test_without_a_trainer_nodes_get_no_addresses_and_a_notice_says_so(golden: Golden) -> None:
    errors, notices = train_job(shelf_with(own_runtime(command=SHELL)), runtimeRef=OWN, trainer=None)

    place = "runtimeRef(mine).spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0]"
    why = f'"fetch" is not on this machine; install it, use a full path, or {OFFER}'
    assert errors == [f"{place}.command[0]: {why}"]
    golden(notices[:1])


@pytest.mark.parametrize(
    "policy",
    [{"torch": {}, "jax": {}}, {"flux": {}}, {"mpi": {"mpiImplementation": "Intel"}}, {"torch": {"nproc": 1}}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_runtime_of_a_users_own_is_checked_too(policy: dict[str, Any], golden: Golden) -> None:
    runtime = own_runtime(command=SHELL) | {"mlPolicy": policy}

    golden(train_job(shelf_with(runtime), runtimeRef=OWN)[0][0])


def test_what_a_patch_does_is_reported_where_it_stands() -> None:
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}}
    patch = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}

    assert train_job(runtimePatches=[patch]) == (
        [],
        ["runtimePatches: everything runs on this machine, so it is not used for placing pods"],
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"replicatedJobs": []},
        {"managedBy": "kueue"},
        {"successPolicy": {"operator": "Some"}},
        {"successPolicy": {"targetReplicatedJobs": ["b"]}},
        {"failurePolicy": {"restartStrategy": "InPlaceRestart"}},
        {"failurePolicy": {"rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["("]}]}},
        {"failurePolicy": {"maxRestarts": -1}},
        {"volumeClaimPolicies": [{}]},
        {"successPolcy": {}},
        {"suspend": "yes"},
        *(
            {"replicatedJobs": [replicated(), job]}
            for job in (
                replicated("a"),
                replicated("b", dependsOn=[{"name": "c", "status": "Ready"}]),
                replicated("b", dependsOn=[{"name": "a", "status": "Done"}]),
                {"name": "b", "template": {}},
                {"name": "b", "template": {"spec": {**replicated()["template"]["spec"], "paralelism": 2}}},
            )
        ),
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_jobset_that_cannot_run_here_is_an_error_of_one_line(fields: dict[str, Any], golden: Golden) -> None:
    [error] = jobset(**fields)[0]

    golden(error)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"args": ["${trialSpec.Name}-a-0-0.${trialSpec.Name}"]}, "args"),
        ({"env": [{"name": "PEER", "value": "$(SET)-a-0-0:80"}]}, "env"),
        ({"args": ["$(SET)-a-0-0.demo.default.svc.cluster.local:80"]}, "args"),
        ({"args": ["data-0-0", "a-0"]}, ""),
    ],
)
def test_names_of_other_pods_are_found_wherever_they_stand_but_lead_there_in_a_network_of_its_own(
    fields: dict[str, Any], place: str
) -> None:
    job = replicated("b")
    job["template"]["spec"]["template"]["spec"]["containers"][0] |= fields
    spec = {"replicatedJobs": [replicated(), job]}
    whole = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    where = f"replicatedJobs[1].template.spec.template.spec.containers[0].{place}"
    why = 'the host name of a pod, as in "a-0-0", leads nowhere on this machine; '
    remedy = "use 127.0.0.1, or submit the experiment to Kubernetes"

    assert check(whole)[0] == ([f"{where}: {why}{remedy}"] if place else [])
    host = replace(HOST, runs_images=True, names_pods=True)
    assert [error for error in check_job(whole, "T", host=host)[0] if error.origin == "jobset-peer-name"] == []


@pytest.mark.parametrize(
    ("policy", "variables"),
    [("torch", "PET_MASTER_ADDR and PET_MASTER_PORT"), ("mpi", ""), ("jax", "JAX_COORDINATOR_ADDRESS")],
)
def test_ports_of_a_runtime_are_explained_by_its_policy(policy: str, variables: str) -> None:
    spec = own_runtime(command=SHELL, ports=[{"containerPort": 29500}])
    spec["mlPolicy"] = {"numNodes": 2, policy: {}}
    _, notices = train_job(shelf_with(spec), runtimeRef={"kind": "TrainingRuntime", "name": "mine"}, trainer={})

    [notice] = [notice for notice in notices if ".ports" in notice]
    assert f"in {variables};" in notice if variables else "trials that listen on the same number" in notice


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_runtime_could_be_stored_by_itself(name: str) -> None:
    assert LocalHome(HOST).check_runtime({"spec": shipped_runtime(name).spec}, "") == []


@pytest.mark.parametrize(
    "runtime",
    [
        {},
        {"specs": {}},
        {"spec": {"mlPolicy": {"torch": {}, "mpi": {}}}},
        {"spec": {"template": {"spec": {"replicatedJobs": []}}}},
    ],
    ids=["nothing", "misspelled", "two policies", "no jobs"],
)
def test_what_is_wrong_with_a_runtime_alone_is_reported_with_its_place(runtime: dict[str, Any], golden: Golden) -> None:
    golden(LocalHome(HOST).check_runtime(runtime, ""))
