"""Warnings about a trial's object on a cluster, reported when its experiment is created. Pure.

Most findings are warnings: the object may be right, and only its author knows. An error is a refusal that the webhook
of pods is certain to make later, for kinds whose pods are known from the object. Objects that are never acceptable are
checked by `katib.model.templates` and `katib.model.templates.job_schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from katib.engine.controllers.kinds import JOB
from katib.engine.runtime.objects import Kind
from katib.errors import FieldError
from katib.model.container_restarts import unknown_rules
from katib.model.templates import has_placeholder
from katib.model.types import CollectorKind, ExperimentSpec
from katib.model.wording import path_to, shown

_WITHOUT_LAUNCHER = (CollectorKind.CUSTOM, CollectorKind.PUSH, CollectorKind.NONE)
"""Collectors that do not wrap the command of the primary container."""

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
"""Training kinds: the field with their replicas, and the default restart policy of a replica."""

_NO_PRIMARY_LABELS = ("JobSet",)
"""Kinds with several pods without known labels of the primary one."""

_TTL = "ttlSecondsAfterFinished"


def template_errors(source: Mapping[str, Any], path: str, spec: ExperimentSpec) -> list[FieldError]:
    """Return why no pod of the object allows metrics to be collected.

    One container whose program's end could not be recognized is enough.
    """
    if not is_taken_as_written(source):
        return []
    found = _primary_containers(source, path, spec)
    if has_placeholder(str([entry.get("restartPolicyRules") for _, entry, _ in found])):
        return []
    return [error for where, entry, _ in found for error in unknown_rules(entry, where, is_program=True)]


def is_taken_as_written(source: Mapping[str, Any]) -> bool:
    """Return whether the pods of an object have exactly its containers and commands."""
    kind = Kind.of(source)
    return kind == JOB or (kind.api_version == _TRAINING and kind.kind in _REPLICAS)


def containers_without_command(
    source: Mapping[str, Any], path: str, spec: ExperimentSpec
) -> tuple[list[tuple[str, Mapping[str, Any], Mapping[str, Any]]], int]:
    """Return the primary containers that need their image's command, and the number of primary containers.

    A training job has pods of several roles, so there may be several: path, content and pod of each.
    """
    metrics = spec.metrics_collector_spec
    found = _primary_containers(source, path, spec)
    if metrics is None or metrics.collector is None or metrics.collector.kind in _WITHOUT_LAUNCHER:
        return [], len(found)
    return [one for one in found if not one[1].get("command") and not one[1].get("script")], len(found)


def _primary_containers(
    source: Mapping[str, Any], path: str, spec: ExperimentSpec
) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    name = spec.trial_template.primary_container_name if spec.trial_template else ""
    return [(where, entry, pod) for where, found, entry, pod in _containers(source, path) if name and found == name]


def template_warnings(source: Mapping[str, Any], path: str, spec: ExperimentSpec) -> list[str]:
    """Return one line per warning."""
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
    if containers and not found and not any(has_placeholder(name) for _, name, *_ in containers):
        names = ", ".join(dict.fromkeys(name for _, name, *_ in containers))
        yield (
            f"spec.trialTemplate.primaryContainerName: no container of the object is named "
            f"{shown(template.primary_container_name)}; use one of {names}, unless an operator adds it"
        )


def _primary_pods(source: Mapping[str, Any], spec: ExperimentSpec) -> Iterator[str]:
    if source.get("kind") in _NO_PRIMARY_LABELS and spec.trial_template and not spec.trial_template.primary_pod_labels:
        yield (
            f"spec.trialTemplate.primaryPodLabels: {source['kind']} has no default, so metrics of every pod are "
            "collected; give labels that only the pod with the metrics has"
        )


def _restarts(source: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield warnings about training replicas that are restarted forever: a trial with a crashing program never ends."""
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


def _containers(node: Any, path: str) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield path, name in the pod, content and pod of every container anywhere in an object."""
    pending: list[tuple[str, Any]] = [(path, node)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, Mapping):
            yield from _containers_of(item, where)
            pending.extend((path_to(where, str(key)), child) for key, child in item.items())
        elif isinstance(item, list):
            pending.extend((f"{where}[{i}]", child) for i, child in enumerate(item))


def _containers_of(
    item: Mapping[str, Any], where: str
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the containers that a mapping itself lists: of a pod, of an Argo template, of a Tekton task."""
    for field, prefix in (("containers", ""), ("steps", "step-"), ("sidecars", "")):
        entries = item.get(field)
        for i, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str) and "image" in entry:
                yield f"{where}.{field}[{i}]", f"{prefix}{entry['name']}", entry, item
    for field in ("container", "script"):
        entry = item.get(field)
        if isinstance(entry, Mapping) and "image" in entry:
            yield f"{where}.{field}", str(entry.get("name") or "main"), entry, item


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
