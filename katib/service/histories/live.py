"""Writes trials to another program as they end, on its own thread: a slow program delays nothing here."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial

from katib.errors import KatibError, one_line
from katib.model.types import Experiment, Trial
from katib.service.histories.written import RunLog, ended_run, write_ended
from katib.service.tuning.service import TuningService

_PATIENCE_SECONDS = 60.0


class LiveLogs:
    """Writes the ended trials of an experiment, and then each that ends. Thread-safe.

    Args:
        logs: Opens the logs; called on the thread.
        on_error: Called with a sentence when a log fails; the others continue.
    """

    def __init__(
        self,
        service: TuningService,
        experiment: Experiment,
        logs: Sequence[Callable[[], RunLog]],
        on_error: Callable[[str], None],
    ) -> None:
        self._service = service
        self._experiment = experiment
        self._opening = logs
        self._logs: list[RunLog] = []
        self._on_error = on_error
        self._ended: queue.SimpleQueue[Trial | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="log-to", daemon=True)
        self._thread.start()

    def add(self, trial: Trial) -> None:
        self._ended.put(trial)

    def close(self) -> None:
        """Wait until all ended trials are written, for a minute at most."""
        self._ended.put(None)
        self._thread.join(_PATIENCE_SECONDS)
        if self._thread.is_alive():
            self._on_error("not every trial was written within a minute")

    def _write(self) -> None:
        for opened in self._opening:
            try:
                self._logs.append(opened())
            except KatibError as error:
                self._on_error(one_line(error))
        self._each(lambda log: write_ended(self._service, self._experiment, log))
        while (trial := self._ended.get()) is not None:
            self._each(partial(self._write_one, trial))

    def _write_one(self, trial: Trial, log: RunLog) -> None:
        log.write(ended_run(self._service, self._experiment, trial))

    def _each(self, write: Callable[[RunLog], object]) -> None:
        for log in list(self._logs):
            try:
                write(log)
            except KatibError as error:
                self._logs.remove(log)
                self._on_error(one_line(error))
