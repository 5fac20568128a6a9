"""Suspending a trial: the field of its job's kind, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from katib.engine.controllers.experiment.plan import is_stopped
from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import ForbiddenError, InvalidError, NotFoundError, UnavailableError
from katib.model.job_kinds import is_suspended, suspend_field
from katib.model.names import PAUSED_ANNOTATION
from katib.model.types import Experiment
from katib.places.machine.jobs.kinds import JobKinds
from katib.service.tuning.deletion import DELETE_TIMEOUT_SECONDS, Deletion
from katib.service.tuning.editing import pause_experiment, suspend_trial
from katib.service.tuning.ports import NoAftermath
from tests.support.controllers import new_store
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.refusals import refused
from tests.support.stores import owned_by
from tests.support.tuning import condition, make_experiment, make_trial, patched

JOB = Kind("batch/v1", "Job")
KEY = Key("default", "demo-1")
TRAINING = "kubeflow.org/v1"


class OldServer(MemoryStore):
    """An API server that does not know the field."""

    def patch(self, obj: Object, _changes: Mapping[str, Any]) -> Object:
        return obj


def stored(
    api_version: str,
    kind: str,
    *,
    state: str = "Running",
    with_job: bool = True,
    make: type[MemoryStore] = MemoryStore,
    owned: bool = True,
) -> MemoryStore:
    store = make({TRIAL})
    job = {"apiVersion": api_version, "kind": kind, "spec": {}}
    metadata = {"name": KEY.name, "namespace": KEY.namespace}
    trial = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "metadata": metadata, "spec": {"runSpec": job}}
    made = store.create(trial)
    store.update_status({**made, "status": {"conditions": [{"type": state, "status": "True"}]}})
    if with_job:
        store.create(
            {**job, "metadata": {**metadata, "ownerReferences": [{"uid": made["metadata"]["uid"]}] if owned else []}}
        )
    return store


@pytest.mark.parametrize("kind", list(JobKinds()), ids=lambda kind: kind.kind + kind.api_version[-7:])
def test_every_kind_of_this_machine_has_a_field_that_suspends_it(kind: Kind) -> None:
    store = stored(*kind)
    suspend_trial(store, KEY, suspended=True)

    assert is_suspended(store.get(kind, KEY))
    suspend_trial(store, KEY, suspended=False)
    assert not is_suspended(store.get(kind, KEY))


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (("batch/v1", "Job"), "spec.suspend"),
        (("jobset.x-k8s.io/v1alpha2", "JobSet"), "spec.suspend"),
        (("trainer.kubeflow.org/v1alpha1", "TrainJob"), "spec.suspend"),
        ((TRAINING, "PyTorchJob"), "spec.runPolicy.suspend"),
        (("kubeflow.org/v2beta1", "MPIJob"), "spec.runPolicy.suspend"),
        (("batch.volcano.sh/v1alpha1", "Job"), ""),
        (("argoproj.io/v1alpha1", "Workflow"), ""),
    ],
)
def test_the_field_is_that_of_the_kind(kind: tuple[str, str], field: str) -> None:
    assert ".".join(suspend_field({"apiVersion": kind[0], "kind": kind[1]})) == field


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (
            stored("tekton.dev/v1", "PipelineRun"),
            "trial demo-1: PipelineRun (tekton.dev/v1) has no field that suspends it",
        ),
        (stored("batch/v1", "Job", state="Succeeded"), "trial demo-1: it has ended"),
    ],
    ids=["kind", "ended"],
)
def test_what_cannot_be_suspended_is_refused(store: MemoryStore, expected: str) -> None:
    with pytest.raises(InvalidError) as caught:
        suspend_trial(store, KEY, suspended=True)

    assert str(caught.value).startswith(f"{expected}; ")


def test_a_job_that_is_not_there_may_come_and_a_trial_is_not_found(golden: Golden) -> None:
    with golden.raises(UnavailableError):
        suspend_trial(stored("batch/v1", "Job", with_job=False), KEY, suspended=True)

    with pytest.raises(NotFoundError):
        suspend_trial(MemoryStore({TRIAL}), KEY, suspended=True)

    with refused("suspend-unknown"):
        suspend_trial(stored("batch/v1", "Job", make=OldServer), KEY, suspended=True)


@pytest.mark.parametrize("suspended", [True, False])
@pytest.mark.parametrize("forbidden", ["Trial", "Job"])
def test_who_may_not_write_both_the_trial_and_its_job_changes_neither(forbidden: str, *, suspended: bool) -> None:
    inner = stored("batch/v1", "Job")
    if not suspended:
        suspend_trial(inner, KEY, suspended=True)
    store = FaultyStore(inner)

    def forbids(call: Call) -> BaseException | None:
        return ForbiddenError("no") if call.before and (call.verb, call.kind.kind) == ("patch", forbidden) else None

    store.fail_on = forbids
    with pytest.raises(ForbiddenError):
        suspend_trial(store, KEY, suspended=suspended)

    is_noted = PAUSED_ANNOTATION in (inner.get(TRIAL, KEY)["metadata"].get("annotations") or {})
    assert (is_suspended(inner.get(JOB, KEY)), is_noted) == (not suspended, not suspended)


def test_a_job_of_somebody_else_is_not_touched(golden: Golden) -> None:
    store = stored("batch/v1", "Job", owned=False)
    with golden.raises(UnavailableError):
        suspend_trial(store, KEY, suspended=True)

    assert store.get(JOB, KEY)["spec"] == {}


def two_trials(make: type[MemoryStore] = MemoryStore) -> MemoryStore:
    """Return a store with an experiment whose two trials run."""
    store = make({EXPERIMENT, TRIAL})
    store.create(make_experiment().encode())
    for name in ("demo-1", "demo-2"):
        trial = make_trial(name, condition("Running")).encode()
        job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {}}
        made = store.create({**trial, "spec": {**trial["spec"], "runSpec": job}})
        store.update_status({**made, "status": trial["status"]})
        owners = [{"uid": made["metadata"]["uid"]}]
        store.create({**job, "metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
    return store


def state(store: MemoryStore) -> tuple[bool, list[bool], list[bool]]:
    """Return whether the experiment is stopped, and which trials and jobs are paused."""
    stopped = is_stopped(Experiment.read(store.get(EXPERIMENT, Key("default", "demo"))))
    trials = [PAUSED_ANNOTATION in (o["metadata"].get("annotations") or {}) for o in store.list(TRIAL).items]
    return stopped, trials, [bool(job["spec"].get("suspend")) for job in store.list(JOB).items]


def test_an_experiment_is_paused_with_its_trials_and_resumed() -> None:
    store, key = two_trials(), Key("default", "demo")
    _, paused = pause_experiment(store, key, SystemClock(), paused=True)
    then = state(store)
    _, resumed = pause_experiment(store, key, SystemClock(), paused=False)

    assert paused == resumed == ("demo-1", "demo-2")
    assert then == (True, [True, True], [True, True])
    assert state(store) == (False, [False, False], [False, False])


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ForbiddenError("no")], ids=["interrupt", "refusal"])
def test_an_interrupt_or_a_refusal_leaves_no_half_of_a_pause(
    error: BaseException, *, before: bool, paused: bool
) -> None:
    for number in range(1, 6):
        inner, key = two_trials(), Key("default", "demo")
        if not paused:
            pause_experiment(inner, key, SystemClock(), paused=True)
        then, store = state(inner), FaultyStore(inner)

        def fail_on(call: Call, number: int = number) -> BaseException | None:
            hits = call.verb == "patch" and call.write_number == number and call.before is before
            return error if hits else None

        store.fail_on = fail_on
        with pytest.raises(type(error)):
            pause_experiment(store, key, SystemClock(), paused=paused)

        assert state(inner) == then


# --- Deleting an experiment: what is waited for, and what is said when it does not go ---------------------------------


DEMO = Key("default", "demo")


class Impatient(SystemClock):
    """A clock on which the time that one waits for objects is over at once."""

    def __init__(self) -> None:
        self._asked = 0

    def monotonic(self) -> float:
        self._asked += 1
        return super().monotonic() + (DELETE_TIMEOUT_SECONDS + 1 if self._asked > 1 else 0)


class Kept(NoAftermath):
    """Remembers what it was told."""

    def __init__(self, *, in_time: bool = True) -> None:
        self.forgotten: list[str] = []
        self._in_time = in_time

    def wait(self, _experiment: Key, _trials: Sequence[Key], _timeout_seconds: float) -> bool:
        return self._in_time

    def forget(self, _experiment: Key, trials: Sequence[Key]) -> None:
        self.forgotten = [trial.name for trial in trials]


def world(*, finalizers: Sequence[str] = ()) -> MemoryStore:
    store = new_store()
    experiment = patched(make_experiment("demo"), metadata={"finalizers": list(finalizers)}, status=None)
    stored = store.create(experiment.encode())
    for name in ("demo-1", "demo-2"):
        trial = patched(make_trial(name), metadata={"ownerReferences": owned_by(stored)}, status=None)
        store.create(trial.encode())
    return store


def test_it_ends_when_the_experiment_and_its_trials_are_gone() -> None:
    store, aftermath = world(), Kept()
    Deletion(store, store.get(EXPERIMENT, DEMO), aftermath, SystemClock()).run()

    with pytest.raises(NotFoundError):
        store.get(EXPERIMENT, DEMO)
    assert not store.list(TRIAL).items
    assert aftermath.forgotten == ["demo-1", "demo-2"]


def test_what_does_not_go_in_time_is_told(golden: Golden) -> None:
    store, aftermath = world(finalizers=["somebody-is-away"]), Kept()
    with golden.raises(UnavailableError):
        Deletion(store, store.get(EXPERIMENT, DEMO), aftermath, Impatient()).run()

    assert aftermath.forgotten == []

    store, aftermath = world(), Kept(in_time=False)
    with golden.raises(UnavailableError):
        Deletion(store, store.get(EXPERIMENT, DEMO), aftermath, SystemClock()).run()


def test_another_experiment_of_the_name_is_not_waited_for() -> None:
    store = world()
    deletion = Deletion(store, store.get(EXPERIMENT, DEMO), Kept(), SystemClock())
    store.delete(EXPERIMENT, DEMO)
    store.create(patched(make_experiment("demo"), status=None).encode())

    with pytest.raises(NotFoundError):
        deletion.run()
    assert store.get(EXPERIMENT, DEMO)
