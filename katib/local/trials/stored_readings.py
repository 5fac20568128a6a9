"""Readings that an earlier engine stored of a trial whose programs go on: their monitors find all of them again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from datetime import datetime

from katib.api.metrics import ZERO_TIME, MetricLog


class StoredReadings:
    """What the log of a trial holds already. All monitors of the trial share it; used by one thread.

    A monitor reads everything from the beginning, in the order in which it was written, so the first readings of a
    name, a value and a step are those that are stored. A reading with a time of its own is the one that has this time.
    """

    def __init__(self, readings: Iterable[MetricLog]) -> None:
        self._times: dict[tuple[str, str, int | None], deque[datetime]] = defaultdict(deque)
        for reading in readings:
            self._times[reading.name, reading.value, reading.step].append(reading.time)

    def without(self, found: list[MetricLog], taken: list[MetricLog]) -> list[MetricLog]:
        """Return the readings that are not stored yet.

        Args:
            found: Readings as they were found.
            taken: The same ones, or some of them in the same order, with times.
        """
        if not self._times:
            return taken
        untimed = any(reading.time is ZERO_TIME for reading in found)
        return [reading for reading in taken if not self._is_stored(reading, untimed=untimed)]

    def _is_stored(self, reading: MetricLog, *, untimed: bool) -> bool:
        key = (reading.name, reading.value, reading.step)
        times = self._times.get(key)
        if not times:
            return False
        if untimed:
            times.popleft()
        elif reading.time in times:
            times.remove(reading.time)
        else:
            return False
        if not times:
            del self._times[key]
        return True
