"""Jobs that the caches do not follow, for they lack the label: they are judged, removed and forgotten all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import TRIAL
from katib.engine.controllers.trial import plan, reconciler
from katib.engine.controllers.trial.reconciler import stray_poll_seconds
from katib.engine.runtime.objects import EventType, Key, Kind, Object, ObjectList, ObjectStore, Watch, WatchEvent
from katib.errors import ExpiredError, UnavailableError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.names import JOB_LABEL
from katib.model.types import Trial
from katib.places.cluster.leader.leading import judged_part
from katib.places.cluster.leader.stray_jobs import StrayJobs
from tests.support.controllers import NAMESPACE, World, new_store
from tests.support.faulty_store import Call, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.stores import with_metadata
from tests.support.waiting import eventually

GADGET = Kind("example.org/v1", "Gadget")
KEY = Key(NAMESPACE, "mine")


def is_labelled(obj: Object) -> bool:
    return JOB_LABEL in (obj["metadata"].get("labels") or {})


class LabelledStore(FaultyStore):
    """Shows, lists and streams only what bears the label of jobs, as an API server does with a selector."""

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        for page in super().pages(kind, namespace, labels=labels):
            yield ObjectList(tuple(filter(is_labelled, page.items)), page.resource_version)

    def watch(self, kind: Kind, since: str) -> Watch:
        return LabelledWatch(super().watch(kind, since))


class LabelledWatch:
    """What loses its label is told as deleted."""

    def __init__(self, inner: Watch) -> None:
        self._inner = inner
        self._shown: set[str] = set()

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        while (event := self._inner.next(timeout_seconds)) is not None:
            uid = event.object["metadata"]["uid"]
            if is_labelled(event.object):
                self._shown.add(uid)
                return event
            if uid in self._shown:
                self._shown.discard(uid)
                return WatchEvent(EventType.DELETED, event.object)
        return None

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Cluster(World):
    """Controllers that follow only labelled jobs; `fail` may fail a look for the others."""

    def __init__(self, store: MemoryStore, fail: Callable[[], None] = lambda: None) -> None:
        self.direct = FaultyStore(store)
        self.surveys, self._fail = 0, fail
        super().__init__(
            store,
            through=lambda _store: self.direct,
            caches_of=lambda _store, clock: Caches.of(
                self.direct,
                [],
                clock,
                decode_job=judged_part,
                follows_new_jobs=True,
                job_store=LabelledStore(store),
                shows_labelled_jobs=True,
            ),
        )
        self.strays = StrayJobs(self._unlabelled, self.caches.jobs, self.clock)
        self.strays.on_found(lambda key: self.wake_trial(key.name))

    def _unlabelled(self, kind: Kind) -> Iterator[ObjectList]:
        self.surveys += 1
        for page in self.store.pages(kind):
            self._fail()
            items = [{"metadata": obj["metadata"]} for obj in page.items if not is_labelled(obj)]
            yield ObjectList(tuple(items), page.resource_version)

    def __enter__(self) -> Self:
        self.strays.start()
        self.caches.jobs.follow(GADGET)
        eventually(lambda: self.caches.jobs.synced(GADGET))  # so that nobody asks by name for want of a cache
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.strays.stop()

    def trial(self) -> Trial:
        return Trial.decode(self.store.get(TRIAL, KEY))

    def state(self) -> str:
        return self.trial().status.conditions[-1].type if self.trial().status.conditions else ""

    def end(self) -> None:
        """End the job well, with a reading."""
        self.observations.report(KEY.name, [MetricLog(ZERO_TIME, "loss", "0.25")])
        conditions = [{"type": "Done", "status": "True", "reason": "", "message": ""}]
        self.store.update({**self.store.get(GADGET, KEY), "status": {"conditions": conditions}})


@pytest.fixture
def store() -> MemoryStore:
    return new_store()


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "SHORTEST_STRAY_POLL_SECONDS", 0.01)
    monkeypatch.setattr(reconciler, "LONGEST_STRAY_POLL_SECONDS", 0.01)


def said(type_: str, status: str = "True") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": f"Trial{type_}", "message": ""}


def a_trial(store: ObjectStore, *conditions: dict[str, str]) -> Object:
    """Store a trial with this status, as an earlier controller left it."""
    made = store.create(
        {
            "apiVersion": TRIAL.api_version,
            "kind": TRIAL.kind,
            "metadata": {"name": KEY.name, "namespace": NAMESPACE, "finalizers": ["clean-metrics-in-db"]},
            "spec": {
                "objective": {"type": "minimize", "objectiveMetricName": "loss"},
                "runSpec": {"apiVersion": GADGET.api_version, "kind": GADGET.kind, "spec": {"size": 1}},
                "successCondition": 'status.conditions.#(type=="Done")#|#(status=="True")#',
                "failureCondition": 'status.conditions.#(type=="Broken")#|#(status=="True")#',
            },
        }
    )
    return store.update_status({**made, "status": {"conditions": list(conditions)}}) if conditions else made


def a_gadget(store: ObjectStore, owner: Object, name: str = KEY.name) -> Object:
    """Store a job without label, as an earlier controller created it."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": Key.of(owner).name}
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
    metadata["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    return store.create({"apiVersion": GADGET.api_version, "kind": GADGET.kind, "metadata": metadata})


def exists(store: ObjectStore) -> bool:
    return bool(store.list(GADGET).items)


def test_what_the_controller_creates_bears_the_label(store: MemoryStore) -> None:
    a_trial(store)

    with Cluster(store) as cluster:
        eventually(lambda: cluster.state() == "Running")
        assert store.get(GADGET, KEY)["metadata"]["labels"] == {JOB_LABEL: "mine"}
        eventually(lambda: cluster.caches.jobs.synced(GADGET))
        cluster.end()
        eventually(lambda: cluster.state() == "Succeeded")

        assert (GADGET, KEY) not in cluster.caches.jobs.strays


def test_a_job_from_before_the_label_is_judged_and_not_created_again(store: MemoryStore) -> None:
    uid = a_gadget(store, a_trial(store, said("Created"), said("Running")))["metadata"]["uid"]

    with Cluster(store) as cluster:
        eventually(lambda: (GADGET, KEY) in cluster.caches.jobs.strays)
        assert store.get(GADGET, KEY)["metadata"]["uid"] == uid
        cluster.end()

        eventually(lambda: cluster.state() == "Succeeded")
        eventually(lambda: not exists(store))


def test_a_job_from_before_the_label_that_still_runs_for_a_killed_trial_is_removed(store: MemoryStore) -> None:
    """The earlier controller ended between the end of the trial and the deletion of its job."""
    a_gadget(store, a_trial(store, said("Created"), said("Running", "False"), said("Killed")))

    with Cluster(store):
        eventually(lambda: not exists(store))


def test_a_job_whose_label_somebody_removed_is_still_judged(store: MemoryStore) -> None:
    a_trial(store)

    with Cluster(store) as cluster:
        eventually(lambda: (cache := cluster.caches.jobs.synced(GADGET)) and cache.get(KEY))
        store.update(with_metadata(store.get(GADGET, KEY), labels={}))
        eventually(lambda: (GADGET, KEY) in cluster.caches.jobs.strays)
        cluster.end()

        eventually(lambda: cluster.state() == "Succeeded")
        eventually(lambda: not exists(store))


def test_a_new_job_that_loses_its_label_on_its_way_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, store: MemoryStore
) -> None:
    """As a webhook may have it: no event tells of the job, so the first status of its trial does not wait for one."""
    monkeypatch.setattr(plan, "JOB_EVENT_SECONDS", 0.05)
    create = store.create

    def without_label(obj: Object) -> Object:
        return create(with_metadata(obj, labels={}) if Kind.of(obj) == GADGET else obj)

    monkeypatch.setattr(store, "create", without_label)
    with Cluster(store) as cluster:
        a_trial(store)
        eventually(lambda: cluster.state() == "Running")
        assert (GADGET, KEY) in cluster.caches.jobs.strays
        cluster.end()

        eventually(lambda: cluster.state() == "Succeeded")
        eventually(lambda: not exists(store))


def test_a_job_that_is_really_gone_is_created_again_as_it_was(store: MemoryStore) -> None:
    a_trial(store)

    with Cluster(store) as cluster:
        eventually(lambda: (cache := cluster.caches.jobs.synced(GADGET)) and cache.get(KEY))
        first = store.get(GADGET, KEY)
        store.delete(GADGET, KEY)
        eventually(lambda: exists(store))

        second = store.get(GADGET, KEY)
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert second["spec"] == {"size": 1}


def test_the_trial_of_a_stray_is_gone_only_after_it(store: MemoryStore) -> None:
    job = a_gadget(store, a_trial(store, said("Created"), said("Succeeded")))
    job = store.update(with_metadata(job, finalizers=["test/hold"]))

    with Cluster(store) as cluster:
        eventually(lambda: "deletionTimestamp" in store.get(GADGET, KEY)["metadata"])
        store.delete(TRIAL, KEY)
        eventually(lambda: cluster.trial().metadata.deletion_timestamp is not None)
        assert store.list(TRIAL).items
        store.update(with_metadata(store.get(GADGET, KEY), finalizers=[]))

        eventually(lambda: not store.list(TRIAL).items)


@pytest.mark.parametrize("error", [UnavailableError("away"), ExpiredError("too old")], ids=["away", "expired"])
def test_a_look_for_strays_that_fails_is_repeated(store: MemoryStore, error: Exception) -> None:
    a_gadget(store, a_trial(store, said("Created"), said("Killed")))
    failures = [error]

    def fail() -> None:
        if failures:
            raise failures.pop()

    with Cluster(store, fail) as cluster:
        eventually(lambda: not exists(store))

        eventually(lambda: cluster.surveys == 2)


def test_jobs_of_others_are_neither_followed_nor_noted_nor_asked_for(store: MemoryStore) -> None:
    asked: list[Key | None] = []

    def note(call: Call) -> None:
        if call.kind == GADGET and call.verb == "get":
            asked.append(call.key)

    owner = store.create({"apiVersion": "v1", "kind": "Note", "metadata": {"name": "other", "namespace": NAMESPACE}})
    a_gadget(store, owner, "foreign")
    a_trial(store)
    with Cluster(store) as cluster:
        cluster.direct.fail_on = note
        eventually(lambda: cluster.surveys == 1 and (cache := cluster.caches.jobs.synced(GADGET)) and cache.get(KEY))

        followed = cluster.caches.jobs.synced(GADGET)
        assert followed is not None
        assert [job["metadata"]["name"] for job in followed.all()] == ["mine"]
        assert (GADGET, Key(NAMESPACE, "foreign")) not in cluster.caches.jobs.strays
        assert Key(NAMESPACE, "foreign") not in asked


@pytest.mark.parametrize(
    ("age_seconds", "expected"), [(0, 5.0), (49, 5.0), (300, 30.0), (600, 60.0), (90_000, 60.0)], ids=str
)
def test_a_stray_is_looked_at_less_often_the_longer_it_runs(
    monkeypatch: pytest.MonkeyPatch, age_seconds: float, expected: float
) -> None:
    monkeypatch.undo()
    now = datetime(2024, 5, 6, tzinfo=UTC)

    assert stray_poll_seconds(now - timedelta(seconds=age_seconds), now) == expected
    assert stray_poll_seconds(None, now) == 5.0
