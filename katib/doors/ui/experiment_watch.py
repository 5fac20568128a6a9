"""The experiments of a user while a page shows the list: one look for all pages, and its changes.

A thread reads all experiments periodically while a page is open. Each look creates rows only for changed experiments,
and its duration bounds the frequency of looks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from katib.doors.rest.streams import Closing
from katib.doors.ui.views import Summary, experiment_summary
from katib.errors import KatibError, UnavailableError
from katib.service.tuning.service import TuningService

ALONE_SECONDS, SHARED_SECONDS = 0.5, 2.0
"""Pause between two looks on one machine, and behind a gateway, where every user has separate looks."""
_LINGER_SECONDS = 5.0
"""Time for which the last look is valid for a page that is opened again."""
_SHARE = 10
"""Pause after a long look, as a multiple of its duration."""

_log = logging.getLogger(__name__)

RowKey = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Look:
    """All experiments at one time.

    Attributes:
        rows: Oldest first. The row of an unchanged experiment is the same object in every look.
        error: The reason why they cannot be read; None if they can.
    """

    rows: Mapping[RowKey, Summary] = field(default_factory=lambda: MappingProxyType({}))
    error: KatibError | None = None


def look(service: TuningService, before: Mapping[RowKey, tuple[str, Summary]]) -> dict[RowKey, tuple[str, Summary]]:
    """Return a row for each experiment with its version, reusing unchanged rows of `before`."""
    found: dict[RowKey, tuple[str, Summary]] = {}
    for experiment in service.experiments():
        key, metadata = (experiment.namespace, experiment.name), experiment.metadata
        version = f"{metadata.uid} {metadata.resource_version}"
        known = before.get(key)
        found[key] = known if known is not None and known[0] == version else (version, experiment_summary(experiment))
    return found


class ExperimentWatch:
    """The list of one user. Thread-safe.

    Args:
        service: A service with the rights of the user.
        pause_seconds: Minimum pause between two looks.
        closing: Ends it with the server.
    """

    def __init__(self, service: TuningService, pause_seconds: float, closing: Closing) -> None:
        self._service, self._pause, self._closing = service, pause_seconds, closing
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._versions: dict[RowKey, tuple[str, Summary]] = {}
        self._look = Look()
        self._looked_at = -float("inf")
        self._watchers: list[Callable[[], None]] = []
        self._running = False

    def now(self) -> Look:
        """Return the last look, or a new one if no watcher keeps it fresh."""
        with self._changed:
            if self._running and time.monotonic() - self._looked_at < _LINGER_SECONDS:
                return self._look
        return self._refresh()

    @property
    def last(self) -> Look:
        """The last look."""
        with self._changed:
            return self._look

    @property
    def is_watched(self) -> bool:
        """Whether a page is open."""
        with self._changed:
            return bool(self._watchers)

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for looks with changes; return a function that removes it. Does not block."""
        with self._changed:
            self._watchers.append(notify)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="experiments", daemon=True).start()

        def end() -> None:
            with self._changed:
                self._watchers.remove(notify)
                self._changed.notify_all()

        return end

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._watchers or self._closing.begun:
                    self._running = False
                    return
                before = self._look
            began = time.monotonic()
            after = self._refresh()
            took = time.monotonic() - began
            with self._changed:
                watchers = tuple(self._watchers) if _differ(before, after) else ()
            for notify in watchers:
                notify()
            with self._changed:
                if self._watchers:
                    self._changed.wait(max(self._pause, _SHARE * took))

    def _refresh(self) -> Look:
        """Take a new look. Slow work is done without the lock that `watch` needs."""
        with self._looking:
            known, error = self._versions, None
            try:
                known = look(self._service, known)
            except KatibError as found:
                error = found
            except Exception:  # noqa: BLE001 - logged, and shown on the page
                _log.exception("The experiments could not be listed")
                error = UnavailableError("they could not be read; the server's log says why")
            self._versions = known
            with self._changed:
                self._look = Look({key: row for key, (_, row) in known.items()}, error)
                self._looked_at = time.monotonic()
                return self._look


@dataclass(slots=True)
class Watches:
    """The watches of all users, one for each. Thread-safe.

    Args:
        closing: Ends all of them with the server.
    """

    closing: Closing
    _kept: dict[Hashable, ExperimentWatch] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch_of(self, service: TuningService, user: Hashable) -> ExperimentWatch:
        """Return the watch of a user; the user is None if there is only one."""
        with self._lock:
            self._kept = {other: kept for other, kept in self._kept.items() if other == user or kept.is_watched}
            if user not in self._kept:
                pause = ALONE_SECONDS if user is None else SHARED_SECONDS
                self._kept[user] = ExperimentWatch(service, pause, self.closing)
            return self._kept[user]


def _differ(before: Look, after: Look) -> bool:
    if before.rows.keys() != after.rows.keys() or (before.error is None) != (after.error is None):
        return True
    return any(after.rows[key] is not row for key, row in before.rows.items())
