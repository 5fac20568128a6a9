"""What only the leader does: caches, controllers, suggestion services, and the watch over pods.

Experiment -> controllers -> Trial -> Job (any kind) -> pods with the injected collector
|                                                |
+-- Deployment per Suggestion (gRPC) <--- DB manager <---+
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from katib.api.types import Experiment, Trial
from katib.cluster.leader.caches import decode_experiment, judged_part
from katib.cluster.monitoring.metrics import ControllerMetrics
from katib.cluster.pods.reading import TrialPods
from katib.cluster.pods.repair import FindTrial, PodRepair
from katib.configuration.source import ConfigSource
from katib.controllers.assembly import Assembly, Caches, assemble
from katib.controllers.experiment.ledger import creation_second
from katib.controllers.ports import EventRecorder, ObservationLog
from katib.controllers.settings import ControllerSettings
from katib.controllers.trial_states import ACTIVE, state_of
from katib.errors import FieldError
from katib.runtime.clock import Clock
from katib.runtime.informer import InformerEvent
from katib.runtime.objects import Key, ObjectStore
from katib.services.cluster.catalog import ClusterCatalog
from katib.services.cluster.directory import ClusterServices

CLUSTER_SETTINGS = ControllerSettings(
    discards_before_start=True, explanation_seconds=3.0, summary_interval_seconds=0.5, workers=8
)
"""A store across a network: more workers, for they mostly wait, and fewer writes of counts. Readings outlive a job that
somebody deletes by hand."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the leader works with.

    Attributes:
        store: Where objects are; refuses writes once we do not lead any more. Shows only pods that bear the label of a
            trial, and only Deployments and Services of suggestions.
        all_pods: The same store, but with every pod; what is deleted there goes at once.
        observations: The observation log.
        config: The KatibConfig in force.
        events: Told of notable moments.
        check: What is wrong with an experiment that no webhook has seen.
        find_trial: Walks the owners of a pod.
        metrics: Counts.
        db_manager_address: Where pods reach the DB manager.
        clock: Where time is measured.
        grpc_probes: Whether the cluster's kubelets know gRPC probes.
        settings: Knobs of the controllers.
    """

    store: ObjectStore
    all_pods: ObjectStore
    observations: ObservationLog
    config: ConfigSource
    events: EventRecorder
    check: Callable[[Experiment], Sequence[FieldError]]
    find_trial: FindTrial
    metrics: ControllerMetrics
    clock: Clock
    db_manager_address: str
    grpc_probes: bool = False
    settings: ControllerSettings = CLUSTER_SETTINGS


class Leading:
    """The leader's part of a controller; a context manager, entered once.

    Raises (on entering):
        UnavailableError: The API server does not answer.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._running = ExitStack()

    def __enter__(self) -> Self:
        around = self._around
        with ExitStack() as stack:
            caches = Caches.of(
                around.store,
                [],
                around.clock,
                decode_experiment=decode_experiment,
                decode_job=judged_part,
                follows_new_jobs=True,
                order_of=creation_second,
            )
            around.metrics.follow(caches)
            pods = TrialPods(around.store, around.clock)
            caches.trials.add_handler(lambda event: _forget_ended(event, pods))
            services = ClusterServices(
                around.store,
                suggestion_of=caches.suggestions.get,
                config=around.config,
                catalog=ClusterCatalog(around.config),
                db_manager_address=lambda: around.db_manager_address,
                grpc_probes=around.grpc_probes,
                all_pods=around.all_pods,
                clock=around.clock,
            )
            assembly = assemble(
                store=around.store,
                caches=caches,
                services=services,
                observations=around.observations,
                events=around.events,
                clock=around.clock,
                settings=around.settings,
                check=around.check,
                pods=pods,
            )
            services.on_change(lambda namespace, name: assembly.wake_suggestion(Key(namespace, name)))
            pods.on_change(assembly.wake_trial)
            stack.callback(services.close)
            services.start()
            self._start(stack, assembly, pods)
            self._repair(stack, caches, pods)
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._running.close()

    def _start(self, stack: ExitStack, assembly: Assembly, pods: TrialPods) -> None:
        pods.informer.start()  # not waited for: what pods say is an explanation, nothing is decided by its absence
        stack.callback(pods.informer.stop)
        assembly.manager.start()
        stack.callback(assembly.manager.stop)

    def _repair(self, stack: ExitStack, caches: Caches, pods: TrialPods) -> None:
        around = self._around
        repair = PodRepair(
            store=around.all_pods,
            trials=caches.trials,
            pods=pods,
            find_trial=around.find_trial,
            events=around.events,
            clock=around.clock,
        )
        repair.start()
        stack.callback(repair.stop)


def _forget_ended(event: InformerEvent[Trial], pods: TrialPods) -> None:
    if event.new is None or state_of(event.new) not in ACTIVE:
        pods.forget(event.key)
