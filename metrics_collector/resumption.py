"""A log that stores every reading once, even if answers are lost or the collector is restarted.

Positions count the readings of one file from its first one. The settled readings, stored or refused permanently, are a
prefix: the reporter keeps the order. So the position of a reading, under a name that a collector passes to its
successor with the file, is the number by which our DB manager identifies stored readings. Another DB manager is queried
instead.

Several files that are read together have no such order the next time. A successor of a collector of several files
compares its readings with the stored ones: there every reading has a time of its own.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from katib.errors import KatibError, UnavailableError
from katib.model.metrics import BatchId, MetricLog, ObservationLog, format_timestamp, parse_time
from metrics_collector.numbering import new_reporter
from metrics_collector.resume_point import CollectorProgress, ResumePoint, UncertainReport
from metrics_collector.sources import MetricSource


class ResumableLog:
    """Stores readings that are not stored yet. Call `follow_reporter` before use.

    The reading thread calls `follow_source` and `unsettled`, the reporter's thread `report`.

    Attributes:
        refusal: The reason of the last permanent refusal; empty if there was none.
        is_resumed: Whether it continues from an earlier collector.
    """

    def __init__(self, log: ObservationLog, resume_point: ResumePoint) -> None:
        self._log = log
        self._resume_point = resume_point
        self._saving = threading.Lock()
        self._before = resume_point.load()
        self.is_resumed = self._before is not None
        self.refusal = ""
        self._refused_before = self._before.refused if self._before is not None else 0
        self._reporter_counts: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._beginnings = 0
        self._reporter = new_reporter()
        self._origin = 0  # number of the reading at position 0
        self._file = (0, 0, 0)  # device, inode, bytes read
        self._base = 0  # readings of earlier files
        self._seen = 0  # readings of all files
        self._skipped = 0  # of these, settled by an earlier collector
        self._stored_to = 0  # position up to which the log is known to have stored
        self._doubt: tuple[int, UncertainReport] | None = (
            None  # position and content of a report with an unknown outcome
        )
        self._noted_to = 0
        self._is_ordered = True
        self._by_content = False  # whether stored readings are recognized by comparison
        self._stored: Counter[tuple[datetime, str, str]] | None = None  # before this collector, and not yet read again
        self._moment: datetime | None = None
        self._equals: Counter[tuple[str, str]] = Counter()

    def follow_reporter(self, counts: Callable[[], tuple[int, int]]) -> None:
        """Set the function that returns the numbers of settled and of refused readings."""
        self._reporter_counts = counts

    @property
    def refused(self) -> int:
        """Number of readings refused permanently, by this collector and earlier ones."""
        return self._refused_before + self._reporter_counts()[1]

    # --- the reading thread -------------------------------------------------------------------------------------------

    def follow_source(self, source: MetricSource) -> None:
        """Record the position of the source, before its readings are reported."""
        position = source.position
        if position is None:
            return
        self._is_ordered = self._is_ordered and position.is_ordered
        if position.beginnings != self._beginnings:
            self._base = self._seen
            self._file = (position.device, position.inode, 0)
            if self._before is not None:
                self._resume(self._before, continues=self._before.continues(position))
                self._before = None
            self._beginnings = position.beginnings
        self._file = (position.device, position.inode, max(position.size, self._file[2]))

    def unsettled(self, readings: list[MetricLog]) -> list[MetricLog]:
        """Return the next readings without those that an earlier collector has settled."""
        start = self._seen
        self._seen += len(readings)
        settled = max(0, self._skipped - start)
        if settled:
            self._note(readings[:settled], start)
        return readings[settled:] if settled else readings

    def save(self) -> None:
        with self._saving:
            if self._before is not None:
                return  # no file has been read yet: the stored progress is still valid
            position, doubt = self._doubt or (max(self._stored_to, self._position()), None)
            device, inode, size = self._file
            settled, origin = position - self._base, self._origin + self._base
            done = (settled, self.refused, doubt)
            self._resume_point.save(
                CollectorProgress(device, inode, size, *done, self._is_ordered, self._reporter, origin)
            )

    def _resume(self, before: CollectorProgress, *, continues: bool) -> None:
        if not (before.is_ordered and self._is_ordered):
            self._is_ordered, self._by_content = False, True
        elif before.settled < 0:
            self._refused_before -= before.settled  # of a file that no longer exists
        elif continues:
            self._skipped = self._stored_to = before.settled
            self._file = (before.device, before.inode, before.size)
            self._doubt = None if before.doubt is None else (before.settled, before.doubt)
            if before.reporter:
                self._reporter, self._origin = before.reporter, before.origin

    # --- the reporter's thread ----------------------------------------------------------------------------------------

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings, atomically.

        Raises:
            UnavailableError: The log is temporarily unavailable.
            KatibError: The log does not accept these readings.
        """
        if self._by_content:
            self._report_unstored(trial_name, logs)
            return
        start = self._position()
        self._settle_doubt(trial_name)
        stored = max(0, self._stored_to - start)
        self._note(logs[:stored], start)
        if rest := logs[stored:]:
            self._send(trial_name, rest, start + stored)
        self.save()

    def _report_unstored(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        if self._stored is None:
            self._stored = Counter((log.time, log.name, log.value) for log in self._read(trial_name))
        left = self._stored.copy()
        rest: list[MetricLog] = []
        for log in logs:
            key = (log.time, log.name, log.value)
            if left[key] > 0:
                left[key] -= 1
            else:
                rest.append(log)
        try:
            if rest:
                self._log.report(trial_name, rest)
        except UnavailableError:
            self._stored = None  # perhaps only the answer was lost: compare again
            raise
        except KatibError as error:
            self.refusal = str(error)
            raise
        self._stored = left
        self.save()

    def _read(self, trial_name: str) -> Sequence[MetricLog]:
        try:
            return self._log.read(trial_name)
        except UnavailableError:
            raise
        except KatibError:  # the log cannot be read: storing twice is better than not at all
            return []

    def _send(self, trial_name: str, logs: Sequence[MetricLog], start: int) -> None:
        self._doubt = (start, self._doubt_of(logs))
        self.save()
        try:
            self._log.report(trial_name, logs, BatchId(self._reporter, self._origin + start))
        except UnavailableError:
            raise
        except KatibError as error:
            self._doubt = None
            self.refusal = str(error)
            raise
        self._stored_to = start + len(logs)
        self._doubt = None
        self._note(logs, start)

    def _settle_doubt(self, trial_name: str) -> None:
        """Find out whether a report without an answer took effect."""
        if self._doubt is None:
            return
        if self._log.knows_batches(trial_name):
            self._doubt = None  # a repeated report is stored once
            return
        start, doubt = self._doubt
        time = parse_time(doubt.time)
        values = self._values_at(trial_name, doubt.name, time) if time is not None else []
        if sum(_digest(value) == doubt.digest for value in values) > doubt.earlier:
            self._stored_to = start + doubt.count
        self._doubt = None

    def _values_at(self, trial_name: str, metric_name: str, time: datetime) -> list[str]:
        try:
            return [log.value for log in self._log.read(trial_name, metric_name=metric_name, start=time, end=time)]
        except UnavailableError:
            raise
        except KatibError:  # the log cannot be read: storing twice is better than not at all
            return []

    def _doubt_of(self, logs: Sequence[MetricLog]) -> UncertainReport:
        first = logs[0]
        earlier = self._equals[first.name, first.value] if first.time == self._moment else 0
        return UncertainReport(len(logs), format_timestamp(first.time), first.name, _digest(first.value), earlier)

    def _note(self, readings: Sequence[MetricLog], start: int) -> None:
        """Count equal readings of the same time, once: many programs stamp whole seconds."""
        for reading in readings[max(0, self._noted_to - start) :]:
            if reading.time != self._moment:
                self._moment = reading.time
                self._equals.clear()
            self._equals[reading.name, reading.value] += 1
        self._noted_to = max(self._noted_to, start + len(readings))

    def _position(self) -> int:
        """Return the position of the next reading to settle."""
        return self._skipped + self._reporter_counts()[0]


def _digest(value: str) -> str:
    return hashlib.blake2b(value.encode(errors="surrogatepass"), digest_size=8).hexdigest()
