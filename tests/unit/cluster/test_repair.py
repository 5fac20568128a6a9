"""Jobs whose pods missed their collector run anew; all others are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from katib.api.names import TRIAL_FINALIZER
from katib.api.types import Trial
from katib.cluster.pods.owners import TrialFinder
from katib.cluster.pods.reading import TrialPods
from katib.cluster.pods.repair import MAX_RERUNS, PodRepair
from katib.controllers.kinds import TRIAL
from katib.runtime.clock import SystemClock
from katib.runtime.informer import Informer
from katib.runtime.objects import Key
from katib.stores.memory import MemoryStore
from tests.support.controllers import JOB, RecordedEvents
from tests.support.planning import holding, trial
from tests.support.stores import eventually


class Place:
    """A store with one trial and its job, and the repair over it."""

    def __init__(self) -> None:
        self.store = MemoryStore({TRIAL, JOB})
        self.trials: Informer[Trial] = Informer(self.store, TRIAL, Trial.decode)
        self.pods = TrialPods(self.store, SystemClock())
        self.events = RecordedEvents()
        self.repair = PodRepair(
            store=self.store,
            trials=self.trials,
            pods=self.pods,
            find_trial=TrialFinder(self.store, SystemClock()).trial_of,
            events=self.events,
            clock=SystemClock(),
        )

    def add_trial(self, *, age_seconds: float = 60.0, collector: str = "StdOut") -> None:
        made = trial("demo-1", holding("Running"), run_spec={"apiVersion": "batch/v1", "kind": "Job"})
        status = made.status.model_copy(update={"start_time": datetime.now(UTC) - timedelta(seconds=age_seconds)})
        spec = {**made.encode()["spec"], "metricsCollector": {"collector": {"kind": collector}}}
        metadata = {"name": "demo-1", "namespace": "default", "finalizers": [TRIAL_FINALIZER]}
        stored = self.store.create({**made.encode(), "metadata": metadata, "spec": spec})
        self.store.update_status({**stored, "status": status.encode()})
        eventually(lambda: any(t.status.start_time for t in self.trials.all()))

    def add_job(self) -> None:
        uid = self.store.get(TRIAL, Key("default", "demo-1"))["metadata"]["uid"]
        owner = {"apiVersion": TRIAL.api_version, "kind": TRIAL.kind, "name": "demo-1", "uid": uid}
        metadata = {"name": "demo-1", "namespace": "default", "ownerReferences": [owner]}
        self.store.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata})

    def add_pod(self, **labels: str) -> None:
        uid = self.store.get(JOB, Key("default", "demo-1"))["metadata"]["uid"]
        owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "demo-1", "uid": uid}]
        metadata: dict[str, Any] = {"name": "p", "namespace": "default", "labels": labels, "ownerReferences": owners}
        self.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        if labels:
            eventually(lambda: self.pods.has_pods(Key("default", "demo-1")))

    def has_job(self) -> bool:
        return bool(self.store.list(JOB).items)


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    made.trials.start()
    made.pods.informer.start()
    yield made
    made.trials.stop()
    made.pods.informer.stop()


def test_a_job_whose_pod_has_no_collector_runs_anew(place: Place) -> None:
    place.add_trial()
    place.add_job()
    place.add_pod()
    place.repair.look()

    assert not place.has_job()
    assert place.events.reasons() == {"PodWithoutCollector"}


@pytest.mark.parametrize("case", ["collected", "young", "push", "no pod"])
def test_all_others_are_left_alone(place: Place, case: str) -> None:
    place.add_trial(age_seconds=1 if case == "young" else 60, collector="Push" if case == "push" else "StdOut")
    place.add_job()
    if case != "no pod":
        place.add_pod(**({"katib.kubeflow.org/trial": "demo-1"} if case == "collected" else {}))
    place.repair.look()

    assert place.has_job()
    assert not place.events.events


def test_a_job_is_run_anew_only_so_often(place: Place) -> None:
    place.add_trial()
    for _ in range(MAX_RERUNS + 2):
        if not place.has_job():
            place.add_job()
            place.add_pod()
        place.repair.look()

    assert place.has_job()
    assert len(place.events.events) == MAX_RERUNS
