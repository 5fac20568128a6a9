"""Reactions of an engine to changes of objects, beside those of its controllers."""

from __future__ import annotations

from katib.engine.controllers.assembly import Queues
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import key_of
from katib.engine.runtime.informer import InformerEvent
from katib.engine.runtime.objects import Object
from katib.model.names import STOPPED_ANNOTATION
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Experiment, Trial
from katib.places.machine.collection import MetricCollection
from katib.places.machine.data import EngineData
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.jobs.prepare import trial_owner
from katib.places.machine.requests import Requests


class EventHandlers:
    """Handlers for the events of caches.

    Args:
        data: The data of the engine.
        caches: All objects.
        queues: Keys to reconcile.
        jobs: The jobs of trials.
        collection: Collects their metrics.
        requests: Trials of callers, if there are any.
    """

    def __init__(
        self,
        data: EngineData,
        caches: Caches,
        queues: Queues,
        jobs: JobController,
        collection: MetricCollection,
        requests: Requests,
    ) -> None:
        self._files, self._ownership = data.files, data.ownership
        self._caches = caches
        self._trials = queues.trials
        self._jobs = jobs
        self._collection = collection
        self._chosen_trials = requests.chosen_trials

    def connect(self) -> None:
        """Register the handlers. Before the caches are started."""
        self._caches.experiments.add_handler(self.experiment_changed)
        self._caches.trials.add_handler(self.trial_changed)
        for informer in self._caches.jobs.known:
            informer.add_handler(self.job_changed)

    def experiment_changed(self, event: InformerEvent[Experiment]) -> None:
        """Wake the active trials and jobs of an experiment that was resumed here, or stopped, or no longer is."""
        old, new = event.old, event.new
        if new is None:
            if (chosen := self._chosen_trials.made) is not None:
                chosen.forget(event.key)
        elif old is not None and (
            ((is_held := self._ownership.is_interrupted)(old) and not is_held(new))
            or old.metadata.annotations.get(STOPPED_ANNOTATION) != new.metadata.annotations.get(STOPPED_ANNOTATION)
        ):
            for trial in self._caches.active_trials(event.key):
                self._trials.add(key_of(trial))
                self._jobs.look(key_of(trial))

    def trial_changed(self, event: InformerEvent[Trial]) -> None:
        """Close the log of an ended trial; remove the files of a deleted one."""
        if event.new is None or trial_state(event.new) not in ACTIVE:
            self._collection.end(event.key.name)
        if (chosen := self._chosen_trials.made) is not None:
            chosen.note(event.key, event.new)
        if event.new is None:
            self._files.remove(event.key)

    def job_changed(self, event: InformerEvent[Object]) -> None:
        """Remove the files of a deleted job without a trial; of one that runs still, they go with its last program."""
        if event.new is not None or event.old is None or trial_owner(event.old) is not None:
            return
        if not self._jobs.runs(event.key) and not self._caches.trials.has(event.key):
            self._files.remove(event.key)
