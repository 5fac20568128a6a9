"""The controllers with their caches, queues and the arrows between them; the same in both homes.

Each change enqueues these keys:

- Experiment: its own and, unless only its status changed, its Suggestion.
- Suggestion: its own, unless the stored answer leaves nothing to ask, and its Experiment, delayed if only the request
  changed.
- Trial: its own and its Experiment; once it has ended also its Suggestion.
- Job: its Trial.
- ConfigMap: the Experiments whose trial template it holds.
- Experiments and Trials enqueue early stopping, whose verdicts enqueue Trials.
- OptimizationJob, and the Experiment it owns: the OptimizationJob.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.experiment.config_maps import TemplateConfigMaps
from katib.engine.controllers.experiment.reconciler import ExperimentCheck, ExperimentReconciler, accept_all
from katib.engine.controllers.job_caches import identity
from katib.engine.controllers.kinds import OPTIMIZATION_JOB, key_of
from katib.engine.controllers.ledger import experiment_of
from katib.engine.controllers.ports import EventRecorder, GivenRules, PodWatcher, ServiceDirectory, Verdicts
from katib.engine.controllers.run_times import RunTimes
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.suggestion.reconciler import SuggestionReconciler
from katib.engine.controllers.suggestion.states import is_closed
from katib.engine.controllers.trial.observing import ObservationCalls, TrialLogs
from katib.engine.controllers.trial.reconciler import TrialReconciler
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import DONE, Controller, Manager, Reconcile, ReconcileResult, Startable, Syncing
from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import KatibError
from katib.model.loadable import Deferred, Loadable
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Experiment, ObjectMeta, Resource, Suggestion, Trial

if TYPE_CHECKING:
    from katib.engine.controllers.early_stopping.reconciler import EarlyStoppingReconciler
    from katib.engine.controllers.optimization_job.reconciler import OptimizationJobReconciler
    from katib.model.types.optimization import OptimizationJob

R = TypeVar("R", bound=Resource)

_EARLY_STOPPING: Final[Loadable[type[EarlyStoppingReconciler]]] = Loadable(
    "katib.engine.controllers.early_stopping.reconciler:EarlyStoppingReconciler"
)
_OPTIMIZATION_JOBS: Final[Loadable[type[OptimizationJobReconciler]]] = Loadable(
    "katib.engine.controllers.optimization_job.reconciler:OptimizationJobReconciler"
)


class Queues(NamedTuple):
    """Keys to reconcile; other components may add to them."""

    experiments: WorkQueue[Key]
    suggestions: WorkQueue[Key]
    trials: WorkQueue[Key]
    early_stopping: WorkQueue[Key]

    @classmethod
    def of(cls, clock: Clock) -> Queues:
        return cls(*(WorkQueue(clock=clock) for _ in range(4)))

    def wake_suggestion(self, namespace: str, name: str) -> None:
        """Enqueue a Suggestion because its service came up or went down."""
        self.suggestions.add(Key(namespace, name))


@dataclass(frozen=True, slots=True)
class Ports:
    """Dependencies of the controllers; see `katib.engine.controllers.ports` for the contract of each.

    Attributes:
        log_pool: Runs calls to a remote log, so that no worker waits for it. None if the log is local.
        check: Validates an experiment that was stored without validation.
        pods: State of the jobs' pods; None if the jobs' status suffices.
        given_rules: Returns an evaluator of early stopping rules of trials without a built-in collector.
        shipped_template: Finds ConfigMaps that come with the installation.
        admit: Returns the new Experiment of an OptimizationJob as stored; raises InvalidError if it is not admitted.
        suspend: Suspends or resumes an Experiment with its trials.
        is_ours: Whether these controllers reconcile an OptimizationJob without a manager.
        times: Measures the run times of trials; None keeps them in the statuses only.
        is_interrupted: Whether an unfinished Experiment waits for another engine and none of its trials runs.
    """

    services: ServiceDirectory
    logs: TrialLogs
    events: EventRecorder
    log_pool: Executor | None = None
    check: ExperimentCheck = accept_all
    pods: PodWatcher | None = None
    given_rules: Callable[[], GivenRules | None] = lambda: None
    shipped_template: Callable[[Key], Object | None] = lambda _key: None
    admit: Callable[[Object], Object] = identity
    suspend: Callable[[Key, bool], None] = lambda _experiment, _suspended: None
    is_ours: Callable[[OptimizationJob], bool] = lambda _job: True
    times: RunTimes | None = None
    is_interrupted: Callable[[Experiment], bool] = lambda _experiment: False


class Controllers(Manager):
    """The controllers of a store.

    Args:
        summarize: Writes an experiment's trial counts. Called on the controllers' shared thread.
    """

    def __init__(
        self, informers: Sequence[Syncing], controllers: Sequence[Startable], summarize: Callable[[Key], None]
    ) -> None:
        super().__init__(informers, controllers)
        self.summarize = summarize


def assemble(
    store: ObjectStore,
    caches: Caches,
    queues: Queues,
    ports: Ports,
    clock: Clock,
    settings: ControllerSettings | None = None,
    thread: SharedThread | None = None,
) -> Controllers:
    """Return the controllers of a store, wired and not started.

    All controllers can share a thread if the store and the logs are local.
    """
    settings, events = settings or ControllerSettings(), ports.events
    experiments, suggestions, trials, stopping = queues
    verdicts: Verdicts = {}
    times = ports.times or RunTimes(clock)
    config_maps = TemplateConfigMaps(store, caches.config_maps, clock, ports.shipped_template)
    _connect(caches, queues, settings.summary_interval_seconds)
    _connect_trials(caches, queues, verdicts, settings.summary_interval_seconds)
    caches.config_maps.add_handler(lambda event: _wake_users_of(event.key, caches, config_maps, experiments))
    experiment = ExperimentReconciler(
        store, caches, config_maps, events, clock, settings, ports.check, times, ports.is_interrupted
    )
    suggestion = SuggestionReconciler(store, caches, ports.services, events, clock, settings, suggestions.add)
    observations = ObservationCalls(ports.logs, ports.log_pool, trials.add, clock)
    trial = TrialReconciler(store, caches, observations, events, clock, settings, verdicts, times, ports.pods)
    early_stopping = Deferred(
        lambda: _EARLY_STOPPING.load()(
            caches,
            ports.services,
            ports.given_rules(),
            verdicts,
            events,
            clock,
            wake=stopping.add,
            wake_trial=trials.add,
        )
    )
    workers = settings.workers

    def unless_interrupted(reconcile: Reconcile) -> Reconcile:
        def step(key: Key) -> ReconcileResult:
            found = caches.experiments.get(key)
            waits = found is not None and found.metadata.deletion_timestamp is None and ports.is_interrupted(found)
            return DONE if waits else reconcile(key)

        return step

    suggest = unless_interrupted(suggestion.reconcile)
    stop_early = unless_interrupted(lambda key: early_stopping.get().reconcile(key))
    controllers: tuple[Startable, ...] = (
        caches.config_maps,  # not awaited, as access may be denied: TemplateConfigMaps then reads from the store
        _controller("experiment", experiment.reconcile, experiments, caches.experiments, events, workers, thread),
        _controller("suggestion", suggest, suggestions, caches.suggestions, events, workers, thread),
        _controller("trial", trial.reconcile, trials, caches.trials, events, workers, thread),
        _controller("early-stopping", stop_early, stopping, caches.experiments, events, 1, thread),
        caches.jobs,
        *_optimization_jobs(store, caches, ports, clock, thread),
    )
    return Controllers(caches.all, controllers, experiment.summarize)


def _optimization_jobs(
    store: ObjectStore, caches: Caches, ports: Ports, clock: Clock, thread: SharedThread | None
) -> tuple[Startable, ...]:
    """Return the OptimizationJob controller and its cache, which is not awaited because access may be denied."""
    jobs, experiments, queue = caches.optimization_jobs, caches.experiments, WorkQueue[Key](clock=clock)
    if jobs is None:
        return ()

    def experiment_changed(event: InformerEvent[Experiment]) -> None:
        experiment = event.new or event.old
        for owner in experiment.metadata.owner_references if experiment is not None else ():
            if owner.kind == OPTIMIZATION_JOB.kind:
                queue.add(event.key)

    jobs.add_handler(lambda event: queue.add(event.key))
    experiments.add_handler(experiment_changed)
    job = Deferred(
        lambda: _OPTIMIZATION_JOBS.load()(
            store, jobs, experiments, ports.admit, ports.suspend, ports.is_ours, ports.events, clock
        )
    )
    return jobs, _controller(
        "optimization-job", lambda key: job.get().reconcile(key), queue, jobs, ports.events, 1, thread
    )


def _connect(caches: Caches, queues: Queues, summary_interval_seconds: float) -> None:
    experiments, suggestions, _, stopping = queues

    def experiment_changed(event: InformerEvent[Experiment]) -> None:
        old, new = event.old, event.new
        experiments.add(event.key)
        if (
            old is None
            or new is None
            or _all_but_revision(old.metadata) != _all_but_revision(new.metadata)
            or old.spec != new.spec
        ):
            suggestions.add(event.key)  # the Suggestion controller does not read the experiment's status
        if new is None or new.spec.early_stopping is not None:
            stopping.add(event.key)

    def suggestion_changed(event: InformerEvent[Suggestion]) -> None:
        old, new = event.old, event.new
        if old is None or new is None:
            suggestions.add(event.key)
            experiments.add(event.key)
            return
        # After an answer that leaves nothing to ask, the next request or the service enqueues it again.
        before, given = old.status.suggestion_count, new.status.suggestion_count
        has_all = old.spec == new.spec and before < given and given >= new.spec.requests
        if not has_all or is_closed(new.status.conditions):
            suggestions.add(event.key)
        if old.status != new.status:
            experiments.add(event.key)
        else:
            # Usually the experiment's own request, which has no effect on it before the answer.
            experiments.add_after(event.key, summary_interval_seconds)

    caches.experiments.add_handler(experiment_changed)
    caches.suggestions.add_handler(suggestion_changed)


def _connect_trials(caches: Caches, queues: Queues, verdicts: Verdicts, summary_interval_seconds: float) -> None:
    experiments, suggestions, trials, stopping = queues

    def trial_changed(event: InformerEvent[Trial]) -> None:
        trials.add(event.key)
        trial = event.new or event.old
        if trial is None:
            return
        key = experiment_of(trial)
        if event.new is None or trial_state(trial) not in ACTIVE:
            verdicts.pop(trial.metadata.uid, None)
            experiments.add(key)
            suggestions.add(key)  # its service may be waiting for this trial to end
            return
        # A trial that was created or started changes the counts only, so the update may be delayed.
        experiments.add_after(key, summary_interval_seconds)
        experiment = caches.experiments.get(key)
        if experiment is not None and experiment.spec.early_stopping is not None:
            stopping.add(key)

    caches.trials.add_handler(trial_changed)
    # A job has its trial's name; the key of a foreign job matches no trial and is dropped.
    caches.jobs.add_handler(lambda event: trials.add(event.key))


_all_but_revision = attrgetter(*(name for name in ObjectMeta.__struct_fields__ if name != "resource_version"))


def _wake_users_of(
    config_map: Key, caches: Caches, config_maps: TemplateConfigMaps, experiments: WorkQueue[Key]
) -> None:
    """Enqueue the experiments whose trial template is in the changed ConfigMap."""
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
