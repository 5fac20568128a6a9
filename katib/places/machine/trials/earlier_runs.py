"""Readings of earlier runs of a trial: those that are stored already, and those that the next run replaces."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from katib.errors import KatibError
from katib.model.metrics import ZERO_TIME, MetricLog

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Rewind:
    """Replaces the steps that a resumed run reports again.

    Attributes:
        reached: The last stored step.
        remove: Removes readings from a step on from the log.
        is_over: Whether the first step of the resumed run is known.
    """

    reached: int
    remove: Callable[[int], None]
    is_over: bool = False

    def before(self, readings: Sequence[MetricLog]) -> None:
        """Remove the readings that these, the first of the run with a step, replace."""
        steps = [reading.step for reading in readings if reading.step is not None]
        if self.is_over or not steps:
            return
        self.is_over = True
        if min(steps) <= self.reached:
            try:
                self.remove(min(steps))
            except KatibError as error:
                _log.warning("Steps that are reported again stay in the log twice", extra={"cause": str(error)})


class StoredReadings:
    """Readings that the log of a trial already contains. Shared by all monitors of the trial; used by one thread.

    A monitor reads everything from the beginning, in the order of writing, so the first readings with a name, a value
    and a step are the stored ones. A reading with a time of its own matches the stored one with this time.
    """

    def __init__(self, readings: Iterable[MetricLog]) -> None:
        self._times: dict[tuple[str, str, int | None], deque[datetime]] = defaultdict(deque)
        for reading in readings:
            self._times[reading.name, reading.value, reading.step].append(reading.time)

    def without(self, found: list[MetricLog], taken: list[MetricLog]) -> list[MetricLog]:
        """Return the readings that are not stored yet.

        Args:
            found: Readings as found.
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
