"""The readings of a running trial while its page is open: one look for all pages, some times a second.

A reading is in the log a twentieth of a second after it was printed, and here at most a tenth later. A slow look delays
the next one, so that looking takes no more than a quarter of a processor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from katib.doors.rest.streams import Closing
from katib.doors.ui.trial_reading import read_experiment
from katib.errors import KatibError, UnavailableError
from katib.model.metrics import MetricLog
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import NOW, TuningService
from katib.service.tuning.states import is_completed

LOOK_SECONDS = 0.1
_SHARE = 3.0
"""Minimum pause after a look, as a multiple of its duration."""
_OBJECT_SECONDS = 0.5
"""Pause between reads of the trial itself: its state changes a few times in its life."""
_AGAIN_SECONDS = 1.0
_KEPT_CHUNKS = 64

_log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """Readings of one look, and the cursors before and after them."""

    before: str
    items: tuple[MetricLog, ...]
    cursor: str


@dataclass(frozen=True, slots=True)
class TrialNews:
    """A trial at one time.

    Attributes:
        trial: The Trial.
        experiment: Its Experiment; None if it cannot be read.
        version: Increases with every change of the trial.
        has_ended: Whether no more readings will follow.
    """

    trial: Trial
    experiment: Experiment | None
    version: int
    has_ended: bool


class LiveTrial:
    """Follows one trial on its own thread while it is watched. Thread-safe.

    Args:
        service: A service with the rights of the user.
        namespace: Namespace of the trial.
        name: Name of the trial.
        closing: Ends it with the server.
    """

    def __init__(self, service: TuningService, namespace: str, name: str, closing: Closing) -> None:
        self._service = service
        self._namespace, self._name = namespace, name
        self._closing = closing
        self._lock = threading.Condition()
        self._watchers: list[Callable[[], None]] = []
        self._chunks: deque[Chunk] = deque(maxlen=_KEPT_CHUNKS)
        self._cursor = ""
        self._news: TrialNews | None = None
        self._error: KatibError | None = None
        self._left = False

    def watch(self, notify: Callable[[], None]) -> bool:
        """Register a callback for changes; False: this one has ended, create another."""
        with self._lock:
            if self._left:
                return False
            if not self._watchers:
                threading.Thread(target=self._run, name=f"trial {self._namespace}/{self._name}", daemon=True).start()
            self._watchers.append(notify)
            return True

    def leave(self, notify: Callable[[], None]) -> None:
        """Remove a callback; without watchers the thread ends."""
        with self._lock:
            self._watchers.remove(notify)
            self._left = self._left or not self._watchers
            self._lock.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether it accepts no more watchers."""
        with self._lock:
            return self._left

    def news(self) -> TrialNews | None:
        """Return the trial at the last look; None before the first one.

        Raises:
            KatibError: It cannot be read any more.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._news

    def after(self, cursor: str) -> list[Chunk] | None:
        """Return the readings after a cursor, oldest first; None if that is not known here any more."""
        with self._lock:
            if cursor == self._cursor:
                return []
            found = list(self._chunks)
        for number, chunk in enumerate(found):
            if chunk.before == cursor:
                return found[number:]
        return None

    def _run(self) -> None:
        read_at = -_OBJECT_SECONDS
        pause = 0.0
        while self._goes_on(pause):
            started = time.monotonic()
            try:
                found = self._look()
                if started - read_at >= _OBJECT_SECONDS:
                    read_at = started
                    self._read_objects(is_quiet=not found)
                pause = max(LOOK_SECONDS, _SHARE * (time.monotonic() - started))
            except UnavailableError as error:
                _log.warning("The readings of %s/%s wait: %s", self._namespace, self._name, error)
                pause = _AGAIN_SECONDS
            except KatibError as error:
                self._fail(error)
                return
            except Exception:
                self._fail(UnavailableError("its readings could not be read; the server's log says why"))
                raise
        with self._lock:
            self._left = True

    def _goes_on(self, pause_seconds: float) -> bool:
        with self._lock:
            if pause_seconds and not self._left:
                self._lock.wait(pause_seconds)
            ended = self._news is not None and self._news.has_ended
            return not (self._left or ended or self._closing.begun)

    def _look(self) -> bool:
        """Read new readings; return whether there were any."""
        before = self._cursor
        new = self._service.readings(self._namespace, self._name, since=before or NOW)
        with self._lock:
            self._cursor = new.cursor
            if new.items:
                self._chunks.append(Chunk(before, new.items, new.cursor))
        if new.items:
            self._tell()
        return bool(new.items)

    def _read_objects(self, *, is_quiet: bool) -> None:
        """Read the trial, and record its end once nothing is left to be read."""
        trial = self._service.get(Trial, self._namespace, self._name)
        known = self._news
        changed = known is None or known.trial.metadata.resource_version != trial.metadata.resource_version
        # The log accepts no reading once the end is stored: a look after that without readings is the last one.
        was_over = known is not None and is_completed(known.trial)
        has_ended = is_completed(trial) and was_over and is_quiet
        if not changed and not has_ended:
            return
        experiment = known.experiment if known is not None and not changed else read_experiment(self._service, trial)
        version = (known.version if known is not None else 0) + changed
        with self._lock:
            self._news = TrialNews(trial, experiment, version, has_ended)
        self._tell()

    def _fail(self, error: KatibError) -> None:
        with self._lock:
            self._error, self._left = error, True
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            watchers = tuple(self._watchers)
        for notify in watchers:
            notify()


@dataclass(slots=True)
class LiveTrials:
    """The trials with open pages. Thread-safe.

    Args:
        closing: Ends all of them with the server.
    """

    closing: Closing
    _kept: dict[Hashable, LiveTrial] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(
        self, service: TuningService, user: Hashable, namespace: str, name: str, notify: Callable[[], None]
    ) -> LiveTrial:
        """Return the follower of a trial, shared by all pages of a user, with a registered callback."""
        key = (user, namespace, name)
        with self._lock:
            self._kept = {other: live for other, live in self._kept.items() if not live.is_over}
            while True:
                live = self._kept.get(key) or LiveTrial(service, namespace, name, self.closing)
                if live.watch(notify):
                    self._kept[key] = live
                    return live
                self._kept.pop(key, None)
