"""MPIJob: a launcher that starts the processes of all workers, here as processes of this machine.

Two operators have this kind: the training operator (`kubeflow.org/v1`), and the MPI operator (`kubeflow.org/v2beta1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from katib.engine.runtime.objects import Kind, Object
from katib.model.wording import shown
from katib.places.machine.findings import Part, Structure, containers_of, mapping, mapping_at, structure
from katib.places.machine.jobs.batch.job import NAME_LABELS
from katib.places.machine.jobs.gang.spec import Success
from katib.places.machine.jobs.kind import NewPod, names_in_domain
from katib.places.machine.jobs.launchers import HOST_FILE_VARIABLES, only_waits, with_host_files, with_resources_of
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.spec import TrainingSpec
from katib.places.machine.jobs.replicated.training_kind import (
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    WORKER,
    Peers,
    Port,
    Roles,
    pod_name,
)

LAUNCHER: Final = "launcher"

_HOST_OPTIONS = frozenset({"-host", "--host", "-H", "-hosts", "--hosts"})


class MPIJob(ReplicatedJob):
    """The kind MPIJob of the training operator."""

    kind = Kind("kubeflow.org/v1", "MPIJob")
    replicas_field = "mpiReplicaSpecs"
    types = ("Launcher", "Worker")
    container = "mpi"
    container_is_required = False
    port = Port("mpi-port", 9999)
    address_variables = "the host file, which mpirun reads by itself"
    gives_ports = False
    older_operator = "mpi"
    endless = frozenset({WORKER})
    fields: ClassVar[Structure] = structure(text="cleanPodPolicy mainContainer", integer="slotsPerWorker")

    def default_replicas(self, role: str) -> int:
        return 1 if role == LAUNCHER else 0

    def primary(self, _spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        return ((LAUNCHER, 0),)

    def listeners(self, _spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return none: the processes find each other through the launcher."""
        return ()

    def success(self, _spec: TrainingSpec) -> Success:
        return Success(((LAUNCHER, 0),))

    def as_run(self, roles: Roles) -> Roles:
        """Return the roles without workers that only wait; the launcher has their resources."""
        if LAUNCHER not in roles or WORKER not in roles or not _only_waits(roles[WORKER][0]):
            return roles
        others = {role: pods for role, pods in roles.items() if role != WORKER}
        template, count = roles[LAUNCHER]
        worker, workers = roles[WORKER]
        pod = with_resources_of(mapping(template.get("spec")), [(mapping(worker.get("spec")), workers)])
        return {**others, LAUNCHER: ({**template, "spec": pod}, count)}

    def pod_name(self, job: Object, role: str, index: int) -> str:
        """Return the name of a pod; that of the launcher has no number."""
        return f"{job['metadata']['name']}-{LAUNCHER}" if role == LAUNCHER else pod_name(job, role, index)

    def labels(self, job: str, role: str, index: int, *, is_primary: bool) -> dict[str, str]:
        """Return the labels of a pod; that of the launcher has no number."""
        found = super().labels(job, role, index, is_primary=is_primary)
        return {name: value for name, value in found.items() if role != LAUNCHER or name != REPLICA_INDEX}

    def older_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of earlier operators, of which that of MPI named the role of every pod."""
        role = labels[REPLICA_TYPE]
        return {**super().older_labels(labels), "mpi-job-role": role, "mpi_role_type": role}

    def receivers(self, template: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the first container: it runs `mpirun`."""
        containers = (template.get("spec") or {}).get("containers") or ()
        return tuple(container.get("name", "") for container in containers[:1])

    def variables(self, _peers: Peers, role: str, _index: int) -> Mapping[str, str]:
        """Return the variables with the host file of the launcher. None names an agent: all slots are here."""
        return HOST_FILE_VARIABLES if role == LAUNCHER else {}

    def complete(self, pod: NewPod, peers: Peers, role: str, _index: int) -> NewPod:
        """Return a pod with the files that the operator mounts at `/etc/mpi`."""
        return with_host_files(pod, self.slots(peers.spec) if role == LAUNCHER else 0)

    def slots(self, spec: TrainingSpec) -> int:
        """Return how many processes the job may start."""
        given = spec.fields.get("slotsPerWorker")
        per_worker = 1 if given is None else int(str(given))  # one that a placeholder stood for may be text
        hosts = spec.count(WORKER) + self._launcher_works(spec)
        return max(1, hosts) * per_worker

    def _launcher_works(self, spec: TrainingSpec) -> bool:
        """Return whether the launcher is a host too: it is when it has a limit of cards."""
        containers = containers_of(spec.roles[LAUNCHER].template.get("spec"))
        limits = [mapping_at(container, "resources.limits") for container in containers]
        return any(str(name).endswith(".com/gpu") or "gpu" in str(name) for given in limits for name in given)

    def check_spec(self, spec: Part) -> None:
        """Check the launcher, its commands, and the work of workers."""
        replicas, slots = spec[self.replicas_field], spec["slotsPerWorker"]
        launcher, worker = replicas["Launcher"], replicas["Worker"]
        if replicas.fields and "Launcher" not in replicas.fields:
            launcher.error("it is missing", "describe the pod that runs mpirun", "mpi-launcher")
        elif launcher["replicas"].integer not in {None, 1}:
            cause = f"{shown(launcher['replicas'].value)} launchers: there is one"
            launcher["replicas"].error(cause, "write 1, or leave it out", "mpi-launcher")
        if slots.integer is not None and slots.integer < 1:
            slots.error(f"{slots.integer} is below 1", "give 1 or more", "mpi-slots")
        for container in launcher["template.spec.containers"]:
            for word in (word for field in ("command", "args") for word in container[field].words):
                if word.value.split("=")[0] in _HOST_OPTIONS:
                    cause = f"{shown(word.value)} names hosts, and the workers have no names on this machine"
                    word.error(cause, "leave it out: mpirun reads the host file by itself", "mpi-hosts")
        if template := mapping(worker["template"].value):
            idle = "workers that only wait are not started: mpirun starts all processes"
            busy = "workers run their own command here, and mpirun does not enter them"
            worker.notice(idle if _only_waits(template) else busy)


class MPIOperatorJob(MPIJob):
    """The kind MPIJob of the MPI operator."""

    kind = Kind("kubeflow.org/v2beta1", "MPIJob")
    restart_policy = "OnFailure"
    fields: ClassVar[Structure] = structure(
        text="launcherCreationPolicy mpiImplementation sshAuthMountPath",
        boolean="runLauncherAsWorker",
        integer="slotsPerWorker",
    )

    def pod_name(self, job: Object, role: str, index: int) -> str:
        """Return the name of a pod; the launcher's is that of a Job's pod, with a random suffix."""
        return f"{job['metadata']['name']}-{LAUNCHER}-" if role == LAUNCHER else pod_name(job, role, index)

    def labels(self, job: str, role: str, index: int, *, is_primary: bool) -> dict[str, str]:
        """Return this operator's labels, which name the role of every pod; the launcher's pod is that of a Job."""
        found = super().labels(job, role, index, is_primary=is_primary)
        of_job = dict.fromkeys(NAME_LABELS, f"{job}-{LAUNCHER}") if role == LAUNCHER else {}
        return {**found, **of_job, OPERATOR_NAME: "mpi-operator", JOB_ROLE: role}

    def variables(self, peers: Peers, role: str, _index: int) -> Mapping[str, str]:
        """Return the role and the variables with the host file."""
        return {"K_MPI_JOB_ROLE": role, **super().variables(peers, role, _index)}

    def complete(self, pod: NewPod, peers: Peers, role: str, index: int) -> NewPod:
        """Return a pod with its names: one service, which has the name of the job, leads to all pods."""
        job, namespace = peers.job["metadata"]["name"], peers.job["metadata"]["namespace"]
        host = f"{job}-{LAUNCHER}" if role == LAUNCHER else pod.name
        names = (job, *names_in_domain(job, namespace), *names_in_domain(host, job, namespace))
        return super().complete(replace(pod, hostname=host, aliases=names), peers, role, index)

    def _launcher_works(self, spec: TrainingSpec) -> bool:
        return spec.fields.get("runLauncherAsWorker") is True

    def check_spec(self, spec: Part) -> None:
        """Check the further fields of this operator."""
        super().check_spec(spec)
        spec["mpiImplementation"].spelled(("OpenMPI", "Intel", "MPICH"), "mpi-implementation")
        spec["sshAuthMountPath"].note("no keys are made: mpirun starts all processes on this machine")


def _only_waits(template: Mapping[str, Any]) -> bool:
    return only_waits(next(iter(containers_of(template.get("spec"))), {}))
