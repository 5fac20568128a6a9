"""The variables of replicas, their names and their labels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from katib.engine.runtime.objects import Kind
from katib.errors import InvalidError
from katib.places.machine.containers.arguments import Abilities, RuntimeProgram
from katib.places.machine.containers.choice import ContainerRuntime
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.kind import PodStart
from katib.places.machine.jobs.networks import LocalWiring, NamedWiring, PortTable, network_of
from katib.places.machine.jobs.replicated.frameworks import JAXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.training_kind import TrainingKind
from katib.places.machine.pods.environment import HOST_NETWORK
from tests.support.training_jobs import ClusterWiring, replica, training_job, variables_of

PYTORCH, TF, XGBOOST, PADDLE, JAX = PyTorchJob(), TFJob(), XGBoostJob(), PaddleJob(), JAXJob()


ALL_OPTIONS = {
    "minReplicas": 1,
    "maxReplicas": 4,
    "maxRestarts": 3,
    "rdzvId": "x",
    "rdzvConf": [{"key": "timeout", "value": "9"}, {"key": "last_call_timeout", "value": "1"}],
    "standalone": True,
    "nProcPerNode": 2,
    "rdzvBackend": "etcd-v2",
    "rdzvHost": "etcd.example.com",
    "rdzvPort": 2379,
}


@pytest.mark.parametrize(
    ("kind", "fields", "roles", "index", "expected"),
    [
        (TF, {}, {"Worker": 1}, 0, ""),
        (PYTORCH, {"nprocPerNode": "2"}, {"Master": 1, "Worker": 2}, 1,
         ("PYTHONUNBUFFERED=1 MASTER_PORT=23456 PET_MASTER_PORT=23456 MASTER_ADDR=j-master-0 "
         "PET_MASTER_ADDR=j-master-0 WORLD_SIZE=6 RANK=2 PET_NODE_RANK=2 PET_NPROC_PER_NODE=2 PET_NNODES=3")),
        (PYTORCH, {}, {"Worker": 2}, 1, "PYTHONUNBUFFERED=1 PET_NPROC_PER_NODE=1 PET_NNODES=2"),
        (PYTORCH, {"elasticPolicy": {}}, {"Worker": 2}, 1,
         ("PYTHONUNBUFFERED=1 PET_NPROC_PER_NODE=1 PET_NNODES=2:2 PET_RDZV_ENDPOINT=j-worker-0:23456 "
         "PET_RDZV_BACKEND=c10d")),
        (PYTORCH, {"elasticPolicy": ALL_OPTIONS}, {"Worker": 2}, 0,
         ("PYTHONUNBUFFERED=1 PET_NPROC_PER_NODE=2 PET_NNODES=2 PET_RDZV_ENDPOINT=etcd.example.com:2379 "
         "PET_RDZV_BACKEND=etcd-v2 PET_MAX_RESTARTS=3 PET_RDZV_ID=x "
         "PET_RDZV_CONF=timeout=9,last_call_timeout=1 PET_STANDALONE=")),
        (XGBOOST, {}, {"Master": 1, "Worker": 2}, 0,
         ("MASTER_PORT=9999 MASTER_ADDR=j-master-0 WORLD_SIZE=3 RANK=1 PYTHONUNBUFFERED=1 WORKER_PORT=9999 "
         "WORKER_ADDRS=j-worker-0,j-worker-1 KATIB_PEERS=j-master-0:9999,j-worker-0:9999,j-worker-1:9999")),
        (PADDLE, {}, {"Worker": 2}, 1,
         ("PYTHONUNBUFFERED=1 PADDLE_JOB_ID=j PADDLE_NNODES=2 POD_IP_DUMMY=j-worker-0 PADDLE_MASTER=j-worker-0:36543 "
         "PADDLE_RANK=1")),
        (JAX, {}, {"Worker": 3}, 2,
         "PYTHONUNBUFFERED=1 COORDINATOR_PORT=6666 COORDINATOR_ADDRESS=j-worker-0 NUM_PROCESSES=3 PROCESS_ID=2"),
    ],
    ids=["tensorflow-alone", "pytorch", "pytorch-workers", "elastic", "elastic-options", "xgboost", "paddle", "jax"],
)  # fmt: skip
def test_a_worker_knows_itself_and_its_peers(
    kind: TrainingKind, fields: dict[str, Any], roles: dict[str, int], index: int, expected: str
) -> None:
    variables = variables_of(kind, training_job(kind, fields=fields, **roles), "worker", index)

    assert " ".join(map("=".join, variables.items())) == expected


class TestTFJob:
    def test_the_configuration_has_the_form_of_the_operator(self) -> None:
        job = training_job(TF, Worker=2, PS=1)

        assert variables_of(TF, job, "worker", 1)["TF_CONFIG"] == (
            '{"cluster":{"ps":["j-ps-0.n.svc:2222"],"worker":["j-worker-0.n.svc:2222","j-worker-1.n.svc:2222"]},'
            '"task":{"type":"worker","index":1},"environment":"cloud"}'
        )

    def test_on_this_machine_each_replica_has_a_port_of_its_own(self) -> None:
        wiring, job = LocalWiring(PortTable()), training_job(TF, Worker=2, Evaluator=1, Chief=1)
        of_chief = json.loads(variables_of(TF, job, "chief", 0, wiring)["TF_CONFIG"])
        of_worker = json.loads(variables_of(TF, job, "worker", 1, wiring)["TF_CONFIG"])
        addresses = [address for role in of_chief["cluster"].values() for address in role]

        assert of_chief["cluster"] == of_worker["cluster"]
        assert list(of_chief["cluster"]) == ["chief", "evaluator", "worker"]
        assert len(set(addresses)) == 4
        assert all(address.startswith("127.0.0.1:") for address in addresses)

    def test_the_port_is_that_of_the_template(self) -> None:
        ports = [{"name": "other", "containerPort": 1}, {"name": "tfjob-port", "containerPort": 4321}]
        job = training_job(TF, Worker=1, PS=replica(1, {"name": "tensorflow", "command": ["x"], "ports": ports}))

        cluster = json.loads(variables_of(TF, job, "worker", 0)["TF_CONFIG"])["cluster"]

        assert cluster == {"ps": ["j-ps-0.n.svc:4321"], "worker": ["j-worker-0.n.svc:2222"]}

    def test_only_the_container_that_trains_gets_them(self) -> None:
        containers = [{"name": "tensorflow", "command": ["x"]}, {"name": "other", "command": ["x"]}]
        job = training_job(TF, Worker=replica(2, *containers))

        assert list(TF.pod(job, PodStart(0, "worker"), ClusterWiring()).variables) == ["tensorflow"]


class TestPyTorchJob:
    @pytest.mark.parametrize(
        ("roles", "limits", "processes"),
        [
            ({"Master": 1}, {}, "auto"),
            ({"Master": 1, "Worker": 1}, {}, "1"),
            ({"Worker": 2}, {"nvidia.com/gpu": 2}, "2"),
        ],
        ids=["alone", "together", "with-cards"],
    )
    def test_replicas_divide_the_machine(self, roles: dict[str, int], limits: dict[str, Any], processes: str) -> None:
        program = {"name": "pytorch", "command": ["x"], "resources": {"limits": limits}}
        job = training_job(PYTORCH, **{type_: replica(count, program) for type_, count in roles.items()})

        assert variables_of(PYTORCH, job, min(roles).lower(), 0)["PET_NPROC_PER_NODE"] == processes

    def test_all_replicas_of_a_job_get_the_same_port_and_two_jobs_at_once_different_ones(self) -> None:
        ports, job = PortTable(), training_job(PYTORCH, Master=1, Worker=1)
        wirings = [LocalWiring(ports), LocalWiring(ports)]
        of = [{variables_of(PYTORCH, job, r, 0, w)["MASTER_PORT"] for r in ("worker", "master")} for w in wirings]

        assert [len(found) for found in of] == [1, 1]
        assert of[0] != of[1]


class TestXGBoostJob:
    def test_a_master_alone_has_no_workers(self) -> None:
        assert "WORKER_ADDRS" not in variables_of(XGBOOST, training_job(XGBOOST, Master=1), "master", 0)

    def test_on_this_machine_a_worker_gets_its_own_port(self) -> None:
        wiring, job = LocalWiring(PortTable()), training_job(XGBOOST, Master=1, Worker=2)
        variables = [variables_of(XGBOOST, job, "worker", i, wiring) for i in range(2)]

        _, *workers = variables[0]["KATIB_PEERS"].split(",")
        assert [f"127.0.0.1:{v['WORKER_PORT']}" for v in variables] == workers
        assert variables[0]["WORKER_ADDRS"] == "127.0.0.1,127.0.0.1"


class TestOtherKinds:
    def test_launchers_of_paddle_do_not_share_the_files_that_they_print(self) -> None:
        job = training_job(PADDLE, Worker=2)
        pods = [PADDLE.pod(job, PodStart(i, "worker"), ClusterWiring()) for i in range(2)]

        assert [pod.defaults["PADDLE_LOG_DIR"] for pod in pods] == ["log/j-worker-0", "log/j-worker-1"]

    def test_paddle_replicas_with_a_master_know_whether_they_serve(self) -> None:
        job = training_job(PADDLE, Master=1, Worker=1)

        assert variables_of(PADDLE, job, "master", 0)["PADDLE_SERVER_NUM"] == "1"
        assert variables_of(PADDLE, job, "worker", 0)["PADDLE_TRAINER_NUM"] == "1"
        assert variables_of(PADDLE, job, "worker", 0)["PADDLE_MASTER"] == "j-master-0:36543"


class TestPods:
    def test_a_pod_has_the_name_and_the_labels_of_a_cluster(self) -> None:
        job = training_job(PYTORCH, Master=1, worker=2)
        pod = PYTORCH.pod(job, PodStart(1, "worker"), ClusterWiring())

        assert (pod.name, pod.path) == ("j-worker-1", "spec.pytorchReplicaSpecs.worker.template")
        assert pod.labels == {
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/job-name": "j",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "1",
            "job-name": "j",
            "replica-type": "worker",
            "replica-index": "1",
            "group-name": "kubeflow.org",
            "group_name": "kubeflow.org",
            "controller-name": "pytorch-operator",
            "pytorch-job-name": "j",
            "pytorch_job_name": "j",
            "pytorch-replica-type": "worker",
            "pytorch-replica-index": "1",
        }

    @pytest.mark.parametrize(
        ("kind", "roles", "primary"),
        [
            (PYTORCH, {"Master": 1, "Worker": 1}, {"master-0"}),
            (PYTORCH, {"Worker": 2}, {"worker-0"}),
            (TF, {"Chief": 1, "Worker": 1, "PS": 1}, {"chief-0"}),
            (TF, {"Worker": 2, "PS": 1}, {"worker-0"}),
            (XGBOOST, {"Master": 1, "Worker": 1}, {"master-0"}),
            (PADDLE, {"Master": 1, "Worker": 1}, {"master-0"}),
            (PADDLE, {"Worker": 2}, set()),
            (JAX, {"Worker": 2}, {"worker-0"}),
        ],
        ids=[
            "pytorch",
            "pytorch-workers",
            "tensorflow-chief",
            "tensorflow-workers",
            "xgboost",
            "paddle",
            "paddle-workers",
            "jax",
        ],
    )
    def test_the_primary_replica_has_the_role_of_master(
        self, kind: ReplicatedJob, roles: dict[str, int], primary: set[str]
    ) -> None:
        job = training_job(kind, **roles)
        starts = [PodStart(i, type_.lower()) for type_, count in roles.items() for i in range(count)]
        pods = [kind.pod(job, start, ClusterWiring()) for start in starts]

        marked = {pod.name for pod in pods if pod.labels.get("training.kubeflow.org/job-role") == "master"}
        assert marked == {f"j-{name}" for name in primary}

    @pytest.mark.parametrize(
        ("policy", "limit", "restarts"),
        [
            ("", None, True),
            ("OnFailure", 1, True),
            ("OnFailure", 0, False),
            ("Never", None, False),
            ("ExitCode", 3, False),
        ],
    )
    def test_only_on_failure_starts_programs_again_in_place(
        self, policy: str, limit: int | None, restarts: bool
    ) -> None:
        master = replica(1, {"name": "pytorch", "command": ["x"]}, policy=policy)
        job = training_job(PYTORCH, policy={"backoffLimit": limit}, Master=master)

        assert PYTORCH.pod(job, PodStart(0, "master"), ClusterWiring()).restarts_on_failure is restarts

    @pytest.mark.parametrize(("name", "cause"), [("0-a", "DNS-1035"), ("a" * 60, "longer than 63")])
    def test_a_name_that_a_cluster_refuses_is_refused(self, name: str, cause: str) -> None:
        job = training_job(PYTORCH, name=name, Master=1)

        with pytest.raises(InvalidError, match=cause):
            PYTORCH.pod(job, PodStart(0, "master"), ClusterWiring())


ROLES = Kind("kubeflow.org/v1", "PyTorchJob")
DEMO = {"metadata": {"name": "demo", "uid": "0123456789abcdef"}}
PODMAN = ContainerRuntime(RuntimeProgram.PODMAN, "/usr/bin/podman")
ALONE: dict[str, Any] = {"spec": {"containers": [{"name": "main"}]}}
CROWDED: dict[str, Any] = {"spec": {"containers": [{"name": "main"}, {"name": "other"}]}}
WITH_SIDECAR: dict[str, Any] = {"spec": {**ALONE["spec"], "initContainers": [{"name": "s", "restartPolicy": "Always"}]}}
ON_HOST: dict[str, Any] = {"spec": {**ALONE["spec"], "hostNetwork": True}}


def test_a_job_with_roles_has_a_network_of_its_own() -> None:
    assert network_of(DEMO, ROLES, [ALONE, ALONE], PODMAN, needs_machine=False) == "katib-demo-01234567"
    assert NamedWiring().address("demo-worker-0", 23456) == ("demo-worker-0", 23456)


@pytest.mark.parametrize(
    ("kind", "template", "images", "needs_machine"),
    [
        pytest.param(JOB, ALONE, PODMAN, False, id="pods that do not know each other"),
        pytest.param(ROLES, ALONE, PODMAN, True, id="metrics by an address of this machine"),
        pytest.param(ROLES, CROWDED, PODMAN, False, id="containers side by side"),
        pytest.param(ROLES, WITH_SIDECAR, PODMAN, False, id="a sidecar"),
        pytest.param(ROLES, ON_HOST, PODMAN, False, id="the network of the machine on request"),
        pytest.param(
            ROLES, ALONE, ContainerRuntime(RuntimeProgram.PODMAN, "x", Abilities(names=False)), False, id="no names"
        ),
    ],
)
def test_all_others_are_on_the_network_of_the_machine(
    kind: Kind, template: dict[str, Any], images: ContainerRuntime, needs_machine: bool
) -> None:
    assert network_of(DEMO, kind, [template], images, needs_machine=needs_machine) == HOST_NETWORK


def test_a_network_is_made_once_by_several_pods_and_labelled() -> None:
    runtime = ContainerRuntime(RuntimeProgram.PODMAN, "/opt/my tools/podman", labels={"katib.data-dir": "abc"})

    made = runtime.make_network("katib-demo")

    exists = "'/opt/my tools/podman' network inspect katib-demo >/dev/null 2>&1"
    create = "'/opt/my tools/podman' network create --label katib.data-dir=abc katib-demo"
    assert made.argv == ("/bin/sh", "-c", f"{exists} || {create} >/dev/null || {exists}")
    assert runtime.remove_network("katib-demo").argv == ("/opt/my tools/podman", "network", "rm", "katib-demo")
