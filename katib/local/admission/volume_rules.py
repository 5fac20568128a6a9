"""Rules about volumes: a directory stands for each, and its path is put into the texts of the container.

Nothing is mounted. A mount path that is written in `command`, `args`, `workingDir` or a value of `env` is replaced by
the directory that stands for the volume. A path that only the program knows cannot be provided that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from katib.api.wording import did_you_mean, shown
from katib.local.findings import Part, exists, is_directory
from katib.local.pods.texts import Rewriter

SOURCES = ("configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret")


def check_volumes(volumes: Part) -> dict[str, Part]:
    """Check the volumes of a pod, and return them by their names."""
    for volume in volumes:
        if not any(name in SOURCES or (name != "name" and part.is_given) for name, part in volume.fields.items()):
            volume.error("the volume has no source", "write emptyDir: {}", "volume-source-missing")
        host_path = volume["hostPath.path"]
        if host_path.text and not exists(Path(host_path.text)):
            cause = f"{shown(host_path.text)} is not on this machine"
            host_path.error(cause, "create it, or name another path", "volume-host-path-missing")
    return {volume["name"].text: volume for volume in volumes if volume["name"].text}


def check_mounts(container: Part, volumes: Mapping[str, Part], *, are_mounted: bool) -> list[str]:
    """Check the mounts of a container, and return their paths.

    Args:
        container: The container.
        volumes: Those of the pod, by their names.
        are_mounted: Whether containers run in their images, where a mount is one.
    """
    mount_paths = []
    for mount in container["volumeMounts"]:
        name, path = mount["name"], mount["mountPath"]
        if name.text and name.text not in volumes:
            cause = f"the pod has no volume {shown(name.text)}"
            name.error(cause, did_you_mean(name.text, volumes), "volume-unknown")
        elif path.text:
            mount_paths.append(path.text.rstrip("/") or "/")
            if name.text in volumes and not are_mounted:
                _check_reach(container, path, mount_paths[-1], volumes[name.text])
    return mount_paths


def _check_reach(container: Part, place: Part, mount_path: str, volume: Part) -> None:
    host_path = volume["hostPath.path"].text
    if not any(source in volume.fields for source in SOURCES) or (host_path and host_path.rstrip("/") == mount_path):
        return
    rewriter = Rewriter({mount_path: Path("/elsewhere")})
    if any(rewriter.rewrite(written) != written for written in _texts_of(container)):
        why = "this path in command, args, workingDir or env is replaced by the directory that stands for the volume"
        place.notice(why)
    elif "emptyDir" in volume.fields and is_directory(Path(mount_path)):
        place.notice("the directory of this machine is used, which trials share")
    else:
        place.error(
            f"{shown(mount_path)} cannot be provided: nothing is mounted here, and the container does not mention it",
            "pass the path to the program in command, args or env, where it is replaced by a directory of the trial",
            "volume-unreachable",
        )


def _texts_of(container: Part) -> list[str]:
    parts = [*container["command"].words, *container["args"].words, *(entry["value"] for entry in container["env"])]
    return [part.value for part in (*parts, container["workingDir"]) if isinstance(part.value, str)]
