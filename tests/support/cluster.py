"""A cluster for the tuning service: a store, and a stand-in for everything that works on its objects.

`StandIn` plays the controllers, the kubelet and the collector: trials, pods and events are real objects of the store,
readings go to a real observation log. It runs nothing; what a container would have printed is given by the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import ConflictError, FieldError, InvalidError, NotFoundError
from katib.model.metrics import MetricLog
from katib.model.names import EXPERIMENT_LABEL, TRIAL_LABEL
from katib.places.cluster.access.events import ClusterEventReader, server_events
from katib.places.cluster.access.facts import KatibComponents
from katib.places.cluster.access.metrics import MetricsAccess
from katib.places.cluster.access.tuning_service import ClusterNamespaces, ServingHome, make_tuning_service
from katib.places.cluster.pods.logs import ClusterOutput
from katib.places.cluster.pods.reading import POD
from katib.places.cluster.pods.refusals import ListEvents
from katib.places.cluster.services.plan import DEPLOYMENT
from katib.places.cluster.store import KubernetesStore
from katib.service.tuning.ports import Part
from katib.service.tuning.service import Json, TuningService
from katib.wire.rpc.db_manager import serve_db_manager
from katib.wire.rpc.db_manager_client import DbManagerClient
from tests.support.api_server import ApiServer
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.observations import MemoryObservationLog
from tests.support.tuning import condition
from tests.support.waiting import eventually

EVENT = Kind("v1", "Event")
JOB = Kind("batch/v1", "Job")
NAMESPACES = ("team", "empty")
CORE = "kubeflow"


def memory_cluster() -> MemoryStore:
    """Return an empty store in memory that knows which kinds of a cluster have a status of their own."""
    kinds = (EXPERIMENT, TRIAL, Kind(EXPERIMENT.api_version, "Suggestion"), JOB, POD, DEPLOYMENT)
    return MemoryStore(kinds)


def said(type_: str, reason: str = "", message: str = "") -> Json:
    """Return a condition that holds, with a message: some API servers take an empty text for none at all."""
    return condition(type_, reason, message or f"It is {type_}")


class KeptLogs:
    """The logs of containers as the test wrote them. Fits `katib.places.cluster.pods.logs.OpenLog`."""

    def __init__(self) -> None:
        self.written: dict[tuple[Key, str], bytes] = {}

    def __call__(self, pod: Key, container: str, part: Part) -> KeptLog:
        if (pod, container) not in self.written:
            cause = f'container "{container}" is waiting to start: ContainerCreating'
            raise InvalidError([FieldError(f"pods/log {pod}", cause, "change it accordingly", "bad-request")])
        lines = self.written[pod, container].splitlines(keepends=True)
        return KeptLog(lines if part.tail_lines is None else lines[max(0, len(lines) - part.tail_lines) :])


class KeptLog:
    """One log."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines

    def chunks(self) -> Iterator[bytes]:
        yield from self._lines

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class ClusterWorld:
    """A tuning service over a cluster, and who works on its objects."""

    service: TuningService
    stand_in: StandIn
    faults: dict[Kind, Exception] = field(default_factory=dict)
    """What reads of a kind by the service meet, in a world in memory."""


def no_forward(_pod: Key, _port: int) -> NoReturn:
    raise AssertionError("the DB manager is at hand")


class StandIn:
    """Plays what a cluster would do."""

    def __init__(self, store: ObjectStore, log: DbManagerClient | MemoryObservationLog, logs: KeptLogs) -> None:
        self.store = store
        self.log = log
        self.logs = logs

    def play(self, namespace: str, name: str) -> None:
        """Run an experiment to its end: one trial after the other, with losses 0.5, 0.4 and so on."""
        experiment = self.store.get(EXPERIMENT, Key(namespace, name))
        limit = experiment["spec"]["maxTrialCount"]
        for index in range(limit):
            value = f"{0.5 - 0.1 * index:.1f}"
            trial = self.start_trial(experiment, f"{name}-{index:04d}", value)
            pod = self.add_pod(trial, phase="Succeeded")
            self.logs.written[Key.of(pod), "main"] = f"starting\nloss={value}\n".encode()
            self.log.report(Key.of(trial).name, [MetricLog(datetime.now(UTC), "loss", value)])
            self.end_trial(trial, said("Succeeded", "TrialSucceeded"), loss=value)
            self.add_event(trial, "JobSucceeded", f"Job {Key.of(trial).name} has succeeded")
            ends = [said("Succeeded", "ExperimentMaxTrialsReached")] if index == limit - 1 else []
            self._sum_up(experiment, index + 1, f"{name}-{index:04d}", ends)

    def start_trial(self, experiment: Object, name: str, value: str = "0.5", **spec: Any) -> Object:
        """Create a trial that runs."""
        metadata = experiment["metadata"]
        owner = {"apiVersion": EXPERIMENT.api_version, "kind": "Experiment", "name": metadata["name"]}
        trial = self.store.create(
            {
                "apiVersion": TRIAL.api_version,
                "kind": "Trial",
                "metadata": {
                    "name": name,
                    "namespace": metadata["namespace"],
                    "labels": {EXPERIMENT_LABEL: metadata["name"]},
                    "ownerReferences": [{**owner, "uid": metadata["uid"], "controller": True}],
                },
                "spec": {
                    "objective": experiment["spec"]["objective"],
                    "parameterAssignments": [{"name": "x", "value": value}],
                    "primaryContainerName": "main",
                    "runSpec": {"apiVersion": "batch/v1", "kind": "Job"},
                    "metricsCollector": {"collector": {"kind": "StdOut"}},
                    **spec,
                },
            }
        )
        return self.set_status(trial, {"conditions": [said("Created"), said("Running", "TrialRunning")]})

    def end_trial(self, trial: Object, end: Json, *, loss: str = "") -> Object:
        """Give a trial its end."""
        status: Json = {"conditions": [said("Created"), said("Running", "TrialRunning"), end]}
        status["startTime"] = status["completionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if loss:
            status["observation"] = {"metrics": [{"name": "loss", "min": loss, "max": loss, "latest": loss}]}
        return self.set_status(trial, status)

    def add_pod(
        self, owner: Object, name: str = "", *, labels: Mapping[str, str] | None = None, **status: Any
    ) -> Object:
        """Create a pod of a trial, which no scheduler looks at, with this status."""
        key = Key.of(owner)
        experiment = (owner["metadata"].get("labels") or {}).get(EXPERIMENT_LABEL, "")
        pod = self.store.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name or f"{key.name}-pod",
                    "namespace": key.namespace,
                    "labels": {TRIAL_LABEL: key.name, EXPERIMENT_LABEL: experiment} if labels is None else dict(labels),
                    "ownerReferences": [
                        {
                            "apiVersion": owner["apiVersion"],
                            "kind": owner["kind"],
                            "name": key.name,
                            "uid": owner["metadata"]["uid"],
                        }
                    ],
                },
                "spec": {
                    "schedulerName": "none",
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "main", "image": "none"}],
                },
            }
        )
        return self.set_status(pod, status)

    def set_status(self, obj: Object, status: Json) -> Object:
        """Write the status of an object."""
        while True:
            stored = self.store.get(Kind.of(obj), Key.of(obj))
            with suppress(ConflictError):
                return self.store.update_status({**stored, "status": status})

    def add_event(self, about: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event."""
        key, now = Key.of(about), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.store.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{key.name}.", "namespace": key.namespace},
                "involvedObject": {
                    "apiVersion": about["apiVersion"],
                    "kind": about["kind"],
                    "namespace": key.namespace,
                    "name": key.name,
                    "uid": about["metadata"].get("uid", ""),
                },
                "type": "Warning" if warning else "Normal",
                "reason": reason,
                "message": message,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
            }
        )

    def _sum_up(self, experiment: Object, done: int, best: str, ends: list[Json]) -> None:
        trial = self.store.get(TRIAL, Key(experiment["metadata"]["namespace"], best))
        self.set_status(
            experiment,
            {
                "conditions": [said("Created"), said("Running"), *ends],
                "trials": done,
                "trialsSucceeded": done,
                "currentOptimalTrial": {
                    "bestTrialName": best,
                    "parameterAssignments": trial["spec"]["parameterAssignments"],
                    "observation": trial["status"]["observation"],
                },
            },
        )


def events_in(store: ObjectStore) -> ListEvents:
    """Return a way to list the events of a store as an API server would."""

    def list_events(namespace: str, fields: Mapping[str, str]) -> Iterator[Object]:
        for event in store.list(EVENT, namespace).items:
            if all(event["involvedObject"].get(name.partition(".")[2]) == value for name, value in fields.items()):
                yield event

    return list_events


@contextmanager
def open_world(
    store: ObjectStore,
    events: ListEvents,
    scoped: Callable[[str], ObjectStore] | None = None,
    home: ServingHome | None = None,
) -> Iterator[ClusterWorld]:
    """Give a tuning service over a store, with a DB manager of its own."""
    with ExitStack() as stack:
        server = serve_db_manager(MemoryObservationLog(), "127.0.0.1:0")
        stack.callback(lambda: server.stop(0))
        log = DbManagerClient(server.address)
        stack.callback(log.close)
        logs = KeptLogs()
        core = KatibComponents(CORE, store)
        service = make_tuning_service(
            store,
            stack.enter_context(MetricsAccess(server.address, store, CORE, no_forward, SystemClock())),
            ClusterEventReader(events, store),
            ClusterOutput(store, logs),
            ClusterNamespaces(store, "default", core, scoped),
            home or ServingHome(),
            core,
            SystemClock(),
        )
        yield ClusterWorld(service, StandIn(store, log, logs))


@contextmanager
def memory_world(home: ServingHome | None = None) -> Iterator[ClusterWorld]:
    """Give a cluster in memory; `home` plays what its API server says of experiments."""
    store = memory_cluster()
    faults: dict[Kind, Exception] = {}
    faulty = FaultyStore(store, lambda call: faults.get(call.kind) if call.verb in {"get", "list"} else None)
    with open_world(faulty, events_in(store), home=home) as world:
        yield replace(world, stand_in=StandIn(store, world.stand_in.log, world.stand_in.logs), faults=faults)


@contextmanager
def server_world(server: ApiServer) -> Iterator[ClusterWorld]:
    """Give an API server that has our kinds and no experiments."""
    if not server.owned:
        pytest.skip("needs an API server of its own: unset KUBECONFIG and set KUBEBUILDER_ASSETS")
    server.settle()
    for name in NAMESPACES:
        server.namespace(name)
    connection = server.admin
    store = KubernetesStore(connection)
    _clear(store)
    with open_world(store, server_events(connection), lambda ns: KubernetesStore(connection, namespace=ns)) as world:
        yield world
    _clear(store)


def _clear(store: ObjectStore) -> None:
    """Delete all experiments and trials, and the pods of tests, and wait until they are gone.

    Their finalizers go too: the controllers of other tests, which might have waited for them, are there no more.
    """

    def is_clear() -> bool:
        for kind, key in (left := [*_objects(store)]):
            with suppress(NotFoundError, ConflictError):
                store.delete(kind, key)
                store.patch(store.get(kind, key), {"metadata": {"finalizers": None}})
        return not left

    eventually(is_clear, "the objects of the last test to be gone", every=0.05, picture=lambda: str([*_objects(store)]))


def _objects(store: ObjectStore) -> Iterator[tuple[Kind, Key]]:
    for kind in (EXPERIMENT, TRIAL):
        yield from ((kind, Key.of(obj)) for obj in store.list(kind).items)
    for namespace in NAMESPACES:
        yield from ((POD, Key.of(obj)) for obj in store.list(POD, namespace).items)
