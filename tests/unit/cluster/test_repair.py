"""Pods that missed their collector are replaced; all others are left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind
from katib.errors import ForbiddenError, UnavailableError
from katib.model.names import TRIAL_FINALIZER, TRIAL_LABEL
from katib.model.types import Trial
from katib.places.cluster.pods.missed import MissedPod, MissedPods, concerns, missed_pod
from katib.places.cluster.pods.owners import TrialFinder
from katib.places.cluster.pods.reading import POD
from katib.places.cluster.pods.repair import PAUSES_SECONDS, SETTLING_SECONDS, PodRepair, RepairAction, remedy_for
from tests.support.clock import VirtualClock
from tests.support.controllers import JOB, RecordedEvents
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.planning import holding, trial
from tests.support.waiting import eventually

DEMO = Key("default", "demo-1")
STRANGER = Kind("example.com/v1", "Stranger")


class Place:
    """A store with one trial and its job, and the repair over it."""

    def __init__(self) -> None:
        self.memory = MemoryStore({TRIAL, JOB})
        self.refused: dict[tuple[str, Kind], Exception] = {}
        self.reads: list[Key | None] = []
        self.store = FaultyStore(self.memory, self._fault)
        self.trials: Informer[Trial] = Informer(self.memory, TRIAL, Trial.decode)
        self.events = RecordedEvents()
        finder = TrialFinder(self.store, SystemClock())
        self.missed = MissedPods(
            self.memory, lambda pod, namespace: finder.trial_of(pod, namespace, patient=True), SystemClock()
        )
        self.clock = VirtualClock()
        self.repair = PodRepair(
            store=self.store, trials=self.trials, missed=self.missed, events=self.events, clock=self.clock
        )

    def begin(self, **trial: Any) -> None:
        """Add the trial and its job, with a pod that missed its collector."""
        self.add_trial(**trial)
        self.add_job()
        self.add_pod()

    def add_trial(
        self, *, collector: str = "StdOut", state: str = "Running", primary_container_name: str = "main", **spec: Any
    ) -> None:
        spec["primary_container_name"] = primary_container_name
        made = trial("demo-1", holding(state), run_spec={"apiVersion": "batch/v1", "kind": "Job"}, **spec)
        status = structs.replace(made.status, start_time=datetime.now(UTC) - timedelta(seconds=60))
        body = {**made.encode()["spec"], "metricsCollector": {"collector": {"kind": collector}}}
        metadata = {"name": "demo-1", "namespace": "default", "finalizers": [TRIAL_FINALIZER]}
        stored = self.memory.create({**made.encode(), "metadata": metadata, "spec": body})
        self.memory.update_status({**stored, "status": status.encode()})
        eventually(lambda: any(t.status.start_time for t in self.trials.all()))

    @property
    def trial(self) -> Trial:
        return Trial.decode(self.memory.get(TRIAL, DEMO))

    def add_job(self, **spec: Any) -> None:
        owner = reference(TRIAL, "demo-1", self.memory.get(TRIAL, DEMO)["metadata"]["uid"])
        metadata = {"name": "demo-1", "namespace": "default", "ownerReferences": [owner]}
        self.memory.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    def add_pod(self, name: str = "p", *, phase: str = "Running", **labels: str) -> None:
        owner = reference(JOB, "demo-1", self.memory.get(JOB, DEMO)["metadata"]["uid"])
        self.memory.create(a_pod(name, owner, phase=phase, labels=labels))
        eventually(lambda: self.missed.informer.get(Key("default", name)))

    def add_foreign_pods(self, count: int) -> None:
        for n in range(count):
            metadata = {"name": f"s-{n}", "namespace": "default"}
            owner = self.memory.create(
                {"apiVersion": STRANGER.api_version, "kind": STRANGER.kind, "metadata": metadata}
            )
            self.memory.create(a_pod(f"foreign-{n}", reference(STRANGER, f"s-{n}", owner["metadata"]["uid"])))
        eventually(lambda: len(self.missed.informer.all()) >= count)

    def look_later(self) -> None:
        """Look when every pause is over."""
        self.clock.advance(max(PAUSES_SECONDS))
        self.repair.look()

    def has_job(self) -> bool:
        return bool(self.memory.list(JOB).items)

    def pods(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.memory.list(POD).items}

    def _fault(self, call: Call) -> BaseException | None:
        if call.before and call.verb == "get":
            self.reads.append(call.key)
        return self.refused.get((call.verb, call.kind)) if call.before else None


def reference(kind: Kind, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid, "controller": True}


def a_pod(
    name: str, owner: Mapping[str, Any], *, phase: str = "Running", labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": dict(labels or {}), "ownerReferences": [owner]}
    spec = {"containers": [{"name": "main", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    made.trials.start()
    made.missed.informer.start()
    yield made
    made.trials.stop()
    made.missed.informer.stop()


@pytest.mark.parametrize("collector", ["StdOut", "Custom", "Push"])
def test_a_job_whose_pod_has_no_collector_is_restarted(place: Place, collector: str) -> None:
    place.begin(collector=collector)
    place.repair.look()

    assert not place.has_job()
    assert place.events.reasons() == {"PodWithoutCollector"}


def test_what_the_old_job_says_counts_no_more_once_it_is_to_be_restarted(place: Place) -> None:
    """A trial is judged from a cache, which may show the old job for a moment."""
    place.begin()
    place.repair.look()
    at_once = place.repair.uncollected(place.trial)
    place.clock.advance(SETTLING_SECONDS)

    assert at_once is not None
    assert not at_once.is_final
    assert place.repair.uncollected(place.trial) is None


def test_only_the_pod_is_replaced_where_its_job_makes_another_one(place: Place, golden: Golden) -> None:
    place.add_trial()
    place.add_job(completions=3, parallelism=3)
    place.add_pod("collected", **{TRIAL_LABEL: "demo-1"})
    place.add_pod("missed")
    place.repair.look()

    assert place.has_job()
    assert place.pods() == {"collected"}
    ((_, _, message),) = place.events.events
    golden(message)
    job = place.memory.get(JOB, DEMO)
    place.memory.update({**job, "spec": {**job["spec"], "backoffLimit": 0}})
    place.add_pod("missed-too")
    place.look_later()

    assert not place.has_job()


@pytest.mark.parametrize("case", ["collected", "side step", "worker", "failed", "over", "no pod"])
def test_all_others_are_left_alone(place: Place, case: str) -> None:
    place.add_trial(
        state="Succeeded" if case == "over" else "Running",
        primary_container_name="another" if case == "side step" else "main",
        primary_pod_labels={"role": "master"} if case == "worker" else {},
    )
    place.add_job()
    if case != "no pod":
        labels = {TRIAL_LABEL: "demo-1"} if case == "collected" else {}
        place.add_pod(phase="Failed" if case == "failed" else "Running", **labels)
    place.repair.look()

    assert place.has_job()
    assert not place.events.events
    assert place.repair.uncollected(place.trial) is None


def test_a_job_is_restarted_only_so_often_and_then_its_trial_says_what_it_was(place: Place, golden: Golden) -> None:
    place.add_trial()
    told = []
    for number in range(len(PAUSES_SECONDS) + 2):
        if not place.has_job():
            place.add_job()
            place.add_pod(f"p{number}")
        told.append(place.repair.uncollected(place.trial))
        place.look_later()

    assert place.has_job()
    assert len(place.events.events) == len(PAUSES_SECONDS)
    assert [one is not None and one.is_final for one in told] == [False] * len(PAUSES_SECONDS) + [True] * 2
    assert told[-1] is not None
    golden(told[-1].message)


def test_the_webhook_is_given_time_before_a_job_is_restarted_again(place: Place) -> None:
    place.add_trial()
    runs = 0
    for number in range(12):
        if not place.has_job():
            runs += 1
            place.add_job()
            place.add_pod(f"p{number}")
        place.repair.look()
        place.clock.advance(1)

    assert runs == 3
    assert place.has_job()


def test_an_api_server_that_does_not_answer_counts_as_no_try(place: Place) -> None:
    place.begin()
    place.refused["delete", JOB] = UnavailableError("away")
    for _ in range(len(PAUSES_SECONDS) + 1):
        with pytest.raises(UnavailableError):
            place.repair.look()
    place.refused.clear()
    place.repair.look()

    assert not place.has_job()


def test_a_right_that_is_missing_ends_the_tries_and_holds_no_trial_forever(place: Place) -> None:
    place.begin()
    place.refused["delete", JOB] = ForbiddenError("no")
    for _ in PAUSES_SECONDS:
        place.look_later()
    found = place.repair.uncollected(place.trial)

    assert found is not None
    assert found.is_final


def test_each_foreign_pod_is_looked_up_once(place: Place) -> None:
    place.add_trial()
    place.add_job()
    place.add_foreign_pods(100)
    for _ in range(10):
        place.repair.look()
        place.repair.uncollected(place.trial)

    assert len(place.reads) == 100


def test_pods_of_a_kind_that_may_not_be_read_are_not_asked_for_again_and_again(place: Place) -> None:
    place.add_trial()
    place.add_job()
    place.refused["get", STRANGER] = ForbiddenError("no")
    place.add_foreign_pods(100)
    for _ in range(10):
        place.repair.look()

    assert len(place.reads) == 1


def test_foreign_pods_cost_no_request_while_no_trial_runs_beside_them(place: Place) -> None:
    place.add_trial(state="Succeeded")
    place.add_foreign_pods(20)
    place.repair.look()

    assert place.reads == []


def job(*, owner: str = "uid-trial", failed: int = 0, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "j", "ownerReferences": [{"uid": owner}]}
    return {"metadata": metadata, "spec": spec, "status": {"failed": failed}}


@pytest.mark.parametrize(
    ("maker", "phase", "remedy"),
    [
        pytest.param(job(), "Running", RepairAction.RESTART, id="one pod"),
        pytest.param(job(completions=2), "Running", RepairAction.REPLACE_POD, id="completions"),
        pytest.param(job(parallelism=4), "Pending", RepairAction.REPLACE_POD, id="parallelism"),
        pytest.param(job(completions=2), "Succeeded", RepairAction.RESTART, id="it is done"),
        pytest.param(job(completions=2, backoffLimit=0), "Running", RepairAction.RESTART, id="no retry"),
        pytest.param(job(completions=2, backoffLimit=1, failed=1), "Running", RepairAction.RESTART, id="no retry left"),
        pytest.param(
            job(completions=2, backoffLimitPerIndex=1), "Running", RepairAction.RESTART, id="retries per index"
        ),
        pytest.param(
            job(completions=2, podFailurePolicy={"rules": [{}]}), "Running", RepairAction.RESTART, id="failure policy"
        ),
        pytest.param(job(owner="a-job-set"), "Running", RepairAction.REPLACE_POD, id="one of several jobs"),
        pytest.param(None, "Running", RepairAction.RESTART, id="another operator's"),
    ],
)
def test_what_is_done_about_a_pod(maker: dict[str, Any] | None, phase: str, remedy: RepairAction) -> None:
    assert remedy_for(MissedPod(DEMO, "u", owners=({"uid": "j"},), phase=phase), maker, "uid-trial") is remedy


def test_a_pod_that_is_being_deleted_is_no_concern() -> None:
    going = a_pod("p", reference(JOB, "j", "u"))
    going["metadata"] |= {"uid": "p", "deletionTimestamp": "2024-05-01T12:00:00Z"}

    assert not concerns(missed_pod(going), trial("demo-1", primary_container_name="main"))
