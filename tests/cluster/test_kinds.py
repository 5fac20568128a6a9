"""Trials that are no batch Jobs, and services that are not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from katib.model.job_kinds import nested, suspend_field, value_at
from katib.model.version import __version__
from katib.places.cluster.pods.reading import COLLECTORS
from tests.support.operators import (
    GRACE_SECONDS,
    Operator,
    install_kind,
    job_set,
    node_job,
    pod,
    remove_kind,
    training_pods,
)
from tests.support.pod_cluster import (
    FINAL,
    IMAGE,
    Json,
    PodCluster,
    Room,
    accepts,
    algorithm,
    condition_of,
    experiment,
    is_true,
    wait_for,
)
from tests.support.stores import owned_by

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
GROUP = "katib-test.example.com"
COMMAND = ["python3", "-u", "-c", "import os; print('loss=' + os.environ['lr'])"]
LR = [{"name": "lr", "value": "${trialParameters.lr}"}]


def container(name: str, command: list[str] | None = None) -> Json:
    return {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command or COMMAND, "env": LR}


def losses_are_the_values(room: Room, name: str) -> bool:
    found = [
        (t["spec"]["parameterAssignments"][0]["value"], t["status"]["observation"]["metrics"][0]["latest"])
        for t in room.trials(name)
    ]
    return bool(found) and all(float(value) == float(latest) for value, latest in found)


@pytest.fixture
def gizmos(cluster: PodCluster) -> Iterator[str]:
    yield "gizmos." + GROUP
    remove_kind(cluster, "gizmos." + GROUP)
    cluster.run("delete", "clusterrole", "katib-test-gizmos", "--ignore-not-found")


def test_a_trial_may_be_of_a_kind_that_nobody_knows_and_the_missing_right_is_named(room: Room, gizmos: str) -> None:
    """The kind is installed only after the experiment asked for it, and allowed only after that."""
    gizmo = {"apiVersion": f"{GROUP}/v1", "kind": "Gizmo", "spec": {"template": {"spec": {"containers": []}}}}
    gizmo["spec"] = {"template": {"spec": {"containers": [container("main")]}}}
    template = {
        "primaryContainerName": "main",
        "successCondition": 'status.conditions.#(type=="Done")#|#(status=="True")#',
        "failureCondition": 'status.conditions.#(type=="Failed")#|#(status=="True")#',
    }
    room.apply(experiment("gizmos", gizmo, trials=2, template=template))

    def told(reason: str, words: str) -> bool:
        conditions = [condition_of(trial, "Running") for trial in room.trials("gizmos")]
        return any(c.get("reason") == reason and words in c["message"] for c in conditions)

    wait_for(lambda: told("JobKindNotInstalled", "Gizmo"), "a trial to say that its kind is missing", 60, room.picture)
    assert install_kind(room.cluster, f"{GROUP}/v1", "Gizmo") == gizmos
    wait_for(lambda: told("JobForbidden", "gizmos"), "a trial to name the right that is missing", 60, room.picture)
    room.cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "katib-test-gizmos", "labels": {"katib.kubeflow.org/aggregate-to-controller": "true"}},
            "rules": [
                {"apiGroups": [GROUP], "resources": ["gizmos"], "verbs": ["get", "list", "watch", "create", "delete"]}
            ],
        }
    )

    def pods(obj: Json) -> list[Json]:
        return [pod(obj["metadata"]["name"], obj["spec"]["template"], {})]

    with Operator(room, gizmos, pods, succeeded="Done"):
        room.ended("gizmos", 200)

    assert losses_are_the_values(room, "gizmos")


@contextmanager
def installed(cluster: PodCluster, *kinds: tuple[str, str]) -> Iterator[list[str]]:
    """Have kinds for a while; a kind that was there before stays."""
    there = cluster.run("get", "crd", "-o", "name")
    plurals = [install_kind(cluster, api_version, kind) for api_version, kind in kinds]
    yield plurals
    for plural in plurals:
        if plural not in there:
            remove_kind(cluster, plural)


def collectors_of(found: Json) -> int:
    """Count the collectors of a pod, which are native sidecars where every node has them."""
    everyone = [*found["spec"]["containers"], *found["spec"].get("initContainers", ())]
    return sum(one["name"] in COLLECTORS for one in everyone)


def test_the_master_of_a_pytorch_job_is_read_and_its_workers_are_left_alone(room: Room) -> None:
    replica = {"restartPolicy": "Never", "template": {"spec": {"containers": [container("pytorch")]}}}
    worker = {"template": {"spec": {"containers": [container("pytorch", ["python3", "-c", "print('loss=-1')"])]}}}
    specs = {"Master": {"replicas": 1, **replica}, "Worker": {"replicas": 1, **worker}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": specs}}
    template = {"primaryContainerName": "pytorch", "retain": True}

    with (
        installed(room.cluster, ("kubeflow.org/v1", "PyTorchJob")) as (plural,),
        Operator(room, plural, training_pods, succeeded="Succeeded"),
    ):
        room.apply(experiment("torch", job, trials=2, template=template))
        room.ended("torch", 200)
        collectors = {p["metadata"]["name"]: collectors_of(p) for p in room.pods() if "torch" in str(p)}
        room.delete("torch")

    masters = {name: count for name, count in collectors.items() if "-master-" in name}
    workers = {name: count for name, count in collectors.items() if "-worker-" in name}
    assert set(masters.values()) == {1}
    assert set(workers.values()) == {0}


PREEMPTED = "Preempted to accommodate a workload (UID: 7) due to prioritization in the ClusterQueue"
NO_ROOM = "insufficient unused quota for cpu in flavor default, 1 more needed"
STEP = """
import os, time
print("loss=" + os.environ["LOSS"], flush=True)
time.sleep(float(os.environ["PAUSE"]))
"""


def xgboost_job(script: str) -> Json:
    """Return a job of one pod, whose variables come from the ConfigMap `program` when it starts."""
    one = {**container("xgboost", ["python3", "-u", "-c", script]), "envFrom": [{"configMapRef": {"name": "program"}}]}
    master = {"replicas": 1, "template": {"spec": {"terminationGracePeriodSeconds": 20, "containers": [one]}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "XGBoostJob", "spec": {"xgbReplicaSpecs": {"Master": master}}}


def batch_job(script: str) -> Json:
    job = xgboost_job(script)["spec"]["xgbReplicaSpecs"]["Master"]
    pod_spec = {"restartPolicy": "Never", **job["template"]["spec"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": {"spec": pod_spec}}}


def program(room: Room, *, loss: str, pause: str) -> None:
    """Say what pods that start from now on do."""
    data = {"LOSS": loss, "PAUSE": pause}
    room.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}, "data": data})


def test_a_job_is_queued_by_kueue_preempted_and_goes_on_with_its_readings(room: Room) -> None:
    """The test plays Kueue: it writes the Workload of the job, and the field that suspends it."""
    kinds = (("kubeflow.org/v1", "XGBoostJob"), ("kueue.x-k8s.io/v1beta1", "Workload"))
    with (
        installed(room.cluster, *kinds) as (jobs, workloads),
        Operator(room, jobs, training_pods, succeeded="Succeeded"),
    ):
        queue_and_preempt(room, "training", xgboost_job(STEP), jobs, workloads)
        queue_and_preempt(room, "batch", batch_job(STEP), "jobs", workloads)


def queue_and_preempt(room: Room, experiment_name: str, wanted: Json, jobs: str, workloads: str) -> None:
    def only() -> Json:
        (trial,) = wait_for(lambda: room.trials(experiment_name), "a trial", 60, room.picture)
        return trial

    def says(words: str) -> None:
        def is_said() -> bool:
            return bool(condition_of(only(), "Running").get("message") == f"Trial waits in Kueue's queue team-a{words}")

        wait_for(is_said, words, 60, room.picture)

    def kueue(*, reason: str = "", **holds: bool) -> None:
        """Write conditions of the Workload and the field of its job as Kueue does."""
        types = {"Admitted": False, "QuotaReserved": False, "Evicted": False, **holds}
        said = {"QuotaReserved": NO_ROOM, "Evicted": reason}
        conditions = [
            {"type": type_, "status": str(held), "reason": type_, "message": said.get(type_, "")}
            for type_, held in types.items()
        ]
        workload = room.cluster.find(workloads, f"of-{name}", room.namespace)
        assert workload is not None
        room.cluster.set_status("workloads", workload, {"conditions": conditions})
        change = nested(suspend_field(wanted), not types["Admitted"])
        where = f"--namespace={room.namespace}"
        room.cluster.run("patch", jobs, name, where, "--type=merge", "-p", json.dumps(change))

    def its_pods() -> list[Json]:
        return [pod for pod in room.pods() if name in pod["metadata"]["name"]]

    program(room, loss="0.9", pause="900")
    made = experiment(experiment_name, wanted, trials=1, parallel=1, template={"primaryContainerName": "xgboost"})
    room.apply({**made, "metadata": {"name": experiment_name, "labels": {"kueue.x-k8s.io/queue-name": "team-a"}}})
    name = only()["metadata"]["name"]
    job = wait_for(lambda: room.cluster.find(jobs, name, room.namespace), "its job")
    assert job is not None
    says("")
    assert value_at(job, suspend_field(job)) is True
    owners = [{**owner, "controller": True} for owner in owned_by(job)]
    workload = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload"}
    room.apply({**workload, "metadata": {"name": f"of-{name}", "ownerReferences": owners}})
    kueue()
    says(f": {NO_ROOM}")
    assert its_pods() == []

    kueue(Admitted=True, QuotaReserved=True)
    wait_for(lambda: is_true(only(), "Running"), "it to run", 90, room.picture)
    (pod,) = its_pods()
    logs = ("logs", pod["metadata"]["name"], "-c", "xgboost", f"--namespace={room.namespace}")
    wait_for(lambda: "loss=0.9" in room.cluster.run(*logs, check=False), "its first reading", 60, room.picture)
    kueue(Evicted=True, reason=PREEMPTED)
    says(f": {PREEMPTED}; {NO_ROOM}")

    program(room, loss="0.5", pause="0")
    kueue(Admitted=True, QuotaReserved=True)
    ended = room.ended(experiment_name, 200)
    room.delete(experiment_name)

    (loss,) = ended["status"]["currentOptimalTrial"]["observation"]["metrics"]
    assert ended["status"]["trialsSucceeded"] == 1
    assert (loss["max"], loss["min"], loss["latest"]) == ("0.9", "0.5", "0.5")


ENDLESS = """
import os, sys, time
lr = float(os.environ["lr"])
print(f"loss={lr}", flush=True)
if lr < 0.5:
    sys.exit()
for step in range(600):
    print(f"loss={lr}", flush=True)
    time.sleep(1)
"""
OF_TWO_VALUES: Json = {
    "algorithm": {"algorithmName": "grid"},
    "parameters": [{"name": "lr", "parameterType": "categorical", "feasibleSpace": {"list": ["0.1", "0.9"]}}],
}
STOPPING = {"algorithmName": "threshold", "algorithmSettings": [{"name": "bound", "value": "0.5"}]}
GOAL = {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.2}


def train_job(command: list[str]) -> Json:
    trainer = {"numNodes": 1, "image": IMAGE, "command": command, "env": LR}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}


def test_a_train_job_is_followed_to_its_pods_which_end_when_it_is_deleted_stopped_or_not_needed(room: Room) -> None:
    """Its operators make children again for as long as it is there."""
    kinds = (("trainer.kubeflow.org/v1alpha1", "TrainJob"), ("jobset.x-k8s.io/v1alpha2", "JobSet"))

    def running(name: str) -> list[Json]:
        """Return the pods of an experiment that run or wait to."""
        ours = [pod for pod in room.pods() if pod["metadata"]["name"].startswith(f"{name}-") and "-node-0-" in str(pod)]
        return [pod for pod in ours if pod["status"].get("phase") not in FINAL]

    def is_one_left(name: str) -> bool:
        ended = [trial for trial in room.trials(name) if is_true(trial, "Succeeded")]
        return len(ended) == 1 and len(running(name)) == 1

    def is_gone(name: str) -> bool:
        left = [obj for plural in (train_jobs, job_sets) for obj in room.cluster.items(plural, room.namespace)]
        return not running(name) and not any(obj["metadata"]["name"].startswith(f"{name}-") for obj in left)

    with (
        installed(room.cluster, *kinds) as (train_jobs, job_sets),
        Operator(room, train_jobs, job_set, watched=job_sets, succeeded="Complete"),
        Operator(room, job_sets, node_job, watched="jobs", succeeded="Completed"),
    ):
        ways: dict[str, Json] = {"deleted": {}, "stopped": {"earlyStopping": STOPPING}, "reached": {"objective": GOAL}}
        template = {"primaryContainerName": "node"}
        for name, more in ways.items():
            job = train_job(["python3", "-u", "-c", ENDLESS])
            room.apply(experiment(name, job, trials=2, template=template, **OF_TWO_VALUES, **more))
        room.apply(experiment("trained", train_job(COMMAND), trials=2, template=template))
        wait_for(lambda: is_one_left("deleted"), "one trial to run", 150, room.picture)
        room.cluster.run("delete", "experiment", "deleted", f"--namespace={room.namespace}", "--wait=false")
        wait_for(lambda: is_gone("deleted"), "its job to be gone", GRACE_SECONDS + 10, room.picture)
        wait_for(lambda: not room.trials("deleted"), "its trials to be gone", 10, room.picture)
        stopped = room.ended("stopped")
        outlived = running("stopped")
        room.ended("reached")
        wait_for(lambda: is_gone("stopped") and is_gone("reached"), "all to be gone", GRACE_SECONDS + 10, room.picture)
        killed = [trial for trial in room.trials("reached") if is_true(trial, "Killed")]
        room.ended("trained", 200)
        read = losses_are_the_values(room, "trained")
        for name in ("stopped", "reached", "trained"):
            room.delete(name)

    assert (stopped["status"]["trialsSucceeded"], stopped["status"]["trialsEarlyStopped"]) == (1, 1)
    assert outlived == []
    assert len(killed) == 1
    assert read


def test_a_suggestion_service_of_another_owner_is_asked_at_its_address(room: Room) -> None:
    """The service of `examples/custom-algorithm`, in a pod that the product did not make."""
    folder = ROOT / "examples" / "custom-algorithm"
    code = {path.name: path.read_text() for path in folder.glob("*.py")}
    server = {
        "name": "service",
        "image": f"katib/suggestion:{__version__}",
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "/code/service.py", "--address", "0.0.0.0:6789"],
        "volumeMounts": [{"name": "code", "mountPath": "/code"}],
        "readinessProbe": {"tcpSocket": {"port": 6789}, "periodSeconds": 1},
    }
    spec = {"containers": [server], "volumes": [{"name": "code", "configMap": {"name": "code"}}]}
    room.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": code},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "climber", "labels": {"app": "climber"}},
            "spec": spec,
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "climber"},
            "spec": {"selector": {"app": "climber"}, "ports": [{"port": 6789}]},
        },
    )
    wait_for(lambda: is_true(room.cluster.find("pod", "climber", room.namespace) or {}, "Ready"), "the service")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container("training-container")]}}},
    }

    with algorithm(room.cluster, {"algorithmName": "hill-climber", "address": f"climber.{room.namespace}:6789"}):
        accepted = wait_for(
            lambda: accepts(room, experiment("climb", job, trials=3, algorithm={"algorithmName": "hill-climber"})),
            "the new algorithm to be known",
            90,
            every=2,
        )
        room.ended("climb")

    assert accepted
    assert losses_are_the_values(room, "climb")
    assert room.cluster.items("deployments", room.namespace) == []
