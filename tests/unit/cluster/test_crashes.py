"""Controllers with the settings of a cluster die between any two writes, and the next ones finish the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from katib.cluster.leader.caches import decode_experiment, judged_part
from katib.cluster.leader.leading import CLUSTER_SETTINGS
from katib.controllers.assembly import Caches
from katib.controllers.experiment.ledger import creation_second
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.errors import ConflictError, NotFoundError, UnavailableError
from katib.observations.memory import MemoryObservationLog
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, Kind, ObjectStore
from katib.stores.memory import MemoryStore
from tests.support.controllers import JOB, NAMESPACE, World
from tests.support.experiments import an_experiment
from tests.support.faulty_store import WRITES, Call, FailOn, FaultyStore
from tests.support.stores import eventually

FOREGROUND = "foregroundDeletion"
PODS_SECONDS = 0.02
"""How long a deleted job waits for its pods to go."""


class ForegroundStore(MemoryStore):
    """A store whose jobs, once deleted, stay until their pods are gone."""

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        if kind == JOB:
            self._hold(key)
        super().delete(kind, key, uid=uid)
        if kind == JOB:
            threading.Timer(PODS_SECONDS, self._let_go, (key,)).start()

    def _hold(self, key: Key) -> None:
        with suppress(NotFoundError, ConflictError):
            job = self.get(JOB, key)
            if "deletionTimestamp" not in job["metadata"]:
                self.update({**job, "metadata": {**job["metadata"], "finalizers": [FOREGROUND]}})

    def _let_go(self, key: Key) -> None:
        with suppress(NotFoundError, ConflictError):
            job = self.get(JOB, key)
            self.update({**job, "metadata": {**job["metadata"], "finalizers": []}})


def dead_after(writes: int, *, lose_answer: bool, struck: threading.Event) -> FailOn:
    """Return a fault after which no write gets through; with `lose_answer` the last one does but nobody learns it."""

    def fail_on(call: Call) -> BaseException | None:
        if call.verb not in WRITES:
            return None
        number = call.write_number - (not call.before and not lose_answer)
        if number > writes or (number == writes and lose_answer and not call.before):
            struck.set()
            return UnavailableError("the process ended")
        return None

    return fail_on


def caches_of_a_cluster(store: ObjectStore, clock: Clock) -> Caches:
    return Caches.of(
        store,
        [],
        clock,
        decode_experiment=decode_experiment,
        decode_job=judged_part,
        follows_new_jobs=True,
        order_of=creation_second,
    )


def a_world(store: MemoryStore, log: MemoryObservationLog, **options: Any) -> World:
    return World(store, observations=log, settings=CLUSTER_SETTINGS, caches_of=caches_of_a_cluster, **options)


def a_crash(
    store: MemoryStore, log: MemoryObservationLog, writes: int, *, lose_answer: bool, act: Callable[[World], None]
) -> None:
    """Let controllers work on what `act` does until they die."""
    struck = threading.Event()

    def through(inner: ObjectStore) -> ObjectStore:
        return FaultyStore(inner, dead_after(writes, lose_answer=lose_answer, struck=struck))

    with a_world(store, log, through=through) as world:
        act(world)
        eventually(lambda: struck.is_set() or is_done(world))


def is_done(world: World) -> bool:
    gone = not world.store.list(EXPERIMENT).items and not world.store.list(TRIAL).items
    return gone or (bool(world.store.list(EXPERIMENT).items) and world.is_over() and world.at_rest())


@pytest.fixture
def store() -> MemoryStore:
    return ForegroundStore({EXPERIMENT, SUGGESTION, TRIAL, JOB})


@pytest.mark.parametrize("lose_answer", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("writes", range(32))
def test_a_crash_between_any_two_writes_loses_and_doubles_nothing(
    store: MemoryStore, writes: int, *, lose_answer: bool
) -> None:
    log = MemoryObservationLog()

    def submit(world: World) -> None:
        world.submit(an_experiment(maxTrialCount=4, parallelTrialCount=2))

    a_crash(store, log, writes, lose_answer=lose_answer, act=submit)
    with a_world(store, log) as second:
        experiment = second.ended()
        trials = second.trials()

    assert experiment.status.trials == experiment.status.trials_succeeded == 4
    assert len({trial.spec.parameter_assignments[0].value for trial in trials}) == len(trials) == 4
    assert all(len(log.read(trial.name)[0]) == 1 for trial in trials)


@pytest.mark.parametrize("lose_answer", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("writes", range(8))
def test_a_crash_during_a_deletion_leaves_nothing_behind(store: MemoryStore, writes: int, *, lose_answer: bool) -> None:
    log = MemoryObservationLog()
    with a_world(store, log) as first:
        first.submit(an_experiment(maxTrialCount=3, parallelTrialCount=3))
        first.ended()
        names = [trial.name for trial in first.trials()]

    def delete(world: World) -> None:
        world.store.delete(EXPERIMENT, Key(NAMESPACE, "demo"))

    a_crash(store, log, writes, lose_answer=lose_answer, act=delete)
    with a_world(store, log):
        eventually(lambda: not any(store.list(kind).items for kind in (EXPERIMENT, SUGGESTION, TRIAL, JOB)))

    assert all(log.read(name) == ([], "") for name in names)
