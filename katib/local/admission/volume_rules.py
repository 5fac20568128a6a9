"""Rules about volumes: a directory stands for each, and its path is put into the texts of the container.

Nothing is mounted. A mount path that is written in `command`, `args`, `workingDir` or a value of `env` is replaced by
the directory that stands for the volume. A path that only the program knows cannot be provided that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from katib.api.wording import did_you_mean, shown
from katib.local.findings import Findings, exists, is_directory, is_given, mapping, mappings, text, texts
from katib.local.pods.texts import Rewriter

SOURCES = ("configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret")


def check_volumes(
    pod: Mapping[str, Any],
    path: str,
    containers: list[tuple[str, Mapping[str, Any]]],
    findings: Findings,
    *,
    are_mounted: bool = False,
) -> dict[str, list[str]]:
    """Check volumes and mounts.

    Args:
        pod: The pod's spec.
        path: Where it stands.
        containers: Every container with its path.
        findings: Takes what is found.
        are_mounted: Whether containers run in their images, where a mount is one.

    Returns:
        The mount paths of each container, by the container's path.
    """
    volumes = {name: volume for _, volume in mappings(pod.get("volumes")) if (name := text(volume.get("name")))}
    for i, volume in mappings(pod.get("volumes")):
        if not any(key in SOURCES or (key != "name" and is_given(value)) for key, value in volume.items()):
            remedy = "write emptyDir: {}"
            findings.error(f"{path}.volumes[{i}]", "the volume has no source", remedy, "volume-source-missing")
        host_path = text(mapping(volume.get("hostPath")).get("path"))
        if host_path and not exists(Path(host_path)):
            cause, remedy = f"{shown(host_path)} is not on this machine", "create it, or name another path"
            findings.error(f"{path}.volumes[{i}].hostPath.path", cause, remedy, "volume-host-path-missing")
    return {
        place: _check_mounts(container, place, volumes, findings, are_mounted=are_mounted)
        for place, container in containers
    }


def _check_mounts(
    container: Mapping[str, Any],
    path: str,
    volumes: Mapping[str, Mapping[str, Any]],
    findings: Findings,
    *,
    are_mounted: bool,
) -> list[str]:
    mount_paths = []
    for i, mount in mappings(container.get("volumeMounts")):
        name, mount_path, place = text(mount.get("name")), text(mount.get("mountPath")), f"{path}.volumeMounts[{i}]"
        if name and name not in volumes:
            cause = f"the pod has no volume {shown(name)}"
            findings.error(f"{place}.name", cause, did_you_mean(name, volumes), "volume-unknown")
        elif mount_path:
            mount_path = mount_path.rstrip("/") or "/"
            mount_paths.append(mount_path)
            if not are_mounted:
                _check_reach(container, mount_path, volumes.get(name, {}), f"{place}.mountPath", findings)
    return mount_paths


def _check_reach(
    container: Mapping[str, Any], mount_path: str, volume: Mapping[str, Any], path: str, findings: Findings
) -> None:
    if not any(source in volume for source in SOURCES):
        return
    host_path = text(mapping(volume.get("hostPath")).get("path"))
    if host_path and host_path.rstrip("/") == mount_path:
        return
    rewriter = Rewriter({mount_path: Path("/elsewhere")})
    if any(rewriter.rewrite(written) != written for written in _texts_of(container)):
        findings.notice(
            path,
            "this path in command, args, workingDir or env is replaced by the directory that stands for the volume",
        )
    elif "emptyDir" in volume and is_directory(Path(mount_path)):
        findings.notice(path, "the directory of this machine is used, which trials share")
    else:
        findings.error(
            path,
            f"{shown(mount_path)} cannot be provided: nothing is mounted here, and the container does not mention it",
            "pass the path to the program in command, args or env, where it is replaced by a directory of the trial",
            "volume-unreachable",
        )


def _texts_of(container: Mapping[str, Any]) -> list[str]:
    values = [value for _, entry in mappings(container.get("env")) if isinstance(value := entry.get("value"), str)]
    directory = container.get("workingDir")
    return [
        *texts(container.get("command")),
        *texts(container.get("args")),
        *values,
        *([directory] if isinstance(directory, str) else []),
    ]
