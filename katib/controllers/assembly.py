"""The three controllers with their caches, queues and the arrows between them; the same in both homes.

Which change wakes whom: an Experiment wakes its own controller and its Suggestion's; a Suggestion wakes both; a Trial
wakes its own controller and its experiment's; a job wakes its trial's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from katib.api.types import Experiment, Resource, Suggestion, Trial
from katib.controllers.cached_trial import TrialDecoder
from katib.controllers.experiment.ledger import TrialLedger, experiment_of
from katib.controllers.experiment.reconciler import SUMMARY_INTERVAL_SECONDS, ExperimentReconciler
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.controllers.ports import EventRecorder, ObservationLog, ServiceDirectory
from katib.controllers.settings import ControllerSettings
from katib.controllers.suggestion.reconciler import TRIALS_BY_EXPERIMENT, SuggestionReconciler
from katib.controllers.trial.reconciler import TrialReconciler
from katib.controllers.trial_states import ACTIVE, state_of
from katib.errors import KatibError
from katib.runtime.clock import Clock
from katib.runtime.controller import Controller, Reconcile
from katib.runtime.informer import Informer, InformerEvent
from katib.runtime.manager import Manager
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.runtime.work_queue import WorkQueue

R = TypeVar("R", bound=Resource)

WORKERS = 2
"""Threads of each controller. No reconcile waits for a network, so this is for the store's sake, not for the number of
experiments."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The informers, for whoever else wants to read what the controllers read."""

    experiments: Informer[Experiment]
    suggestions: Informer[Suggestion]
    trials: Informer[Trial]
    jobs: dict[Kind, Informer[Object]]
    ledger: TrialLedger

    @classmethod
    def of(cls, store: ObjectStore, job_kinds: Sequence[Kind], clock: Clock) -> Caches:
        """Return caches of a store, not started."""
        trials = Informer(
            store,
            TRIAL,
            TrialDecoder(),
            {TRIALS_BY_EXPERIMENT: lambda trial: (str(experiment_of(trial)),)},
            clock=clock,
        )
        ledger = TrialLedger()
        trials.add_view(ledger)
        return cls(
            experiments=Informer(store, EXPERIMENT, Experiment.decode, {}, clock=clock),
            suggestions=Informer(store, SUGGESTION, Suggestion.decode, {}, clock=clock),
            trials=trials,
            jobs={kind: Informer(store, kind, _as_is, {}, clock=clock) for kind in job_kinds},
            ledger=ledger,
        )

    @property
    def all(self) -> tuple[Informer[Experiment] | Informer[Suggestion] | Informer[Trial] | Informer[Object], ...]:
        """Every informer."""
        return (self.experiments, self.suggestions, self.trials, *self.jobs.values())


@dataclass(frozen=True, slots=True)
class Assembly:
    """Controllers ready to start."""

    manager: Manager
    suggestion_queue: WorkQueue[Key]

    def wake_suggestion(self, key: Key) -> None:
        """Have the Suggestion controller look again, because a service came up or went down."""
        self.suggestion_queue.add(key)


def assemble(
    *,
    store: ObjectStore,
    caches: Caches,
    services: ServiceDirectory,
    observations: ObservationLog,
    events: EventRecorder,
    clock: Clock,
    settings: ControllerSettings | None = None,
) -> Assembly:
    """Return the controllers of a store, wired and not started."""
    settings = settings or ControllerSettings()
    experiments, suggestions, trials = (WorkQueue[Key](clock=clock) for _ in range(3))
    _connect(caches, experiments, suggestions, trials)
    experiment = ExperimentReconciler(
        store=store,
        experiments=caches.experiments,
        suggestions=caches.suggestions,
        trials=caches.trials,
        ledger=caches.ledger,
        events=events,
        clock=clock,
    )
    suggestion = SuggestionReconciler(
        store=store,
        suggestions=caches.suggestions,
        experiments=caches.experiments,
        trials=caches.trials,
        services=services,
        events=events,
        clock=clock,
        settings=settings,
        wake=suggestions.add,
    )
    trial = TrialReconciler(
        store=store,
        trials=caches.trials,
        jobs=caches.jobs,
        observations=observations,
        events=events,
        clock=clock,
        settings=settings,
    )
    controllers = (
        _controller("experiment", experiment.reconcile, experiments, caches.experiments, events),
        _controller("suggestion", suggestion.reconcile, suggestions, caches.suggestions, events),
        _controller("trial", trial.reconcile, trials, caches.trials, events),
    )
    return Assembly(Manager(caches.all, controllers), suggestions)


def _connect(caches: Caches, experiments: WorkQueue[Key], suggestions: WorkQueue[Key], trials: WorkQueue[Key]) -> None:
    def experiment_changed(event: InformerEvent[Experiment]) -> None:
        experiments.add(event.key)
        suggestions.add(event.key)

    def suggestion_changed(event: InformerEvent[Suggestion]) -> None:
        suggestions.add(event.key)
        experiments.add(event.key)

    def trial_changed(event: InformerEvent[Trial]) -> None:
        trials.add(event.key)
        trial = event.new or event.old
        if trial is None:
            return
        if event.new is not None and state_of(event.new) in ACTIVE:
            # That a trial is there or runs changes what is counted, not what is to be done: it can wait for company.
            experiments.add_after(experiment_of(trial), SUMMARY_INTERVAL_SECONDS)
        else:
            experiments.add(experiment_of(trial))

    def job_changed(event: InformerEvent[Object]) -> None:
        trials.add(event.key)  # a job bears its trial's name; a foreign one is no trial's key and costs nothing

    caches.experiments.add_handler(experiment_changed)
    caches.suggestions.add_handler(suggestion_changed)
    caches.trials.add_handler(trial_changed)
    for informer in caches.jobs.values():
        informer.add_handler(job_changed)


def _controller(
    name: str,
    reconcile: Reconcile,
    queue: WorkQueue[Key],
    informer: Informer[R],
    events: EventRecorder,
) -> Controller:
    def report(key: Key, error: Exception) -> None:
        obj = informer.get(key)
        if obj is not None:
            words = str(error) if isinstance(error, KatibError) else f"{type(error).__name__}: {error}"
            events.record(obj, warning=True, reason="ReconcileError", message=f"Failed to reconcile: {words}")

    return Controller(f"{name}-controller", reconcile, queue, workers=WORKERS, on_error=report)


def _as_is(obj: Object) -> Object:
    return obj
