from __future__ import annotations

from typing import Any

import pytest

from katib.places.machine.admission import HostCapacity, check_job
from katib.places.machine.jobs.kind import NewPod, PodStart
from katib.places.machine.jobs.networks import LocalWiring, PortTable
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.mpijob import MPIJob, MPIOperatorJob
from tests.support.golden import Golden

V1, V2 = MPIJob(), MPIOperatorJob()
HOST = HostCapacity(cpus=2, memory_bytes=2**33, search_path="/usr/bin:/bin")


def an_mpijob(
    *words: str, workers: int = 2, worker: dict[str, Any] | None = None, version: str = "v1", **spec: Any
) -> dict[str, Any]:
    launcher = {"name": "mpi", "image": "none", "command": list(words) or ["sh", "-c", "true"]}
    replicas = {
        "Launcher": {"template": {"spec": {"containers": [launcher]}}},
        "Worker": {
            "replicas": workers,
            "template": {"spec": {"containers": [worker or {"name": "mpi", "image": "none"}]}},
        },
    }
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }


def pod_of(job: dict[str, Any], role: str, kind: ReplicatedJob = V1, index: int = 0) -> NewPod:
    return kind.pod(job, PodStart(index, role), LocalWiring(PortTable()))


def found(job: dict[str, Any]) -> tuple[list[str], list[str]]:
    errors, notices = check_job(job, "job", host=HOST)
    return [str(error).removeprefix("job.spec.") for error in errors], notices


def test_the_launcher_has_the_slots_of_all_workers() -> None:
    pod = pod_of(an_mpijob(slotsPerWorker=4), "launcher")

    assert pod.files["mpi/hostfile"] == "localhost slots=8\n"
    assert pod.files["mpi/discover_hosts.sh"].endswith("echo localhost:8\n")
    assert pod.rewrites == {"/etc/mpi": "mpi"}
    assert pod.variables["mpi"]["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert "OMPI_MCA_plm_rsh_agent" not in pod.variables["mpi"]


def test_of_the_second_operator_all_pods_are_hosts_of_a_service_with_the_name_of_the_job() -> None:
    job = an_mpijob(version="v2beta1", worker={"name": "mpi", "image": "none", "command": ["work"]})
    launcher, worker = pod_of(job, "launcher", V2), pod_of(job, "worker", V2, 1)
    service = ("j", "j.n", "j.n.svc", "j.n.svc.cluster.local")

    assert (launcher.hostname, worker.hostname) == ("j-launcher", "j-worker-1")
    assert launcher.aliases[:5] == (*service, "j-launcher.j")
    assert worker.aliases == (
        *service,
        *("j-worker-1.j", "j-worker-1.j.n", "j-worker-1.j.n.svc", "j-worker-1.j.n.svc.cluster.local"),
    )


@pytest.mark.parametrize(
    ("slots", "limits", "expected"),
    [("3", {}, 6), (2, {"nvidia.com/gpu": 2}, 6)],
    ids=["from a placeholder", "a launcher with cards works too"],
)
def test_slots_are_counted(slots: object, limits: dict[str, int], expected: int) -> None:
    job = an_mpijob(slotsPerWorker=slots)
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    launcher["resources"] = {"limits": limits}

    pod = pod_of(job, "launcher")
    assert (pod.files["mpi/hostfile"], pod.processes) == (f"localhost slots={expected}\n", expected)


def test_the_launcher_is_the_primary_pod_of_both_operators() -> None:
    first, second = pod_of(an_mpijob(), "launcher"), pod_of(an_mpijob(version="v2beta1"), "launcher", V2)

    assert (first.name, first.labels["training.kubeflow.org/job-role"]) == ("j-launcher", "master")
    assert "training.kubeflow.org/replica-index" not in first.labels
    assert (second.name, second.labels["training.kubeflow.org/job-role"]) == ("j-launcher-", "launcher")
    assert second.labels["training.kubeflow.org/operator-name"] == "mpi-operator"
    assert second.variables["mpi"]["K_MPI_JOB_ROLE"] == "launcher"


@pytest.mark.parametrize(
    "worker",
    [
        {"name": "mpi", "image": "none"},
        {"name": "mpi", "image": "none", "command": ["sleep", "365d"]},
        {"name": "mpi", "image": "none", "command": ["/usr/sbin/sshd", "-De"]},
    ],
    ids=["no command", "sleep", "sshd"],
)
def test_workers_that_only_wait_are_not_started_but_what_they_request_is_leased(worker: dict[str, Any]) -> None:
    job = an_mpijob(worker={**worker, "resources": {"limits": {"cpu": "500m"}, "requests": {"memory": "1Gi"}}})

    ((path, (template, count)),) = V1.templates(job).items()

    assert (path, count) == ("spec.mpiReplicaSpecs.Launcher.template", 1)
    assert template["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "2147483648"}
    assert any("workers that only wait" in notice for notice in found(job)[1])


def test_a_limit_of_the_launcher_leaves_room_for_the_workers_whose_work_it_does() -> None:
    job = an_mpijob(worker={"name": "mpi", "image": "none", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}})
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    launcher["resources"] = {"limits": {"cpu": 1}, "requests": {"cpu": "100m"}}

    ((template, _),) = V1.templates(job).values()

    assert template["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2"},
        "requests": {"cpu": "1.1", "memory": "2147483648"},
    }


def test_more_workers_than_the_machine_has_room_for_are_refused_at_submission() -> None:
    worker = {"name": "mpi", "image": "none", "resources": {"requests": {"cpu": 2}}}

    errors, _ = found(an_mpijob(workers=2, worker=worker))

    (error,) = errors
    assert error.startswith("mpiReplicaSpecs.Launcher.template.spec.containers[0].resources: needs 4 CPU")


def test_workers_with_work_of_their_own_are_started() -> None:
    worker = {"name": "mpi", "image": "none", "command": ["sh", "-c", "true"]}

    assert [count for _, count in V1.templates(an_mpijob(workers=3, worker=worker)).values()] == [1, 3]


@pytest.mark.parametrize(
    "job",
    [
        {**an_mpijob(), "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}},
        an_mpijob(slotsPerWorker=0),
        an_mpijob("sh", "-H", "j-worker-0"),
        an_mpijob(slotsPerWorkers=2),
        an_mpijob(version="v2beta1", mpiImplementation="OpenMPi"),
    ],
    ids=["no launcher", "slots", "hosts", "field", "implementation"],
)
def test_what_cannot_be_done_here_is_refused(job: dict[str, Any], golden: Golden) -> None:
    golden(found(job)[0])
