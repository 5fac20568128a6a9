"""The changes to one pod, in order. Applying them to their own result changes nothing."""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from katib.api.names import TRIAL_LABEL
from katib.api.types import CollectorKind, Trial
from katib.errors import FieldError, InvalidError
from katib.injection.collector import collector_container
from katib.injection.command import wrapped
from katib.injection.paths import MetricsPath, collector_kind, metrics_path
from katib.injection.primary import is_primary, primary_index
from katib.injection.settings import InjectionSettings, VolumeClaim

METRICS_VOLUME = "metrics-volume"
SUGGESTION_VOLUME = "suggestion-volume"

_REFERENCE = re.compile(r"\$\(([^()]+)\)")

_WRAPPED = frozenset({CollectorKind.STDOUT, CollectorKind.FILE, CollectorKind.TENSORFLOW_EVENT})

Pod = dict[str, Any]


def inject(admitted: Mapping[str, Any], trial: Trial, settings: InjectionSettings) -> Pod:
    """Return the pod as it is to run: one more container in primary pods, labels in all pods of the trial.

    Raises:
        InvalidError: The pod cannot be collected from as its template is written.
    """
    pod: Pod = copy.deepcopy(dict(admitted))
    _label(pod, trial)
    index = primary_index(pod, trial)
    if index is None or not is_primary(pod, trial):
        return pod
    primary = pod["spec"]["containers"][index]
    _introduce(primary, trial, settings)
    if settings.suggestion_volume is not None:
        _mount_claim(pod, primary, settings.suggestion_volume)
    if collector_kind(trial) != CollectorKind.PUSH:
        _collect(pod, primary, f"spec.containers[{index}]", trial, settings)
    return pod


def _label(pod: Pod, trial: Trial) -> None:
    labels = pod.setdefault("metadata", {}).get("labels") or {}
    pod["metadata"]["labels"] = {**labels, **trial.metadata.labels, TRIAL_LABEL: trial.name}


def _introduce(primary: Pod, trial: Trial, settings: InjectionSettings) -> None:
    """Tell the program which trial it is, and where to push metrics."""
    from_label = {"fieldRef": {"fieldPath": f"metadata.labels['{TRIAL_LABEL}']"}}
    variables: list[dict[str, Any]] = [{"name": "KATIB_TRIAL_NAME", "valueFrom": from_label}]
    if collector_kind(trial) == CollectorKind.PUSH:
        variables.append({"name": "KATIB_DB_MANAGER_ADDRESS", "value": settings.db_manager_address})
    given = {variable.get("name") for variable in primary.get("env") or ()}
    new = [variable for variable in variables if variable["name"] not in given]
    primary["env"] = [*(primary.get("env") or ()), *new]


def _collect(pod: Pod, primary: Pod, where: str, trial: Trial, settings: InjectionSettings) -> None:
    """Add the collector, unless it is there already."""
    path = metrics_path(trial)
    collector = _collector(pod, primary, trial, path, settings)
    if _is_injected(pod, collector, trial):
        return
    _refuse_impossible(pod["spec"])
    if path is not None:
        _share_directory(pod, primary, collector, path)
        if collector_kind(trial) in _WRAPPED:
            _wrap(primary, where, trial, path)
    if collector.get("restartPolicy") == "Always":
        pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or ()), collector]
    else:
        pod["spec"]["containers"].append(collector)
    pod["spec"]["shareProcessNamespace"] = True


def _refuse_impossible(spec: Pod) -> None:
    if spec.get("hostPID"):
        cause = "true; the collector would see every process of the node"
        raise InvalidError([FieldError("spec.hostPID", cause, "remove it from the trial template", "pod-host-pid")])
    system = (spec.get("os") or {}).get("name") or (spec.get("nodeSelector") or {}).get("kubernetes.io/os")
    if system == "windows":
        cause = "windows, whose containers share no processes and have no sh"
        remedy = "report metrics with the collector kind Push"
        raise InvalidError([FieldError("spec.os.name", cause, remedy, "pod-windows")])


def _collector(
    pod: Pod, primary: Pod, trial: Trial, path: MetricsPath | None, settings: InjectionSettings
) -> dict[str, Any]:
    if collector_kind(trial) != CollectorKind.CUSTOM:
        return collector_container(pod, primary, trial, path, settings)
    spec = trial.spec.metrics_collector.collector
    custom = spec.custom_collector if spec is not None else None
    if not custom or not custom.get("name"):
        where = "spec.metricsCollectorSpec.collector.customCollector"
        raise InvalidError([FieldError(where, "it has no name", "describe the container", "collector-container")])
    return copy.deepcopy(custom)


def _is_injected(pod: Pod, collector: Pod, trial: Trial) -> bool:
    """Tell whether the pod has this collector.

    Raises:
        InvalidError: A container of the template has taken its name.
    """
    everyone = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    found = next((container for container in everyone if container.get("name") == collector["name"]), None)
    if found is None:
        return False
    if collector_kind(trial) != CollectorKind.CUSTOM and (found.get("args") or ())[:2] != ["-t", trial.name]:
        cause = f"a container of the template is named {collector['name']!r}, which is the collector's name"
        raise InvalidError([FieldError("spec.containers", cause, "rename it", "container-name-taken")])
    return True


def _share_directory(pod: Pod, primary: Pod, collector: Pod, path: MetricsPath) -> None:
    """Let both containers see the metrics directory: on the volume that the template has there, else on a new one."""
    mounts = primary.get("volumeMounts") or ()
    mount = next((m for m in mounts if _same_place(m.get("mountPath"), path.directory)), None)
    if mount is None:
        mount = {"name": METRICS_VOLUME, "mountPath": path.directory}
        primary["volumeMounts"] = [*mounts, mount]
        _add_volume(pod, {"name": METRICS_VOLUME, "emptyDir": {}})
    collector["volumeMounts"] = [*(collector.get("volumeMounts") or ()), copy.deepcopy(mount)]
    _know_variables(primary, collector, mount.get("subPathExpr") or "")


def _know_variables(primary: Pod, collector: Pod, expression: str) -> None:
    """Give the collector the variables of the program that the path of their common mount is made of."""
    known = {variable.get("name") for variable in collector.get("env") or ()}
    wanted = set(_REFERENCE.findall(expression)) - known
    found = [copy.deepcopy(variable) for variable in primary.get("env") or () if variable.get("name") in wanted]
    if found:
        collector["env"] = [*(collector.get("env") or ()), *found]


def _mount_claim(pod: Pod, primary: Pod, claim: VolumeClaim) -> None:
    mounts = primary.get("volumeMounts") or ()
    if any(mount.get("name") == SUGGESTION_VOLUME for mount in mounts):
        return
    mount = {"name": SUGGESTION_VOLUME, "mountPath": claim.mount_path, "subPath": claim.sub_path}
    primary["volumeMounts"] = [*mounts, mount]
    _add_volume(pod, {"name": SUGGESTION_VOLUME, "persistentVolumeClaim": {"claimName": claim.claim_name}})


def _add_volume(pod: Pod, volume: Pod) -> None:
    volumes = pod["spec"].get("volumes") or ()
    if any(other.get("name") == volume["name"] for other in volumes):
        cause = f"the template has a volume named {volume['name']!r}, which is the name of one that is added"
        raise InvalidError([FieldError("spec.volumes", cause, "rename it", "volume-name-taken")])
    pod["spec"]["volumes"] = [*volumes, volume]


def _wrap(primary: Pod, where: str, trial: Trial, path: MetricsPath) -> None:
    if not primary.get("command"):
        cause = f"it is missing, and what {primary.get('image', 'the image')!r} runs by itself is not known here"
        remedy = "write the image's entrypoint as command in the trial template"
        raise InvalidError([FieldError(f"{where}.command", cause, remedy, "command-missing")])
    primary["command"], primary["args"] = wrapped(
        [*primary["command"], *(primary.get("args") or ())],
        path,
        to_file=collector_kind(trial) == CollectorKind.STDOUT,
        may_stop=bool(trial.spec.early_stopping_rules),
    )


def _same_place(one: str | None, other: str) -> bool:
    return one is not None and posixpath.normpath(one) == posixpath.normpath(other)
