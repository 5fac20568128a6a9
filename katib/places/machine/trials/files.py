"""Files of trials on one machine, and their removal."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from katib.engine.runtime.objects import Key
from katib.places.machine.layout import Layout

if TYPE_CHECKING:  # reading the output of a trial needs neither
    from katib.engine.runtime.clock import Clock
    from katib.engine.stores.events import EventLog


class TrialFiles:
    """Finds and removes the files of trials. Thread-safe."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def directory(self, trial: Key) -> Path:
        return self._layout.trial(trial.namespace, trial.name)

    def remove(self, trial: Key) -> None:
        """Remove the files of a deleted trial, and with the last one of an experiment its directory."""
        shutil.rmtree(self.directory(trial), ignore_errors=True)
        for folder in self._layout.checkpoints.glob(f"{trial.namespace}/*/"):
            from katib.model.files.checkpoint_folders import remove_checkpoint

            remove_checkpoint(folder / trial.name)
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


class LocalAftermath:
    """Cleanup after deleted trials. Implements `katib.service.tuning.ports.Aftermath`.

    Args:
        await_end: Waits until no process of a deleted trial is left; returns whether that was in time.
    """

    def __init__(
        self, events: EventLog, files: TrialFiles, await_end: Callable[[Key, float], bool], clock: Clock
    ) -> None:
        self._events = events
        self._files = files
        self._await_end = await_end
        self._clock = clock

    def wait(self, _experiment: Key, trials: Sequence[Key], timeout_seconds: float) -> bool:
        """Wait until no process of the trials is left."""
        deadline = self._clock.monotonic() + timeout_seconds
        return all(self._await_end(trial, deadline - self._clock.monotonic()) for trial in trials)

    def forget(self, experiment: Key, trials: Sequence[Key]) -> None:
        self._events.forget(experiment.namespace, experiment.name)
        for trial in trials:
            self._files.remove(trial)
