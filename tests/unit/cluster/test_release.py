"""Letting deleted objects go without a controller."""

from __future__ import annotations

import pytest

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.objects import Key, Object
from katib.errors import ConflictError, KindNotInstalledError, TerminalError
from katib.model.names import EXPERIMENT_FINALIZER, EXPERIMENT_LABEL, TRIAL_FINALIZER
from katib.places.cluster.access.release import release, require_no_controller
from katib.places.cluster.services.plan import DEPLOYMENT
from tests.support.faulty_store import Call, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.stores import owned_by, widget


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore({EXPERIMENT, TRIAL, DEPLOYMENT})


def an_experiment(store: MemoryStore, name: str, *finalizers: str, trials: int = 2) -> Object:
    made = store.create(widget(name, kind=EXPERIMENT, finalizers=[EXPERIMENT_FINALIZER, *finalizers]))
    for number in range(trials):
        labels = {EXPERIMENT_LABEL: name}
        trial = widget(
            f"{name}-{number}", kind=TRIAL, finalizers=[TRIAL_FINALIZER], labels=labels, ownerReferences=owned_by(made)
        )
        store.create(trial)
    return made


def names(store: MemoryStore) -> list[str]:
    return [obj["metadata"]["name"] for kind in (EXPERIMENT, TRIAL) for obj in store.list(kind).items]


def test_a_deleted_experiment_goes_with_its_trials_and_everything_else_stays(store: MemoryStore) -> None:
    an_experiment(store, "gone")
    an_experiment(store, "kept", trials=1)
    store.delete(EXPERIMENT, Key("team", "gone"))

    assert list(release(store)) == ["trial team/gone-0", "trial team/gone-1", "experiment team/gone"]
    assert names(store) == ["kept", "kept-0"]
    assert list(release(store)) == []


def test_trials_that_are_deleted_alone_go_too(store: MemoryStore) -> None:
    an_experiment(store, "kept")
    store.delete(TRIAL, Key("team", "kept-0"))

    assert list(release(store)) == ["trial team/kept-0"]
    assert names(store) == ["kept", "kept-1"]


def test_finalizers_of_others_stay(store: MemoryStore) -> None:
    an_experiment(store, "gone", "a-colleague-still-needs-it", trials=0)
    store.delete(EXPERIMENT, Key("team", "gone"))

    assert list(release(store)) == ["experiment team/gone"]
    assert store.get(EXPERIMENT, Key("team", "gone"))["metadata"]["finalizers"] == ["a-colleague-still-needs-it"]


def test_a_definition_that_has_gone_and_a_write_of_another_client_are_no_obstacle(store: MemoryStore) -> None:
    an_experiment(store, "gone", trials=0)
    store.delete(EXPERIMENT, Key("team", "gone"))
    conflicts = [ConflictError("read it again")]

    def fail_on(call: Call) -> BaseException | None:
        if call.kind == TRIAL:
            return KindNotInstalledError("no such kind")
        return conflicts.pop() if conflicts and call.verb == "patch" else None

    assert list(release(FaultyStore(store, fail_on))) == ["experiment team/gone"]
    assert not conflicts


def test_a_controller_at_work_is_left_to_do_it(store: MemoryStore) -> None:
    require_no_controller(store)
    made = store.create(widget("katib-controller", "kubeflow", kind=DEPLOYMENT))
    made = store.update_status({**made, "status": {"readyReplicas": 0}})
    require_no_controller(store)
    store.update_status({**made, "status": {"readyReplicas": 1}})

    with pytest.raises(TerminalError, match="is at work and cleans up deleted objects; wait for it, or give --force"):
        require_no_controller(store)
