"""Rules about a pod and its containers: names, environment, rights, resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from katib.api.quantities import parse_quantity
from katib.api.wording import did_you_mean, path_to, shown
from katib.local.admission.command_rules import check_command
from katib.local.admission.host import GIB, HostCapacity, Machine
from katib.local.admission.volume_rules import check_volumes
from katib.local.findings import Findings, integer, is_given, mapping, mappings, text
from katib.local.pods.tokens import GPU_RESOURCES
from katib.templates import has_placeholder

GPU: Final = "GPU"
FIELD_PATHS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
RESOURCE_PATHS: Final = ("limits.cpu", "limits.memory", "requests.cpu", "requests.memory")

_INDEXED_FIELD_PATH = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")
_LARGEST = Decimal(10) ** 24
"""No machine has a yottabyte; what is larger would only flood a message with digits."""

_SOURCES = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")

_Places = list[tuple[str, Mapping[str, Any]]]


def check_pod_rules(pod: Mapping[str, Any], path: str, machine: Machine, findings: Findings) -> None:
    """Check a pod's spec.

    Args:
        pod: The spec; may be malformed.
        path: Where it stands.
        machine: Where it runs.
        findings: Takes what is found.
    """
    host = machine.capacity
    main = [(f"{path}.containers[{i}]", container) for i, container in mappings(pod.get("containers"))]
    first = [(f"{path}.initContainers[{i}]", container) for i, container in mappings(pod.get("initContainers"))]
    if pod.get("containers") == []:
        findings.error(f"{path}.containers", "it is empty", "give a container with a command", "pod-containers")
    _check_names(main + first, findings)
    findings.below(0, pod.get("terminationGracePeriodSeconds"), f"{path}.terminationGracePeriodSeconds")
    pod_rights = mapping(pod.get("securityContext"))
    _check_rights(pod_rights, f"{path}.securityContext", host, findings)
    mounts = check_volumes(pod, path, main + first, findings, are_mounted=host.runs_images)
    for container_path, container in main + first:
        is_first = container_path.startswith(f"{path}.initContainers")
        _check_restart_policy(container, container_path, findings, is_first=is_first)
        rights = mapping(container.get("securityContext"))
        _check_rights(rights, f"{container_path}.securityContext", host, findings)
        if host.runs_images:
            _check_user({**pod_rights, **rights}, container_path, findings)
        _check_environment(container, container_path, findings)
        for i, port in mappings(container.get("ports")):
            findings.below(1, port.get("containerPort"), f"{container_path}.ports[{i}].containerPort")
        settled = replace(machine, is_settled=(first or main)[0][0] == container_path or not first)
        check_command(container, container_path, mounts.get(container_path, ()), settled, findings)
    _check_resources(main, first, path, host, findings)
    operating_system = text(mapping(pod.get("os")).get("name"))
    if operating_system not in {"", "linux"}:
        cause = f"this machine does not run {operating_system}"
        findings.error(f"{path}.os.name", cause, "submit the experiment to Kubernetes", "pod-os")


def check_requests_together(
    templates: Sequence[tuple[Mapping[str, Any], int]], path: str, host: HostCapacity, findings: Findings
) -> None:
    """Compare what pods that run together ask for with the machine; what one of them asks for is checked elsewhere.

    Args:
        templates: Pod templates, each with the number of pods.
        path: Where the job describes them.
        host: What the machine has.
        findings: Takes what is found.
    """
    if sum(count for _, count in templates) < 2:  # noqa: PLR2004  # nothing is together with one pod
        return
    needed: dict[str, Decimal] = {}
    for template, count in templates:
        for _, container in mappings(mapping(template.get("spec")).get("containers")):
            for name, amount in _requests(container).items():
                needed[name] = needed.get(name, Decimal(0)) + count * amount
    for name in sorted(needed):
        _compare(name, needed[name], path, host, findings, " for all its pods together")


def _check_names(containers: _Places, findings: Findings) -> None:
    seen: set[str] = set()
    for path, container in containers:
        name = text(container.get("name"))
        if name and name in seen:
            findings.error(
                f"{path}.name", f"{shown(name)} is used twice", "give it a name of its own", "pod-name-twice"
            )
        seen.add(name)


def _check_restart_policy(container: Mapping[str, Any], path: str, findings: Findings, *, is_first: bool) -> None:
    policy = container.get("restartPolicy")
    if is_given(policy) and not (is_first and policy == "Always"):
        cause = f"a restart policy of its own, {shown(policy)}, is not kept here"
        remedy = (
            "remove it, or submit the experiment to Kubernetes: here only an init container can have one, Always, "
            "which makes it a sidecar"
        )
        findings.error(f"{path}.restartPolicy", cause, remedy, "pod-container-restart")


def _check_user(rights: Mapping[str, Any], path: str, findings: Findings) -> None:
    """Check as whom a container runs in its image; what its image says of that is not known before it runs."""
    user, place = integer(rights.get("runAsUser")), f"{path}.securityContext"
    if rights.get("runAsNonRoot") is True and not user:
        cause = "the user of the image is not known here" if user is None else "runAsUser is root"
        findings.error(f"{place}.runAsNonRoot", cause, "give runAsUser a number above 0", "pod-rights")
    if is_given(rights.get("runAsGroup")) and not is_given(rights.get("runAsUser")):
        findings.error(f"{place}.runAsGroup", "it needs runAsUser", "give runAsUser as well", "pod-rights")


def _check_rights(context: Mapping[str, Any], path: str, host: HostCapacity, findings: Findings) -> None:
    if host.runs_images:
        findings.all_below({"runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}, context, path)
        groups = context.get("supplementalGroups")
        for i, group in enumerate(groups if isinstance(groups, list) else ()):
            findings.below(0, group, f"{path}.supplementalGroups[{i}]")
        return
    for field, word, own in (("runAsUser", "user", host.user_id), ("runAsGroup", "group", host.group_id)):
        number = integer(context.get(field))
        if number is not None and number != own:
            cause = f"processes run as {word} {own} here, not {number}"
            findings.error(f"{path}.{field}", cause, f"remove it, or start the engine as {word} {number}", "pod-rights")
    if context.get("runAsNonRoot") is True and host.user_id == 0:
        remedy = "remove it, or start the engine as another user"
        findings.error(f"{path}.runAsNonRoot", "processes run as root here", remedy, "pod-rights")


def _check_environment(container: Mapping[str, Any], path: str, findings: Findings) -> None:
    for i, entry in mappings(container.get("env")):
        source, entry_path = mapping(entry.get("valueFrom")), f"{path}.env[{i}]"
        if not source:
            continue
        given = [name for name in _SOURCES if name in source]
        if is_given(entry.get("value")) or len(given) != 1:
            remedy = f"give value, or one of {', '.join(_SOURCES)} in valueFrom"
            findings.error(entry_path, "its value has no source, or several", remedy, "env-source")
        field_path = text(mapping(source.get("fieldRef")).get("fieldPath"))
        if field_path and field_path not in FIELD_PATHS and not _INDEXED_FIELD_PATH.fullmatch(field_path):
            remedy = did_you_mean(field_path, (*FIELD_PATHS, "metadata.labels['key']", "metadata.annotations['key']"))
            cause = f"a pod has no field {shown(field_path)} here"
            findings.error(f"{entry_path}.valueFrom.fieldRef.fieldPath", cause, remedy, "env-field-path")
        resource = text(mapping(source.get("resourceFieldRef")).get("resource"))
        if resource and resource not in RESOURCE_PATHS:
            cause, remedy = f"{shown(resource)} is not known here", did_you_mean(resource, RESOURCE_PATHS)
            findings.error(f"{entry_path}.valueFrom.resourceFieldRef.resource", cause, remedy, "env-resource")


def _check_resources(main: _Places, first: _Places, path: str, host: HostCapacity, findings: Findings) -> None:
    """Compare what one pod asks for with the machine: containers run together, init containers one by one."""
    for place, container in main + first:
        _check_quantities(mapping(container.get("resources")), f"{place}.resources", host, findings)
    sidecars = [container for _, container in first if container.get("restartPolicy") == "Always"]
    together = [_requests(container) for container in [*(c for _, c in main), *sidecars]]
    alone = [_requests(container) for _, container in first if container not in sidecars]
    for name in sorted({name for requests in together + alone for name in requests}):
        place = path if len(main + first) > 1 else (main + first)[0][0]
        needed = max([sum(r.get(name, Decimal(0)) for r in together), *(r.get(name, Decimal(0)) for r in alone)])
        _compare(name, Decimal(needed), place, host, findings)


def _compare(name: str, needed: Decimal, path: str, host: HostCapacity, findings: Findings, of_what: str = "") -> None:
    if name == "cpu":
        available, words = Decimal(str(host.cpus)), (f"{needed.normalize():f} CPU", f"{host.cpus:g}")
    elif name == "memory":
        available = Decimal(host.memory_bytes)
        words = (f"{needed / GIB:.1f} GiB of memory", f"{host.memory_bytes / GIB:.1f} GiB")
    elif name == GPU:
        available, words = Decimal(host.gpus), (f"{needed.normalize():f} GPU", f"{host.gpus}")
    elif "/" in name:
        available, words = Decimal(0), (f"{needed.normalize():f} {name}", "0")
    else:
        return
    if needed > available:
        remedy = "request less, or submit the experiment to Kubernetes"
        cause = f"needs {words[0]}{of_what}, this machine has {words[1]}"
        findings.error(path if of_what else f"{path}.resources", cause, remedy, "pod-resources")


def _check_quantities(resources: Mapping[str, Any], path: str, host: HostCapacity, findings: Findings) -> None:
    for field in ("requests", "limits"):
        for name, value in mapping(resources.get(field)).items():
            place = path_to(f"{path}.{field}", name)
            quantity = _amount(value)
            is_literal = isinstance(value, str | int | float) and not has_placeholder(value)
            if is_literal and (quantity is None or quantity < 0):
                cause = f"{shown(value)} is not a quantity"
                findings.error(place, cause, 'write it as 2, "500m" or "1Gi"', "pod-quantity")
            elif field == "limits" and name in {"cpu", "memory"} - host.limits:
                of_what = "containers by this account" if host.runs_images else "processes here"
                findings.notice(place, f"limits are not enforced on {of_what}")
            elif name in host.limits:
                continue
            elif name not in {"cpu", "memory"} and "/" not in name:
                findings.notice(place, "only cpu, memory and devices are counted here")


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what a container asks for: its requests, else its limits. Cards of all makers count together."""
    resources = mapping(container.get("resources"))
    raw: Iterable[tuple[str, Any]] = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}.items()
    found: dict[str, Decimal] = {}
    for name, value in raw:
        key, quantity = GPU if name in GPU_RESOURCES else name, _amount(value)
        if quantity is not None and quantity >= 0:
            found[key] = found.get(key, Decimal(0)) + quantity
    return found


def _amount(value: object) -> Decimal | None:
    """Return the number of cores, bytes or devices; None when it is not a quantity or not known yet."""
    if isinstance(value, bool):
        return None
    try:
        quantity = parse_quantity(value)
    except (ValueError, ArithmeticError):
        return None
    return quantity if abs(quantity) < _LARGEST else None
