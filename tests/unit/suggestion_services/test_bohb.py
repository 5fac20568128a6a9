"""BOHB: the brackets of Hyperband, with configurations that get better."""

from __future__ import annotations

from statistics import fmean, median

import pytest

from suggestion_services.base.algorithm import Outcome, PastTrial
from tests.support.halving import SETTINGS, SPACE, Run, a_learning_curve, algorithm_of, halving_problem
from tests.support.refusals import refusal
from tests.support.suggestion import an_experiment, served_here


def test_it_goes_on_with_further_rounds_until_its_budget_is_used() -> None:
    run = Run(halving_problem("bohb", max_trial_count=50), "bohb", parallel=4).to_the_end()

    assert len(run.trials) == 50
    assert run.rungs()["0", "0", "1"] == run.rungs()["3", "0", "1"] == 9


def test_with_rounds_it_ends_by_itself_in_the_brackets_of_hyperband() -> None:
    run = Run(halving_problem("bohb", rounds=1), "bohb", parallel=20).to_the_end()

    assert [count for _, count in sorted(run.rungs().items())] == [9, 3, 1, 5, 1, 3]


@pytest.mark.parametrize("parallel", [1, 3, 20])
def test_a_restart_at_any_moment_changes_nothing(parallel: int) -> None:
    runs = [
        Run(halving_problem("bohb", rounds=2), "bohb", parallel=parallel, restarts=restarts).to_the_end()
        for restarts in (False, True)
    ]

    assert runs[0].trials == runs[1].trials


def test_later_configurations_are_better_than_random_ones() -> None:
    run = Run(halving_problem("bohb", max_trial_count=120), "bohb", parallel=4).to_the_end()
    begun = [t for t in run.trials if t.labels["bohb.suggestion.katib.kubeflow.org/rung"] == "0"]
    losses = [a_learning_curve({**t.assignments, "epochs": "9"}) - 1 / 9 for t in begun]

    assert median(losses[-40:]) < 0.1 * median(losses[:17])


def test_the_model_learns_from_the_largest_resource_that_enough_trials_had() -> None:
    """Where the short trainings mislead, those of the next rung are believed as soon as there are enough."""

    def past(i: int, epochs: int, best: float) -> PastTrial:
        x = (i + 0.5) / 20
        values = {"x": str(x), "y": "0.5", "epochs": str(epochs)}
        return PastTrial(f"t{epochs}-{i:02}", Outcome.MEASURED, values, abs(x - best))

    misleading = [past(i, 1, 0.1) for i in range(20)]
    telling = [past(i, 3, 0.9) for i in range(20)]
    algorithm = algorithm_of(halving_problem("bohb", random_fraction=0, rounds=9), "bohb")

    def mean_of(trials: list[PastTrial]) -> float:
        given = list(algorithm.suggest(trials, first=len(trials), count=9))
        return fmean(float(p.assignments["x"]) for p in given)  # type: ignore[union-attr]  # proposals

    assert mean_of(misleading) < 0.4
    assert mean_of(sorted(misleading + telling[:2], key=lambda t: t.name)) < 0.4
    assert mean_of(sorted(misleading + telling, key=lambda t: t.name)) > 0.6


def test_a_model_that_is_not_there_and_a_missing_resource_are_refused() -> None:
    with served_here("bohb") as service:
        for settings, expected in (
            ({}, "r_l and resource_name must be set."),
            ({**SETTINGS, "model": "forest"}, "model forest is not supported in bohb"),
            ({**SETTINGS, "random_fraction": 2}, "random_fraction should be less or equal than 1"),
        ):
            assert refusal(service.validate, an_experiment("bohb", SPACE, settings=settings))[1] == expected
