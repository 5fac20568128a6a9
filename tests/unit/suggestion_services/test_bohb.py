"""BOHB: the brackets of Hyperband, with configurations that get better."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean, median

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.base.algorithm import PastTrial, TrialOutcome
from suggestion_services.bohb.evidence import evidence_at
from tests.support.halving import SETTINGS, SPACE, Run, a_learning_curve, algorithm_of, halving_problem
from tests.support.refusals import refusal
from tests.support.suggestion import a_parameter, an_experiment, served_here


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


@pytest.mark.slow
def test_it_beats_the_same_brackets_without_a_model_on_a_noisy_bowl() -> None:
    """The model that saw survivors alone did not: it went to corners, and repeated the first good trials."""
    optimum = {"x": 0.7, "y": -1.1, "z": 1.6}
    space = [a_parameter(name, min="-3", max="3") for name in optimum]
    space.append(a_parameter("epochs", pb.INT, min="1", max="27"))

    def loss(trial: PastTrial) -> float:
        return sum((float(trial.assignments[name]) - best) ** 2 for name, best in optimum.items())

    def end(trial: PastTrial) -> PastTrial:
        epochs = int(trial.assignments["epochs"])
        noise = Random(str(trial)).gauss(0, 1) / epochs**0.5
        return replace(trial, outcome=TrialOutcome.MEASURED, objective=loss(trial) + 4 / epochs + noise)

    def best_of(name: str, seed: int) -> float:
        problem = halving_problem(name, space, r_l=27, rounds=5, random_state=seed)
        trials = Run(problem, name, end=end).to_the_end().trials
        full = (trial for trial in trials if trial.assignments["epochs"] == "27")
        return loss(min(full, key=lambda trial: trial.objective))

    ours = median(best_of("bohb", seed) for seed in range(5))

    assert ours < median(best_of("hyperband", seed) for seed in range(5)) / 3


def test_configurations_that_ended_below_count_unless_their_resource_misleads() -> None:
    def past(x: float, epochs: int, loss: float) -> PastTrial:
        return PastTrial(f"{x}/{epochs}", TrialOutcome.MEASURED, {"x": str(x), "epochs": str(epochs)}, loss)

    def evidence(low: list[float], high: list[float]) -> list[float]:
        trials = {
            1.0: [past(i, 1, loss) for i, loss in enumerate(low)],
            3.0: [past(i, 3, loss) for i, loss in enumerate(high)],
        }
        return [trial.objective for trial in evidence_at(3.0, trials, "epochs")]

    assert evidence([2, 3, 4, 5, 6, 9], [1, 2, 3]) == [1, 2, 3, 4, 5, 8]
    assert evidence([1, 2, 3, 4, 5, 6, 7, 9], [7, 6, 5, 4, 3, 2, 1]) == [7, 6, 5, 4, 3, 2, 1]
    assert evidence([2, 3, 4], [1]) == [1]


def test_the_model_learns_from_the_largest_resource_that_enough_trials_had() -> None:
    """Where the short trainings mislead, those of the next rung are believed as soon as there are enough."""

    def past(i: int, epochs: int, best: float) -> PastTrial:
        x = (i + 0.5) / 20
        values = {"x": str(x), "y": "0.5", "epochs": str(epochs)}
        return PastTrial(f"t{epochs}-{i:02}", TrialOutcome.MEASURED, values, abs(x - best))

    misleading = [past(i, 1, 0.1) for i in range(20)]
    telling = [past(i, 3, 0.9) for i in range(20)]
    algorithm = algorithm_of(halving_problem("bohb", random_fraction=0, rounds=9), "bohb")

    def mean_of(trials: list[PastTrial]) -> float:
        given = list(algorithm.suggest(trials, first=len(trials), count=9))
        return fmean(float(p.assignments["x"]) for p in given)  # type: ignore[union-attr]  # proposals

    assert mean_of(misleading) < 0.4
    assert mean_of(sorted(misleading + telling[:2], key=lambda t: t.name)) < 0.4
    assert mean_of(sorted(misleading + telling, key=lambda t: t.name)) > 0.6


def test_a_gaussian_process_of_many_parameters_is_a_model_too() -> None:
    """From 15 parameters on its suggestions carry labels."""
    space = [*SPACE, *(a_parameter(f"z{i}") for i in range(15))]

    def last(random_fraction: float) -> PastTrial:
        problem = halving_problem(
            "bohb", space, max_trial_count=10, model="gp", n_startup_trials=3, random_fraction=random_fraction
        )
        return Run(problem, "bohb").to_the_end().trials[-1]

    assert last(0.0).assignments != last(1.0).assignments


def test_a_model_that_is_not_there_and_a_missing_resource_are_refused() -> None:
    with served_here("bohb") as service:
        for settings, expected in (
            ({}, "r_l and resource_name must be set."),
            ({**SETTINGS, "model": "forest"}, "model forest is not supported in bohb"),
            ({**SETTINGS, "random_fraction": 2}, "random_fraction should be less or equal than 1"),
        ):
            assert refusal(service.validate, an_experiment("bohb", SPACE, settings=settings))[1] == expected
