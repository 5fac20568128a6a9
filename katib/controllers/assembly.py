"""The controllers with their caches, queues and the arrows between them; the same in both homes.

Which change wakes whom: an Experiment wakes its own controller and, unless only its status changed, its Suggestion's; a
Suggestion wakes both, its experiment's with some delay where only what was asked of it changed; a Trial wakes its own
controller and its experiment's, and once it has ended its Suggestion's; a job wakes its trial's; a ConfigMap wakes the
experiments whose trial template it holds. Experiments and Trials wake their early stopping, whose verdicts wake the
Trial controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from msgspec import structs

from katib.api.trials import ACTIVE, trial_state
from katib.api.types import Experiment, Resource, Suggestion, Trial
from katib.controllers.cached_trial import TrialDecoder
from katib.controllers.early_stopping.reconciler import EarlyStoppingReconciler
from katib.controllers.early_stopping.verdicts import Verdicts
from katib.controllers.experiment.config_maps import TemplateConfigMaps
from katib.controllers.experiment.ledger import OrderOf, TrialLedger, experiment_of
from katib.controllers.experiment.reconciler import ExperimentCheck, ExperimentReconciler, accept_all
from katib.controllers.kinds import CONFIG_MAP, EXPERIMENT, SUGGESTION, TRIAL, key_of
from katib.controllers.ports import EventRecorder, GivenRules, PodWatcher, ServiceDirectory
from katib.controllers.settings import ControllerSettings
from katib.controllers.suggestion.reconciler import TRIALS_BY_EXPERIMENT, SuggestionReconciler
from katib.controllers.trial.job_caches import JobCaches, identity
from katib.controllers.trial.observing import ObservationCalls, TrialLogs
from katib.controllers.trial.reconciler import TrialReconciler
from katib.errors import KatibError
from katib.runtime.clock import Clock
from katib.runtime.controller import Controller, Reconcile
from katib.runtime.informer import Informer, InformerEvent
from katib.runtime.manager import Manager
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.runtime.shared_thread import SharedThread
from katib.runtime.work_queue import WorkQueue

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Caches:
    """The informers, for others that want to read what the controllers read."""

    experiments: Informer[Experiment]
    suggestions: Informer[Suggestion]
    trials: Informer[Trial]
    jobs: JobCaches
    ledger: TrialLedger
    config_maps: Informer[Object]

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        job_kinds: Sequence[Kind],
        clock: Clock,
        *,
        decode_experiment: Callable[[Object], Experiment] = Experiment.decode,
        decode_job: Callable[[Object], Object] = identity,
        follows_new_jobs: bool = False,
        job_store: ObjectStore | None = None,
        order_of: OrderOf | None = None,
        offered: ObjectStore | None = None,
        thread: SharedThread | None = None,
    ) -> Caches:
        """Return caches of a store, not started.

        Args:
            store: Where the objects are.
            job_kinds: Kinds of jobs that are there from the start.
            clock: For the informers.
            decode_experiment: Where experiments may come without defaults, this adds them.
            decode_job: Turns a job into what is remembered of it.
            follows_new_jobs: Whether trials may run as other kinds, too.
            job_store: Where jobs are followed, if not in `store`; it may leave out those without their label.
            order_of: Where a trial stands among the others, if not where it came.
            offered: Shows those ConfigMaps that are worth watching for trial templates; all of the store by default.
            thread: Where the informers take turns; None: each has a thread of its own.
        """
        decoder = TrialDecoder()
        trials = Informer(
            store,
            TRIAL,
            decoder,
            {TRIALS_BY_EXPERIMENT: lambda trial: (str(experiment_of(trial)),)},
            pack=decoder.pack,
            clock=clock,
            thread=thread,
        )
        ledger = TrialLedger(trials.get, order_of)
        trials.add_view(ledger)
        return cls(
            experiments=Informer(store, EXPERIMENT, decode_experiment, {}, clock=clock, thread=thread),
            suggestions=Informer(store, SUGGESTION, Suggestion.decode, {}, clock=clock, thread=thread),
            trials=trials,
            jobs=JobCaches(
                job_store or store, job_kinds, clock, decode=decode_job, follows_new=follows_new_jobs, thread=thread
            ),
            ledger=ledger,
            config_maps=Informer(offered or store, CONFIG_MAP, identity, {}, clock=clock, thread=thread),
        )

    @property
    def all(self) -> tuple[Informer[Experiment] | Informer[Suggestion] | Informer[Trial] | Informer[Object], ...]:
        """Every informer that controllers wait for before they start."""
        return (self.experiments, self.suggestions, self.trials, *self.jobs.known)


class Queues(NamedTuple):
    """What the controllers are to look at; others add to it what they know to have changed."""

    experiments: WorkQueue[Key]
    suggestions: WorkQueue[Key]
    trials: WorkQueue[Key]
    early_stopping: WorkQueue[Key]

    @classmethod
    def of(cls, clock: Clock) -> Queues:
        """Return empty queues."""
        return cls(*(WorkQueue(clock=clock) for _ in range(4)))

    def wake_suggestion(self, namespace: str, name: str) -> None:
        """Have the Suggestion controller look again, because a service came up or went down."""
        self.suggestions.add(Key(namespace, name))


@dataclass(frozen=True, slots=True)
class Ports:
    """What the controllers need from outside; `katib.controllers.ports` says what each must do.

    Attributes:
        services: The services that experiments ask for.
        logs: The logs of trials.
        events: Records notable moments.
        log_pool: Where logs are asked that are not at hand: a worker never waits for them. None: they are at hand.
        check: What is wrong with an experiment that nothing has checked before it was stored.
        pods: What the pods of jobs say; None where jobs say it all.
        given_rules: Evaluates the rules that trials were given, where no collector of ours does it.
        shipped_template: Finds ConfigMaps that come with the installation.
    """

    services: ServiceDirectory
    logs: TrialLogs
    events: EventRecorder
    log_pool: Executor | None = None
    check: ExperimentCheck = accept_all
    pods: PodWatcher | None = None
    given_rules: GivenRules | None = None
    shipped_template: Callable[[Key], Object | None] = lambda _key: None


def assemble(
    store: ObjectStore,
    caches: Caches,
    queues: Queues,
    ports: Ports,
    clock: Clock,
    settings: ControllerSettings | None = None,
    thread: SharedThread | None = None,
) -> Manager:
    """Return the controllers of a store, wired and not started.

    Where the store and the logs are at hand, all controllers can share a thread.
    """
    settings, events = settings or ControllerSettings(), ports.events
    experiments, suggestions, trials, stopping = queues
    verdicts = Verdicts()
    config_maps = TemplateConfigMaps(store, caches.config_maps, clock, ports.shipped_template)
    _connect(caches, experiments, suggestions, trials, settings.summary_interval_seconds)
    _connect_early_stopping(caches, stopping, verdicts)
    caches.config_maps.add_handler(lambda event: _wake_users_of(event.key, caches, config_maps, experiments))
    experiment = ExperimentReconciler(
        store=store,
        experiments=caches.experiments,
        suggestions=caches.suggestions,
        trials=caches.trials,
        ledger=caches.ledger,
        events=events,
        clock=clock,
        settings=settings,
        check=ports.check,
        config_maps=config_maps,
    )
    suggestion = SuggestionReconciler(
        store=store,
        suggestions=caches.suggestions,
        experiments=caches.experiments,
        trials=caches.trials,
        ledger=caches.ledger,
        services=ports.services,
        events=events,
        clock=clock,
        settings=settings,
        wake=suggestions.add,
    )
    trial = TrialReconciler(
        store=store,
        trials=caches.trials,
        jobs=caches.jobs,
        observations=ObservationCalls(ports.logs, ports.log_pool, trials.add, clock),
        events=events,
        clock=clock,
        settings=settings,
        pods=ports.pods,
        verdict_of=verdicts.of,
    )
    early_stopping = EarlyStoppingReconciler(
        experiments=caches.experiments,
        suggestions=caches.suggestions,
        trials=caches.trials,
        ledger=caches.ledger,
        services=ports.services,
        given_rules=ports.given_rules,
        verdicts=verdicts,
        events=events,
        clock=clock,
        wake=stopping.add,
        wake_trial=trials.add,
    )
    controllers = (
        caches.config_maps,  # not waited for, as it may lack the right: what it does not show is read
        _controller(
            "experiment", experiment.reconcile, experiments, caches.experiments, events, settings.workers, thread
        ),
        _controller(
            "suggestion", suggestion.reconcile, suggestions, caches.suggestions, events, settings.workers, thread
        ),
        _controller("trial", trial.reconcile, trials, caches.trials, events, settings.workers, thread),
        _controller("early-stopping", early_stopping.reconcile, stopping, caches.experiments, events, 1, thread),
        caches.jobs,
    )
    return Manager(caches.all, controllers)


def _connect(
    caches: Caches,
    experiments: WorkQueue[Key],
    suggestions: WorkQueue[Key],
    trials: WorkQueue[Key],
    summary_interval_seconds: float,
) -> None:
    def experiment_changed(event: InformerEvent[Experiment]) -> None:
        experiments.add(event.key)
        if not _only_status_changed(event):
            suggestions.add(event.key)

    def suggestion_changed(event: InformerEvent[Suggestion]) -> None:
        suggestions.add(event.key)
        if event.old is None or event.new is None or event.old.status != event.new.status:
            experiments.add(event.key)
        else:
            # The experiment's own request, as a rule: nothing follows for it until there is an answer.
            experiments.add_after(event.key, summary_interval_seconds)

    def trial_changed(event: InformerEvent[Trial]) -> None:
        trials.add(event.key)
        trial = event.new or event.old
        if trial is None:
            return
        experiment = experiment_of(trial)
        if event.new is not None and trial_state(trial) in ACTIVE:
            # That a trial exists or runs changes what is counted, not what is to be done: the next one may come first.
            experiments.add_after(experiment, summary_interval_seconds)
        else:
            experiments.add(experiment)
            suggestions.add(experiment)  # its service may have waited for the end of this trial

    def job_changed(event: InformerEvent[Object]) -> None:
        trials.add(event.key)  # a job bears its trial's name; a foreign one is no trial's key and costs nothing

    caches.experiments.add_handler(experiment_changed)
    caches.suggestions.add_handler(suggestion_changed)
    caches.trials.add_handler(trial_changed)
    caches.jobs.add_handler(job_changed)


def _connect_early_stopping(caches: Caches, stopping: WorkQueue[Key], verdicts: Verdicts) -> None:
    def experiment_changed(event: InformerEvent[Experiment]) -> None:
        if event.new is None or event.new.spec.early_stopping is not None:
            stopping.add(event.key)

    def trial_changed(event: InformerEvent[Trial]) -> None:
        trial = event.new or event.old
        if trial is None:
            return
        if event.new is None or trial_state(trial) not in ACTIVE:
            verdicts.forget(trial)
            return
        experiment = caches.experiments.get(experiment_of(trial))
        if experiment is not None and experiment.spec.early_stopping is not None:
            stopping.add(key_of(experiment))

    caches.experiments.add_handler(experiment_changed)
    caches.trials.add_handler(trial_changed)


def _only_status_changed(event: InformerEvent[Experiment]) -> bool:
    """Return whether all else is as it was; the Suggestion controller reads nothing of an experiment's status."""
    old, new = event.old, event.new
    if old is None or new is None:
        return False
    before = structs.replace(old.metadata, resource_version=new.metadata.resource_version)
    return before == new.metadata and old.spec == new.spec


def _wake_users_of(
    config_map: Key, caches: Caches, config_maps: TemplateConfigMaps, experiments: WorkQueue[Key]
) -> None:
    """Have the experiments looked at whose trial template is in a ConfigMap that changed."""
    config_maps.forget(config_map)
    for experiment in caches.experiments.all():
        source = experiment.spec.trial_template and experiment.spec.trial_template.config_map
        if source and (source.config_map_namespace, source.config_map_name) == config_map:
            experiments.add(key_of(experiment))


def _controller(
    name: str,
    reconcile: Reconcile,
    queue: WorkQueue[Key],
    informer: Informer[R],
    events: EventRecorder,
    workers: int,
    thread: SharedThread | None,
) -> Controller:
    def report(key: Key, error: Exception) -> None:
        obj = informer.get(key)
        if obj is not None:
            words = str(error) if isinstance(error, KatibError) else f"{type(error).__name__}: {error}"
            events.record(obj, warning=True, reason="ReconcileError", message=f"Failed to reconcile: {words}")

    return Controller(f"{name}-controller", reconcile, queue, workers=workers, thread=thread, on_error=report)
