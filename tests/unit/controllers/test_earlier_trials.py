"""Which earlier trials an experiment learns from, and what is said of the others."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from katib.engine.controllers.suggestion.earlier import fitting
from katib.model.types import EarlierTrialsStatus, MetricStrategySpec, ObjectiveSpec, ParameterAssignment, Trial
from tests.support.controllers import World
from tests.support.experiments import a_choice, a_double, an_experiment
from tests.support.golden import Golden
from tests.support.planning import experiment, observed, trial


def earlier(name: str, *conditions: str, value: str | None = "0.5", **assignments: str) -> Trial:
    pairs = tuple(ParameterAssignment(name=key, value=text) for key, text in assignments.items())
    return trial(name, *conditions, value=value, parameter_assignments=pairs)


def used(*trials: Trial) -> list[str]:
    return [found.name for found in fitting(experiment(), trials).trials]


def misfit(*trials: Trial) -> EarlierTrialsStatus | None:
    return fitting(experiment(), trials).status


def test_trials_that_ended_in_the_space_are_used() -> None:
    assert used(earlier("a", "Succeeded", lr="0.05"), earlier("b", "EarlyStopped", lr="0.06")) == ["a", "b"]


def test_a_failed_trial_says_something_too() -> None:
    assert used(earlier("a", "Failed", value=None, lr="0.05")) == ["a"]


def test_parameters_that_are_not_searched_are_passed_over() -> None:
    assert used(earlier("a", "Succeeded", lr="0.05", other="7")) == ["a"]


def test_values_of_absent_parameters_are_passed_over_and_present_ones_are_needed() -> None:
    momentum = {**a_double("momentum"), "when": {"parameter": "optimizer", "values": ["sgd"]}}
    made = experiment(parameters=[a_choice("optimizer", ["adam", "sgd"]), momentum])
    trials = [
        earlier("a", "Succeeded", optimizer="adam"),
        earlier("b", "Succeeded", optimizer="adam", momentum="0.05"),
        earlier("c", "Succeeded", optimizer="sgd", momentum="0.05"),
        earlier("d", "Succeeded", optimizer="sgd"),
    ]

    found = fitting(made, trials)

    assert [used.name for used in found.trials] == ["a", "b", "c"]
    assert found.status == EarlierTrialsStatus(used=3, left_out=1, reason="d: momentum has no value")


def test_trials_that_still_run_are_neither_used_nor_counted() -> None:
    assert misfit(earlier("a", "Running", lr="0.05")) == EarlierTrialsStatus()


def test_what_does_not_fit_is_counted_with_the_reason_of_the_first(golden: Golden) -> None:
    found = misfit(
        earlier("a", "Succeeded", lr="5"),
        earlier("b", "Succeeded"),
        earlier("c", "Killed", lr="0.05"),
        earlier("d", "Succeeded", lr="0.05", value=None),
        earlier("e", "Succeeded", lr="0.05", value="nan"),
        earlier("f", "Succeeded", lr="0.05"),
    )

    assert found == EarlierTrialsStatus(used=1, left_out=5, reason="a: lr: 5 is not between 0.01 and 0.1")
    golden(str(found))


def test_a_trial_of_another_objective_does_not_fit() -> None:
    other = ObjectiveSpec(
        type="minimize", objective_metric_name="time", metric_strategies=(MetricStrategySpec(name="time", value="min"),)
    )
    pairs = (ParameterAssignment(name="lr", value="0.05"),)
    a = trial("a", "Succeeded", objective_spec=other, parameter_assignments=pairs)
    a = structs.replace(a, status=structs.replace(a.status, observation=observed("3", name="time")))

    assert misfit(a) == EarlierTrialsStatus(used=0, left_out=1, reason="a: it has no value of loss")


def test_the_value_is_the_one_that_the_new_objective_asks_for() -> None:
    pairs = (ParameterAssignment(name="lr", value="0.05"),)
    a = trial("a", "Succeeded", parameter_assignments=pairs)
    a = structs.replace(a, status=structs.replace(a.status, observation=observed("3", low="1", high="9")))

    (found,) = fitting(experiment(), [a]).trials

    assert found.spec.objective == experiment().spec.objective


def listed(*rows: tuple[str, str]) -> dict[str, Any]:
    trials = [
        {"parameterAssignments": [{"name": "lr", "value": lr}], "metrics": [{"name": "loss", "value": loss}]}
        for lr, loss in rows
    ]
    return {"trials": trials}


def test_a_service_is_given_the_trials_of_other_experiments_and_those_that_are_listed() -> None:
    with World() as world:
        world.submit(an_experiment(name="first"))
        world.ended("first")
        start = {"experiments": ["first"], **listed(("0.05", "0.1"), ("7", "0.1"))}
        world.submit(an_experiment(name="second", warmStart=start))
        world.ended("second")
        first = sorted(t.name for t in world.trials() if t.name.startswith("first"))

        assert sorted(world.services.earlier) == sorted([*first, "earlier-0"])
        status = world.suggestion("second").status.earlier_trials
        assert status == EarlierTrialsStatus(used=4, left_out=1, reason="earlier-1: lr: 7 is not between 0.01 and 0.1")
        assert ("second", "WarmStart", str(status)) in world.events.events


def test_own_trials_are_not_earlier_ones() -> None:
    with World() as world:
        world.submit(an_experiment(parameters=[a_double("lr")], maxTrialCount=4, parallelTrialCount=1))
        world.ended()

        assert world.services.earlier == []
        assert world.suggestion().status.earlier_trials is None
