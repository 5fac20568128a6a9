"""The references of a container: fields of its pod, its resources, ConfigMaps and Secrets, and volumes.

Of the volumes emptyDir, configMap, secret, downwardAPI and projected become directories of the pod; hostPath is the
path itself. Others need a cluster.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import InvalidError, NotFoundError, UnavailableError, invalid
from katib.model.files.directories import make_below
from katib.model.quantities import parse_quantity
from katib.places.machine.pods.requests import Capacity

CONFIG_MAP = Kind("v1", "ConfigMap")
SECRET = Kind("v1", "Secret")
ADDRESS = "127.0.0.1"
NODE = "localhost"

_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The names, labels and annotations of a pod."""

    name: str
    namespace: str
    uid: str
    hostname: str
    aliases: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    service_account: str = "default"
    node: str = NODE

    def field_value(self, path: str) -> str | None:
        """Return the value of a fieldPath; empty for an absent label, None for an unknown path."""
        if keyed := _KEYED_FIELD.fullmatch(path):
            values = self.labels if keyed.group(1) == "labels" else self.annotations
            return values.get(keyed.group(2), "")
        return {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "spec.nodeName": self.node,
            "spec.serviceAccountName": self.service_account,
            "status.hostIP": ADDRESS,
            "status.hostIPs": ADDRESS,
            "status.podIP": ADDRESS,
            "status.podIPs": ADDRESS,
        }.get(path)


@dataclass(frozen=True, slots=True)
class LocalObjects:
    """Reads ConfigMaps and Secrets of one namespace as plain text values."""

    store: ObjectStore
    namespace: str

    def data(self, kind: Kind, name: str, *, optional: bool, path: str) -> dict[str, str] | None:
        """Return the entries of an object; None when it is absent and may be.

        Raises:
            InvalidError: It is absent and must not be, or a value of a Secret is not base64.
        """
        try:
            obj = self.store.get(kind, Key(self.namespace, name))
        except NotFoundError:
            if optional:
                return None
            raise absent(path, f"{kind.kind} {self.namespace}/{name} does not exist", kind) from None
        return _decoded(obj, path) if kind == SECRET else dict(obj.get("data") or {})

    def value(self, kind: Kind, reference: Mapping[str, Any], path: str) -> str | None:
        """Return one entry; None when it is absent and may be. Raises as `data`."""
        name, key, optional = reference.get("name", ""), reference.get("key", ""), reference.get("optional", False)
        data = self.data(kind, name, optional=optional, path=path)
        if data is not None and key in data:
            return data[key]
        if optional:
            return None
        raise absent(path, f'{kind.kind} {self.namespace}/{name} has no key "{key}"', kind)


def absent(path: str, cause: str, kind: Kind) -> InvalidError:
    """Return the error for a missing source of a value."""
    remedy = f"create the {kind.kind} first, or mark the reference optional"
    return invalid(path, cause, remedy, "source-missing")


def resource_value(container: Mapping[str, Any], reference: Mapping[str, Any], capacity: Capacity) -> str | None:
    """Return the value of a resourceFieldRef of a container; without a limit, that of the machine.

    The result is in units of the divisor, rounded up, as Kubernetes does it. None: an unknown resource.
    """
    section, _, resource = str(reference.get("resource", "")).partition(".")
    resources = container.get("resources") or {}
    fallback = {"cpu": capacity.cpu, "memory": capacity.memory}.get(resource)
    if section not in {"limits", "requests"} or fallback is None:
        return None
    amounts = resources.get(section) or {}
    if section == "requests" and resource not in amounts:
        amounts = resources.get("limits") or {}
        fallback = Decimal(0)
    amount = parse_quantity(amounts[resource]) if resource in amounts else fallback
    divisor = parse_quantity(reference.get("divisor") or 1) or Decimal(1)
    return str(int((amount / divisor).to_integral_value(ROUND_CEILING)))


def _decoded(secret: Object, path: str) -> dict[str, str]:
    values = dict(secret.get("stringData") or {})
    for key, text in (secret.get("data") or {}).items():
        try:
            values.setdefault(key, os.fsdecode(base64.b64decode(text, validate=True)))
        except binascii.Error as error:
            cause = f'value of key "{key}" in Secret {secret["metadata"]["name"]} is not base64'
            raise invalid(path, cause, "encode it, or put it into stringData", "secret-value") from error
    return values


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
            spec_path: Its path in the job object, for errors.
            directory: The pod's own.
            objects: Reads ConfigMaps and Secrets.
            identity: For the downward API.
            any_user: Whether programs of other users write to an emptyDir.

        Raises:
            InvalidError: A volume cannot exist here, or its source is missing.
            UnavailableError: The disk cannot be written.
        """
        self._objects = objects
        self._identity = identity
        self._any_user = any_user
        self._base = directory
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
                make_below(self._base, directory)
        return directories, tuple(outside)

    def _create(self, volume: Mapping[str, Any], path: str, target: Path) -> Path:
        if host := volume.get("hostPath"):
            self._outside.add(volume["name"])
            return Path(host["path"])
        make_below(self._base, target)
        if "emptyDir" in volume:
            if self._any_user:
                target.chmod(0o777)
            return target
        sources = volume["projected"].get("sources", []) if "projected" in volume else [volume]
        for source in sources:
            for name, text in self._files(source, path).items():
                file = target / name
                make_below(self._base, file.parent)
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
