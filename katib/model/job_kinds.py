"""Kinds of jobs whose end conditions and primary pod are known, so that an experiment need not give them. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from katib.errors import FieldError
from katib.model.failure_text import failure_cause
from katib.model.metrics import PROGRESS, MetricLog, parse_time, parse_value, trainer_readings
from katib.model.names import KUEUE_LABELS, QUEUE_LABEL
from katib.model.wording import counted, either

_ROLE = "training.kubeflow.org/job-role"
_WORKER_0 = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
_NODE_0 = {_REPLICATED_JOB: "node", "batch.kubernetes.io/job-completion-index": "0"}
_SPEC, _RUN_POLICY = ("spec", "suspend"), ("spec", "runPolicy", "suspend")


@dataclass(frozen=True, slots=True)
class JobKind:
    """Known facts about a kind.

    Attributes:
        success: Type of the condition of a successful job; a failed job of any kind has `Failed`.
        primary_pod_labels: Labels of the one pod that prints metrics; empty if every pod may.
        api_versions: The apiVersions that define it, for remedies.
        suspend: Path of the field that suspends it.
    """

    success: str
    primary_pod_labels: Mapping[str, str] = field(default_factory=dict)
    api_versions: tuple[str, ...] = ()
    suspend: tuple[str, ...] = _RUN_POLICY


_TRAINING = JobKind("Succeeded", {_ROLE: "master"}, ("kubeflow.org/v1",))
_TRAINER = ("trainer.kubeflow.org/v1alpha1",)
_KINDS = {
    "Job": JobKind("Complete", api_versions=("batch/v1",), suspend=_SPEC),
    "TFJob": _TRAINING,
    "PyTorchJob": _TRAINING,
    "XGBoostJob": _TRAINING,
    "MPIJob": replace(_TRAINING, api_versions=("kubeflow.org/v1", "kubeflow.org/v2beta1")),
    "PaddleJob": _TRAINING,
    "JAXJob": _TRAINING,
    "TrainJob": JobKind("Complete", _NODE_0, _TRAINER, _SPEC),
    "JobSet": JobKind("Completed", api_versions=("jobset.x-k8s.io/v1alpha2",), suspend=_SPEC),
}
"""By kind alone, as in Katib. Katib does not know PaddleJob, JAXJob and JobSet."""

KNOWN_KINDS = tuple(_KINDS)

CLUSTER_BACKOFF_LIMIT = 6
"""The API's default for a Job."""

_SUSPEND_FIELDS = {
    (version.rpartition("/")[0], name): kind.suspend for name, kind in _KINDS.items() for version in kind.api_versions
}
"""By group and kind: a kind of that name in another group, such as Volcano's Job, is another kind."""

_LONGEST = 60
_NEAR = 0.8
"""Minimum similarity of a misspelt kind. High, because most kinds end in Job, and JAXJob is not RayJob."""

_MPI_OPERATOR = JobKind("Succeeded", {_ROLE: "launcher"}, ("kubeflow.org/v2beta1",))
"""Role label of the launcher in the MPI operator (`kubeflow.org/v2beta1`), which has no master."""

_PADDLE_COLLECTIVE = replace(_TRAINING, primary_pod_labels=_WORKER_0)
"""A PaddleJob without Master has no pod with a role; its first worker is the rendezvous."""

_LAUNCHED = JobKind("Complete", {_REPLICATED_JOB: "launcher"}, _TRAINER, _SPEC)
"""In TrainJobs whose runtime uses MPI, the first node only waits for the launcher, which prints the output."""

_MPI_RUNTIMES = frozenset({"deepspeed-distributed", "mlx-distributed"})
"""As Kubeflow Trainer ships them. Users' runtimes can be looked up on one machine only."""


def known_kind(obj: Mapping[str, Any]) -> JobKind | None:
    """Return the known facts about the kind of an object, None for an unknown kind."""
    kind = obj.get("kind")
    if not isinstance(kind, str):
        return None
    if kind == "MPIJob" and obj.get("apiVersion") == "kubeflow.org/v2beta1":
        return _MPI_OPERATOR
    if kind == "PaddleJob" and not _has_master(obj):
        return _PADDLE_COLLECTIVE
    if kind == "TrainJob" and _runtime_name(obj) in _MPI_RUNTIMES:
        return _LAUNCHED
    return _KINDS.get(kind)


def misspelt_kind(obj: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """Return an error if the kind of an object is unknown but similar to a known one."""
    kind, version = (obj or {}).get("kind"), (obj or {}).get("apiVersion")
    if not isinstance(kind, str) or not kind or kind in _KINDS:
        return []
    by_lower = {name.lower(): name for name in _KINDS}
    word = kind.lower()[:_LONGEST]
    near = [f"{word}job"] if f"{word}job" in by_lower else difflib.get_close_matches(word, by_lower, 1, _NEAR)
    if not near:
        return []
    meant, versions = by_lower[near[0]], _KINDS[by_lower[near[0]]].api_versions
    of_version = "" if version in versions or not versions else f" of apiVersion {either(versions)}"
    remedy = f"did you mean {meant}{of_version}? Any other kind needs conditions of its own, and a cluster"
    return [FieldError(f"{path}.kind", f"kind {kind[:_LONGEST]} is not known", remedy, "job-kind-misspelt")]


def suspend_field(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path of the field that suspends a job; empty if its kind has no known one."""
    return _SUSPEND_FIELDS.get((str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind"))), ())


def suspended_at(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path of the field that currently suspends a job; empty if none does.

    For a kind without a known field, such as one that waits in a queue, the usual paths are checked.
    """
    field = suspend_field(job)
    for path in (field,) if field else (_SPEC, _RUN_POLICY):
        if value_at(job, path) is True:
            return path
    return ()


def nested(path: tuple[str, ...], value: Any) -> Any:
    """Return nested mappings that hold a value at a path and nothing else."""
    for name in reversed(path):
        value = {name: value}
    return value


def is_suspended(job: Mapping[str, Any]) -> bool:
    """Return whether a job is suspended: by its field at once, by its conditions while its pods are to end."""
    return bool(suspended_at(job) or _held_condition(job, "Suspended"))


_OVER = ("FailureTarget", "SuccessCriteriaMet", "Complete", "Completed", "Succeeded", "Failed")
"""Conditions of jobs after which nothing is retried."""


def retry_words(
    job: Mapping[str, Any], template: Mapping[str, Any] | None = None, failure: str = "", restarts: int = 0
) -> str:
    """Return the description of a job's failed tries; empty if nothing is known of any.

    Jobs on one machine have a condition for it. On a cluster, the controller of a Job only counts the failed pods.

    Args:
        job: The current state of the job; its status counts.
        template: The job as it was created.
        failure: The end of the container that failed last; empty while unknown.
        restarts: Number of container restarts in its pods.
    """
    if said := _held_condition(job, "Retrying").get("message"):
        return str(said)
    template = template or {}
    is_job = (template.get("apiVersion"), template.get("kind")) == ("batch/v1", "Job")
    spec, failed = template.get("spec") or {}, (is_job and (job.get("status") or {}).get("failed")) or 0
    if not failure or not failed + restarts or any(_held_condition(job, type_) for type_ in _OVER):
        return ""
    cause = failure_cause(failure)
    if not is_job:
        return f"{cause}; restart {restarts}"
    if (spec.get("completions") or 1) != 1 or (spec.get("parallelism") or 1) != 1:
        return cause  # several pods run on purpose, and each of them counts
    limit = spec.get("backoffLimit")
    return f"{cause}; try {failed + restarts + 1} of {(CLUSTER_BACKOFF_LIMIT if limit is None else limit) + 1}"


def _held_condition(job: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """Return the true condition of that type in the status of a job, else an empty one."""
    conditions = (job.get("status") or {}).get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, Mapping) and (condition.get("type"), condition.get("status")) == (type_, "True"):
            return condition
    return {}


def with_suspension(job: Mapping[str, Any], *, suspended: bool) -> dict[str, Any]:
    """Return a job with its suspend field set, unchanged if the field has that value or default already.

    A job is also unchanged if its kind has no known field, or if its malformed spec has no place for the field.
    """
    field = suspend_field(job)
    if not field or bool(value_at(job, field)) is suspended:
        return dict(job)
    *parents, name = field
    changed = place = dict(job)
    for parent in parents:
        inner = place.get(parent) or {}
        if not isinstance(inner, Mapping):
            return dict(job)
        place[parent] = place = dict(inner)
    place[name] = suspended
    return changed


def queue_of(job: Mapping[str, Any]) -> str:
    """Return the Kueue queue that a job names; empty if it names none."""
    queue = value_at(job, ("metadata", "labels", QUEUE_LABEL))
    return queue if isinstance(queue, str) else ""


IN_QUEUE = "waits in Kueue's queue "
"""Prefix of a trial's message while Kueue suspends its job; the queue and the reason follow."""


def gate_words(pod: Mapping[str, Any]) -> str:
    """Return the reason why a pod with scheduling gates waits, as the rest of a sentence; empty without gates."""
    gates = [str(gate.get("name")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if (queue := queue_of(pod)) and any(name.startswith(KUEUE_LABELS) for name in gates):
        return f"{IN_QUEUE}{queue}"
    return f"is held by {counted(len(gates), 'scheduling gate')}: {', '.join(gates)}" if gates else ""


def status_readings(job: Mapping[str, Any], names: Collection[str], now: datetime) -> list[MetricLog]:
    """Return the readings in the `status.trainerStatus` of a TrainJob: the progress, and a value of each named metric.

    Kubeflow Trainer writes it for a program that posts it. Malformed values are skipped. Readings have the time of the
    post, or `now` if it has none, in whole seconds.
    """
    status = value_at(job, ("status", "trainerStatus"))
    if not isinstance(status, Mapping):
        return []
    metrics, posted = status.get("metrics"), status.get("lastUpdatedTime")
    values = {
        one["name"]: value
        for one in (metrics if isinstance(metrics, list) else ())
        if isinstance(one, Mapping) and isinstance(one.get("name"), str)
        if isinstance(value := one.get("value"), str) and parse_value(value) is not None
    }
    time = (parse_time(posted) if isinstance(posted, str) else None) or now
    return trainer_readings(values, status.get(PROGRESS), names, time.replace(microsecond=0))


def value_at(job: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = job
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _has_master(obj: Mapping[str, Any]) -> bool:
    """Return whether a PaddleJob has a Master; the operator ignores the case of replica names."""
    spec = obj.get("spec")
    replicas = spec.get("paddleReplicaSpecs") if isinstance(spec, Mapping) else None
    return isinstance(replicas, Mapping) and any(str(name).lower() == "master" for name in replicas)


def _runtime_name(obj: Mapping[str, Any]) -> object:
    """Return the name of the cluster runtime that a TrainJob refers to; None if there is none."""
    spec = obj.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, Mapping) else None
    if (
        not isinstance(reference, Mapping)
        or reference.get("kind", "ClusterTrainingRuntime") != "ClusterTrainingRuntime"
    ):
        return None
    name = reference.get("name")
    return name if isinstance(name, str) else None


def has_several_pods(job: Mapping[str, Any]) -> bool:
    """Return whether a batch Job has several pods on purpose."""
    spec = job.get("spec") or {}
    return spec.get("completions") not in (None, 1) or spec.get("parallelism") not in (None, 1)
