"""ConfigMaps with trial templates, without a request for each lookup.

ConfigMaps offered by the installation come from a watch (on one machine, all do). Any other is read on demand and
cached for a while: watching the ConfigMaps of all namespaces would need the right to read all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from katib.engine.controllers.kinds import CONFIG_MAP
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import NotFoundError

KEPT_SECONDS = 60.0
"""Maximum age of an unwatched ConfigMap: trials of one experiment should not differ anyway."""

MISSING_SECONDS = 5.0
"""How often to look for a missing ConfigMap that an experiment waits for."""


class TemplateConfigMaps:
    """Finds ConfigMaps. Thread-safe.

    Args:
        store: Read for unwatched ConfigMaps.
        watched: Informer of the watched ones; it may not have synced, or lack access.
        clock: Measures the age of a reading.
        shipped: Finds ConfigMaps of the installation if the store has none of that name.
    """

    def __init__(
        self,
        store: ObjectStore,
        watched: Informer[Object],
        clock: Clock,
        shipped: Callable[[Key], Object | None] = lambda _key: None,
    ) -> None:
        self._store = store
        self._watched = watched
        self._clock = clock
        self._shipped = shipped
        self._lock = threading.Lock()
        self._read: dict[Key, tuple[float, Object | None]] = {}

    def find(self, key: Key) -> Object | None:
        """Return a ConfigMap, None if there is none.

        Raises:
            UnavailableError, ForbiddenError: It cannot be read now.
        """
        found = self._watched.get(key)
        if found is not None:
            return found
        now = self._clock.monotonic()
        with self._lock:
            self._read = {known: read for known, read in self._read.items() if now < read[0]}
            if key in self._read:
                return self._read[key][1]
        found = self._ask(key)
        with self._lock:
            self._read[key] = (now + (MISSING_SECONDS if found is None else KEPT_SECONDS), found)
        return found

    def forget(self, key: Key) -> None:
        with self._lock:
            self._read.pop(key, None)

    def _ask(self, key: Key) -> Object | None:
        try:
            return self._store.get(CONFIG_MAP, key)
        except NotFoundError:
            return self._shipped(key)
