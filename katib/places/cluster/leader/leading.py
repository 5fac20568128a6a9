"""Components that only the leader runs: caches, controllers, suggestion services, and the watch over pods.

Experiment -> controllers -> Trial -> Job (any kind) -> pods with the injected collector
|                                                |
+-- Deployment per Suggestion (gRPC) <--- DB manager <---+
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from katib.engine.controllers.assembly import Ports, Queues, assemble
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.ledger import creation_second
from katib.engine.controllers.metrics import ControllerMetrics
from katib.engine.controllers.ports import EventRecorder, PodUpdate
from katib.engine.controllers.retention import Retention
from katib.engine.controllers.settings import RETENTION_COMPLAINT, RETENTION_SECONDS, ControllerSettings
from katib.engine.controllers.trial.jobs import Jobs
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import Startable
from katib.engine.runtime.objects import Kind, Object
from katib.engine.runtime.periodic import PeriodicTasks
from katib.errors import FieldError
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.job_kinds import nested, suspended_at
from katib.model.names import ALGORITHM_ANNOTATION
from katib.model.types import Experiment, Trial
from katib.places.cluster.configuration.source import ConfigSource
from katib.places.cluster.leader.stores import LeaderStores
from katib.places.cluster.leader.stray_jobs import StrayJobs
from katib.places.cluster.leader.trial_logs import DbManagerTrialLogs
from katib.places.cluster.pods.missed import FindTrial, MissedPods
from katib.places.cluster.pods.reading import TrialPodCache
from katib.places.cluster.pods.refusals import ListEvents, Refusals
from katib.places.cluster.pods.repair import PERIOD_SECONDS, PodRepair
from katib.places.cluster.pods.starts import NOT_STARTING, SlowStarts
from katib.places.cluster.pods.workloads import Workloads
from katib.places.cluster.services.directory import ClusterServices
from katib.places.cluster.services.objects import LogEndpoint
from katib.service.tuning.editing import suspend_experiment
from katib.wire.rpc.db_manager_client import DbManagerClient
from metrics_collector.uncollected import UncollectedTrials

CLUSTER_SETTINGS = ControllerSettings(
    discards_before_start=True, explanation_seconds=3.0, summary_interval_seconds=0.5, workers=8
)
"""For a store across a network: more workers, which mostly wait, and fewer writes of counts.

Readings outlive a job that a user deletes.
"""

_SYNC_SECONDS = 10.0
"""Timeout for the list of pods that missed their collector, which precedes judging trials.

A controller without the right to list pods works without it.
"""


OBSERVATION_CALLS = 8
"""Concurrent calls of the DB manager: its own limit, less the collectors' share."""


_KEPT = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "ownerReferences",
    "annotations",
    "deletionTimestamp",
    "finalizers",
)
"""Metadata fields kept of another kind's object."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies of the leader.

    Attributes:
        db_manager: Client of the observation log, with the rights of each namespace's controller.
        log_place: The same log, as early stopping services reach it.
        check: Returns the errors of an experiment that no webhook has checked.
        find_trial: Finds the trial among a pod's owners.
        serves: Whether the cluster serves a kind now.
        grpc_probes: Whether containers of services get gRPC probes.
        has_optimization_jobs: Whether the cluster serves OptimizationJobs.
    """

    stores: LeaderStores
    db_manager: DbManagerClient
    log_place: LogEndpoint
    list_events: ListEvents
    config: ConfigSource
    events: EventRecorder
    check: Callable[[Experiment], Sequence[FieldError]]
    find_trial: FindTrial
    metrics: ControllerMetrics
    clock: Clock
    serves: Callable[[Kind], bool]
    grpc_probes: bool = False
    has_optimization_jobs: bool = False
    settings: ControllerSettings = CLUSTER_SETTINGS


@contextmanager
def leading(dependencies: Dependencies) -> Iterator[None]:
    """Run the leader's components for as long as the context lasts.

    Raises (on entering):
        UnavailableError: The API server does not answer.
    """
    stores = dependencies.stores
    with ExitStack() as stack:
        caches = Caches.of(
            stores.main,
            [],
            dependencies.clock,
            decode_experiment=decode_experiment,
            decode_job=judged_part,
            follows_new_jobs=True,
            job_store=stores.jobs,
            shows_labelled_jobs=True,
            order_of=creation_second,
            offered=stores.offered,
            has_optimization_jobs=dependencies.has_optimization_jobs,
        )
        dependencies.metrics.follow(caches)
        strays = StrayJobs(stores.unlabelled_jobs, caches.jobs, dependencies.clock)
        pods = TrialPodCache(stores.main, dependencies.clock)
        missed = MissedPods(stores.missed_pods, dependencies.find_trial, dependencies.clock)
        repair = PodRepair(
            store=stores.all_pods,
            trials=caches.trials,
            missed=missed,
            events=dependencies.events,
            clock=dependencies.clock,
        )
        refusals = Refusals(
            trials=caches.trials,
            pods=pods,
            missed=missed,
            find_job=Jobs(stores.main, caches.jobs).find,
            find_trial=dependencies.find_trial,
            list_events=dependencies.list_events,
            clock=dependencies.clock,
        )
        starts = SlowStarts(caches.trials, pods, dependencies.list_events, dependencies.clock)
        workloads = Workloads(stores.main, dependencies.serves, dependencies.clock)
        caches.trials.add_handler(pods.follow)
        services = ClusterServices(
            stores.main,
            suggestion_of=caches.suggestions.get,
            config=dependencies.config,
            db_manager=dependencies.log_place,
            grpc_probes=dependencies.grpc_probes,
            all_pods=stores.all_pods,
            clock=dependencies.clock,
        )
        logs = DbManagerTrialLogs(dependencies.db_manager, dependencies.config, caches.suggestions.get, stores.leads)
        queues = Queues.of(dependencies.clock)
        # Its threads wait for the DB manager in place of the workers; a hanging call is not waited for at the end.
        log_pool = ThreadPoolExecutor(OBSERVATION_CALLS, thread_name_prefix="observations")
        stack.callback(log_pool.shutdown, wait=False, cancel_futures=True)
        manager = assemble(
            stores.main,
            caches,
            queues,
            Ports(
                services=services,
                logs=logs,
                given_rules=lambda: UncollectedTrials(dependencies.db_manager),
                log_pool=log_pool,
                events=dependencies.events,
                check=dependencies.check,
                pods=_ClusterPods(pods, repair, refusals, starts, workloads),
                suspend=partial(suspend_experiment, stores.main),
                is_ours=lambda job: ALGORITHM_ANNOTATION in job.metadata.annotations,  # Trainer may have a controller
            ),
            dependencies.clock,
            settings=dependencies.settings,
        )
        services.on_change(queues.wake_suggestion)
        pods.on_change(queues.trials.add)
        strays.on_found(queues.trials.add)
        refusals.on_change(queues.trials.add)
        starts.on_change(queues.trials.add)
        workloads.on_change(queues.trials.add)
        looks = (repair.look, refusals.look, starts.look, workloads.look)
        care = PeriodicTasks("pods", looks, PERIOD_SECONDS, dependencies.clock, complaint="Pods not checked")
        missed.on_new(care.wake)
        stack.callback(services.close)
        services.start()
        _keep_logs(stack, dependencies, caches, logs)
        _run(stack, strays)
        _run(stack, workloads)
        _run(stack, pods.informer)  # not waited for: pods only add explanations
        _run(stack, missed.informer)
        missed.informer.wait_for_sync(_SYNC_SECONDS)  # without a leader, a pod may have run and ended unnoticed
        _run(stack, manager)
        _run(stack, care)
        yield


def _keep_logs(stack: ExitStack, dependencies: Dependencies, caches: Caches, logs: TrialLogs) -> None:
    """Remove the logs of completed trials, as configured."""
    config, clock = dependencies.config, dependencies.clock
    look = Retention(
        caches.experiments.all, caches.trials.all, logs, lambda: config().runtime.metrics_retention, clock
    ).look
    _run(stack, PeriodicTasks("retention", [look], RETENTION_SECONDS, clock, complaint=RETENTION_COMPLAINT))


def _run(stack: ExitStack, part: Startable) -> None:
    """Start a component, and stop it when the stack ends."""
    part.start()
    stack.callback(part.stop)


@dataclass(frozen=True, slots=True)
class _ClusterPods:
    """State of a trial's pods. Implements `katib.engine.controllers.ports.PodWatcher`.

    Attributes:
        starts: Why a pod does not start.
        workloads: Why the job waits in a queue.
    """

    pods: TrialPodCache
    repair: PodRepair
    refusals: Refusals
    starts: SlowStarts
    workloads: Workloads

    def update_of(self, trial: Trial) -> PodUpdate:
        update, starts = self.pods.update_of(trial), self.starts.of(trial)
        return replace(
            update,
            waiting=update.waiting or starts,
            is_trouble=bool(update.waiting) or NOT_STARTING in starts,
            uncollected=self.repair.uncollected(trial),
            refusal=self.refusals.of(trial),
            queued=self.workloads.words_of(trial),
        )

    def is_ending(self, trial: Trial) -> bool:
        """Return whether a pod of a trial may still run: most jobs end before their pods."""
        return self.pods.is_any_active(trial)

    def has_queues(self) -> bool:
        return self.workloads.are_served()


def judged_part(job: Object) -> Object:
    """Return the part of a job that the controllers use: identity, owner, whether it is suspended, and status.

    Of a job without a Trial as owner, the identity only.
    """
    metadata = job["metadata"]
    owners = metadata.get("ownerReferences") or ()
    kept = {key: metadata[key] for key in _KEPT if key in metadata}
    if not any(owner.get("kind") == "Trial" for owner in owners):
        return {"metadata": {key: kept[key] for key in ("name", "namespace", "uid") if key in kept}}
    part = {"apiVersion": job.get("apiVersion", ""), "kind": job.get("kind", ""), "metadata": kept}
    if path := suspended_at(job):
        part = {**part, **nested(path, True)}
    return {**part, "status": job["status"]} if "status" in job else part


def decode_experiment(obj: Object) -> Experiment:
    """Return an experiment with defaults, even if no webhook has filled them in."""
    return with_defaults(decode_stored(obj))
