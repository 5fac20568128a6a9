"""`nsga2`: generations from the history, several objectives, constraints, and what it wins over chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.several_objectives import PROBLEMS, searched_by_optuna, searched_by_us, share_covered
from katib.model.types import MetricConstraint
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.base.algorithm import Problem, Proposal
from suggestion_services.nsga2.nsga2 import GENERATION, Nsga2
from tests.support.searches import problem_for
from tests.support.suggestion import a_parameter

SPACE = [
    a_parameter("x"),
    a_parameter("n", pb.INT, min="1", max="20"),
    a_parameter("c", pb.CATEGORICAL, list=["a", "b", "c"]),
]


def problem(
    *, directions: tuple[bool, ...] = (False, False), bound: float | None = None, **settings: object
) -> Problem:
    given = {"random_state": 3, "population_size": 6, **settings}
    constraints = () if bound is None else (MetricConstraint(metric_name="memory", max=bound),)
    return replace(problem_for("nsga2", SPACE, settings=given), directions=directions, constraints=constraints)


def measured(proposal: Proposal, number: int, *, bound: float | None = None, sign: int = 1) -> PastTrial:
    """Return the trial of a proposal: small x is good for the first objective, large x for the second."""
    x, n, worse = (float(proposal.assignments["x"]), int(proposal.assignments["n"]), proposal.assignments["c"] != "b")
    values = sign * (x + worse), sign * (1 - x + n / 10)
    violations = () if bound is None else (max(0.0, x - bound),)
    return PastTrial(
        f"t{number:04}",
        TrialOutcome.MEASURED,
        proposal.assignments,
        values[0],
        others=values[1:],
        violations=violations,
        labels=proposal.labels,
    )


def proposals(algorithm: Nsga2, trials: Sequence[PastTrial], count: int = 1) -> list[Proposal]:
    return list(algorithm.suggest(trials, first=len(trials), count=count))


def searched(algorithm: Nsga2, budget: int, *, parallel: int = 1, **options: float) -> list[PastTrial]:
    trials: list[PastTrial] = []
    while len(trials) < budget:
        for proposal in proposals(algorithm, trials, parallel):
            trials.append(measured(proposal, len(trials), **options))  # type: ignore[arg-type]  # by name
    return trials


def generations(trials: Sequence[PastTrial]) -> list[int]:
    return [int(trial.labels[GENERATION]) for trial in trials]


def test_a_generation_begins_when_as_many_were_measured_as_the_population_has() -> None:
    assert generations(searched(Nsga2(problem()), 20)) == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 2


def test_failed_trials_do_not_fill_a_generation() -> None:
    trials = searched(Nsga2(problem()), 6)
    failed = [replace(trial, outcome=TrialOutcome.BAD, objective=math.nan, others=(math.nan,)) for trial in trials[:2]]

    assert proposals(Nsga2(problem()), [*failed, *trials[2:]])[0].labels == {GENERATION: "0"}


def test_a_suggestion_is_a_function_of_the_history_alone() -> None:
    """One object that saw every trial arrive answers as a new one; what it keeps is a cache."""
    old = Nsga2(problem())
    trials = searched(old, 40)

    assert proposals(old, trials, 5) == proposals(Nsga2(problem()), trials, 5)

    changed = [*trials[:3], replace(trials[3], objective=9.0), *trials[4:]]

    assert proposals(old, changed, 5) == proposals(Nsga2(problem()), changed, 5)


def test_trials_without_a_label_and_earlier_ones_are_the_first_generation() -> None:
    trials = [replace(trial, labels={}) for trial in searched(Nsga2(problem()), 6)]
    earlier = [replace(trial, is_earlier=True, labels={GENERATION: "7"}) for trial in trials]

    assert proposals(Nsga2(problem()), trials)[0].labels == {GENERATION: "1"}
    assert proposals(Nsga2(problem()), earlier)[0].labels == {GENERATION: "1"}
    assert proposals(Nsga2(problem()), [replace(trials[0], labels={GENERATION: "x"})])[0].labels == {GENERATION: "0"}


def test_no_point_is_given_twice_while_others_are_free() -> None:
    algorithm = Nsga2(replace(problem_for("nsga2", SPACE[1:], settings={"population_size": 4, "random_state": 1})))
    trials: list[PastTrial] = []
    for i in range(40):
        (proposal,) = proposals(algorithm, trials)
        loss = float(proposal.assignments["n"])
        trials.append(PastTrial(f"t{i:03}", TrialOutcome.MEASURED, proposal.assignments, loss, labels=proposal.labels))

    assert len({tuple(trial.assignments.values()) for trial in trials}) == 40  # of 60


def test_children_are_better_than_chance_in_every_objective() -> None:
    trials = searched(Nsga2(problem()), 90)

    def wasted(some: Sequence[PastTrial]) -> float:
        return sum(t.assignments["c"] != "b" or int(t.assignments["n"]) > 6 for t in some) / len(some)

    assert wasted(trials[-30:]) < 0.7 < wasted(trials[:6])


def test_maximizing_is_minimizing_the_negative() -> None:
    trials = searched(Nsga2(problem()), 15)
    negated = [replace(t, objective=-t.objective, others=tuple(-v for v in t.others)) for t in trials]
    up = problem(directions=(True, True))

    assert proposals(Nsga2(problem()), trials, 3) == proposals(Nsga2(up), negated, 3)


def test_trials_outside_the_constraints_are_worse_than_those_within() -> None:
    bounded, free = (searched(Nsga2(problem(bound=bound)), 60, bound=0.3) for bound in (0.3, 0.3))
    without = searched(Nsga2(problem()), 60)

    def outside(trials: Sequence[PastTrial]) -> int:
        return sum(float(trial.assignments["x"]) > 0.3 for trial in trials[30:])

    assert bounded == free
    assert outside(bounded) < outside(without) / 2


@pytest.mark.parametrize("violation", [math.nan, math.inf], ids=["unread", "infinite"])
def test_a_bounded_metric_without_a_number_counts_as_far_outside(violation: float) -> None:
    trials = searched(Nsga2(problem(bound=0.3)), 8, bound=0.3)
    odd = [replace(trials[0], violations=(violation,)), *trials[1:]]

    assert len(proposals(Nsga2(problem(bound=0.3)), odd, 4)) == 4


@pytest.mark.parametrize(
    "settings",
    [{"population_size": 3}, {"mutation_prob": 1.0}, {"crossover_prob": 0.0}, {"swapping_prob": 0.0}],
    ids=lambda settings: next(iter(settings)),
)
def test_every_setting_has_its_effect(settings: dict[str, object]) -> None:
    trials = searched(Nsga2(problem()), 13)

    assert proposals(Nsga2(problem()), trials, 4) != proposals(Nsga2(problem(**settings)), trials, 4)


@pytest.mark.parametrize(("budget", "expected"), [(0, 50), (20, 10), (400, 20), (9000, 50)])
def test_the_population_grows_with_the_budget(budget: int, expected: int) -> None:
    algorithm = Nsga2(replace(problem_for("nsga2", SPACE, max_trial_count=budget), directions=(False, False)))

    assert generations(searched(algorithm, expected + 1))[-2:] == [0, 1]


@pytest.mark.parametrize("name", ["ZDT1", "ZDT3", "DTLZ2"])
def test_it_covers_at_least_what_optunas_sampler_does(name: str) -> None:
    """Fewer problems, seeds and trials than in benchmarks/several_objectives.py, whose figures are in the docs."""
    (found,) = [problem for problem in PROBLEMS if problem.name == name]
    ours, theirs = (
        sum(share_covered(found, search(seed)) for seed in range(2))
        for search in (
            lambda seed: searched_by_us(found, "nsga2", seed=seed, budget=150, parallel=2),
            lambda seed: searched_by_optuna(found, "NSGAIISampler", seed=seed, budget=150, parallel=2),
        )
    )

    assert ours > 0.98 * theirs
