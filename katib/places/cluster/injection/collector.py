"""The collector's container: its arguments, its security context, and whether it is a native sidecar."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from katib.errors import invalid
from katib.model.container_restarts import OWN_FIELDS
from katib.model.types import CollectorKind, SourceSpec, Trial
from katib.places.cluster.configuration.models import MetricsCollectorConfig
from katib.places.cluster.injection.command import LAUNCHER
from katib.places.cluster.injection.settings import (
    InjectionSettings,
    MetricsPath,
    collector_kind,
    http_get,
)
from metrics_collector.pod_settings import (
    ALONE_VARIABLE,
    DEFAULT_GRACE_SECONDS,
    GIVE_UP_VARIABLE,
    GRACE_VARIABLE,
    HTTP_GET_VARIABLE,
    KIND_VARIABLE,
    LAUNCHER_VARIABLE,
    POD_UID_VARIABLE,
    PROGRAM_RESTART_VARIABLE,
    RESTART_VARIABLE,
)
from metrics_collector.program import LAUNCHER_DIRECTORY

LOGGER_NAME = "metrics-logger-and-collector"
COLLECTOR_NAME = "metrics-collector"
LAUNCHER_IN_IMAGE = "/opt/katib/bin/katib-launch"

_IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "seLinuxOptions")


def collector_arguments(trial: Trial, path: MetricsPath | None, settings: InjectionSettings) -> list[str]:
    """Return the arguments, in the form that Katib's collectors understand.

    Raises:
        InvalidError: The trial has no objective, or has rules but no early stopping service.
    """
    objective = trial.spec.objective
    if objective is None:
        raise invalid("spec.objective", "the trial has none", "give the metric to optimize", "objective-missing")
    kind, source = collector_kind(trial), trial.spec.metrics_collector.source
    entry = settings.collectors.get(kind)
    arguments = ["-t", trial.name, "-m", ";".join(objective.metric_names), "-o-type", objective.type]
    arguments += ["-s-db", settings.db_manager_address]
    if path is not None:
        arguments += ["-path", path.path]
    arguments += _reading(kind, source)
    if entry is not None and entry.wait_all_processes is not None:
        arguments += ["-w", "true" if entry.wait_all_processes else "false"]
    arguments += _stopping(trial, settings)
    return arguments


def collector_container(
    pod: Mapping[str, Any],
    primary: Mapping[str, Any],
    trial: Trial,
    path: MetricsPath | None,
    settings: InjectionSettings,
) -> dict[str, Any]:
    """Return the container that collects metrics of the primary container, without its volume mounts.

    Raises:
        InvalidError: The KatibConfig has no collector of this kind; see also `collector_arguments`.
    """
    kind = collector_kind(trial)
    entry = settings.collectors.get(kind)
    if entry is None:
        remedy = f"add an entry of kind {kind} to runtime.metricsCollectors of the KatibConfig"
        where = "spec.metricsCollectorSpec.collector.kind"
        raise invalid(where, f"{kind} has no collector here", remedy, "collector-not-configured")
    container: dict[str, Any] = {
        "name": LOGGER_NAME if kind in {CollectorKind.STDOUT, CollectorKind.FILE} else COLLECTOR_NAME,
        "image": entry.image,
        "imagePullPolicy": entry.image_pull_policy,
        "resources": entry.resources.complete(),
        "args": collector_arguments(trial, path, settings),
        "env": _environment(pod, primary, trial, entry),
        "securityContext": _security_context(
            pod, primary, trial, copy=settings.inject_security_context, kills=not entry.native_sidecar
        ),
    }
    if entry.native_sidecar:
        # The kubelet starts no other container before this has succeeded.
        install = {"exec": {"command": [LAUNCHER_IN_IMAGE, "-i", LAUNCHER]}}
        container |= {"restartPolicy": "Always", "lifecycle": {"postStart": install}}
    return container


def grace_seconds(pod: Mapping[str, Any]) -> float:
    """Return the time of a pod between SIGTERM and SIGKILL."""
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if seconds is None else seconds


def _reading(kind: str, source: SourceSpec | None) -> Iterator[str]:
    if source is not None and source.filter is not None and source.filter.metrics_format:
        yield from ("-f", ";".join(source.filter.metrics_format))
    if kind == CollectorKind.STDOUT:
        yield from ("-format", "TEXT")
    elif kind == CollectorKind.FILE and source is not None and source.file_system_path is not None:
        yield from ("-format", source.file_system_path.format)


def _stopping(trial: Trial, settings: InjectionSettings) -> Iterator[str]:
    rules = trial.spec.early_stopping_rules
    if not rules:
        return
    if not settings.early_stopping_address:
        cause = f"trial {trial.name} has rules, and its experiment no early stopping service to tell of a stop"
        remedy = "look at the experiment's Suggestion, whose service is missing"
        raise invalid("spec.earlyStoppingRules", cause, remedy, "early-stopping-service")
    for rule in rules:
        yield from ("-stop-rule", f"{rule.name};{rule.value};{rule.comparison};{rule.start_step}")
    yield from ("-s-earlystop", settings.early_stopping_address)


def _environment(
    pod: Mapping[str, Any], primary: Mapping[str, Any], trial: Trial, entry: MetricsCollectorConfig
) -> list[dict[str, Any]]:
    """Return the variables with facts about the pod that the collector cannot observe and no flag of Katib's covers."""
    kind = collector_kind(trial)
    variables = {
        RESTART_VARIABLE: pod["spec"].get("restartPolicy") or "Always",
        GRACE_VARIABLE: str(grace_seconds(pod)),
        GIVE_UP_VARIABLE: f"{entry.patience_seconds:g}",
        KIND_VARIABLE: kind,
    }
    if own := {name: primary[name] for name in OWN_FIELDS if primary.get(name)}:
        variables[PROGRAM_RESTART_VARIABLE] = json.dumps(own, separators=(",", ":"))
    if entry.native_sidecar:
        variables[LAUNCHER_VARIABLE] = LAUNCHER_DIRECTORY
        variables[ALONE_VARIABLE] = "true" if len(pod["spec"]["containers"]) == 1 else "false"
    if kind == CollectorKind.PROMETHEUS_METRIC:
        variables[HTTP_GET_VARIABLE] = json.dumps(http_get(trial), separators=(",", ":"))
    uid = {"name": POD_UID_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    return [*({"name": name, "value": value} for name, value in variables.items()), uid]


def _security_context(
    pod: Mapping[str, Any], primary: Mapping[str, Any], trial: Trial, *, copy: bool, kills: bool
) -> dict[str, Any]:
    """Return a security context that the "restricted" Pod Security level allows if it allows the pod.

    A user set for the primary container is adopted; one set for the pod applies to both. If there is none, the program
    runs as its image's user. A collector without launcher (`kills`) signals the program itself, so it must be the same
    user: unless root is forbidden, it is root with only the capabilities to do so and to write the reason.
    """
    given = primary.get("securityContext") or {}
    if copy and given:
        return dict(given)
    of_pod = pod["spec"].get("securityContext") or {}
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        **{name: given[name] for name in _IDENTITY if name in given},
    }
    named = {**of_pod, **given}
    if kills and trial.spec.early_stopping_rules and "runAsUser" not in named and not named.get("runAsNonRoot"):
        context["runAsUser"] = 0
        context["capabilities"] = {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "KILL"]}
    if "seccompProfile" not in named:
        context["seccompProfile"] = {"type": "RuntimeDefault"}
    return context
