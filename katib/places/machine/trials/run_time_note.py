"""Run times of trials and experiments on disk, beside the statuses that contain them: a crash loses at most a second.

The file is replaced every second while anything runs, without a write to the database. It includes the time up to which
it counts, so that the time without an engine can be added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from katib.engine.controllers.run_times import RunTimes
from katib.engine.runtime.clock import Clock
from katib.model.files.whole_files import write_whole
from katib.model.types import Trial
from katib.places.machine.processes.remains import boot_id

FILE = "run-times.json"
PERIOD_SECONDS = 1.0
_STEP_SECONDS = 1.0


def noted_seconds(directory: Path) -> dict[str, float]:
    """Return the noted run times of unfinished objects in seconds, by uid."""
    return _read(directory)[0]


def _read(directory: Path) -> tuple[dict[str, float], Mapping[str, Any]]:
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        found = json.loads((directory / FILE).read_bytes())
        return {str(uid): float(seconds) for uid, seconds in found["seconds"].items()}, found
    return {}, {}


class RunTimeNote:
    """The file of one data directory.

    Args:
        clock: The clock; its monotonic readings are those of this boot of the machine.
        is_elsewhere: Whether programs run on other machines, which do not sleep with this one.
    """

    def __init__(self, directory: Path, clock: Clock, *, is_elsewhere: bool) -> None:
        self._path = directory / FILE
        self._clock = clock
        self._boot = boot_id()
        self._is_elsewhere = is_elsewhere
        self._monotonic, self._wall = clock.monotonic(), clock.now().timestamp()
        self._offset = self._wall - self._monotonic
        earlier, found = _read(directory)
        with suppress(ValueError, LookupError, TypeError):
            self._wall = float(found["time"])
            if found["boot"] == self._boot:
                self._monotonic = float(found["monotonic"])
        self._noted = earlier
        self._began = clock.monotonic(), clock.now().timestamp()
        self.times = RunTimes(clock, earlier)

    def went_on(self, trial: Trial, until: float | None) -> None:
        """Count the time in which programs of a trial ran without an engine."""
        self.times.add(trial, self.seconds_without_engine(until))

    def seconds_without_engine(self, until: float | None) -> float:
        """Return how long a program ran after the last note: up to its end on the monotonic clock, or to now."""
        monotonic, wall = self._began
        if self._is_elsewhere:
            return max(wall - self._wall, 0.0)
        return max((monotonic if until is None else until) - self._monotonic, 0.0)

    def write(self) -> None:
        """Write changes since; on a full disk only the precision after a crash is lost."""
        seconds = {uid: round(value, 3) for uid, value in self.times.totals().items()}
        if seconds == self._noted:
            return
        now = {"boot": self._boot, "monotonic": self._clock.monotonic(), "time": self._clock.now().timestamp()}
        with suppress(OSError):
            write_whole(self._path, json.dumps({**now, "seconds": seconds}), is_private=True)
            self._noted = seconds

    def has_stepped(self) -> bool:
        """Return whether the wall clock was set, or the machine has slept, since the last call."""
        before, self._offset = self._offset, self._clock.now().timestamp() - self._clock.monotonic()
        return abs(self._offset - before) >= _STEP_SECONDS
