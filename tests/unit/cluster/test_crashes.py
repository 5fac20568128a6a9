"""Controllers with the settings of a cluster die between any two writes, and the next ones finish the work."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.controllers.ledger import creation_second
from katib.engine.controllers.ports import StopVerdict
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import ConflictError, NotFoundError, UnavailableError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.trials import objective_number, trial_state
from katib.model.types import Trial, TrialState
from katib.places.cluster.leader.leading import CLUSTER_SETTINGS, decode_experiment, judged_part
from tests.support.controllers import JOB, NAMESPACE, FakeServices, JobEnd, World
from tests.support.experiments import an_experiment
from tests.support.faulty_store import WRITES, Call, FailOn, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.observations import MemoryObservationLog
from tests.support.waiting import eventually

FOREGROUND = "foregroundDeletion"
PODS_SECONDS = 0.02
"""How long a deleted job waits for its pods to go."""


class ForegroundStore(MemoryStore):
    """A store whose jobs, once deleted, stay until their pods are gone; `jobs` counts how often each was created."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.jobs: Counter[str] = Counter()

    def create(self, obj: Object) -> Object:
        created = super().create(obj)
        if Kind.of(obj) == JOB:
            self.jobs[created["metadata"]["name"]] += 1
        return created

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
        with suppress(NotFoundError):
            while True:
                job = self.get(JOB, key)
                with suppress(ConflictError):  # somebody wrote it meanwhile
                    self.update({**job, "metadata": {**job["metadata"], "finalizers": []}})
                    return


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
    store: MemoryStore,
    log: MemoryObservationLog,
    writes: int,
    *,
    lose_answer: bool,
    act: Callable[[World], None],
    **options: Any,
) -> None:
    """Let controllers work on what `act` does until they die."""
    struck = threading.Event()

    def through(inner: ObjectStore) -> ObjectStore:
        return FaultyStore(inner, dead_after(writes, lose_answer=lose_answer, struck=struck))

    with a_world(store, log, through=through, **options) as world:
        act(world)
        eventually(lambda: struck.is_set() or is_done(world))


def is_done(world: World) -> bool:
    gone = not world.store.list(EXPERIMENT).items and not world.store.list(TRIAL).items
    return gone or (bool(world.store.list(EXPERIMENT).items) and world.is_over() and world.at_rest())


@pytest.fixture
def store() -> ForegroundStore:
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
    assert all(len(log.read(trial.name)) == 1 for trial in trials)


@pytest.mark.parametrize("lose_answer", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("writes", range(4, 28, 2))
def test_a_crash_while_trials_are_stopped_early_stops_each_of_them_once(
    store: ForegroundStore, writes: int, *, lose_answer: bool
) -> None:
    """Every trial but the first reports a hopeless value and would continue; its job is created once, whoever dies."""
    log = MemoryObservationLog()

    def script(trial: Trial) -> JobEnd:
        if trial.spec.parameter_assignments[0].value == "0.010":
            return JobEnd()
        if not log.count(trial.name):
            log.report(trial.name, [MetricLog(ZERO_TIME, "loss", "0.9")])
        return JobEnd(ends=False)

    def judgment(trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        running = [trial.name for trial in trials if trial_state(trial) is TrialState.RUNNING]
        return tuple(StopVerdict(name, "worse") for name in running if any(r.value == "0.9" for r in log.read(name)))

    def submit(world: World) -> None:
        stopping = {"algorithmName": "threshold"}
        world.submit(an_experiment(maxTrialCount=4, parallelTrialCount=2, earlyStopping=stopping))

    options: dict[str, Any] = {"script": script, "services": FakeServices(judgment=judgment)}
    a_crash(store, log, writes, lose_answer=lose_answer, act=submit, **options)
    with a_world(store, log, **options) as second:
        experiment = second.ended()
        trials = second.trials()

    assert (experiment.status.trials_succeeded, experiment.status.trials_early_stopped) == (1, 3)
    stopped = [trial for trial in trials if trial_state(trial) is TrialState.EARLY_STOPPED]
    assert all(objective_number(t.spec.objective, t.status.observation) == 0.9 for t in stopped)
    assert store.jobs == Counter(trial.name for trial in trials)


@pytest.mark.parametrize("lose_answer", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("writes", range(12))
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

    assert all(log.read(name) == [] for name in names)


def test_a_trial_costs_two_writes_of_its_status_and_no_question_for_its_job(store: MemoryStore) -> None:
    calls: list[Call] = []

    def note(call: Call) -> None:
        if call.before:
            calls.append(call)

    with a_world(store, MemoryObservationLog(), through=lambda inner: FaultyStore(inner, note)) as world:
        world.submit(an_experiment(maxTrialCount=4, parallelTrialCount=1))
        world.ended()
        last = max(world.trials(), key=lambda trial: int(trial.metadata.resource_version)).name

    of_last = Counter((call.verb, call.kind) for call in calls if call.key is not None and call.key.name == last)
    assert of_last["create", JOB] == 1
    assert of_last["update_status", TRIAL] <= 2
    assert of_last["get", JOB] == 0
