"""Values that a container takes from elsewhere: fields of its pod, its resources, ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any

from katib.api.quantities import parse_quantity
from katib.errors import InvalidError, NotFoundError, invalid
from katib.local.pods.tokens import Capacity
from katib.runtime.objects import Key, Kind, Object, ObjectStore

CONFIG_MAP = Kind("v1", "ConfigMap")
SECRET = Kind("v1", "Secret")
ADDRESS = "127.0.0.1"
NODE = "localhost"

_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What a pod is called and carries."""

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
        """Return what a fieldPath names; empty for an absent label, None for an unknown path."""
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


class LocalObjects:
    """Reads ConfigMaps and Secrets of one namespace as plain text values."""

    def __init__(self, store: ObjectStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def data(self, kind: Kind, name: str, *, optional: bool, path: str) -> dict[str, str] | None:
        """Return the entries of an object; None when it is absent and may be.

        Raises:
            InvalidError: It is absent and must not be, or a value of a Secret is not base64.
        """
        try:
            obj = self._store.get(kind, Key(self._namespace, name))
        except NotFoundError:
            if optional:
                return None
            raise absent(path, f"{kind.kind} {self._namespace}/{name} does not exist", kind) from None
        return _decoded(obj, path) if kind == SECRET else dict(obj.get("data") or {})

    def value(self, kind: Kind, reference: Mapping[str, Any], path: str) -> str | None:
        """Return one entry; None when it is absent and may be. Raises as `data`."""
        name, key, optional = reference.get("name", ""), reference.get("key", ""), reference.get("optional", False)
        data = self.data(kind, name, optional=optional, path=path)
        if data is not None and key in data:
            return data[key]
        if optional:
            return None
        raise absent(path, f'{kind.kind} {self._namespace}/{name} has no key "{key}"', kind)


def absent(path: str, cause: str, kind: Kind) -> InvalidError:
    """Return the error for a missing source of a value."""
    remedy = f"create the {kind.kind} first, or mark the reference optional"
    return invalid(path, cause, remedy, "source-missing")


def resource_value(
    container_of: Callable[[str], Mapping[str, Any]], reference: Mapping[str, Any], capacity: Capacity
) -> str | None:
    """Return what a resourceFieldRef names, what the machine has where the container sets no limit.

    The result is in units of the divisor, rounded up, as Kubernetes does it. None: an unknown resource.
    """
    section, _, resource = str(reference.get("resource", "")).partition(".")
    resources = container_of(reference.get("containerName", "")).get("resources") or {}
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
