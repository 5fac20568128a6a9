"""Reporter: passes readings of many trials to an observation log, from its own thread.

Laws:

- Readings of one trial are stored in the order in which they were reported.
- A batch that the log refuses temporarily (UnavailableError) is kept and retried with growing pauses, until it is
  stored or the reporter is closed. A log with atomic calls therefore gets every reading exactly once.
- Readings that the log refuses permanently are dropped, logged and counted in `lost`; those around them are stored, and
  other trials are unaffected.
- No reading waits longer than MAX_AGE_SECONDS before it is sent, or at all once its trial is flushed.
- Trials take turns, flushed ones first, so one that prints endlessly does not delay the others.
- The caller bounds the memory: the queue grows if it reports while `backlogged`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from katib.errors import Backoff, InternalError, InvalidError, KatibError, UnavailableError
from katib.model.metrics import MetricLog

MAX_BATCH = 5_000
"""Readings per call: large enough to pay for a commit, small enough to be short."""

MAX_AGE_SECONDS = 0.05
"""Maximum wait of a reading for more of its batch."""

MAX_WAITING = 50_000
"""Waiting readings from which the reporter is backlogged: about 10 MB."""

MAX_REFUSALS = 20
"""Consecutive readings refused one by one before the rest of their batch counts as refused, too."""

PAUSES = Backoff(0.05, 2.0)

_logger = logging.getLogger(__name__)

Done = Callable[[], None]


class ReporterClock(Protocol):
    """The part of `katib.engine.runtime.clock.Clock` that the reporter needs; the collector's image lacks it."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""

    def wait(self, condition: threading.Condition, timeout_seconds: float | None = None, /) -> object:
        """Wait on a condition, at most for the timeout."""


class _MonotonicClock:
    monotonic = staticmethod(time.monotonic)
    wait = staticmethod(threading.Condition.wait)


@dataclass(slots=True)
class _WaitingTrial:
    """The waiting readings and flushes of one trial."""

    logs: list[MetricLog] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)


class Reporter:
    """A queue in front of a log. All methods may be called from any thread; only `close` and `discard` may block.

    Attributes:
        on_refusal: Receives the names of trials whose readings have to wait, and the reason.
        on_stored: Receives the names of trials whose readings were just stored. Called on the reporter's thread.
        settled: Number of readings that are stored or refused permanently.
        lost: Number of readings that the log refused permanently.

    Args:
        report: Stores readings of one trial, atomically: `katib.model.metrics.ObservationLog.report`.
        report_all: Stores readings of several trials at the price of one, atomically; None if unsupported.
        max_batch: Maximum number of readings in one call of the log.
        max_age_seconds: Maximum wait for a full batch.
        first_age_seconds: Maximum wait of readings that arrive when none were sent for `max_age_seconds`; None: as
            long as all others. Batches do not become more frequent, and a rare reading is stored sooner.
        max_waiting: Number of waiting readings from which the reporter is backlogged.
        pauses: Pauses after consecutive refusals.
        clock: Measures ages, pauses and the time to close.
    """

    def __init__(
        self,
        report: Callable[[str, Sequence[MetricLog]], None],
        *,
        report_all: Callable[[Mapping[str, Sequence[MetricLog]]], None] | None = None,
        max_batch: int = MAX_BATCH,
        max_age_seconds: float = MAX_AGE_SECONDS,
        first_age_seconds: float | None = None,
        max_waiting: int = MAX_WAITING,
        pauses: Backoff = PAUSES,
        clock: ReporterClock | None = None,
    ) -> None:
        self.on_refusal: Callable[[Sequence[str], str], None] = lambda _names, _cause: None
        self.on_stored: Callable[[Sequence[str]], None] = lambda _names: None
        self._report = report
        self._report_all = report_all
        self._clock = clock or _MonotonicClock()
        self._max_batch = max_batch
        self._max_age = max_age_seconds
        self._first_age = max_age_seconds if first_age_seconds is None else first_age_seconds
        self._max_waiting = max_waiting
        self._pauses = pauses
        self._changed = threading.Condition()
        self._queue: dict[str, _WaitingTrial] = {}
        self._queued = 0  # readings in the queue
        self._due: float | None = None  # time to send the queue; None: it is empty
        self._taken_at = -math.inf  # when a part of it was sent last
        self._flushed: dict[str, None] = {}  # trials of the queue to be stored now, in order
        self._under_way: dict[str, _WaitingTrial] = {}  # taken from the queue and not yet settled
        self._calling = False  # a call of the log is in progress
        self._waiting = 0  # readings queued or in progress
        self.settled = 0
        self.lost = 0
        self._deadline: float | None = None  # set on closing
        self._thread = threading.Thread(target=self._run, name="metrics-reporter", daemon=True)
        self._thread.start()

    @property
    def backlogged(self) -> bool:
        """Whether so many readings wait that no more should be read."""
        return self._waiting >= self._max_waiting

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Queue readings of a trial.

        Raises:
            InternalError: The reporter is closed.
        """
        if not logs:
            return
        with self._changed:
            self._entry(trial_name).logs.extend(logs)
            self._queued += len(logs)
            self._waiting += len(logs)
            if self._due is None:
                now = self._clock.monotonic()
                self._due = now + (self._first_age if now - self._taken_at >= self._max_age else self._max_age)
                self._changed.notify_all()
            elif self._queued >= self._max_batch:
                self._changed.notify_all()

    def flush(self, trial_name: str, done: Done) -> None:
        """Call `done`, on the reporter's thread, once all earlier reports for the trial are settled.

        It is not called if the reporter is closed before that.

        Raises:
            InternalError: The reporter is closed.
        """
        with self._changed:
            self._entry(trial_name).done.append(done)
            self._flushed[trial_name] = None
            self._changed.notify_all()

    def discard(self, trial_name: str) -> None:
        """Drop the waiting readings of a trial, because its log is about to be deleted; flushes of it count as settled.

        Waits for a call of the log that is working on it, so that nothing is stored after this returns.
        """
        with self._changed:
            self._changed.wait_for(lambda: not (self._calling and trial_name in self._under_way))
            for place in (self._queue, self._under_way):
                if (entry := place.get(trial_name)) is not None:
                    self._waiting -= len(entry.logs)
                    self._queued -= len(entry.logs) if place is self._queue else 0
                    entry.logs.clear()

    def close(self, timeout_seconds: float) -> int:
        """Store the waiting readings, within a timeout, and end the thread; return the number of readings not stored.

        A call of the log in progress at the timeout is not awaited; it may still store its batch.
        """
        with self._changed:
            self._deadline = self._clock.monotonic() + timeout_seconds
            self._changed.notify_all()
        self._thread.join(timeout_seconds)
        return self._waiting

    # --- the caller's side of the queue -------------------------------------------------------------------------------

    def _entry(self, trial_name: str) -> _WaitingTrial:
        if self._deadline is not None:
            raise InternalError("the reporter is closed")
        return self._queue.setdefault(trial_name, _WaitingTrial())

    # --- the reporter's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._take():
            if not self._settle():
                return

    def _take(self) -> bool:
        """Move a batch from the queue to the calls in progress; False if there is none and never will be.

        A flush moves with the last readings of its trial.
        """
        with self._changed:
            while not self._flushed and self._queued < self._max_batch:
                left = None if self._due is None else self._due - self._clock.monotonic()
                if left is not None and (left <= 0 or self._deadline is not None):
                    break
                if self._deadline is not None:
                    return False
                self._clock.wait(self._changed, left)
            room = self._max_batch
            for name in dict.fromkeys([*self._flushed, *self._queue]):
                entry = self._queue.pop(name)
                self._flushed.pop(name, None)
                if len(entry.logs) > room:
                    self._queue[name] = _WaitingTrial(entry.logs[room:], entry.done)  # after the others
                    if entry.done:
                        self._flushed[name] = None
                    entry = _WaitingTrial(entry.logs[:room])
                self._under_way[name] = entry
                self._queued -= len(entry.logs)
                room -= len(entry.logs)
                if room <= 0:
                    break
            self._due = self._due if self._queued else None
            self._taken_at = self._clock.monotonic()
            return True

    def _settle(self) -> bool:
        """Store the batch in progress, however long it takes; False if the timeout of closing comes first."""
        failures = 0
        while True:
            with self._changed:
                self._calling = True
                batch = {name: entry.logs for name, entry in self._under_way.items() if entry.logs}
            names = set(batch)
            try:
                self._store(batch)
            except UnavailableError as error:
                details = {"error": str(error), "waiting": self._waiting, "sentence": str(error)}
                _logger.warning("observation log unavailable, trying again", extra=details)
                self.on_refusal(list(batch), str(error))
            for done in self._end(batch):
                try:
                    done()
                except Exception:  # the caller's bug must not end the thread that stores the readings of all trials
                    _logger.exception("a flush could not be announced")
            self.on_stored(tuple(names.difference(batch)))
            if not self._under_way:
                return True
            failures += 1
            if not self._rest(self._pauses.pause_seconds(failures)):
                return False

    def _end(self, unsettled: Mapping[str, object]) -> list[Done]:
        """Remove settled readings and return their flushes."""
        with self._changed:
            self._calling = False
            flushes: list[Done] = []
            for name in list(self._under_way):
                if name not in unsettled:
                    entry = self._under_way.pop(name)
                    self._waiting -= len(entry.logs)
                    flushes += entry.done
            self._changed.notify_all()
            return flushes

    def _rest(self, pause: float) -> bool:
        """Wait before the next attempt; False after the timeout of closing."""
        with self._changed:
            was_open = self._deadline is None
            resume = self._clock.monotonic() + pause
            while (left := min(resume, self._deadline or resume) - self._clock.monotonic()) > 0:
                self._clock.wait(self._changed, left)
                if was_open and self._deadline is not None:
                    return True
            return self._deadline is None or self._clock.monotonic() < self._deadline

    def _store(self, batch: dict[str, list[MetricLog]]) -> None:
        """Send readings to the log; settled ones are removed from the batch."""
        if self._report_all is not None and batch:
            try:
                self._report_all(batch)
            except UnavailableError:
                raise
            except Exception:  # one bad trial must not affect the others: retry them one by one
                _logger.debug("observation log refused a batch", exc_info=True)
            else:
                self.settled += sum(map(len, batch.values()))
                batch.clear()
        for name in list(batch):
            self._store_one(name, batch[name])
            del batch[name]

    def _store_one(self, name: str, logs: list[MetricLog]) -> None:
        """Store readings of a trial; of a refused batch, all readings except those refused individually.

        Settled readings are removed from the list, so that they are not sent again if the log becomes unavailable.
        """
        size, refusals = len(logs), 0
        while logs:
            error = self._refusal_of(name, logs[:size])
            if error is None:
                refusals = 0
            elif isinstance(error, InvalidError) and size > 1 and refusals < MAX_REFUSALS:
                size //= 2
                continue
            else:
                refusals += 1
                self.lost += size
                extra = {"trial": name, "readings": size, "error": str(error)}
                bug = None if isinstance(error, KatibError) else error
                _logger.error("observation log refused readings", extra=extra, exc_info=bug)
            with self._changed:
                del logs[:size]
                self._waiting -= size
                self.settled += size
            size = len(logs) if refusals >= MAX_REFUSALS else min(2 * size, len(logs))

    def _refusal_of(self, name: str, logs: list[MetricLog]) -> Exception | None:
        """Store readings; return why the log refuses them permanently, None if it accepts them."""
        try:
            self._report(name, logs)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - counted and logged by the caller; other trials continue
            return error
        return None
