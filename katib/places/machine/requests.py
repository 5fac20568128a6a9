"""Everything that users can ask of an engine: the tuning service, trials of callers, and objects of any kind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.controllers.ledger import experiment_of
from katib.engine.controllers.trial.plan import TrialEvent
from katib.engine.runtime.objects import Key
from katib.errors import ConflictError, KatibError
from katib.model.algorithms import AlgorithmCatalog
from katib.model.conditions import has_ended
from katib.model.loadable import Deferred
from katib.model.types import Experiment, Trial
from katib.places.machine.data import DEFAULTS, STATUS_KINDS, EngineData
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.on_demand import (
    ATTRIBUTES,
    CHOSEN_TRIALS,
    EXPLAINING,
    FACTS,
    OBJECT_ADMISSION,
    REPEATS,
    SERVED_OBJECTS,
    TEMPLATES,
)
from katib.places.machine.services.host import ServiceHost
from katib.places.machine.submission import LocalHome, shipped_config_maps
from katib.places.machine.trials.files import LocalAftermath
from katib.service.tuning.ports import CallersLog, Records
from katib.service.tuning.service import DEFAULT_NAMESPACE
from katib.service.tuning.states import is_stopped
from katib.service.tuning.stored_service import ObjectTuningService
from katib.service.tuning.submission import Gate, StoredObjects

if TYPE_CHECKING:
    from katib.places.machine.repeating import Undisturbed
    from katib.service.tuning.chosen_trials import ChosenTrials
    from katib.service.tuning.object_home import ObjectAdmission, ObjectHome


class CallersEnds:
    """Ends of trials that callers evaluate, for the status of their experiments. Thread-safe.

    Args:
        data: Records the events.
        summarized: Brings the status of an experiment up to date; returns False before the controllers run.
    """

    def __init__(self, data: EngineData, summarized: Callable[[Key], bool]) -> None:
        self._record = data.recorder.record
        self._summarized = summarized
        self._settling = threading.Lock()
        self._told: dict[Key, None] = {}  # experiments whose status may lack what their callers told

    def record(self, trial: Trial, event: TrialEvent) -> None:
        """Note that a trial has ended."""
        self._told[experiment_of(trial)] = None
        self._record(trial, warning=event.warning, reason=event.reason, message=event.message)

    def settle(self) -> None:
        """Bring the status of experiments up to date with the trials that ended since the last call."""
        with self._settling:
            while self._told:
                key, _ = self._told.popitem()
                try:
                    if not self._summarized(key):
                        self._told[key] = None
                        return
                except ConflictError:
                    self._told[key] = None
                except KatibError:
                    return  # the controller meets the same error, and reports it


class Requests:
    """The services of an engine.

    Attributes:
        service: The verbs.
        chosen_trials: Experiments whose parameters are chosen by callers.
        admission: Admits objects of our kinds.

    Args:
        data: The data of the engine.
        home: This machine, as far as submissions are concerned.
        catalog: The algorithms.
        jobs: The jobs of trials.
        services: The processes of algorithms.
        look_at: Receives a trial of which a caller has reported readings.
        ends: Receives the ends of trials of callers.
        undisturbed: Calls functions that write an experiment, while no controller does.
    """

    def __init__(
        self,
        data: EngineData,
        home: LocalHome,
        catalog: AlgorithmCatalog,
        jobs: JobController,
        services: ServiceHost,
        look_at: Callable[[Trial], None],
        ends: CallersEnds,
        undisturbed: Undisturbed,
    ) -> None:
        self._data = data
        self._home = home
        store = StoredObjects(data.store)
        self._gate = gate = Gate(catalog, home, store)
        self.admission: Deferred[ObjectAdmission] = Deferred(lambda: OBJECT_ADMISSION.load()(gate, home, store.find))
        callers = CallersLog(data.observations, look_at, ends.record, ends.settle)
        records = Records(data.store, data.observations, data.recorder, data.output.get, callers)
        diagnostician = Deferred(
            lambda: EXPLAINING.load()(
                records, FACTS.load()(data.store, data.output.get(), data.layout, jobs, services), data.clock
            )
        )
        self.service = ObjectTuningService(
            replace(records, store=data.ended.written()),
            gate,
            lambda namespace, name: diagnostician.get().explain(namespace, name),
            data.clock,
            aftermath=LocalAftermath(data.events, data.files, jobs.wait_until_gone, data.clock),
            templates=lambda: TEMPLATES.load()(data.store, shared=shipped_config_maps),
            repeats=lambda: REPEATS.load()(
                data.store,
                data.observations.delete,
                data.events.rename,
                data.clock,
                undisturbed,
                data.run_times.times.of_trial,
            ),
        )
        self.chosen_trials: Deferred[ChosenTrials] = Deferred(
            lambda: CHOSEN_TRIALS.load()(
                data.ended.written(),
                ATTRIBUTES.load()(data.database),
                CallersLog(data.observations, on_end=ends.record),
                self.service.delete,
                data.clock,
                DEFAULT_NAMESPACE,
            )
        )

    @cached_property
    def objects(self) -> ObjectHome:
        """All objects, for those who read and write any kind of them."""
        return SERVED_OBJECTS.load()(
            objects=self._data.store,
            written=self._data.ended.written(),
            admission=self.admission.get(),
            status_kinds=STATUS_KINDS,
            service=self.service,
            output=self._data.output.get(),
            events=self._data.events.newest,
            defaults=DEFAULTS,
        )

    def check_placement(self) -> None:
        """Check that Slurm takes the trials of experiments that continue: options may be others than before.

        Raises:
            InvalidError: It refuses those of an experiment.
        """
        for stored in self._data.store.list(EXPERIMENT).items if self._home.places_trials else ():
            experiment = Experiment.read(stored)
            rests = is_stopped(experiment) or self._data.ownership.is_interrupted(experiment)
            if not rests and not has_ended(experiment.status.conditions):
                self._gate.check_placement(experiment)
