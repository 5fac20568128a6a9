"""Bayesian optimization: every option works, nothing is repeated, nothing is printed."""

from __future__ import annotations

import itertools

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.bayesian.bayesian import BayesianOptimization, gather
from tests.support.golden import Golden
from tests.support.searches import algorithm_for, problem_for, texts
from tests.support.suggestion import a_parameter

MIXED = [
    a_parameter("x", min="1e-4", max="1", distribution=pb.LOG_UNIFORM),
    a_parameter("s", min="0", max="1", step="0.3"),
    a_parameter("i", pb.INT, min="-5", max="5"),
    a_parameter("n", pb.INT, min="1", max="30", distribution=pb.LOG_NORMAL),
    a_parameter("d", pb.DISCRETE, list=["16", "4", "64"]),
    a_parameter("c", pb.CATEGORICAL, list=["a", "b"]),
    a_parameter("k", pb.CATEGORICAL, list=["constant"]),
]
SETTINGS = {"random_state": 1, "n_initial_points": 3}
CRITERIA = ("gp_hedge", "LCB", "EI", "PI", "EIps", "PIps")
OPTIONS = [  # acq_optimizer auto is one of them: lbfgs where there are gradients
    *itertools.product(["GP"], CRITERIA, ["sampling", "lbfgs"]),
    *((estimator, criterion, "sampling") for estimator in ("RF", "ET", "GBRT") for criterion in ("gp_hedge", "EIps")),
]


def measured(algorithm_name: str, parameters: list[pb.ParameterSpec], n: int) -> list[PastTrial]:
    points = texts(algorithm_for("random", parameters, settings={"random_state": 5}), [], first=0, count=n)
    return [PastTrial(f"t{i:03}", TrialOutcome.MEASURED, p, float(i), float(i % 3)) for i, p in enumerate(points)]


@pytest.mark.parametrize(("estimator", "criterion", "optimizer"), OPTIONS)
def test_every_combination_of_options_suggests_feasible_points(estimator: str, criterion: str, optimizer: str) -> None:
    settings = {**SETTINGS, "base_estimator": estimator, "acq_func": criterion, "acq_optimizer": optimizer}
    algorithm = algorithm_for("bayesianoptimization", MIXED, settings=settings)

    (point,) = texts(algorithm, measured("random", MIXED, 5), first=5)

    assert all(p.contains(point[p.name]) for p in algorithm.problem.space.parameters)


def test_gradients_are_asked_of_a_gaussian_process_only() -> None:
    problem = problem_for("bayesianoptimization", settings={"base_estimator": "RF", "acq_optimizer": "lbfgs"})

    assert [error.origin for error in BayesianOptimization.check(problem)] == ["setting-conflict"]


CATEGORIES = [a_parameter(name, pb.CATEGORICAL, list=["a", "b", "c", "d"]) for name in ("c", "k", "l")]


def test_a_space_of_nothing_but_categories_is_searched() -> None:
    algorithm = algorithm_for("bayesianoptimization", CATEGORIES, settings=SETTINGS)

    (point,) = texts(algorithm, measured("random", CATEGORIES, 5), first=5)

    assert all(p.contains(point[p.name]) for p in algorithm.problem.space.parameters)


def test_gradients_are_not_asked_of_categories(golden: Golden) -> None:
    problem = problem_for("bayesianoptimization", CATEGORIES, settings={"acq_optimizer": "lbfgs"})

    golden(BayesianOptimization.check(problem))


@pytest.mark.parametrize(
    "outcome", [TrialOutcome.BAD, TrialOutcome.SILENT, TrialOutcome.PENDING], ids=lambda o: o.value
)
def test_a_point_that_ended_badly_or_still_runs_is_not_suggested_again(outcome: TrialOutcome) -> None:
    parameters = [a_parameter("i", pb.INT, min="1", max="12")]
    algorithm = algorithm_for("bayesianoptimization", parameters, settings=SETTINGS)
    trials = [PastTrial(f"t{i:02}", TrialOutcome.MEASURED, {"i": str(i)}, float(i)) for i in (2, 5, 9)]
    for k in range(3, 12):
        (point,) = texts(algorithm, trials, first=k)
        trials.append(PastTrial(f"t{k:02}", outcome, point))

    assert sorted(int(t.assignments["i"]) for t in trials) == list(range(1, 13))


def test_points_of_one_request_differ() -> None:
    algorithm = algorithm_for("bayesianoptimization", MIXED, settings=SETTINGS)

    points = texts(algorithm, measured("random", MIXED, 5), first=5, count=4)

    assert len({tuple(point.values()) for point in points}) == 4


def test_without_initial_points_the_first_draw_is_random() -> None:
    algorithm = algorithm_for("bayesianoptimization", settings={"n_initial_points": 0})

    assert len(texts(algorithm, [], first=0, count=2)) == 2


def test_failures_count_as_the_worst_value_and_pending_as_the_mean() -> None:
    trials = [
        PastTrial("a", TrialOutcome.MEASURED, {"x": "0.1", "y": "0"}, 1.0, 10.0),
        PastTrial("b", TrialOutcome.MEASURED, {"x": "0.2", "y": "0"}, 5.0),
        PastTrial("c", TrialOutcome.BAD, {"x": "0.3", "y": "0"}),
        PastTrial("d", TrialOutcome.PENDING, {"x": "0.4", "y": "0"}),
        PastTrial("e", TrialOutcome.SILENT, {"x": "0.5", "y": "0"}),
        PastTrial("f", TrialOutcome.MEASURED, {"x": "7", "y": "0"}, 0.0),
    ]

    points, values, seconds = gather(problem_for("bayesianoptimization"), trials).table()

    assert [point["x"] for point in points] == [0.1, 0.2, 0.3, 0.4]
    assert values == [1.0, 5.0, 5.0, 3.0]
    assert seconds == [10.0] * 4
