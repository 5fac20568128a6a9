"""The text of the KatibConfig, from its ConfigMap."""

from __future__ import annotations

from collections.abc import Callable

from katib.cluster.configuration.source import FRESH_SECONDS, ConfigSource
from katib.cluster.services.kinds import CONFIG_MAP
from katib.errors import NotFoundError
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, ObjectStore

CONFIG_MAP_NAME = "katib-config"
CONFIG_MAP_KEY = "katib-config.yaml"


def config_source(
    store: ObjectStore,
    namespace: str,
    clock: Clock,
    *,
    on_trouble: Callable[[str], None] | None = None,
    fresh_seconds: float = FRESH_SECONDS,
) -> ConfigSource:
    """Return the KatibConfig of a cluster.

    Args:
        store: Has the ConfigMap.
        namespace: The core namespace.
        clock: Measures how old a reading is.
        on_trouble: Called once for each new trouble, with the reason why an edit is not in force.
        fresh_seconds: How long a reading is used without asking the store again.
    """
    key = Key(namespace, CONFIG_MAP_NAME)

    def read() -> str:
        data = store.get(CONFIG_MAP, key).get("data") or {}
        if CONFIG_MAP_KEY not in data:
            raise NotFoundError(f"it has no key {CONFIG_MAP_KEY}")
        return str(data[CONFIG_MAP_KEY])

    source = f"ConfigMap {key} {CONFIG_MAP_KEY}"
    return ConfigSource(read, source, monotonic=clock.monotonic, on_trouble=on_trouble, fresh_seconds=fresh_seconds)
