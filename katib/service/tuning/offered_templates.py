"""The trial templates that ConfigMaps offer to authors of experiments, and their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from katib.engine.controllers.kinds import CONFIG_MAP
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import AlreadyExistsError, ConflictError, ForbiddenError, NotFoundError, invalid
from katib.model.templates.source import OFFERED, OFFERED_LABEL

Json = dict[str, Any]

_ATTEMPTS = 5
_LABELS = {OFFERED_LABEL: OFFERED}


class OfferedTemplates:
    """The ConfigMaps with templates, those with the label `katib.kubeflow.org/component=trial-templates`.

    Args:
        store: With the rights of the user.
        shared: Returns those that every user may see.
        may_create: Whether a ConfigMap may be made; else only those that are there are changed.
    """

    def __init__(
        self, store: ObjectStore, *, shared: Callable[[], Iterable[Object]] = tuple, may_create: bool = False
    ) -> None:
        self._store = store
        self._shared = shared
        self._may_create = may_create

    def all(self) -> Sequence[Json]:
        """Return the ConfigMaps that the user may see."""
        found = {Key.of(config_map): dict(config_map) for config_map in self._shared()}
        with suppress(ForbiddenError):  # then the user sees what is shared
            for config_map in self._store.list(CONFIG_MAP, labels=_LABELS).items:
                found[Key.of(config_map)] = dict(config_map)
        return list(found.values())

    def put(self, namespace: str, name: str, path: str, text: str, *, instead_of: str = "") -> None:
        """Store a template.

        Args:
            name: Of the ConfigMap; on a cluster it is made if there is none.
            instead_of: Another key, which goes.

        Raises:
            InvalidError: There is no such ConfigMap, and none can be made here; it came with Katib; or it offers none.
            KatibError: The user may not do it.
        """

        def change(data: dict[str, str]) -> None:
            if instead_of and instead_of != path:
                data.pop(instead_of, None)
            data[path] = text

        try:
            self._change(Key(namespace, name), change)
        except NotFoundError as error:
            if not self._may_create:
                raise invalid(
                    "updatedConfigMapName",
                    f"there is no ConfigMap {namespace}/{name} here",
                    "put it into the file of an experiment and apply that",
                    "template-config-map-missing",
                ) from error
            metadata = {"name": name, "namespace": namespace, "labels": _LABELS}
            made = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "metadata": metadata}
            self._store.create({**made, "data": {path: text}})

    def remove(self, namespace: str, name: str, path: str) -> None:
        """Take a template out of its ConfigMap.

        Raises:
            KatibError: There is none, or the user may not do it.
        """

        def change(data: dict[str, str]) -> None:
            if path not in data:
                raise NotFoundError(f'ConfigMap {namespace}/{name} has no template "{path}"')
            del data[path]

        self._change(Key(namespace, name), change)

    def _stored(self, key: Key) -> Object:
        try:
            return self._store.get(CONFIG_MAP, key)
        except NotFoundError as error:
            if self._may_create or key not in map(Key.of, self._shared()):
                raise
            raise invalid(
                "updatedConfigMapName",
                f"ConfigMap {key} came with Katib and is read only here",
                "put one of your own of this name into the file of an experiment and apply that",
                "template-config-map-shipped",
            ) from error

    def _change(self, key: Key, change: Callable[[dict[str, str]], None]) -> None:
        for attempt in range(_ATTEMPTS):
            found = self._stored(key)
            if (found["metadata"].get("labels") or {}).get(OFFERED_LABEL) != OFFERED:
                raise invalid(
                    "updatedConfigMapName",
                    f"ConfigMap {key} does not offer templates",
                    f"name one with the label {OFFERED_LABEL}={OFFERED}",
                    "template-config-map-other",
                )
            data = dict(found.get("data") or {})
            change(data)
            try:
                self._store.update({**found, "data": data})
            except (ConflictError, AlreadyExistsError):
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return
