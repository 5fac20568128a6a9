"""What one machine keeps of an experiment beside its objects: processes that still end, events, files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from katib.local.trial_files import TrialFiles
from katib.runtime.clock import Clock
from katib.runtime.objects import Key
from katib.stores.events import EventLog


class LocalAftermath:
    """Fits `katib.tuning.ports.Aftermath`.

    Args:
        events: Notable moments.
        files: Output of trials.
        await_end: Waits until no process of a deleted trial is left; tells whether that was in time.
        clock: Measures the timeout.
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
        """Remove events and files."""
        self._events.forget(experiment.namespace, experiment.name)
        for trial in trials:
            self._files.remove(trial)
