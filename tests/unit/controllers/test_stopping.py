"""An experiment that somebody stops, and lets continue."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from katib.engine.controllers.experiment.deletion import BATCH, ORPHAN_FINALIZER, ExperimentDeletion, plan_deletion
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL, key_of, owned_by
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Object
from katib.errors import InvalidError, NotFoundError
from katib.model.names import EXPERIMENT_FINALIZER, EXPERIMENT_LABEL
from katib.model.types import Experiment, ObjectMeta, OwnerReference, Trial
from katib.service.tuning.editing import edit_experiment
from katib.service.tuning.states import state_of
from tests.support.controllers import JOB, NAMESPACE, FakeServices, JobEnd, World, a_reply
from tests.support.experiments import an_experiment
from tests.support.memory_store import MemoryStore
from tests.support.planning import experiment
from tests.support.refusals import refused
from tests.support.waiting import eventually

DEMO = Key(NAMESPACE, "demo")


def running(_trial: Any) -> JobEnd:
    return JobEnd(ends=False)


def stored(world: World) -> Experiment:
    return Experiment.read(world.store.get(EXPERIMENT, DEMO))


def test_no_trial_starts_after_the_stop_and_those_that_run_end_as_they_would() -> None:
    with World(script=running) as world:
        world.submit(an_experiment(maxTrialCount=6, parallelTrialCount=2))
        eventually(lambda: len(world.trials()) == 2)
        edit_experiment(world.store, DEMO, counts={}, stopped=True)
        eventually(lambda: "ExperimentStopped" in str(stored(world).status.conditions))
        eventually(lambda: state_of(stored(world)) == "Running")  # as soon as both trials are counted
        world.finish_jobs()
        eventually(lambda: state_of(stored(world)) == "Stopped")

        assert len(world.trials()) == 2
        assert stored(world).status.trials_succeeded == 2


def test_a_resumed_experiment_makes_exactly_the_rest_of_its_budget() -> None:
    with World(script=running) as world:
        world.submit(an_experiment(maxTrialCount=5, parallelTrialCount=2))
        eventually(lambda: len(world.trials()) == 2)
        edit_experiment(world.store, DEMO, counts={}, stopped=True)
        world.finish_jobs()
        eventually(lambda: state_of(stored(world)) == "Stopped")
        edit_experiment(world.store, DEMO, counts={}, stopped=False)
        world.finish_jobs()

        assert world.ended().status.trials == 5


def test_a_stop_before_the_first_trial_holds() -> None:
    with World(script=running) as world:
        document = an_experiment(maxTrialCount=3)
        document["metadata"]["annotations"] = {"katib.kubeflow.org/stopped": "true"}
        world.submit(document)
        eventually(lambda: state_of(stored(world)) == "Stopped")
        assert world.trials() == []
        edit_experiment(world.store, DEMO, counts={}, stopped=False)
        world.finish_jobs()

        assert world.ended().status.trials == 3


def test_what_has_ended_cannot_be_stopped_and_counts_keep_their_rules() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=2))
        world.ended()

        with pytest.raises(InvalidError, match="it has ended"):
            edit_experiment(world.store, DEMO, counts={}, stopped=True)
        with refused("update-not-restartable"):
            edit_experiment(world.store, DEMO, counts={"maxTrialCount": 9})
        with refused("update-immutable"):
            edit_experiment(world.store, DEMO, counts={"resumePolicy": 1})
        with pytest.raises(NotFoundError):
            edit_experiment(world.store, Key("default", "ghost"), counts={})


# --- An experiment that is deleted goes last, so that who waits for it may take everything away -----------------------


HOLD = "a-colleague-still-needs-it"
NOW = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


def deleted(*finalizers: str) -> Experiment:
    made = experiment()
    metadata = structs.replace(made.metadata, deletion_timestamp=NOW, finalizers=finalizers)
    return structs.replace(made, metadata=metadata)


def a_trial(name: str, owner: OwnerReference | None, deleted_at: datetime | None = None) -> Trial:
    owners = () if owner is None else (owner,)
    return Trial(metadata=ObjectMeta(name=name, owner_references=owners, deletion_timestamp=deleted_at))


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_trials_go_first_and_each_is_deleted_once() -> None:
    obj = deleted(EXPERIMENT_FINALIZER)
    waiting, going = a_trial("a", owned_by(obj)), a_trial("b", owned_by(obj), NOW)

    plan = plan_deletion(obj, [waiting, going])

    assert (plan.delete_trials, plan.is_last) == ((waiting,), False)
    assert plan_deletion(obj, [going]).delete_trials == ()
    assert not plan_deletion(obj, [going]).is_last
    assert plan_deletion(obj, []).is_last


def test_trials_of_a_namesake_and_of_nobody_are_left_alone() -> None:
    namesake = structs.replace(owned_by(experiment()), uid="another")

    plan = plan_deletion(deleted(EXPERIMENT_FINALIZER), [a_trial("a", namesake), a_trial("b", None)])

    assert (plan.delete_trials, plan.is_last) == ((), True)


def test_trials_that_are_to_stay_are_left_to_kubernetes() -> None:
    """`kubectl delete --cascade=orphan`."""
    obj = deleted(EXPERIMENT_FINALIZER, ORPHAN_FINALIZER)

    plan = plan_deletion(obj, [a_trial("a", owned_by(obj))])

    assert (plan.delete_trials, plan.is_last) == ((), False)


def test_thousands_are_deleted_in_steps() -> None:
    obj = deleted(EXPERIMENT_FINALIZER)

    plan = plan_deletion(obj, [a_trial(f"t-{number}", owned_by(obj)) for number in range(3 * BATCH)])

    assert len(plan.delete_trials) == BATCH


# --- whole controllers ------------------------------------------------------------------------------------------------


def found(world: World, name: str) -> Object | None:
    try:
        return world.store.get(TRIAL, Key(NAMESPACE, name))
    except NotFoundError:
        return None


def exists(world: World) -> bool:
    return bool(world.store.list(EXPERIMENT).items)


def test_an_experiment_stays_until_the_last_of_its_trials_is_gone() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=3))
        world.ended()
        held = world.trials()[0].name
        stored = world.store.get(TRIAL, Key(NAMESPACE, held))
        world.store.patch(stored, {"metadata": {"finalizers": [*stored["metadata"]["finalizers"], HOLD]}})
        world.store.delete(EXPERIMENT, DEMO)
        eventually(lambda: [trial.name for trial in world.trials()] == [held])
        assert exists(world)

        stored = world.store.get(TRIAL, Key(NAMESPACE, held))
        others = [each for each in stored["metadata"]["finalizers"] if each != HOLD]
        world.store.patch(stored, {"metadata": {"finalizers": others}})
        eventually(lambda: not exists(world))

        assert not world.store.list(TRIAL).items
        assert not world.store.list(SUGGESTION).items
        assert not world.store.list(JOB).items


def test_running_trials_end_with_their_experiment_and_its_service_may_stop_at_once() -> None:
    with World(script=lambda _trial: JobEnd(ends=False)) as world:
        world.submit(an_experiment(maxTrialCount=9, parallelTrialCount=3))
        eventually(lambda: len(world.store.list(JOB).items) == 3)
        world.store.delete(EXPERIMENT, DEMO)
        eventually(lambda: not exists(world))

        assert not world.store.list(TRIAL).items
        assert not world.store.list(JOB).items
    assert "demo" in world.services.released


def test_more_trials_than_one_step_deletes_go_all() -> None:
    count = BATCH + 20
    services = FakeServices(answer=lambda _first, wanted: a_reply(0, wanted))
    with World(services=services) as world:
        world.submit(an_experiment(maxTrialCount=count, parallelTrialCount=20))
        world.ended(within_seconds=60)
        world.store.delete(EXPERIMENT, DEMO)
        eventually(lambda: not exists(world))

        assert not world.store.list(TRIAL).items


def test_a_trial_that_is_deleted_alone_leaves_its_experiment_as_it_is() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=2))
        world.ended()
        gone = world.trials()[0].name
        world.store.delete(TRIAL, Key(NAMESPACE, gone))
        eventually(lambda: found(world, gone) is None)

        assert exists(world)
        assert len(world.trials()) == 1


def test_kept_trials_are_no_ones_and_stay() -> None:
    """What Kubernetes does when children are to stay: it takes their owner from them, and then its mark off."""
    with World() as world:
        world.submit(an_experiment(maxTrialCount=2))
        world.ended()
        stored = world.store.get(EXPERIMENT, DEMO)
        finalizers = [*stored["metadata"]["finalizers"], ORPHAN_FINALIZER]
        world.store.patch(stored, {"metadata": {"finalizers": finalizers}})
        world.store.delete(EXPERIMENT, DEMO)
        for trial in world.store.list(TRIAL, labels={EXPERIMENT_LABEL: "demo"}).items:
            world.store.patch(trial, {"metadata": {"ownerReferences": []}})
        stored = world.store.get(EXPERIMENT, DEMO)
        world.store.patch(stored, {"metadata": {"finalizers": [EXPERIMENT_FINALIZER]}})
        eventually(lambda: not exists(world))

        assert len(world.trials()) == 2
        assert not [trial for trial in world.trials() if trial.metadata.deletion_timestamp]


def test_a_trial_whose_owner_was_taken_stays_though_the_cache_has_not_seen_that() -> None:
    obj = deleted(EXPERIMENT_FINALIZER)
    store = MemoryStore(())
    key = key_of(a_trial("a", None))
    kept = {**a_trial(key.name, None).encode(), "metadata": {"name": key.name, "namespace": key.namespace}}
    uid = store.create(kept)["metadata"]["uid"]
    seen = ObjectMeta(name=key.name, namespace=key.namespace, uid=uid, owner_references=(owned_by(obj),))
    behind: Any = SimpleNamespace(trials_of=lambda _: [Trial(metadata=seen)])

    ExperimentDeletion(store, behind, SystemClock()).let_go(obj)

    assert store.get(TRIAL, key)
