"""The protocol between the controller and a kind of job, and its values. Pure.

A kind decides with `plan`, and describes each pod that it wants with `pod`. It sees no process, no clock and no file:
the controller observes, acts, and returns the memory of the kind at the next plan. Names of peers become addresses
through a `Wiring`, so the same kind serves processes of one machine and containers that have a network of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from katib.engine.runtime.objects import Kind, Object
from katib.model.templates import has_placeholder
from katib.model.wording import either, shown
from katib.places.machine.findings import Part, mapping
from katib.places.machine.pods.records import Delays, PodRecord


class JobTime(NamedTuple):
    """This moment, twice: on the clock of conditions, and on the one of deadlines and pauses.

    The second is shown to people too, as the begin of a job, which must not change with the wall clock.
    """

    wall: datetime
    steady: datetime


@dataclass(frozen=True, slots=True)
class PodStart:
    """A pod that is to start.

    Attributes:
        index: Completion index or replica index; None for a pod without one.
        role: Replica type, or name and index of the replicated job; empty for a Job, whose pods are all alike.
        after: Role of a pod that starts at the same time, whose containers must have started before those of this one;
            empty for none.
        details: Further knowledge of the plan for the description of the pod.
    """

    index: int | None = None
    role: str = ""
    after: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next actions and the status of a job.

    Attributes:
        start: Pods to start, in this order.
        stop: Names of pods to end.
        status: The status as it should be; while pods are only about to start, as it is without them.
        started_at: From when the deadline counts, exact, in steady time; None while the job is suspended.
        wake_at: When to plan again even if nothing happens, in steady time.
        waiting: Why nothing more is started, for people.
        delete: The job object has outlived its time.
        memory: The state of the kind at the next plan, besides the status.
        new_addresses: The pods that start now and later get other ports than those before them.
        restarts_log: All pods begin again, with those that start now, for a reason of this machine: a port that was
            taken, a guard that died; or they were suspended. That try never counted, so its readings are removed
            first, unless the next one continues from a checkpoint, or may do so after a suspension. A try that the
            author of the job asked for (backoffLimit, restartPolicy, maxRestarts) is different: the readings
            before it stay, as on a cluster. Such a program usually continues from its checkpoint, and without
            the earlier readings its curve would begin in the middle.
    """

    status: dict[str, Any]
    start: tuple[PodStart, ...] = ()
    stop: tuple[str, ...] = ()
    started_at: datetime | None = None
    wake_at: datetime | None = None
    waiting: str = ""
    delete: bool = False
    memory: Mapping[str, Any] = field(default_factory=dict)
    new_addresses: bool = False
    restarts_log: bool = False


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A job as it is now.

    Attributes:
        job: The object with the newest status we know, without fields that are null.
        pods: All pods it had since it was taken up, oldest first.
        delays: How long failures make wait.
        started_at: As the last plan returned it.
        memory: As the last plan returned it; empty at first.
    """

    job: Object
    pods: tuple[PodRecord, ...]
    moment: JobTime
    delays: Delays
    started_at: datetime | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)


class Address(NamedTuple):
    """Host and port of a pod."""

    host: str
    port: int


class Wiring(Protocol):
    """Turns the names by which the pods of a job know each other into addresses."""

    def address(self, name: str, port: int, port_name: str = "") -> Address:
        """Return the address of a pod of the job; the same answer for as long as the pods of this try live.

        Args:
            name: The name that its operator gives the others, as `demo-worker-0` or `demo-worker-0.default.svc`.
            port_name: Tells several ports of one pod apart.
        """

    def host(self, name: str) -> str:
        """Return the host part of that address, for programs that choose ports themselves."""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod as its job wants it.

    Attributes:
        name: As on a cluster; ends with a dash when a random suffix is to follow.
        path: The path of the template in the job object, for errors.
        labels: Besides those of the template, which they replace.
        annotations: Besides those of the template, which they replace.
        hostname: Its own name in its network; empty: its name.
        aliases: Further names that lead to it on a cluster, for pods that share a network with it.
        variables: Variables of the operator by the name of a container; the user cannot change these.
        defaults: Variables of all containers that a user's entry of the same name replaces.
        files: Text of files in the pod's directory, by relative path. A script is executable when it begins with `#!`.
        rewrites: Absolute path prefixes as the containers know them, and the directory of the pod that stands for each.
        restarts_on_failure: Whether a container that failed is started again in its pod.
        processes: How many processes of a container share its request.
        slots: How many processes a launcher of MPI starts, on all hosts of its host file; 0: it is none.
    """

    name: str
    template: Mapping[str, Any]
    path: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    aliases: tuple[str, ...] = ()
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    rewrites: Mapping[str, str] = field(default_factory=dict)
    restarts_on_failure: bool = False
    processes: int = 1
    slots: int = 0


LabelValues = str | range | None
"""The value of a label: a text, which may hold placeholders; one of these numbers; or unknown before the job runs."""


@dataclass(frozen=True, slots=True)
class PodLabels:
    """The labels of pods that a job will have, as far as they are known before it runs.

    Attributes:
        own: Those that distinguish pods for its author: labels of the template, roles and indexes.
        others: All further ones, such as those that are known only when the job runs.
    """

    own: Mapping[str, LabelValues]
    others: Mapping[str, LabelValues] = field(default_factory=dict)


class JobKind(Protocol):
    """A kind of job that runs on this machine.

    Only jobs that passed admission are planned; any other object may be malformed or hold placeholders.
    """

    @property
    def kind(self) -> Kind:
        """Its apiVersion and kind."""

    def plan(self, observed: ObservedJob) -> Plan:
        """Plan a job that passed admission."""

    def pod(self, job: Object, start: PodStart, wiring: Wiring) -> NewPod:
        """Describe a pod that the plan wants to start.

        Raises:
            InvalidError: It cannot run on this machine; the job fails with this reason.
        """

    def check(self, job: Part) -> None:
        """Find obstacles for a job on this machine, and differences, but for its pod templates."""

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the pod templates of a job by their paths in it, each with the number of pods that run together.

        Malformed parts are left out.
        """

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        """Return the labels that the pods of a job will have, one entry for pods that have the same.

        Empty if too little of it is understood.
        """


@runtime_checkable
class Composed(Protocol):
    """An ability of a kind: its pods depend on objects that its job refers to, such as a runtime."""

    def written_at(self, job: Object, place: str) -> str:
        """Return the place in the author's document of a place in a template; empty if there is none.

        Args:
            place: Begins with a path of `templates`.
        """

    def primary_labels(self, job: Object) -> Mapping[str, str]:
        """Return the labels of the pod that prints metrics; empty for the kind's default, or if unknown."""


@runtime_checkable
class KnowsPeers(Protocol):
    """An ability of a kind: its pods find each other."""

    def variables_with_addresses(self, job: Object) -> str:
        """Return which variables hold the addresses of a program's peers; empty when none do."""

    def check_peer_names(self, job: Part) -> None:
        """Find names of pods that are spelled out, which lead nowhere unless the pods have a network of their own."""


def names_in_domain(name: str, *domain: str) -> tuple[str, ...]:
    """Return the longer forms of a name, each of which leads to the same pods on a cluster.

    Args:
        name: A host or a service.
        domain: Its domain: the namespace, for a host of a service the name of that service before it.
    """
    parts, first = (*domain, "svc", "cluster.local"), len(domain)
    return tuple(".".join((name, *parts[:count])) for count in range(1, first + 3))


def template_labels(template: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that a pod template has; it may be malformed or hold placeholders."""
    labels = mapping(mapping(template.get("metadata")).get("labels"))
    return {str(name): str(value) for name, value in labels.items()}


def container_names(template: Mapping[str, Any], *, init: bool = False) -> tuple[str, ...]:
    """Return the names of the containers of a pod template, those of its init containers first on request."""
    spec = template.get("spec") or {}
    containers = [*(spec.get("initContainers") or () if init else ()), *(spec.get("containers") or ())]
    return tuple(container.get("name", "") for container in containers)


PER_TRIAL: Final = frozenset(
    {
        *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"),
        *(f"jobset.sigs.k8s.io/{name}" for name in ("job-key", "jobset-name", "jobset-uid")),
        "training.kubeflow.org/job-name",
    }
)
"""Labels that operators set to another value in each trial, even if the template has them."""

_LONGEST_NUMBER: Final = 10


def check_pod_labels(pods: Sequence[PodLabels], labels: Part) -> None:
    """Find that labels select no pod of a job; nothing if the labels of its pods are unknown."""
    given = ", ".join(f"{name}: {value}" for name, value in labels.value.items())
    what = "label" if len(labels.value) == 1 else "labels"
    if has_placeholder(given):
        cause = f"placeholders are not filled in here, so no pod will have the {what} {shown(given)}"
        labels.error(cause, f"write the {what} as all trials have", "primary-pod-labels")
    elif pods and not any(_has(pod, labels.value) for pod in pods):
        offered = _listed([pod.own for pod in pods])
        remedy = f"choose from what its pods have ({offered})" if offered else "remove it, and all its pods count"
        cause = f"no pod will have the {what} {shown(given)}, so no metrics would be read"
        labels.error(cause, f"{remedy}, or put the {what} into the pod template", "primary-pod-labels")


def _has(pod: PodLabels, labels: Mapping[str, str]) -> bool:
    if not PER_TRIAL.isdisjoint(labels):
        return False
    known = {**pod.own, **pod.others}
    may_have_any = any(map(has_placeholder, known))  # of a name that is not known yet
    return may_have_any or all(name in known and _fits(known[name], value) for name, value in labels.items())


def _fits(values: LabelValues, value: str) -> bool:
    if isinstance(values, range):
        return value.isdecimal() and len(value) <= _LONGEST_NUMBER and int(value) in values and str(int(value)) == value
    return values is None or has_placeholder(values) or values == value


def _listed(pods: Sequence[Mapping[str, LabelValues]]) -> str:
    """Return labels with the values that some pods have: `role: master or worker, index: 0 to 3`."""
    parts = []
    for name in dict.fromkeys(name for own in pods for name in own):
        found = [own[name] for own in pods if name in own]
        numbers = [number for values in found if isinstance(values, range) for number in (values[0], values[-1])]
        texts = list(dict.fromkeys(values for values in found if isinstance(values, str)))
        if numbers:
            texts.append(f"{min(numbers)} to {max(numbers)}" if max(numbers) > min(numbers) else f"{numbers[0]}")
        parts.append(f"{name}: {either(texts)}" if texts else name)
    return ", ".join(parts)
