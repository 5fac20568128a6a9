"""Containers that run in their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

from katib.errors import invalid
from katib.model.quantities import parse_quantity
from katib.places.machine.pods.environment import (
    ContainerCommand,
    PodContext,
    declared_variables,
    expand,
    thread_variables,
)
from katib.places.machine.pods.image_runs import ImageRun, Mount, Pull

_POLICIES = {"Always": Pull.ALWAYS, "IfNotPresent": Pull.MISSING, "Never": Pull.NEVER}


_UID_DIGITS = 8


_WRITABLE = ("emptyDir", "hostPath")


_SYSTEM = frozenset(
    {"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr", "/var"}
)
"""Directories that an image has of its own; one of this machine in their place would hide the image."""


def image_container(
    container: Mapping[str, Any], path: str, context: PodContext, volumes: Mapping[str, Path]
) -> tuple[ContainerCommand, ImageRun]:
    """Return the command of a container, and its image.

    Raises:
        InvalidError: It has no image, or a value it needs is missing; all such errors at once.
    """
    image = str(container.get("image") or "")
    if not image:
        raise invalid(f"{path}.image", "it is missing", "name an image", "image-missing")
    name = container.get("name", "")
    declared = {**declared_variables(container, path, context), **context.forced.get(name, {})}
    entrypoint = tuple(expand(str(word), declared) for word in container.get("command") or ())
    arguments = tuple(expand(str(word), declared) for word in container.get("args") or ())
    environment = {"PYTHONUNBUFFERED": "1", "HOSTNAME": context.identity.hostname, **context.ours, **declared}
    directory = container.get("workingDir") or ""
    environment |= thread_variables(container, path, context, environment)
    rights = {**(context.spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
    capabilities = rights.get("capabilities") or {}
    limits = (container.get("resources") or {}).get("limits") or {}
    user, group, files_group = (rights.get(field) for field in ("runAsUser", "runAsGroup", "fsGroup"))
    groups = [*(rights.get("supplementalGroups") or ()), *(() if files_group is None else (files_group,))]
    run = ImageRun(
        name=f"katib-{context.identity.name}-{name}-{context.identity.uid[:_UID_DIGITS]}",
        image=image,
        pull=_POLICIES.get(container.get("imagePullPolicy") or "", Pull.MISSING),
        entrypoint=entrypoint,
        arguments=arguments,
        environment=environment,
        working_directory=str(context.workspace / directory) if directory else "",
        hostname=context.identity.hostname,
        aliases=context.identity.aliases,
        mounts=_mounts(container, context, volumes, environment),
        labels={**context.labels, "katib.container": name},
        user="" if user is None else f"{user}" if group is None else f"{user}:{group}",
        groups=tuple(dict.fromkeys(groups)),
        cpus=_quantity(limits, "cpu", path),
        memory_bytes=None if (memory := _quantity(limits, "memory", path)) is None else int(memory),
        network=context.network,
        read_only=rights.get("readOnlyRootFilesystem") is True,
        privileged=rights.get("privileged") is True,
        capabilities_added=tuple(capabilities.get("add") or ()),
        capabilities_dropped=tuple(capabilities.get("drop") or ()),
        no_new_privileges=rights.get("allowPrivilegeEscalation") is False,
    )
    return ContainerCommand(name, (*entrypoint, *arguments), environment, run.working_directory), run


def _mounts(
    container: Mapping[str, Any], context: PodContext, volumes: Mapping[str, Path], environment: Mapping[str, str]
) -> tuple[Mount, ...]:
    """Return the mounts, one for each target; the user's come last and win."""
    named = {str(file): file for file in context.visible if any(str(file) in value for value in environment.values())}
    found = {target: Mount(source, target, read_only=True) for target, source in named.items()}
    if str(context.workspace) not in _SYSTEM:
        found[str(context.workspace)] = Mount(context.workspace, str(context.workspace))
    found[str(context.directory)] = Mount(context.directory, str(context.directory))
    for target, source in context.paths.items():
        found[_normal(target)] = Mount(source, _normal(target))
    volumes_of_pod: Sequence[Mapping[str, Any]] = context.spec.get("volumes") or ()
    writable = {volume["name"] for volume in volumes_of_pod if any(kind in volume for kind in _WRITABLE)}
    mounts: Sequence[Mapping[str, Any]] = container.get("volumeMounts") or ()
    sealed = {m["mountPath"] for m in mounts if m.get("readOnly") is True or m.get("name") not in writable}
    for target, source in volumes.items():
        found[_normal(target)] = Mount(source, _normal(target), read_only=target in sealed)
    return tuple(sorted(found.values(), key=lambda mount: (len(PurePosixPath(mount.target).parts), mount.target)))


def _normal(target: str) -> str:
    return target.rstrip("/") or "/"


def _quantity(limits: Mapping[str, Any], name: str, path: str) -> Decimal | None:
    if name not in limits:
        return None
    try:
        return parse_quantity(limits[name])
    except (ValueError, ArithmeticError) as error:
        where = f"{path}.resources.limits.{name}"
        raise invalid(where, str(error), "write quantities such as 500m or 2Gi", "quantity") from error
