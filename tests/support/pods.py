"""Pods and their trials to inject into, and how Kubernetes reads a container's command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from katib.model.types import (
    CollectorSpec,
    EarlyStoppingRule,
    FileSystemPath,
    FilterSpec,
    MetricsCollectorSpec,
    ObjectiveSpec,
    ObjectMeta,
    SourceSpec,
    Trial,
    TrialSpec,
)
from katib.places.cluster.configuration.models import MetricsCollectorConfig
from katib.places.cluster.injection import InjectionSettings
from katib.places.cluster.injection.command import LAUNCHER, LAUNCHER_DIRECTORY, launcher
from tests.support.launcher import launcher_binary

TRIAL = "test-trial"
DB_MANAGER = "katib-db-manager.kubeflow:6789"
RULES = (
    EarlyStoppingRule(name="accuracy", value="0.6", comparison="less", start_step=5),
    EarlyStoppingRule(name="loss", value="2", comparison="greater"),
)


def collector_spec(
    kind: str = "StdOut", *, path: str = "", path_kind: str = "File", file_format: str = "", filters: Sequence[str] = ()
) -> MetricsCollectorSpec:
    """Return how metrics are collected."""
    place = FileSystemPath(path=path, kind=path_kind, format=file_format) if path else None
    patterns = FilterSpec(metrics_format=tuple(filters)) if filters else None
    source = SourceSpec(file_system_path=place, filter=patterns) if place or patterns else None
    return MetricsCollectorSpec(collector=CollectorSpec(kind=kind), source=source)


def injected_trial(collector: MetricsCollectorSpec | None = None, **spec: Any) -> Trial:
    """Return a trial whose pods are injected into; `spec` replaces fields of its spec."""
    fields: dict[str, Any] = {
        "objective": ObjectiveSpec(type="maximize", objective_metric_name="accuracy"),
        "metrics_collector": collector or collector_spec(),
        "primary_container_name": "training",
        **spec,
    }
    metadata = ObjectMeta(name=TRIAL, namespace="team", labels={"katib.kubeflow.org/experiment": "test"})
    return Trial(metadata=metadata, spec=TrialSpec(**fields))


def injection_settings(**changes: Any) -> InjectionSettings:
    """Return settings with an entry for each collector kind that has an image."""
    kinds = ("StdOut", "File", "TensorFlowEvent", "PrometheusMetric")
    fields: dict[str, Any] = {
        "db_manager_address": DB_MANAGER,
        "collectors": {kind: MetricsCollectorConfig(kind=kind, image=f"collector/{kind.lower()}") for kind in kinds},
        "early_stopping_address": "test-medianstop.team:6788",
        **changes,
    }
    return InjectionSettings(**fields)


def pod(*command: str, container: str = "training", labels: Mapping[str, str] | None = None, **spec: Any) -> Any:
    """Return a pod with one container, as the API server hands it to a webhook."""
    only = {"name": container, "image": "training:1"}
    if command:
        only["command"] = list(command)  # type: ignore[assignment]
    spec = {"restartPolicy": "Never", "containers": [only], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": dict(labels or {})}, "spec": spec}


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return what Kubernetes makes of one element of a command: `$$` is one `$`, a known `$(NAME)` its value."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^()]*)\)", one, text)


def launched_command(
    command: Sequence[str],
    directory: str,
    *,
    file: str = "",
    grace_seconds: float = 30.0,
    patience_seconds: float | None = None,
    shared: str = "",
) -> list[str]:
    """Return what the container of a program runs that is injected into, with a directory of its own."""
    words = launcher(file=file, grace_seconds=grace_seconds, patience_seconds=patience_seconds, shared=shared)
    places = {LAUNCHER: launcher_binary(), LAUNCHER_DIRECTORY: directory}
    return [places.get(word, expanded(word, {})) for word in words] + [expanded(word, {}) for word in command]


def command_of(container: Mapping[str, Any], variables: Mapping[str, str] | None = None) -> list[str]:
    """Return what a container runs."""
    words = [*container.get("command", ()), *container.get("args", ())]
    return [expanded(word, variables or {}) for word in words]
