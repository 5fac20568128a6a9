"""Changes to one pod, in order. Idempotent."""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from katib.engine.runtime.objects import Object
from katib.errors import InvalidError, invalid
from katib.model.checkpoints import DIRECTORY_VARIABLE
from katib.model.container_restarts import runs_again, unknown_rules
from katib.model.names import SEED_VARIABLE, TRIAL_LABEL, trial_seed
from katib.model.quantities import add_quantities
from katib.model.types import CollectorKind, Trial
from katib.places.cluster.configuration.models import MetricsCollectorConfig
from katib.places.cluster.injection.collector import collector_container, grace_seconds
from katib.places.cluster.injection.command import katib_shell, launcher
from katib.places.cluster.injection.settings import (
    InjectionSettings,
    MetricsPath,
    VolumeClaim,
    collector_kind,
    http_get,
    metrics_path,
)
from katib.service.tuning.replicas import COLLECTORS, is_primary
from katib.wire.rpc.tokens import AUTHORITIES_VARIABLE, TOKEN_FILE_VARIABLE, URL_VARIABLE, path_of
from metrics_collector.program import LAUNCHER_DIRECTORY

METRICS_PORT_VARIABLE = "KATIB_METRICS_PORT"
"""Port for a program to expose its metrics on; on one machine, every trial has a port of its own."""

METRICS_VOLUME = "metrics-volume"
LAUNCHER_VOLUME = "katib-launcher"
SUGGESTION_VOLUME = "suggestion-volume"
STATUS_VOLUME = "trainer-status"

_STATUS_DIRECTORY = "/var/run/secrets/katib/trainer-status"
_STATUS_FILES = {
    "token": (TOKEN_FILE_VARIABLE, "katib.kubeflow.org/trainer-status-token"),
    "ca.crt": (AUTHORITIES_VARIABLE, "katib.kubeflow.org/trainer-status-ca"),
}

_REFERENCE = re.compile(r"\$\(([^()]+)\)")

_PARTS = ("initContainers", "containers")

_PUSHES_NOTHING = frozenset({CollectorKind.STDOUT, CollectorKind.NONE})
_UNACCOMPANIED = frozenset({CollectorKind.PUSH, CollectorKind.NONE})
"""Kinds without a collector container."""


Pod = dict[str, Any]


def inject(admitted: Mapping[str, Any], trial: Trial, settings: InjectionSettings) -> Pod:
    """Return the pod to run: with a collector in primary pods, and labels in all pods of the trial.

    Raises:
        InvalidError: The template does not allow metrics to be collected.
    """
    pod: Pod = copy.deepcopy(dict(admitted))
    labels = pod.setdefault("metadata", {}).get("labels") or {}
    pod["metadata"]["labels"] = {**labels, **trial.metadata.labels, TRIAL_LABEL: trial.name}
    _prepare_programs(pod, trial)
    index = primary_index(pod, trial)
    if index is None or not is_primary(pod, trial):
        return pod
    primary = pod["spec"]["containers"][index]
    if settings.status_address and collector_kind(trial) != CollectorKind.NONE:
        _offer_status(pod, primary, trial, settings)
    _introduce(primary, trial, settings)
    shared = "" if settings.suggestion_volume is None else _mount_claim(pod, primary, settings.suggestion_volume)
    if collector_kind(trial) not in _UNACCOMPANIED:
        _collect(pod, primary, f"spec.containers[{index}]", trial, settings, shared)
    return pod


def _prepare_programs(pod: Pod, trial: Trial) -> None:
    """Give all programs the trial's seed, and those that fail without a message the end of their log as the cause."""
    seed = {"name": SEED_VARIABLE, "value": str(trial_seed(trial.metadata.namespace, trial.name))}
    collector = trial.spec.metrics_collector.collector
    custom = {} if collector is None else collector.custom_collector or {}
    for container in (container for part in _PARTS for container in pod["spec"].get(part) or ()):
        if container.get("name") not in (*COLLECTORS, custom.get("name")):
            container["terminationMessagePolicy"] = "FallbackToLogsOnError"
            _add_variables(container, [seed])


def container_to_complete(pod: Object, trial: Trial, settings: InjectionSettings) -> int | None:
    """Return the index of the primary container if it lacks a command that the injection has to wrap."""
    index, kind = primary_index(pod, trial), collector_kind(trial)
    if index is None or not is_primary(pod, trial) or kind in {*_UNACCOMPANIED, CollectorKind.CUSTOM}:
        return None
    entry = settings.collectors.get(kind)
    is_seen = kind == CollectorKind.PROMETHEUS_METRIC and entry is not None and not entry.native_sidecar
    return None if is_seen or containers(pod)[index].get("command") else index


def _introduce(primary: Pod, trial: Trial, settings: InjectionSettings) -> None:
    """Set the variables with the trial's name and the address for pushing or exposing metrics.

    For kinds that read the output, `katib.report` prints.
    """
    kind = collector_kind(trial)
    pushes = kind not in _PUSHES_NOTHING
    variables = [_trial_variable()]
    if pushes:
        variables.append(_address_variable(settings))
    if kind == CollectorKind.PROMETHEUS_METRIC:
        variables.append({"name": METRICS_PORT_VARIABLE, "value": str(http_get(trial).get("port") or "")})
    _add_variables(primary, variables)
    if pushes:
        _entrust(primary, settings)


def _offer_status(pod: Pod, primary: Pod, trial: Trial, settings: InjectionSettings) -> None:
    """Set the address for the status of Kubeflow Trainer, with files for the token and the authority.

    The files expose annotations of the pod, so they need no object of their own. A program that already has an address
    keeps it, as in a TrainJob whose own controller receives its status.
    """
    if any(variable.get("name") == URL_VARIABLE for variable in primary.get("env") or ()):
        return
    objective, credentials = trial.spec.objective, settings.credentials
    names = () if objective is None else objective.metric_names
    scheme = "https" if credentials.authority else "http"
    variables = {URL_VARIABLE: f"{scheme}://{settings.status_address}{path_of(trial.name, names)}"}
    contents, items = {"token": credentials.token, "ca.crt": credentials.authority}, []
    for file, (variable, annotation) in _STATUS_FILES.items():
        if text := contents[file]:
            pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), annotation: text}
            items.append({"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}})
            variables[variable] = f"{_STATUS_DIRECTORY}/{file}"
    if items:
        mount = {"name": STATUS_VOLUME, "mountPath": _STATUS_DIRECTORY, "readOnly": True}
        primary["volumeMounts"] = [*(primary.get("volumeMounts") or ()), mount]
        _add_volume(pod, {"name": STATUS_VOLUME, "downwardAPI": {"items": items}})
    _add_variables(primary, [{"name": name, "value": value} for name, value in variables.items()])


def _trial_variable() -> Pod:
    return {"name": "KATIB_TRIAL_NAME", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{TRIAL_LABEL}']"}}}


def _address_variable(settings: InjectionSettings) -> Pod:
    return {"name": "KATIB_DB_MANAGER_ADDRESS", "value": settings.db_manager_address}


def _add_variables(container: Pod, variables: list[Pod]) -> None:
    """Add environment variables to a container; existing ones take precedence."""
    given = {variable.get("name") for variable in container.get("env") or ()}
    new = [variable for variable in variables if variable["name"] not in given]
    container["env"] = [*(container.get("env") or ()), *new]


def _entrust(container: Pod, settings: InjectionSettings) -> None:
    """Set the credentials of a container for the DB manager; a template cannot replace them."""
    variables = settings.credentials.variables
    others = [v for v in container.get("env") or () if v.get("name") not in variables]
    handed = [{"name": name, "value": value} for name, value in variables.items()]
    if handed:
        container["env"] = [*others, *handed]


def _collect(pod: Pod, primary: Pod, where: str, trial: Trial, settings: InjectionSettings, shared: str) -> None:
    """Add the collector, unless it is present.

    Args:
        shared: Directory made readable for all users after the program ended; empty for none.
    """
    path = metrics_path(trial)
    collector = _collector(pod, primary, trial, path, settings)
    _entrust(collector, settings)
    if _is_injected(pod, collector, trial):
        return
    kind = collector_kind(trial)
    entry = settings.collectors[kind] if kind != CollectorKind.CUSTOM else None
    _refuse_impossible(pod["spec"], primary, shares_processes=not (entry and entry.native_sidecar))
    if path is not None:
        _share_directory(pod, primary, collector, path)
    if entry is not None and entry.native_sidecar:
        _put_before(primary, where, _launcher(pod, primary, trial, path, entry, shared))
        _share_launcher(pod, primary, collector)
        pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or ()), collector]
    else:
        if entry is not None and path is not None:
            shell = katib_shell(
                path, to_file=kind == CollectorKind.STDOUT, may_stop=bool(trial.spec.early_stopping_rules)
            )
            _put_before(primary, where, shell)
        pod["spec"]["containers"].append(collector)
        pod["spec"]["shareProcessNamespace"] = True
    _make_room(pod, collector)


def _make_room(pod: Pod, collector: Pod) -> None:
    """Raise pod-level requests and limits, if set, by those of the collector.

    Kubernetes refuses a pod whose containers together request more than the pod, or have a higher limit.
    """
    whole, own = pod["spec"].get("resources") or {}, collector.get("resources") or {}
    limits, requests = own.get("limits") or {}, own.get("requests") or {}
    raises = {"requests": {**limits, **requests}, "limits": {**requests, **limits}}
    for part, added in raises.items():
        given = whole.get(part) or {}
        with suppress(ValueError):  # the API server refuses a user's collector with a malformed quantity
            raised = {name: add_quantities(value, added[name]) for name, value in given.items() if name in added}
            whole = {**whole, part: {**given, **raised}} if raised else whole
    if whole:
        pod["spec"]["resources"] = whole


def _refuse_impossible(spec: Pod, primary: Pod, *, shares_processes: bool) -> None:
    places = [(f"spec.{part}[{i}]", c) for part in _PARTS for i, c in enumerate(spec.get(part) or ())]
    rules = [error for where, c in places for error in unknown_rules(c, where, is_program=c is primary)]
    if rules:
        raise InvalidError(rules)
    if shares_processes and spec.get("hostPID"):
        cause = "true; the collector would see every process of the node"
        raise invalid("spec.hostPID", cause, "remove it from the trial template", "pod-host-pid")
    system = (spec.get("os") or {}).get("name") or (spec.get("nodeSelector") or {}).get("kubernetes.io/os")
    if system == "windows":
        cause = "windows, for which there is no collector"
        remedy = "report metrics with the collector kind Push"
        raise invalid("spec.os.name", cause, remedy, "pod-windows")


def _collector(
    pod: Pod, primary: Pod, trial: Trial, path: MetricsPath | None, settings: InjectionSettings
) -> dict[str, Any]:
    if collector_kind(trial) != CollectorKind.CUSTOM:
        return collector_container(pod, primary, trial, path, settings)
    spec = trial.spec.metrics_collector.collector
    custom = spec.custom_collector if spec is not None else None
    if not custom or not custom.get("name"):
        where = "spec.metricsCollectorSpec.collector.customCollector"
        raise invalid(where, "it has no name", "describe the container", "collector-container")
    container = copy.deepcopy(custom)
    _add_variables(container, [_trial_variable(), _address_variable(settings)])
    return container


def _is_injected(pod: Pod, collector: Pod, trial: Trial) -> bool:
    everyone = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    found = next((container for container in everyone if container.get("name") == collector["name"]), None)
    if found is None:
        return False
    if collector_kind(trial) != CollectorKind.CUSTOM and (found.get("args") or ())[:2] != ["-t", trial.name]:
        cause = f"a container of the template is named {collector['name']!r}, which is the collector's name"
        raise invalid("spec.containers", cause, "rename it", "container-name-taken")
    return True


def _share_directory(pod: Pod, primary: Pod, collector: Pod, path: MetricsPath) -> None:
    """Share the metrics directory between both containers: on the template's volume there, else on a new one."""
    mounts = primary.get("volumeMounts") or ()
    mount = next((m for m in mounts if _same_place(m.get("mountPath"), path.directory)), None)
    if mount is None:
        mount = {"name": METRICS_VOLUME, "mountPath": path.directory}
        primary["volumeMounts"] = [*mounts, mount]
        _add_volume(pod, {"name": METRICS_VOLUME, "emptyDir": {}})
    collector["volumeMounts"] = [*(collector.get("volumeMounts") or ()), copy.deepcopy(mount)]
    _know_variables(primary, collector, mount.get("subPathExpr") or "")


def _know_variables(primary: Pod, collector: Pod, expression: str) -> None:
    """Give the collector the program's variables that the path of their common mount refers to."""
    known = {variable.get("name") for variable in collector.get("env") or ()}
    wanted = set(_REFERENCE.findall(expression)) - known
    found = [copy.deepcopy(variable) for variable in primary.get("env") or () if variable.get("name") in wanted]
    if found:
        collector["env"] = [*(collector.get("env") or ()), *found]


def _mount_claim(pod: Pod, primary: Pod, claim: VolumeClaim) -> str:
    """Mount the checkpoint of a trial and return its path; empty if the template mounts its own volume there."""
    mounts = primary.get("volumeMounts") or ()
    _add_variables(primary, [{"name": DIRECTORY_VARIABLE, "value": claim.mount_path}])
    if any(_same_place(mount.get("mountPath"), claim.mount_path) for mount in mounts):
        return ""
    mount = {"name": SUGGESTION_VOLUME, "mountPath": claim.mount_path, "subPath": claim.sub_path}
    primary["volumeMounts"] = [*mounts, mount]
    _add_volume(pod, {"name": SUGGESTION_VOLUME, "persistentVolumeClaim": {"claimName": claim.claim_name}})
    return claim.mount_path


def _add_volume(pod: Pod, volume: Pod) -> None:
    volumes = pod["spec"].get("volumes") or ()
    if any(other.get("name") == volume["name"] for other in volumes):
        cause = f"the template has a volume named {volume['name']!r}, which is the name of one that is added"
        raise invalid("spec.volumes", cause, "rename it", "volume-name-taken")
    pod["spec"]["volumes"] = [*volumes, volume]


def _launcher(
    pod: Pod, primary: Pod, trial: Trial, path: MetricsPath | None, entry: MetricsCollectorConfig, shared: str
) -> list[str]:
    """Return the launcher's command.

    A program that is restarted after success ends no pod, so nothing is waited for.
    """
    runs_on = runs_again(primary, pod["spec"].get("restartPolicy", "Always"), 0)
    return launcher(
        file=path.path if path is not None and collector_kind(trial) == CollectorKind.STDOUT else "",
        grace_seconds=grace_seconds(pod),
        patience_seconds=None if runs_on else entry.patience_seconds,
        shared=shared,
    )


def _share_launcher(pod: Pod, primary: Pod, collector: Pod) -> None:
    """Mount the volume of the launcher, private to this pod, in program and collector."""
    for container in (primary, collector):
        mount = {"name": LAUNCHER_VOLUME, "mountPath": LAUNCHER_DIRECTORY}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    _add_volume(pod, {"name": LAUNCHER_VOLUME, "emptyDir": {}})


def _put_before(primary: Pod, where: str, command: list[str]) -> None:
    """Run the template's command and arguments by another command, whose arguments they become."""
    if not primary.get("command"):
        cause = f"it is missing, and what {primary.get('image', 'the image')!r} runs by itself is not known here"
        remedy = "write the image's entrypoint as command in the trial template"
        raise invalid(f"{where}.command", cause, remedy, "command-missing")
    primary["command"], primary["args"] = command, [*primary["command"], *(primary.get("args") or ())]


def _same_place(one: str | None, other: str) -> bool:
    return one is not None and posixpath.normpath(one) == posixpath.normpath(other)


def primary_index(pod: Object, trial: Trial) -> int | None:
    names = [container.get("name") for container in containers(pod)]
    name = trial.spec.primary_container_name
    return names.index(name) if name in names else None


def containers(pod: Object) -> list[dict[str, Any]]:
    return list(pod.get("spec", {}).get("containers") or ())


def missing_primary_container(pod: Object, trial: Trial) -> str:
    """Return one sentence on a primary pod without the primary container; empty if there is no problem.

    Such a pod runs without collector. That is right for the auxiliary steps of a pipeline and wrong for a misspelt
    name, and only the user can distinguish them.
    """
    if not is_primary(pod, trial) or primary_index(pod, trial) is not None:
        return ""
    found = ", ".join(str(container.get("name")) for container in containers(pod))
    return (
        f"no metrics are collected from a pod of trial {trial.name}: it has no container "
        f"{trial.spec.primary_container_name!r}, only {found}; if metrics come from it, fix "
        "spec.trialTemplate.primaryContainerName, else narrow primaryPodLabels"
    )
