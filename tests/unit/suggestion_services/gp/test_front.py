"""Hypervolume improvement: boxes and expectations against brute force, and the search that uses them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.several_objectives import PROBLEMS, searched_by_us, share_covered
from katib.model.pareto import dominates, front, hypervolume
from katib.model.types import MetricConstraint
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.front import HypervolumeImprovement, boxes_of, fit_front, front_of, reference_of, swept
from suggestion_services.gp.gp import GaussianProcess
from suggestion_services.gp.history import ModelHistory, beaten_by
from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import GaussianModel
from suggestion_services.gp.optimize import FloatArray
from tests.support.searches import ZOO, algorithm_for, problem_for, texts
from tests.support.suggestion import a_parameter


def points(m: int, n: int = 40) -> FloatArray:
    return np.random.default_rng(m).random((n, m))


def improvement_of(m: int, *, noise: float = 0.0, y: FloatArray | None = None) -> HypervolumeImprovement:
    """Return the improvement of the front of eight trials in the plane, with scores of waves by default."""
    random = np.random.default_rng(m)
    layout = ThetaLayout(groups=np.arange(2), warped=np.arange(2), numbers=np.arange(2))
    x, theta = random.random((8, 2)), layout.expand(-0.5, 0.0, np.log(noise or 1e-4), -2.0, 0.1)
    y = np.sin(3.0 * x @ random.normal(size=(2, m))) if y is None else y
    models = tuple(GaussianModel(x, scores, layout, theta) for scores in y.T)
    found = front_of(y)
    return HypervolumeImprovement(models, found, reference_of(found), np.full(m, noise))


@pytest.mark.parametrize("m", [2, 3, 4])
def test_a_point_below_the_reference_lies_in_one_box_if_nothing_dominates_it(m: int) -> None:
    y, reference = points(m), np.full(m, 0.9)
    low, high = boxes_of(front_of(y), reference)

    for point in points(m, 300) * 1.2 - 0.1:
        inside = np.count_nonzero(np.all((low <= point) & (point < high), axis=1))
        free = np.all(point < reference) and not any(dominates(tuple(one), tuple(point)) for one in y)
        assert inside == free
    assert len(low) <= {2: len(y) + 1, 3: 3 * len(y)}.get(m, 1000)


@pytest.mark.parametrize("m", [2, 3])
def test_the_boxes_and_the_hypervolume_fill_the_space(m: int) -> None:
    y, reference = points(m), np.full(m, 1.1)
    low, high = boxes_of(front_of(y), reference)

    free = np.sum(np.prod(high - np.maximum(low, 0.0), axis=1))
    assert free + hypervolume(list(map(tuple, y)), tuple(reference)) == pytest.approx(1.1**m)


def test_the_front_and_the_counts_are_those_of_one_comparison_after_the_other() -> None:
    y = np.round(points(3, 700), 1)
    pairs = list(map(tuple, y))

    assert sorted(map(tuple, front_of(y))) == sorted({pairs[i] for i in front(pairs)})
    assert beaten_by(y).tolist() == [sum(dominates(one, other) for one in pairs) for other in pairs]


@pytest.mark.parametrize("m", [2, 3])
def test_the_gain_is_the_mean_growth_of_the_hypervolume(m: int) -> None:
    promise, x = improvement_of(m), np.array([[0.3, 0.8], [0.9, 0.1]])
    points, reference = list(map(tuple, promise.front)), tuple(promise.reference)
    predicted = [model.predict(x) for model in promise.models]
    draws = np.random.default_rng(0).normal(size=(4000, m))

    for i, gain in enumerate(promise.gain(x)):
        y = draws * [np.sqrt(variance[i]) for _, variance in predicted] + [mean[i] for mean, _ in predicted]
        grown = [hypervolume([*points, tuple(one)], reference) for one in y]
        assert np.exp(gain) == pytest.approx(np.mean(grown) - hypervolume(points, reference), rel=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.3], ids=["exact", "noisy"])
@pytest.mark.parametrize("m", [2, 3])
def test_the_slope_of_the_gain_is_exact(m: int, noise: float) -> None:
    promise, x = improvement_of(m, noise=noise), 0.1 + 0.8 * np.random.default_rng(1).random((6, 2))

    values, slopes = promise.with_slopes(x)

    assert values == pytest.approx(promise(x))
    for column in range(2):
        step = 1e-6 * np.eye(2)[column]
        assert slopes[:, column] == pytest.approx((promise(x + step) - promise(x - step)) / 2e-6, rel=1e-4, abs=1e-5)


def test_gains_too_small_for_a_sum_have_a_value_and_a_slope() -> None:
    x = np.random.default_rng(2).random((8, 2))
    far = improvement_of(2, y=np.column_stack([x[:, 0], 1.0 - x[:, 0]]))
    far = HypervolumeImprovement(far.models, far.front - 60.0, far.reference - 60.0, far.noises)

    values, slopes = far.with_slopes(np.array([[0.2, 0.4], [0.7, 0.6]]))

    assert np.all(values < -500)
    assert values == pytest.approx(far(np.array([[0.2, 0.4], [0.7, 0.6]])))
    assert np.all(np.isfinite(slopes))
    assert np.any(slopes)


def test_a_running_trial_takes_the_gain_of_its_place() -> None:
    promise, x = improvement_of(2), np.array([[0.3, 0.8]])

    assert promise.believing(x, np.full(2, 0.1))(x)[0] < promise(x)[0] - 1


def test_with_noise_means_are_improved_on_and_a_known_point_gains_little() -> None:
    exact, noisy = improvement_of(2), improvement_of(2, noise=0.3)
    means = np.column_stack([model.means for model in noisy.models])

    assert exact.of_means() is exact
    assert noisy.of_means().front == pytest.approx(front_of(means))


def test_the_reference_lies_beyond_one_end_of_the_front_if_the_model_knows_of_the_other() -> None:
    """All trials with a small first objective are far better in the second, which shows how others would be."""
    space = [a_parameter("x"), a_parameter("y")]
    encoding = Encoding(problem_for("gp", space).space)
    x = np.random.default_rng(0).random((20, 2))
    x[:10] = x[:10] * [0.02, 0.1]
    objectives = np.column_stack([x[:, 0], 3.0 * x[:, 1] - x[:, 0]])
    layout = ThetaLayout(encoding.groups, np.arange(0), np.arange(2))
    none, empty = np.full(20, np.nan), np.empty((0, 2))
    history = ModelHistory(x, beaten_by(objectives), empty, empty, empty, np.empty((0, 20)), objectives, none, none)

    promise = fit_front(history, encoding, layout, 100)

    assert promise.reference[0] > promise.front[:, 0].max() + 0.5


def test_a_sweep_changes_one_parameter_at_a_time() -> None:
    space = [a_parameter("x"), a_parameter("y"), a_parameter("z")]
    encoding = Encoding(problem_for("gp", space).space)
    rows = np.array([[0.3, 0.4, 0.6], [0.1, 0.2, 0.9]])

    found = swept(rows, encoding)

    assert len(found) == 2 * 3 * 5
    assert all(min(np.count_nonzero(row != center) for center in rows) == 1 for row in found)
    assert {round(value, 9) for value in found[:, 0]} >= {0.0, 0.25, 0.5, 0.75, 1.0}


def test_a_front_inside_the_space_is_found() -> None:
    """The share of the front after few trials, which differs much between seeds."""
    problem = next(problem for problem in PROBLEMS if problem.name == "moved ZDT1")

    found = [searched_by_us(problem, "gp", seed=seed, budget=45, parallel=1) for seed in range(4)]

    assert np.mean([share_covered(problem, one) for one in found]) > 0.4


@pytest.mark.parametrize("count", [2, 3, 5])
def test_points_of_any_kind_differ_and_repeat_beside_failed_and_running_trials_and_a_constraint(count: int) -> None:
    problem = problem_for("gp", ZOO[-1].parameters, settings={"random_state": 1})
    bounded = MetricConstraint(metric_name="size", max=1)
    problem = replace(problem, directions=(False, True, *[False] * (count - 2)), constraints=(bounded,))
    drawn = texts(algorithm_for("random", ZOO[-1].parameters, settings={"random_state": 1}), [], first=0, count=30)
    outcomes = [TrialOutcome.MEASURED] * 24 + [TrialOutcome.BAD] * 3 + [TrialOutcome.PENDING] * 3
    random = np.random.default_rng(0)
    trials = []
    for i, (point, outcome) in enumerate(zip(drawn, outcomes, strict=True)):
        values = [math.nan] * count
        if outcome is TrialOutcome.MEASURED:
            values = [float(point["x"]), float(point["layers"]), *random.normal(size=count - 2).tolist()]
        violations = (float(point["x"]) - 0.9,)
        trials.append(PastTrial(f"t{i}", outcome, point, values[0], others=tuple(values[1:]), violations=violations))

    found = texts(GaussianProcess(problem), trials, first=30, count=6)

    assert len({tuple(point.items()) for point in (*found, *drawn)}) == len(found) + len(drawn)
    assert texts(GaussianProcess(problem), trials, first=30, count=6) == found
