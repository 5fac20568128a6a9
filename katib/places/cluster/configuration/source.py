"""The KatibConfig in force: the last valid one, however often the text changes."""

from __future__ import annotations

import logging
import threading

from katib.engine.controllers.kinds import CONFIG_MAP
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, ObjectStore
from katib.errors import ForbiddenError, InvalidError, NotFoundError, UnavailableError
from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig

_log = logging.getLogger(__name__)

CONFIG_MAP_NAME = "katib-config"
CONFIG_MAP_KEY = "katib-config.yaml"

FRESH_SECONDS = 5.0
"""Delay until an edit takes effect; a shorter one would cost a request per use."""


class ConfigSource:
    """Source of the KatibConfig in force. Thread-safe.

    Args:
        clock: Measures the age of a reading.
        fresh_seconds: How long a reading is used before the store is asked again.
    """

    def __init__(
        self, store: ObjectStore, namespace: str, clock: Clock, *, fresh_seconds: float = FRESH_SECONDS
    ) -> None:
        self._store = store
        self._key = Key(namespace, CONFIG_MAP_NAME)
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._config: KatibConfig | None = None
        self._text: str | None = None
        self._trouble = ""
        self._next_look = float("-inf")

    def __call__(self) -> KatibConfig:
        """Return the configuration in force.

        Raises:
            UnavailableError: No text was valid yet. This says nothing about the offered algorithms.
        """
        known = self._config
        if not self._lock.acquire(blocking=known is None):
            assert known is not None
            return known  # another thread is reading, possibly for long; the last configuration is recent enough
        try:
            reported = self._trouble
            if self._clock.monotonic() >= self._next_look:
                self._look()
                self._next_look = self._clock.monotonic() + self._fresh_seconds
            config, trouble = self._config, self._trouble
        finally:
            self._lock.release()
        if trouble and trouble != reported:
            _log.warning("KatibConfig is not usable: %s", trouble)
        if config is None:
            raise UnavailableError(trouble)
        return config

    def look_again(self) -> None:
        """Make the next call ask the store, regardless of the last reading's age."""
        with self._lock:
            self._next_look = float("-inf")

    @property
    def trouble(self) -> str:
        """Why the last valid configuration is in force instead of the present text; empty if there is no problem."""
        return self._trouble

    def _look(self) -> None:
        source = f"ConfigMap {self._key} {CONFIG_MAP_KEY}"
        try:
            text = self._read()
            if text != self._text:
                self._config, self._trouble = read_configuration(KatibConfig, text, source), ""
                self._text = text
            else:
                self._trouble = ""
        except InvalidError as error:
            self._trouble = f"{source} is not usable, {self._fallback()}: {error}"
        except (NotFoundError, UnavailableError, ForbiddenError) as error:
            self._trouble = f"{source} cannot be read, {self._fallback()}: {error}"

    def _read(self) -> str:
        data = self._store.get(CONFIG_MAP, self._key).get("data") or {}
        if CONFIG_MAP_KEY not in data:
            raise NotFoundError(f"it has no key {CONFIG_MAP_KEY}")
        return str(data[CONFIG_MAP_KEY])

    def _fallback(self) -> str:
        if self._text is None:
            return "nothing can be started until it can be"
        return "the last good configuration stays in force"
