"""Periodic work of an engine: run times, the disk, old logs and checkpoints, parameters of callers' trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.engine.controllers.assembly import Queues
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import key_of
from katib.engine.controllers.settings import RETENTION_COMPLAINT, RETENTION_SECONDS
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.periodic import PeriodicTasks
from katib.model.conditions import has_ended
from katib.model.files.directories import keep_reserve
from katib.model.loadable import Deferred
from katib.model.metrics import RetentionPolicy
from katib.model.trials import ACTIVE, trial_state
from katib.places.machine.data import EngineData
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.on_demand import CHECKPOINT_RETENTION, RETENTION
from katib.places.machine.requests import Requests
from katib.places.machine.trials.run_time_note import PERIOD_SECONDS as NOTE_SECONDS

if TYPE_CHECKING:
    from katib.places.machine.trials.checkpoints import CheckpointRetention

FLUSH_SECONDS = 0.5
"""How long the parameters of a trial that a caller evaluates may be missing in its object."""

_FLUSH = "parameters of trials cannot be written"
_NOTE = "how long trials have run cannot be noted"


class Upkeep:
    """The threads of periodic work.

    Args:
        data: The data of the engine.
        caches: Experiments and trials.
        queues: Keys to reconcile.
        jobs: The jobs of trials.
        requests: Trials of callers, if there are any.
        logs: The logs of trials.
        policy: How long they are kept; None for ever.
    """

    def __init__(
        self,
        data: EngineData,
        caches: Caches,
        queues: Queues,
        jobs: JobController,
        requests: Requests,
        logs: TrialLogs,
        policy: RetentionPolicy | None,
    ) -> None:
        self._data = data
        self._caches = caches
        self._queues = queues
        self._jobs = jobs
        self._chosen_trials = requests.chosen_trials
        self.removes_logs = policy is not None
        self._checkpoints: Deferred[CheckpointRetention] = Deferred(
            lambda: CHECKPOINT_RETENTION.load()(data.layout, data.store, data.recorder)
        )
        looks = [self._remove_checkpoints, data.database.give_back]
        if policy is not None:
            looks[:0] = [
                RETENTION.load()(caches.experiments.all, caches.trials.all, logs, lambda: policy, data.clock).look
            ]
        self._removal = PeriodicTasks("retention", looks, RETENTION_SECONDS, data.clock, complaint=RETENTION_COMPLAINT)
        measures = [self._note_run_times, self._look_at_disk]
        self._threads = (
            PeriodicTasks("chosen-trials", [self._flush_chosen_trials], FLUSH_SECONDS, data.clock, complaint=_FLUSH),
            PeriodicTasks("run-times", measures, NOTE_SECONDS, data.clock, complaint=_NOTE),
            self._removal,
        )

    def start(self) -> None:
        """Start the threads. After the caches have synced."""
        active = (trial for trial in self._caches.trials.all() if trial_state(trial) in ACTIVE)
        unended = (one for one in self._caches.experiments.all() if not has_ended(one.status.conditions))
        self._data.run_times.times.keep({one.metadata.uid for one in (*active, *unended)})
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads. Idempotent."""
        for thread in reversed(self._threads):
            thread.stop()

    def remove_old(self) -> None:
        """Remove old logs and checkpoints now: an experiment has often ended just before the engine stops."""
        self._removal.look()

    def _remove_checkpoints(self) -> None:
        if any(self._data.layout.checkpoints.iterdir()):
            self._checkpoints.get().look()

    def _flush_chosen_trials(self) -> None:
        if (chosen := self._chosen_trials.made) is not None:
            chosen.flush()

    def _note_run_times(self) -> None:
        """Write down how long trials have run; look at those that run after a step of the clock."""
        self._data.write_run_times()
        if self._data.run_times.has_stepped():
            for key in self._data.run_times.times.running():
                self._queues.trials.add(key)
            for experiment in self._caches.experiments.all():
                self._queues.experiments.add(key_of(experiment))

    def _look_at_disk(self) -> None:
        """Keep some room of the disk; when there is none left, end the trial that has taken it."""
        if self._data.directory.is_lost():
            return
        if self._data.layout.is_full():
            self._jobs.disk_full()
        else:
            keep_reserve(self._data.layout.reserve)
