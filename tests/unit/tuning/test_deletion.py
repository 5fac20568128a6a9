"""Deleting an experiment: what is waited for, and what is said when it does not go."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key
from katib.errors import NotFoundError, UnavailableError
from katib.service.tuning.deletion import DELETE_TIMEOUT_SECONDS, Deletion
from katib.service.tuning.ports import NoAftermath
from tests.support.controllers import new_store
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.stores import owned_by
from tests.support.tuning import make_experiment, make_trial, patched

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
