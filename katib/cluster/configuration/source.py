"""The KatibConfig in force: the last good one, however often the text changes and however wrong it gets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from katib.api.configuration import read_configuration
from katib.cluster.configuration.models import KatibConfig
from katib.controllers.kinds import CONFIG_MAP
from katib.errors import ForbiddenError, InvalidError, NotFoundError, UnavailableError
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, ObjectStore

_log = logging.getLogger(__name__)

FRESH_SECONDS = 5.0
"""An edit is in force after this long; asking more often would cost a request at every look."""


class ConfigSource:
    """Returns the KatibConfig in force. Thread-safe.

    Args:
        read: Returns the present text. May raise NotFoundError, UnavailableError or ForbiddenError.
        source: What the text is called in errors.
        monotonic: Seconds that never run backwards.
        on_trouble: Called once for each new trouble, with the reason why the last good configuration stays in force.
        fresh_seconds: For how long a reading is used without looking again.
    """

    def __init__(
        self,
        read: Callable[[], str],
        source: str,
        *,
        monotonic: Callable[[], float],
        on_trouble: Callable[[str], None] | None = None,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        self._read = read
        self._source = source
        self._monotonic = monotonic
        self._on_trouble = on_trouble
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._config: KatibConfig | None = None
        self._text: str | None = None
        self._trouble = ""
        self._next_look = float("-inf")

    def __call__(self) -> KatibConfig:
        """Return the configuration in force.

        Raises:
            UnavailableError: No text was good yet. That does not mean that anything is not offered.
        """
        known = self._config
        if not self._lock.acquire(blocking=known is None):
            assert known is not None
            return known  # another thread is reading, maybe for long; what was good a moment ago is good enough
        try:
            reported = self._trouble
            if self._monotonic() >= self._next_look:
                self._look()
                self._next_look = self._monotonic() + self._fresh_seconds
            config, trouble = self._config, self._trouble
        finally:
            self._lock.release()
        if trouble and trouble != reported:
            _log.warning("KatibConfig is not usable: %s", trouble)
            if self._on_trouble is not None:
                self._on_trouble(trouble)
        if config is None:
            raise UnavailableError(trouble)
        return config

    @property
    def trouble(self) -> str:
        """Why the last good configuration is in force instead of the present text; empty when all is well."""
        return self._trouble

    def _look(self) -> None:
        try:
            text = self._read()
            if text != self._text:
                self._config, self._trouble = read_configuration(KatibConfig, text, self._source), ""
                self._text = text
            else:
                self._trouble = ""
        except InvalidError as error:
            self._trouble = f"{self._source} is not usable, {self._fallback()}: {error}"
        except (NotFoundError, UnavailableError, ForbiddenError) as error:
            self._trouble = f"{self._source} cannot be read, {self._fallback()}: {error}"

    def _fallback(self) -> str:
        if self._text is None:
            return "nothing can be started until it can be"
        return "the last good configuration stays in force"


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
