"""The protocol of a kind of training job: its own part; the rest is the same for all of them.

A kind is a class with a few values and a few pure functions. It inherits the rest from
`katib.places.machine.jobs.replicated.job.ReplicatedJob`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from katib.engine.runtime.objects import Kind, Object
from katib.places.machine.findings import Part, Structure
from katib.places.machine.jobs.gang.spec import Success
from katib.places.machine.jobs.kind import Address, LabelValues, NewPod, Wiring, container_names
from katib.places.machine.jobs.replicated.spec import ReplicaSpec, TrainingSpec, replicas_by_type

OPERATOR: Final = "kubeflow.org/training-operator"
WORKER: Final = "worker"

Roles = Mapping[str, tuple[Mapping[str, Any], int]]
"""By role, the pod template of its replicas and their number."""


class Port(NamedTuple):
    """The port on which replicas of a kind listen unless their template says otherwise."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Peers:
    """A job and the addresses of its replicas."""

    job: Object
    spec: TrainingSpec
    port: Port
    container: str
    wiring: Wiring

    def address(self, role: str, index: int, domain: str = "") -> Address:
        """Return the address of a replica.

        Args:
            role: Its type, in lower case.
            domain: The suffix that the operator appends to its name, as `.default.svc`.
        """
        number = listening_port(self.spec.roles[role].template, self.container, self.port)
        return self.wiring.address(pod_name(self.job, role, index) + domain, number, self.port.name)


class TrainingKind(Protocol):
    """A kind of training job. Classes that name it as their base get the usual answers."""

    kind: ClassVar[Kind]
    replicas_field: ClassVar[str]
    """The field of the spec with the replicas, as `tfReplicaSpecs`."""
    types: ClassVar[tuple[str, ...]]
    """Types of replicas as the API writes them, in the order in which they start and in which ties are decided."""
    container: ClassVar[str]
    """Name of the container that trains."""
    container_is_required: ClassVar[bool] = True
    """Whether the operator refuses a replica without a container of that name."""
    port: ClassVar[Port]
    address_variables: ClassVar[str]
    """The variables with the addresses of peers, for errors."""
    gives_ports: ClassVar[bool] = True
    """Whether they are variables, in which replicas find ports of their own."""
    restart_policy: ClassVar[str] = "Never"
    """The restart policy of a replica without one."""
    fields: ClassVar[Structure] = {}
    """Further fields of the spec."""
    older_operator: ClassVar[str] = ""
    """The prefix of the labels of the kind's former operator; empty if there was none."""
    endless: ClassVar[frozenset[str]] = frozenset()
    """Roles whose programs never end by themselves: a job that has succeeded does not wait for them."""

    late_seconds: float = 5.0
    """Time for replicas to finish after the job has succeeded: a worker may write after the master's end."""

    def default_replicas(self, _role: str) -> int:
        """Return how many replicas a role has that does not say it."""
        return 1

    def primary(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return role and index of the replicas that have the job role master."""

    def listeners(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return role and index of the replicas whose addresses the others get."""
        return self.primary(spec)

    def success(self, spec: TrainingSpec) -> Success:
        """Return the replicas whose success is that of the job."""

    def waits_for(self, _spec: TrainingSpec, _role: str) -> str:
        """Return the role whose programs must have started before those of a role do; empty for none."""
        return ""

    def as_run(self, roles: Roles) -> Roles:
        """Return the roles that run on this machine: all but those with nothing to run.

        Replicas of those count as active while the job runs.
        """
        return roles

    def idle(self, spec: TrainingSpec) -> frozenset[str]:
        """Return the roles that have nothing to run here."""
        given = {role: (replica.template, replica.count) for role, replica in spec.roles.items()}
        return frozenset(given.keys() - self.as_run(given).keys())

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return the variables of a replica, in the operator's order."""

    def receivers(self, template: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the containers that get these variables: all but init containers."""
        return container_names(template)

    def pod_name(self, job: Object, role: str, index: int) -> str:
        """Return the name of the pod of a replica."""
        return pod_name(job, role, index)

    def labels(self, job: str, role: str, index: int, *, is_primary: bool) -> dict[str, str]:
        """Return the labels that the operator gives the pod of a replica.

        Args:
            role: Type of the replica, in lower case.
            is_primary: Whether it has the job role master.
        """
        marks = {JOB_ROLE: MASTER} if is_primary else {}
        return {**role_labels(self.kind.kind, job, role), REPLICA_INDEX: str(index), **marks}

    def older_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the additional labels of earlier operators, for users that still select pods by them.

        The training operator called them the same without a group until 1.7, and the operators that it took the place
        of put the framework before them.
        """
        same, prefix = (JOB_NAME, REPLICA_TYPE, REPLICA_INDEX, JOB_ROLE), self.older_operator
        plain = {name.removeprefix(f"{_GROUP}/"): labels[name] for name in same if name in labels}
        found = {"group-name": "kubeflow.org", **plain}
        if prefix:
            found |= {f"{prefix}-{name}": value for name, value in plain.items()}
            found |= {"controller-name": f"{prefix}-operator", "group_name": "kubeflow.org"}
            found[f"{prefix}_job_name"] = labels[JOB_NAME]
        return found

    def complete(self, pod: NewPod, _peers: Peers, _role: str, _index: int) -> NewPod:
        """Return a pod with further parts of this kind, such as files."""
        return pod

    def check_spec(self, spec: Part) -> None:
        """Find obstacles in the spec on this machine, besides those of all kinds."""


def pod_name(job: Object, role: str, index: int) -> str:
    """Return the name of the pod of a replica, as on a cluster."""
    return f"{job['metadata']['name']}-{role}-{index}"


def listening_port(template: Mapping[str, Any], container: str, default: Port) -> int:
    """Return the port that a template gives its default container under the default name, else the default."""
    containers = (template.get("spec") or {}).get("containers") or ()
    chosen: Mapping[str, Any] = next((c for c in containers if c.get("name") == container), {})
    given = (p.get("containerPort") for p in chosen.get("ports") or () if p.get("name") == default.name)
    return int(next(given, None) or default.number)


# --- labels of pods, as the operators set them and others look for them -----------------------------------------------


_GROUP = "training.kubeflow.org"
OPERATOR_NAME = f"{_GROUP}/operator-name"
JOB_NAME = f"{_GROUP}/job-name"
REPLICA_TYPE = f"{_GROUP}/replica-type"
REPLICA_INDEX = f"{_GROUP}/replica-index"
JOB_ROLE = f"{_GROUP}/job-role"
MASTER = "master"


OF_A_ROLE = (JOB_NAME, OPERATOR_NAME, REPLICA_TYPE)
"""Labels that all pods of a role have, and no others."""


def role_labels(kind: str, job: str, role: str) -> dict[str, str]:
    return {OPERATOR_NAME: f"{kind.lower()}-controller", JOB_NAME: job, REPLICA_TYPE: role}


def before_the_run(labels: Mapping[str, str], indexes: range | None) -> dict[str, LabelValues]:
    """Return the labels of pods that differ in their index, without the name of its job, which is known at the run.

    Args:
        labels: Those of one of them.
        indexes: Theirs; None if unknown.
    """
    values: dict[str, LabelValues] = dict(labels)
    for name in labels:
        if name.endswith("replica-index"):
            values[name] = indexes
        elif name.endswith(("job-name", "job_name")):
            values[name] = None
    return values


def spec_of(job: Object, kind: TrainingKind) -> TrainingSpec:
    """Return the spec of a job that passed admission."""
    spec: Mapping[str, Any] = job.get("spec") or {}
    given = replicas_by_type(spec.get(kind.replicas_field) or {}, kind.types)
    roles = {type_.lower(): _replica_spec(type_, *given[type_], kind) for type_ in kind.types if type_ in given}
    return TrainingSpec(roles, number((spec.get("runPolicy") or {}).get("backoffLimit")), spec)


def _replica_spec(type_: str, key: str, replica: Mapping[str, Any], kind: TrainingKind) -> ReplicaSpec:
    count = number(replica.get("replicas"))
    return ReplicaSpec(
        type=type_,
        key=key,
        count=kind.default_replicas(type_.lower()) if count is None else count,
        restart_policy=replica.get("restartPolicy") or kind.restart_policy,
        template=replica.get("template") or {},
    )


def number(value: object) -> int | None:
    """Return a number; a value that a placeholder stood for may be text."""
    return None if value is None else int(str(value))
