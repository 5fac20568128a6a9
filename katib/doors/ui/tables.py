"""The trials of experiments on open pages, cached as columns and kept up to date.

A table is filled at its first request, by a thread that then follows the experiment's changes. All pages of a user that
show an experiment share it. A table that is not read is evicted after a while; so is the least recently used one if
there are too many.

Behind a gateway every user has separate tables, filled with the user's rights.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from katib.doors.rest.guard import user_of
from katib.doors.rest.streams import Closing
from katib.errors import ExpiredError, KatibError, NotFoundError, UnavailableError
from katib.figures.trials import TrialRows, TrialTable
from katib.model.types import Experiment
from katib.service.tuning.service import Change, TuningService

IDLE_SECONDS = 60.0
"""Time after which an unread table is evicted."""
MOST_TABLES = 32
_SLICE_SECONDS = 5.0
"""Timeout of one wait for changes, and so the maximum lifetime of an unneeded thread."""
_AGAIN_SECONDS = 1.0
_NOTICE_SECONDS = 0.25
"""Pause between notifications while trials are read: one per trial takes too long."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An experiment and its trials at one time.

    Attributes:
        experiment: The Experiment; empty once it is deleted.
        trials: Its trials.
        version: Increases with every change; a later table, also of a later server, starts above.
        complete: Whether all trials have been read; until then `trials` grows.
    """

    experiment: Experiment
    trials: TrialTable
    version: int
    complete: bool


class LiveTable:
    """One experiment's table. Thread-safe.

    Args:
        service: Provides the changes.
        namespace: Namespace of the experiment.
        name: Name of the experiment.
        closing: Ends it with the server.
    """

    def __init__(self, service: TuningService, namespace: str, name: str, closing: Closing) -> None:
        self._service = service
        self._namespace, self._name = namespace, name
        self._closing = closing
        self._changed = threading.Condition()
        self._rows: TrialRows | None = None
        self._experiment: Experiment | None = None
        self._snapshot: Snapshot | None = None
        self._version = time.time_ns() // 1_000_000 * 1_000  # a script has 53 bits for it
        self._notified_at = 0.0
        self._complete = False
        self._error: KatibError | None = None
        self._given_up = False
        self._used_at = time.monotonic()
        self._watchers: list[Callable[[], None]] = []
        threading.Thread(target=self._run, name=f"table {namespace}/{name}", daemon=True).start()

    def snapshot(self, *, wait_seconds: float = 0.0) -> Snapshot:
        """Return the present snapshot.

        Args:
            wait_seconds: Time to wait for all trials to be read; the trials read by then are returned.

        Raises:
            NotFoundError: The experiment was deleted.
            KatibError: It cannot be read.
        """
        deadline = time.monotonic() + wait_seconds
        with self._changed:
            self._used_at = time.monotonic()
            while (
                self._error is None
                and not (self._rows is not None and self._complete)
                and (left := deadline - time.monotonic()) > 0
            ):
                self._changed.wait(left)
            if self._error is not None:
                raise self._error
            if self._rows is None or self._experiment is None:
                raise UnavailableError(f'experiment "{self._name}" is still being read; try again')
            if self._snapshot is None or self._snapshot.version != self._version:
                self._snapshot = Snapshot(self._experiment, self._rows.table(), self._version, self._complete)
            return self._snapshot

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for every change, on the table's thread; return a function that removes it."""
        with self._changed:
            self._watchers.append(notify)

        def end() -> None:
            with self._changed:
                self._watchers.remove(notify)
                self._used_at = time.monotonic()

        return end

    @property
    def is_idle(self) -> bool:
        """Whether it has no watchers and was not read for a while."""
        with self._changed:
            return not self._watchers and time.monotonic() - self._used_at > IDLE_SECONDS

    @property
    def used_at(self) -> float:
        """Time of the last read, on the monotonic clock; now while it has watchers."""
        with self._changed:
            return time.monotonic() if self._watchers else self._used_at

    @property
    def has_ended(self) -> bool:
        """Whether it has stopped following its experiment."""
        with self._changed:
            return self._given_up or self._error is not None

    def give_up(self) -> None:
        """Stop following the experiment."""
        with self._changed:
            self._given_up = True
        self._notify()

    def _run(self) -> None:
        cursor = ""
        while not (self._closing.begun or self._given_up or self.is_idle):
            try:
                cursor = self._follow(cursor)
            except ExpiredError:
                cursor = ""
            except NotFoundError as error:
                return self._fail(error)
            except UnavailableError as error:
                _log.warning("The table of %s/%s waits: %s", self._namespace, self._name, error)
                if self._rows is None:
                    return self._fail(error)
                with self._changed:
                    self._changed.wait_for(lambda: self._given_up, _AGAIN_SECONDS)
            except KatibError as error:
                return self._fail(error)
            except Exception:
                self._fail(UnavailableError("its trials could not be read; the server's log says why"))
                raise
        self.give_up()
        return None

    def _follow(self, cursor: str) -> str:
        """Process changes for a while; return the next cursor.

        Raises:
            NotFoundError: The experiment was deleted.
        """
        opening = not cursor
        if opening:
            with self._changed:
                self._rows, self._complete = None, False
        for change in self._service.changes(self._namespace, self._name, timeout_seconds=_SLICE_SECONDS, since=cursor):
            self._take(change)
            cursor = change.cursor or cursor
            if self._closing.begun or self._given_up:
                break
        return cursor

    def _take(self, change: Change) -> None:
        obj = change.object
        with self._changed:
            if isinstance(obj, Experiment):
                if change.type == "DELETED":
                    raise NotFoundError(f'experiment "{self._name}" was deleted')
                self._experiment = obj
                if self._rows is None:
                    self._rows = TrialRows(obj)
            elif obj is not None and self._rows is not None:
                if change.type == "DELETED":
                    self._rows.remove(obj.name)
                else:
                    self._rows.put(obj)
            self._complete = self._complete or bool(change.cursor)
            self._version += 1
            now = time.monotonic()
            if not self._complete and now - self._notified_at < _NOTICE_SECONDS:
                return
            self._notified_at = now
        self._notify()

    def _fail(self, error: KatibError) -> None:
        with self._changed:
            self._error = error
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
            watchers = tuple(self._watchers)
        for notify in watchers:
            notify()


@dataclass(slots=True)
class Tables:
    """Cache of tables. Thread-safe.

    Args:
        closing: Ends all of them with the server.
    """

    closing: Closing
    _kept: dict[Hashable, LiveTable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def table(self, service: TuningService, user: Hashable, namespace: str, name: str) -> LiveTable:
        """Return the table of an experiment that this user may read.

        The experiment is read first, with the user's rights, so that a table filled before these were revoked is not
        shown any more.

        Args:
            service: A service with the rights of the user.
            user: The user: tables of different users are never shared. None if there is only one user.
            namespace: Namespace of the experiment.
            name: Name of the experiment.

        Raises:
            KatibError: The experiment does not exist, or the user may not read it.
        """
        service.get(Experiment, namespace, name)
        key = (user, namespace, name)
        with self._lock:
            self._kept = {other: table for other, table in self._kept.items() if not table.has_ended}
            if key not in self._kept:
                while len(self._kept) >= MOST_TABLES:
                    oldest = min(self._kept, key=lambda key: self._kept[key].used_at)
                    self._kept.pop(oldest).give_up()
                self._kept[key] = LiveTable(service, namespace, name, self.closing)
            return self._kept[key]


def _viewer(request: Request) -> Hashable:
    return user_of(request.scope)


Viewer = Annotated[Hashable, Depends(_viewer)]
"""As the type of a route's parameter: the user, as the key of cached data; None if there is only one user."""
