"""An experiment that somebody stops, and lets continue."""

from __future__ import annotations

from typing import Any

import pytest

from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.objects import Key
from katib.errors import InvalidError, NotFoundError
from katib.model.types import Experiment
from katib.service.tuning.editing import edit_experiment
from katib.service.tuning.states import state_of
from tests.support.controllers import NAMESPACE, JobEnd, World
from tests.support.experiments import an_experiment
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
