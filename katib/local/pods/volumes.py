"""Volumes of a pod as directories of this machine.

emptyDir, configMap, secret, downwardAPI and projected volumes become directories of the pod; hostPath is the path
itself. Other volumes need a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from katib.errors import UnavailableError, invalid
from katib.local.pods.references import CONFIG_MAP, SECRET, LocalObjects, PodIdentity
from katib.runtime.objects import Kind

VOLUMES_DIRECTORY = "volumes"


class Volumes:
    """The volumes of one pod, written to disk."""

    def __init__(
        self,
        pod_spec: Mapping[str, Any],
        spec_path: str,
        directory: Path,
        objects: LocalObjects,
        identity: PodIdentity,
        *,
        any_user: bool = False,
    ) -> None:
        """Create the directories and files.

        Args:
            pod_spec: The spec of the pod.
            spec_path: Where it stands in the job object, for errors.
            directory: The pod's own.
            objects: Where ConfigMaps and Secrets are read.
            identity: For the downward API.
            any_user: Whether programs of other users write to an emptyDir.

        Raises:
            InvalidError: A volume cannot exist here, or its source is missing.
            UnavailableError: The disk cannot be written.
        """
        self._objects = objects
        self._identity = identity
        self._any_user = any_user
        self._directories: dict[str, Path] = {}
        self._outside: set[str] = set()
        for position, volume in enumerate(pod_spec.get("volumes") or ()):
            path = f"{spec_path}.volumes[{position}]"
            target = directory / VOLUMES_DIRECTORY / volume["name"]
            try:
                self._directories[volume["name"]] = self._create(volume, path, target)
            except OSError as error:
                raise UnavailableError(f"{path}: cannot write {target}: {error.strerror}") from error

    def mounted(self, container: Mapping[str, Any], path: str) -> tuple[dict[str, Path], tuple[Path, ...]]:
        """Return the directories of the volumes that a container mounts, by the paths that it knows them by.

        And those among them that are not the pod's own. They must exist when the container starts, but we do not even
        look at them: their file system may be one that does not answer. The process that becomes the container makes
        them.

        Raises:
            InvalidError: It mounts a volume that the pod does not have.
        """
        directories: dict[str, Path] = {}
        outside: list[Path] = []
        for position, mount in enumerate(container.get("volumeMounts") or ()):
            name = mount.get("name", "")
            if name not in self._directories:
                where = f"{path}.volumeMounts[{position}].name"
                cause = f'the pod has no volume "{name}"'
                raise invalid(where, cause, "add it to volumes", "volume-unknown")
            directories[mount["mountPath"]] = directory = self._directories[name] / mount.get("subPath", "")
            if name in self._outside:
                outside.append(directory)
            elif not directory.exists():
                directory.mkdir(parents=True)
        return directories, tuple(outside)

    def _create(self, volume: Mapping[str, Any], path: str, target: Path) -> Path:
        if host := volume.get("hostPath"):
            self._outside.add(volume["name"])
            return Path(host["path"])
        target.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            if self._any_user:
                target.chmod(0o777)
            return target
        sources = volume["projected"].get("sources", []) if "projected" in volume else [volume]
        for source in sources:
            for name, text in self._files(source, path).items():
                file = target / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode(errors="surrogateescape"))
        return target

    def _files(self, source: Mapping[str, Any], path: str) -> dict[str, str]:
        if config_map := source.get("configMap"):
            return self._selected(CONFIG_MAP, config_map, config_map.get("name", ""), f"{path}.configMap")
        if secret := source.get("secret"):
            name = secret.get("secretName") or secret.get("name", "")
            return self._selected(SECRET, secret, name, f"{path}.secret")
        if downward := source.get("downwardAPI"):
            return {item["path"]: self._field(item) for item in downward.get("items") or ()}
        kinds = ", ".join(field for field in source if field != "name") or "without a source"
        cause = f"a volume of this kind ({kinds}) needs a cluster"
        raise invalid(path, cause, "use emptyDir, configMap, secret or hostPath", "volume-kind")

    def _selected(self, kind: Kind, source: Mapping[str, Any], name: str, path: str) -> dict[str, str]:
        data = self._objects.data(kind, name, optional=source.get("optional", False), path=path) or {}
        items = source.get("items")
        return {item["path"]: data.get(item["key"], "") for item in items} if items else data

    def _field(self, item: Mapping[str, Any]) -> str:
        field_path = (item.get("fieldRef") or {}).get("fieldPath", "")
        if field_path in {"metadata.labels", "metadata.annotations"}:
            values = self._identity.labels if field_path.endswith("labels") else self._identity.annotations
            return "".join(f'{name}="{value}"\n' for name, value in sorted(values.items()))
        return self._identity.field_value(field_path) or ""
