"""What will surprise about a trial's object on a cluster, said when its experiment is created. Pure.

Most findings are warnings: the object may be right, and only its author knows. An error is what the webhook of pods
is sure to refuse later, where the pods of the kind are known to be as the object says. What no object can be accepted
with anywhere is checked by `katib.templates` and `katib.templates.job_schema`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from katib.api.container_restarts import unknown_rules
from katib.api.types import CollectorKind, ExperimentSpec
from katib.api.wording import path_to, shown
from katib.controllers.kinds import JOB
from katib.errors import FieldError
from katib.runtime.objects import Kind
from katib.templates import has_placeholder

_WRAPPED = (CollectorKind.STDOUT, CollectorKind.FILE, CollectorKind.TENSORFLOW_EVENT)
"""Collectors that wrap the command of the primary container."""

_NEEDS_COMMAND = "the {} collector has to know it, which the image's entrypoint is not"

_ON_FAILURE = "OnFailure"
_TRAINING = "kubeflow.org/v1"
_REPLICAS = {
    "TFJob": ("tfReplicaSpecs", "Never"),
    "PyTorchJob": ("pytorchReplicaSpecs", _ON_FAILURE),
    "MPIJob": ("mpiReplicaSpecs", "Never"),
    "XGBoostJob": ("xgbReplicaSpecs", "Never"),
    "PaddleJob": ("paddleReplicaSpecs", _ON_FAILURE),
    "JAXJob": ("jaxReplicaSpecs", "Never"),
}
"""Training kinds: the field with their replicas, and the restart policy of a replica that names none."""

_NO_PRIMARY_LABELS = ("JobSet",)
"""Kinds of several pods for which no labels of the primary one are known."""

_TTL = "ttlSecondsAfterFinished"


def template_errors(source: Mapping[str, Any], path: str, spec: ExperimentSpec) -> list[FieldError]:
    """Return what keeps every pod of the object from being collected from.

    A training job has pods of several roles, and some kinds may get a command from their operator. So it is an error
    only if no container that may be the primary one has a command, and the kind takes its pods as they are written.
    Where the end of the program could not be recognized, one container is enough.

    Args:
        source: The object, with placeholders in it.
        path: Where it stands in the experiment.
        spec: With defaults.
    """
    if not _is_taken_as_written(Kind.of(source)):
        return []
    found = _primary_containers(source, path, spec)
    if not has_placeholder(str([entry.get("restartPolicyRules") for _, entry in found])) and (
        rules := [error for where, entry in found for error in unknown_rules(entry, where, is_program=True)]
    ):
        return rules
    missing = list(_without_command(found, spec))
    if len(missing) < len(found):
        return []
    remedy = "write the entrypoint of the image as command"
    return [
        FieldError(f"{where}.command", f"it is missing; {_NEEDS_COMMAND.format(kind)}", remedy, "command-missing")
        for where, kind in missing
    ]


def _is_taken_as_written(kind: Kind) -> bool:
    return kind == JOB or (kind.api_version == _TRAINING and kind.kind in _REPLICAS)


def _primary_containers(
    source: Mapping[str, Any], path: str, spec: ExperimentSpec
) -> list[tuple[str, Mapping[str, Any]]]:
    name = spec.trial_template.primary_container_name if spec.trial_template else ""
    return [(where, entry) for where, found, entry in _containers(source, path) if name and found == name]


def _without_command(
    containers: Iterable[tuple[str, Mapping[str, Any]]], spec: ExperimentSpec
) -> Iterator[tuple[str, str]]:
    """Yield the containers whose command a collector has to know and does not, with the kind of the collector."""
    metrics = spec.metrics_collector_spec
    kind = metrics.collector.kind if metrics and metrics.collector else ""
    for where, entry in containers:
        if kind in _WRAPPED and not entry.get("command") and not entry.get("script"):
            yield where, kind


def template_warnings(source: Mapping[str, Any], path: str, spec: ExperimentSpec) -> list[str]:
    """Return a line for each surprise.

    Args:
        source: The object, with placeholders in it.
        path: Where it stands in the experiment.
        spec: With defaults.
    """
    return [
        *_primary_container(source, path, spec),
        *_primary_pods(source, spec),
        *_restarts(source, path),
        *_vanishing(source, path),
    ]


def _primary_container(source: Mapping[str, Any], path: str, spec: ExperimentSpec) -> Iterator[str]:
    template = spec.trial_template
    if template is None or not template.primary_container_name:
        return
    containers = list(_containers(source, path))
    found = _primary_containers(source, path, spec)
    if containers and not found and not any(has_placeholder(name) for _, name, _ in containers):
        names = ", ".join(dict.fromkeys(name for _, name, _ in containers))
        yield (
            f"spec.trialTemplate.primaryContainerName: no container of the object is named "
            f"{shown(template.primary_container_name)}; use one of {names}, unless an operator adds it"
        )
    if not template_errors(source, path, spec):
        for where, kind in _without_command(found, spec):
            yield f"{where}.command: it is missing; {_NEEDS_COMMAND.format(kind)}; write the entrypoint as command"


def _primary_pods(source: Mapping[str, Any], spec: ExperimentSpec) -> Iterator[str]:
    if source.get("kind") in _NO_PRIMARY_LABELS and spec.trial_template and not spec.trial_template.primary_pod_labels:
        yield (
            f"spec.trialTemplate.primaryPodLabels: {source['kind']} has no default, so metrics of every pod are "
            "collected; give labels that only the pod with the metrics has"
        )


def _restarts(source: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield warnings of training replicas that are restarted forever: a trial whose program crashes then never ends."""
    kind = Kind.of(source)
    if kind.api_version != _TRAINING or kind.kind not in _REPLICAS:
        return
    field, default = _REPLICAS[kind.kind]
    spec = _mapping(source.get("spec"))
    policy = _mapping(spec.get("runPolicy"))
    if policy.get("backoffLimit") is not None:
        return
    for name, replica in _mapping(spec.get(field)).items():
        if (_mapping(replica).get("restartPolicy") or default) == _ON_FAILURE:
            yield (
                f"{path}.spec.{field}.{name}.restartPolicy: OnFailure without runPolicy.backoffLimit restarts a "
                "failing program forever; set backoffLimit, or restartPolicy Never"
            )
            return


def _vanishing(source: Mapping[str, Any], path: str) -> Iterator[str]:
    spec = _mapping(source.get("spec"))
    for where, block in ((f"{path}.spec", spec), (f"{path}.spec.runPolicy", _mapping(spec.get("runPolicy")))):
        if block.get(_TTL) == 0 and not isinstance(block[_TTL], bool):
            yield (
                f"{where}.{_TTL}: 0 deletes the object as soon as it ends, maybe before its result is read; "
                "remove it, trials are cleaned up anyway"
            )


def _containers(node: Any, path: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield place, name in the pod, and content of every container anywhere in an object."""
    pending: list[tuple[str, Any]] = [(path, node)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, Mapping):
            yield from _containers_of(item, where)
            pending.extend((path_to(where, str(key)), child) for key, child in item.items())
        elif isinstance(item, list):
            pending.extend((f"{where}[{i}]", child) for i, child in enumerate(item))


def _containers_of(item: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the containers that a mapping lists itself: of a pod, of an Argo template, of a Tekton task."""
    for field, prefix in (("containers", ""), ("steps", "step-"), ("sidecars", "")):
        entries = item.get(field)
        for i, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str) and "image" in entry:
                yield f"{where}.{field}[{i}]", f"{prefix}{entry['name']}", entry
    for field in ("container", "script"):
        entry = item.get(field)
        if isinstance(entry, Mapping) and "image" in entry:
            yield f"{where}.{field}", str(entry.get("name") or "main"), entry


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
