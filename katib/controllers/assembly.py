"""The three controllers with their caches, queues and the arrows between them; the same in both homes.

Which change wakes whom: an Experiment wakes its own controller and its Suggestion's; a Suggestion wakes both; a Trial
wakes its own controller and its experiment's; a job wakes its trial's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from katib.api.types import Experiment, Resource, Suggestion, Trial
from katib.controllers.cached_trial import TrialDecoder
from katib.controllers.experiment.ledger import OrderOf, TrialLedger, experiment_of
from katib.controllers.experiment.reconciler import ExperimentCheck, ExperimentReconciler, accept_all
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.controllers.ports import EventRecorder, ObservationLog, PodWatcher, ServiceDirectory
from katib.controllers.settings import ControllerSettings
from katib.controllers.suggestion.reconciler import TRIALS_BY_EXPERIMENT, SuggestionReconciler
from katib.controllers.trial.job_caches import JobCaches, as_it_is
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


@dataclass(frozen=True, slots=True)
class Caches:
    """The informers, for whoever else wants to read what the controllers read."""

    experiments: Informer[Experiment]
    suggestions: Informer[Suggestion]
    trials: Informer[Trial]
    jobs: JobCaches
    ledger: TrialLedger

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        job_kinds: Sequence[Kind],
        clock: Clock,
        *,
        decode_experiment: Callable[[Object], Experiment] = Experiment.decode,
        decode_job: Callable[[Object], Object] = as_it_is,
        follows_new_jobs: bool = False,
        order_of: OrderOf | None = None,
    ) -> Caches:
        """Return caches of a store, not started.

        Args:
            store: Where the objects are.
            job_kinds: Kinds of jobs that are there from the start.
            clock: For the informers.
            decode_experiment: Where experiments may come without defaults, this adds them.
            decode_job: Turns a job into what is remembered of it.
            follows_new_jobs: Whether trials may run as other kinds, too.
            order_of: Where a trial stands among the others, if not where it came.
        """
        trials = Informer(
            store,
            TRIAL,
            TrialDecoder(),
            {TRIALS_BY_EXPERIMENT: lambda trial: (str(experiment_of(trial)),)},
            clock=clock,
        )
        ledger = TrialLedger(order_of)
        trials.add_view(ledger)
        return cls(
            experiments=Informer(store, EXPERIMENT, decode_experiment, {}, clock=clock),
            suggestions=Informer(store, SUGGESTION, Suggestion.decode, {}, clock=clock),
            trials=trials,
            jobs=JobCaches(store, job_kinds, clock, decode=decode_job, follows_new=follows_new_jobs),
            ledger=ledger,
        )

    @property
    def all(self) -> tuple[Informer[Experiment] | Informer[Suggestion] | Informer[Trial] | Informer[Object], ...]:
        """Every informer that is there from the start."""
        return (self.experiments, self.suggestions, self.trials, *self.jobs.known)


@dataclass(frozen=True, slots=True)
class Assembly:
    """Controllers ready to start."""

    manager: Manager
    suggestion_queue: WorkQueue[Key]
    trial_queue: WorkQueue[Key]

    def wake_suggestion(self, key: Key) -> None:
        """Have the Suggestion controller look again, because a service came up or went down."""
        self.suggestion_queue.add(key)

    def wake_trial(self, key: Key) -> None:
        """Have the Trial controller look again, because a pod of it changed."""
        self.trial_queue.add(key)


def assemble(
    *,
    store: ObjectStore,
    caches: Caches,
    services: ServiceDirectory,
    observations: ObservationLog,
    events: EventRecorder,
    clock: Clock,
    settings: ControllerSettings | None = None,
    check: ExperimentCheck = accept_all,
    pods: PodWatcher | None = None,
) -> Assembly:
    """Return the controllers of a store, wired and not started."""
    settings = settings or ControllerSettings()
    experiments, suggestions, trials = (WorkQueue[Key](clock=clock) for _ in range(3))
    _connect(caches, experiments, suggestions, trials, settings.summary_interval_seconds)
    experiment = ExperimentReconciler(
        store=store,
        experiments=caches.experiments,
        suggestions=caches.suggestions,
        trials=caches.trials,
        ledger=caches.ledger,
        events=events,
        clock=clock,
        settings=settings,
        check=check,
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
        pods=pods,
    )
    controllers = (
        _controller("experiment", experiment.reconcile, experiments, caches.experiments, events, settings.workers),
        _controller("suggestion", suggestion.reconcile, suggestions, caches.suggestions, events, settings.workers),
        _controller("trial", trial.reconcile, trials, caches.trials, events, settings.workers),
        caches.jobs,
    )
    return Assembly(Manager(caches.all, controllers), suggestions, trials)


def _connect(
    caches: Caches,
    experiments: WorkQueue[Key],
    suggestions: WorkQueue[Key],
    trials: WorkQueue[Key],
    summary_interval_seconds: float,
) -> None:
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
            experiments.add_after(experiment_of(trial), summary_interval_seconds)
        else:
            experiments.add(experiment_of(trial))

    def job_changed(event: InformerEvent[Object]) -> None:
        trials.add(event.key)  # a job bears its trial's name; a foreign one is no trial's key and costs nothing

    caches.experiments.add_handler(experiment_changed)
    caches.suggestions.add_handler(suggestion_changed)
    caches.trials.add_handler(trial_changed)
    caches.jobs.add_handler(job_changed)


def _controller(
    name: str,
    reconcile: Reconcile,
    queue: WorkQueue[Key],
    informer: Informer[R],
    events: EventRecorder,
    workers: int,
) -> Controller:
    def report(key: Key, error: Exception) -> None:
        obj = informer.get(key)
        if obj is not None:
            words = str(error) if isinstance(error, KatibError) else f"{type(error).__name__}: {error}"
            events.record(obj, warning=True, reason="ReconcileError", message=f"Failed to reconcile: {words}")

    return Controller(f"{name}-controller", reconcile, queue, workers=workers, on_error=report)
