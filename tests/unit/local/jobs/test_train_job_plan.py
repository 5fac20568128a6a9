from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from katib.engine.runtime.objects import Key, Kind, Object
from katib.places.machine.jobs.jobset.jobset import TrainJob
from katib.places.machine.jobs.jobset.runtimes import CLUSTER_RUNTIME, RUNTIME, SHIPPED, shipped_runtime
from katib.places.machine.jobs.kind import Address, NewPod, PodStart
from tests.unit.local.jobs.test_jobset_plan import Simulation

TRAIN = {"command": ["python", "train.py"]}


class Wiring:
    """Addresses as they come."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str]] = []

    def address(self, pod_name: str, port: int, port_name: str = "") -> Address:
        self.asked.append((pod_name, port, port_name))
        return Address("127.0.0.1", 40001)

    def host(self, _pod_name: str) -> str:
        return "127.0.0.1"


class Shelf:
    """Runtimes by kind and key, as a store has them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, Key], Object] = {}

    def find(self, kind: Kind, key: Key) -> Object | None:
        return self.objects.get((kind, key))

    def put(self, spec: Mapping[str, Any], name: str = "mine", kind: Kind = RUNTIME) -> None:
        key = Key("ns" if kind == RUNTIME else "", name)
        self.objects[kind, key] = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": copy.deepcopy(spec)}


class Training(Simulation):
    """A TrainJob on a virtual clock."""

    def __init__(self, spec: Mapping[str, Any], shelf: Shelf | None = None) -> None:
        self.kind = TrainJob((shelf or Shelf()).find)
        self.wiring = Wiring()
        super().__init__(spec, self.kind.plan)

    def pod(self, number: int = 0) -> NewPod:
        return self.kind.pod(self.job, self.started[number], self.wiring)

    def variables(self, number: int = 0) -> dict[str, str]:
        return dict(self.pod(number).variables["node"])


def training(name: str = "torch-distributed", *, shelf: Shelf | None = None, **spec: Any) -> Training:
    reference = {"name": name, **({"kind": "TrainingRuntime"} if shelf is not None else {})}
    simulation = Training({"runtimeRef": reference, "trainer": TRAIN, **spec}, shelf)
    simulation.step()
    return simulation


def own_runtime(**node: Any) -> dict[str, Any]:
    """Return the spec of a runtime with an initializer, a second job and these fields of the container that trains."""
    text = """
    mlPolicy: {numNodes: 2, torch: {}}
    template:
      metadata: {labels: {team: vision}}
      spec:
        replicatedJobs:
          - name: dataset-initializer
            template:
              metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
              spec:
                template:
                  spec:
                    containers:
                      - name: dataset-initializer
                        command: [fetch]
                        env: [{name: STORAGE_URI, value: nowhere}]
                        volumeMounts: [{name: initializer, mountPath: /workspace}]
                    volumes: [{name: initializer, persistentVolumeClaim: {claimName: data}}]
          - name: node
            dependsOn: [{name: dataset-initializer, status: Complete}]
            template:
              metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
              spec:
                template:
                  spec:
                    containers: [{name: node}]
                    volumes: [{name: initializer, persistentVolumeClaim: {claimName: data}}]
    """
    spec: dict[str, Any] = yaml.safe_load(text)
    pod = spec["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    pod["containers"][0] |= {"volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}], **node}
    return spec


class TestTorch:
    def test_vector_14_two_nodes_meet_at_the_first(self) -> None:
        t = training(trainer={**TRAIN, "numNodes": 2})

        assert t.roles() == ["node-0-0", "node-0-1"]
        assert t.variables(1) == {
            "JOB_COMPLETION_INDEX": "1",
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": "1",
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": "40001",
        }
        assert t.wiring.asked == [("t-node-0-0.t", 29500, "")]

    @pytest.mark.parametrize(
        ("trainer", "processes"),
        [
            ({"resourcesPerNode": {"requests": {"cpu": 4}}}, "4"),
            ({"resourcesPerNode": {"limits": {"cpu": "3500m"}}}, "4"),
            ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2, "cpu": 8}}}, "auto"),
            ({"numProcPerNode": 3, "resourcesPerNode": {"requests": {"cpu": 4}}}, "3"),
            ({"numProcPerNode": "auto"}, "1"),
            ({"numProcPerNode": "cpu", "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2, "cpu": 8}}}, "8"),
        ],
        ids=["vector 15: cores", "limit rounded up", "vector 15: cards", "given", "auto without cards", "cpu"],
    )
    def test_processes_of_a_node(self, trainer: dict[str, Any], processes: str) -> None:
        assert training(trainer={**TRAIN, **trainer}).variables()["PET_NPROC_PER_NODE"] == processes

    def test_without_a_trainer_the_nodes_get_no_addresses(self) -> None:
        shelf = Shelf()
        shelf.put(own_runtime(command=["train"]))
        t = Training({"runtimeRef": {"name": "mine", "kind": "TrainingRuntime"}}, shelf)
        t.step()
        t.end("dataset-initializer-0")

        assert len(t.started) == 3  # mlPolicy.numNodes counts
        assert t.variables(1) == {"JOB_COMPLETION_INDEX": "0"}

    def test_a_port_that_another_program_took_makes_all_start_once_more_with_others(self) -> None:
        t = training(trainer={**TRAIN, "numNodes": 2})
        taken = {"last_output": "OSError: [Errno 98] Address already in use", "address_in_use": True}

        t.end("node-0", 1, **taken)
        assert (len(t.rewired), t.roles()) == (1, ["node-0-0", "node-0-1"])
        assert t.emptied == [2]
        assert t.conditions() == []

        t.end("node-0", 1, **taken)
        assert t.conditions() == [("Failed", "FailedJobs")]


@pytest.mark.parametrize(
    ("runtime", "trainer", "expected"),
    [
        ("jax-distributed", {"env": [{"name": "JAX_NUM_PROCESSES", "value": "7"}]},  # which users may override
         {"JAX_PROCESS_ID": "1", "JAX_COORDINATOR_ADDRESS": "127.0.0.1:40001"}),
        ("xgboost-distributed", {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}},  # a worker for each card
         {"DMLC_TRACKER_URI": "127.0.0.1", "DMLC_TRACKER_PORT": "40001", "DMLC_TASK_ID": "1", "DMLC_NUM_WORKER": "6"}),
    ],
    ids=["jax", "xgboost"],
)  # fmt: skip
def test_nodes_find_the_first_one(runtime: str, trainer: dict[str, Any], expected: dict[str, str]) -> None:
    t = training(runtime, trainer={**TRAIN, "numNodes": 3, **trainer})

    assert t.variables(1) == {"JOB_COMPLETION_INDEX": "1", **expected}


class TestMpi:
    def test_the_launcher_has_all_slots_and_starts_alone(self) -> None:
        t = training("deepspeed-distributed", trainer={**TRAIN, "numNodes": 3, "numProcPerNode": 2})

        assert t.roles() == ["launcher-0-0"]
        assert t.pod().files["mpi/hostfile"] == "localhost slots=6\n"
        assert t.pod().files["mpi/hydra-hostfile"] == "localhost:6\n"
        assert t.pod().rewrites == {"/etc/mpi": "mpi"}
        assert t.variables()["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
        assert t.variables()["OMPI_MCA_orte_set_default_slots"] == "2"
        node, launcher = t.status["jobsStatus"]
        assert (node["name"], node["active"], launcher["name"], launcher["active"]) == ("node", 1, "launcher", 1)

        t.end("launcher-0")
        assert t.conditions() == [("Complete", "AllJobsCompleted")]

    def test_the_launcher_is_leased_what_all_nodes_request(self) -> None:
        resources = {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}
        t = training("deepspeed-distributed", trainer={**TRAIN, "numNodes": 3, "resourcesPerNode": resources})

        ((template, count),) = t.kind.templates(t.job).values()

        assert count == 1
        assert t.pod().template["spec"]["containers"] == template["spec"]["containers"]
        assert template["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "1.5", "memory": str(3 << 30)},
            "limits": {"memory": str(3 << 30)},
        }

    def test_cards_of_a_node_are_counted_before_the_launcher_has_those_of_all(self) -> None:
        resources = {"limits": {"nvidia.com/gpu": 2}}
        t = training("deepspeed-distributed", trainer={**TRAIN, "numNodes": 2, "resourcesPerNode": resources})

        assert t.pod().template["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
        assert t.variables()["OMPI_MCA_orte_set_default_slots"] == "2"

    def test_one_node_still_gives_two_hosts(self) -> None:
        assert training("deepspeed-distributed").pod().files["mpi/hostfile"] == "localhost slots=2\n"


class TestRuntime:
    def test_a_runtime_that_is_edited_while_its_job_runs_changes_nothing(self) -> None:
        shelf = Shelf()
        shelf.put(own_runtime(command=["first"]))
        t = training(shelf=shelf, name="mine", trainer={})
        shelf.put(own_runtime(command=["second"]))

        t.end("dataset-initializer-0")

        assert t.pod(1).template["spec"]["containers"][0]["command"] == ["first"]

    def test_a_user_may_take_the_name_of_a_shipped_one(self) -> None:
        shelf = Shelf()
        shelf.put(own_runtime(command=["mine"]), "torch-distributed", CLUSTER_RUNTIME)
        t = Training({"runtimeRef": {"name": "torch-distributed"}}, shelf)
        t.step()

        assert t.roles() == ["dataset-initializer-0-0"]

    def test_one_that_is_gone_or_became_malformed_fails_the_job_at_once(self) -> None:
        shelf = Shelf()
        shelf.put({"template": {"spec": {"replicatedJobs": [{"template": {}}]}}})

        for t, why in (
            (training("torch-distributd"), "did you mean torch-distributed?"),
            (training("mine", shelf=shelf), "replicatedJobs[0].name: it is missing"),
        ):
            assert t.conditions() == [("Failed", "TrainingRuntimeNotSupported")]
            assert why in t.message()

    @pytest.mark.parametrize("name", SHIPPED)
    def test_shipped_ones_bear_their_name(self, name: str) -> None:
        assert shipped_runtime(name).spec["template"]["spec"]["replicatedJobs"]

    def test_initializers_run_first_and_share_a_directory_with_the_nodes(self) -> None:
        shelf = Shelf()
        shelf.put(own_runtime(command=["train"]))
        given = {"dataset": {"storageUri": "hf://x", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "s"}}}
        t = training("mine", shelf=shelf, trainer={}, initializer=given)
        assert t.roles() == ["dataset-initializer-0-0"]
        container = t.pod().template["spec"]["containers"][0]
        assert container["env"] == [{"name": "STORAGE_URI", "value": "hf://x"}, {"name": "A", "value": "1"}]
        assert container["envFrom"] == [{"secretRef": {"name": "s"}}]
        assert t.pod().rewrites == {"/workspace": "../initializer"}
        assert "volumes" not in t.pod().template["spec"]

        t.end("dataset-initializer-0")

        assert t.roles() == ["node-0-0", "node-0-1"]
        assert t.pod(1).rewrites == {"/workspace": "../initializer"}


class TestOverrides:
    def node(self, **spec: Any) -> Mapping[str, Any]:
        shelf = Shelf()
        env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
        shelf.put(own_runtime(command=["old"], args=["x"], env=env, resources={"requests": {"cpu": 1}}))
        t = training("mine", shelf=shelf, **spec)
        t.end("dataset-initializer-0")
        template: Mapping[str, Any] = t.pod(1).template
        return template

    def test_the_trainer_goes_over_the_runtime(self) -> None:
        env = [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "C", "value": "3"}]
        trainer = {"image": "i", "command": ["new"], "env": env, "resourcesPerNode": {"requests": {"memory": "1Gi"}}}

        [container] = self.node(trainer=trainer)["spec"]["containers"]

        assert container == {
            "name": "node",
            "image": "i",
            "command": ["new"],
            "args": ["x"],
            "env": [{"name": "A", "value": "1"}, *env],
            "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
        }

    def test_patches_are_merged_in_their_order(self) -> None:
        def patch(value: str) -> dict[str, Any]:
            pod = {"metadata": {"labels": {"l": value}}, "spec": {"tolerations": [{"key": value}]}}
            job = {"name": "node", "template": {"spec": {"template": pod}}}
            return {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}

        template = self.node(trainer={}, runtimePatches=[patch("a"), patch("b")])

        assert template["metadata"]["labels"] == {"l": "b"}
        assert template["spec"]["tolerations"] == [{"key": "b"}]
        assert template["spec"]["containers"][0]["command"] == ["old"]

    @pytest.mark.parametrize("field", ["podTemplateOverrides", "podSpecOverrides"])
    def test_older_overrides_reach_the_jobs_that_they_name(self, field: str) -> None:
        pod = {"nodeSelector": {"a": "b"}, "containers": [{"name": "node", "volumeMounts": []}]}
        whole = {"spec": pod} if field == "podTemplateOverrides" else pod

        spec = self.node(trainer={}, **{field: [{"targetJobs": [{"name": "node"}], **whole}]})["spec"]

        assert spec["nodeSelector"] == {"a": "b"}
        assert spec["containers"][0]["command"] == ["old"]


class TestLife:
    def test_it_completes_with_its_jobset(self) -> None:
        t = training(trainer={**TRAIN, "numNodes": 2})
        assert t.status == {
            "conditions": [],
            "jobsStatus": [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}],
        }

        t.end("node-0", index=1)
        t.end("node-0", index=0)

        assert t.conditions() == [("Complete", "AllJobsCompleted")]
        assert set(t.status["conditions"][-1]) == {"type", "status", "reason", "message", "lastTransitionTime"}

    def test_suspended_and_resumed_it_says_so(self) -> None:
        t = training()

        t.spec["suspend"] = True
        t.step()
        assert t.conditions() == [("Suspended", "Suspended")]
        assert t.unstopped == []
        t.spec["suspend"] = False
        t.step()

        assert t.status["conditions"][0]["reason"] == "Resumed"
        assert t.roles() == ["node-0-0"]


def test_a_pod_is_named_and_labelled_as_on_a_cluster() -> None:
    t = training(trainer={**TRAIN, "numNodes": 2})

    pod = t.kind.pod(t.job, PodStart(1, "node-0"), t.wiring)

    assert (pod.name, pod.hostname) == ("t-node-0-1-", "t-node-0-1")
    assert pod.labels["jobset.sigs.k8s.io/replicatedjob-name"] == "node"
    assert pod.labels["batch.kubernetes.io/job-completion-index"] == "1"
