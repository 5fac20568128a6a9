"""The parts around the model: minimizer, acquisition, transform of outcomes, design, encoding, subset."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from katib.model.space import Point
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.gp.acquisition import ExpectedImprovement, log_h
from suggestion_services.gp.cost import Cost, share_of_cost
from suggestion_services.gp.design import design_point
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import GaussianModel, subset
from suggestion_services.gp.optimize import FloatArray, IntArray, minimize
from suggestion_services.gp.steps import final_scores
from suggestion_services.gp.warping import fit_transform
from tests.support.searches import problem_for
from tests.support.suggestion import a_parameter

MIXED = [
    a_parameter("x", min="1e-4", max="1", distribution=pb.LOG_UNIFORM),
    a_parameter("s", min="0", max="1", step="0.3"),
    a_parameter("c", pb.CATEGORICAL, list=["a", "b", "c"]),
    a_parameter("i", pb.INT, min="-5", max="5"),
    a_parameter("n", pb.INT, min="1", max="3000", distribution=pb.LOG_NORMAL),
    a_parameter("b", min="0", max="2", distribution=pb.NORMAL),
    a_parameter("d", pb.DISCRETE, list=["16", "4", "64"]),
    a_parameter("k", pb.CATEGORICAL, list=["constant"]),
]


def rosenbrock(x: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    a, b = x[:, 0], x[:, 1]
    gradient = np.stack([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)], axis=1)
    return (1 - a) ** 2 + 100 * (b - a * a) ** 2, gradient


def test_every_start_reaches_the_minimum_of_a_narrow_valley() -> None:
    starts = np.array([[-1.2, 1.0], [0.0, 0.0], [3.0, -2.0]])

    x, f = minimize(rosenbrock, starts, np.full(2, -5.0), np.full(2, 5.0), evaluations=300, tolerance=1e-14)

    assert x == pytest.approx(np.ones((3, 2)), abs=1e-3)
    assert np.all(f < 1e-6)


def test_bounds_hold_and_a_minimum_at_a_bound_is_found() -> None:
    low, high = np.array([-5.0, -5.0]), np.array([5.0, 0.5])

    x, _ = minimize(rosenbrock, np.zeros((1, 2)), low, high, evaluations=300, tolerance=1e-14)

    assert x[0, 1] == 0.5
    assert x[0, 0] == pytest.approx(0.7086, abs=1e-3)


def test_equal_bounds_hold_a_variable_for_one_start_and_not_for_another() -> None:
    low, high = np.full((2, 2), -5.0), np.full((2, 2), 5.0)
    low[0, 0] = high[0, 0] = 2.0

    x, _ = minimize(rosenbrock, np.zeros((2, 2)), low, high, evaluations=300, tolerance=1e-14)

    assert x == pytest.approx(np.array([[2.0, 4.0], [1.0, 1.0]]), abs=1e-3)


def test_infinite_and_undefined_values_are_walls() -> None:
    def walled(x: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        inside = x[:, 0] < 0.5
        return np.where(inside, -x[:, 0], np.where(x[:, 0] < 0.7, np.nan, np.inf)), np.full(x.shape, -1.0)

    x, f = minimize(walled, np.array([[0.0], [0.9]]), np.zeros(1), np.ones(1), evaluations=50)

    assert 0.4 < x[0, 0] < 0.5
    assert (x[1, 0], f[1]) == (0.9, math.inf)


def test_known_scales_save_evaluations() -> None:
    scales = np.array([1.0, 1e-3])

    def ellipse(x: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        return np.sum((x / scales) ** 2, axis=1), 2 * x / scales**2

    start, bound = np.array([[1.0, 2e-3]]), np.full(2, 5.0)
    _, known = minimize(ellipse, start, -bound, bound, evaluations=6, scales=scales)
    _, unknown = minimize(ellipse, start, -bound, bound, evaluations=6)

    assert known[0] < 1e-6 < unknown[0]


@pytest.mark.parametrize("u", [-30.0, -8.0, -1.1, -0.9, 0.0, 5.0])
def test_log_h_is_the_logarithm_of_the_expected_improvement(u: float) -> None:
    integral, _ = quad(lambda t: t * norm.pdf(t - u) / norm.pdf(u if u < 0 else 0.0), 0.0, max(u, 0.0) + 12.0)

    expected = math.log(integral) + norm.logpdf(u if u < 0 else 0.0)
    assert log_h(np.array([u]))[0][0] == pytest.approx(expected, rel=1e-6)


def test_log_h_stays_finite_and_its_derivative_exact_far_out() -> None:
    u = np.array([-1e8, -2e3, -1000.1, -999.9, -40.0, -1.0001, -0.9999, 3.0, 1e3])
    step = 1e-7 * np.maximum(1.0, np.abs(u))

    values, slopes = log_h(u)

    assert np.all(np.isfinite(values))
    assert np.all(np.diff(values) > 0)
    assert slopes == pytest.approx((log_h(u + step)[0] - log_h(u - step)[0]) / (2 * step), rel=1e-3)


def promise_of(*, constrained: bool, noise: float = -9.0) -> ExpectedImprovement:
    random = np.random.default_rng(0)
    layout = ThetaLayout(groups=np.arange(2), warped=np.arange(2), numbers=np.arange(2))
    x = random.random((8, 2))
    theta = layout.expand(-0.5, 0.0, noise, -2.0, 0.1)
    models = [GaussianModel(x, random.normal(size=8), layout, theta) for _ in range(3)]
    if not constrained:
        return ExpectedImprovement(models[0], -0.5)
    return ExpectedImprovement(models[0], -0.5, constraints=models[1:2], cost=Cost(models[2], 0.7))


@pytest.mark.parametrize(
    "promise",
    [
        pytest.param(promise_of(constrained=False), id="alone"),
        pytest.param(promise_of(constrained=True), id="constrained, with a cost"),
        pytest.param(promise_of(constrained=True, noise=-1.0).of_means(), id="noisy"),
    ],
)
def test_the_slope_of_the_promise_is_exact(promise: ExpectedImprovement) -> None:
    x = 0.1 + 0.8 * np.random.default_rng(1).random((6, 2))

    values, slopes = promise.with_slopes(x)

    assert values == pytest.approx(promise(x))
    for column in range(2):
        step = 1e-6 * np.eye(2)[column]
        assert slopes[:, column] == pytest.approx((promise(x + step) - promise(x - step)) / 2e-6, rel=1e-4, abs=1e-5)


def test_noise_makes_the_best_mean_the_goal() -> None:
    exact, noisy = promise_of(constrained=False), promise_of(constrained=False, noise=-1.0)

    assert exact.of_means() is exact
    assert noisy.of_means().best == pytest.approx(np.min(noisy.objective.predict(noisy.objective.x)[0]))


def test_a_well_known_point_of_a_noisy_problem_is_not_repeated_to_no_end() -> None:
    noisy = promise_of(constrained=False, noise=-1.0).of_means()
    point = np.array([[0.4, 0.6]])

    known = noisy.believing(np.repeat(point, 50, axis=0), np.full(2, 1e-9))

    assert known(point)[0] < noisy(point)[0] - 2
    assert known(point)[0] < replace(known, noise=0.0)(point)[0] - 1


def test_a_running_trial_takes_the_promise_of_its_place() -> None:
    promise, x = promise_of(constrained=True), np.random.default_rng(1).random((3, 2))

    assert np.all(promise.believing(x, np.full(2, 0.1))(x) < promise(x) - 1)


def test_a_crowd_of_running_trials_keeps_others_away_and_the_slope_says_where() -> None:
    promise, x = promise_of(constrained=False), 0.5 + 0.01 * np.random.default_rng(1).random((4, 2))
    reach, aside = np.array([0.1, 0.2]), np.array([[0.5, 0.62], [0.45, 0.45]])

    crowded = promise.believing(x, reach)
    lonely = promise.believing(x, reach / 100)

    assert np.all(crowded(aside) < lonely(aside) - 0.1)
    assert crowded(aside + 0.4) == pytest.approx(lonely(aside + 0.4), abs=0.01)
    for column in range(2):
        step = 1e-6 * np.eye(2)[column]
        numeric = (crowded(aside + step) - crowded(aside - step)) / 2e-6
        assert crowded.with_slopes(aside)[1][:, column] == pytest.approx(numeric, rel=1e-3, abs=1e-5)  # of differences


def test_costs_count_less_and_less_as_the_budget_is_spent() -> None:
    assert [share_of_cost(n, 40) for n in (0, 10, 40, 50)] == [1, 0.75, 0, 0]
    assert share_of_cost(0, None) == 1 > share_of_cost(50, None) > share_of_cost(500, None) > 0


def test_skewed_values_become_nearly_normal_in_the_same_order() -> None:
    values = np.exp(1.5 * np.random.default_rng(0).normal(size=200))

    scores = fit_transform(values)(values)

    assert np.array_equal(np.argsort(values), np.argsort(scores))
    assert abs(np.mean(((scores - scores.mean()) / scores.std()) ** 3)) < 1
    assert np.abs(scores).max() < 6


@pytest.mark.parametrize(
    "values", [[1.0], [2.0, 2.0, 2.0], [1e100, -1e100, 0.0], [1e-300, 2e-300], [1e12 + 1e-4, 1e12]], ids=str
)
def test_a_transform_of_odd_values_is_finite(values: list[float]) -> None:
    assert np.all(np.isfinite(fit_transform(np.array(values))(np.array(values))))


def test_equal_values_have_equal_scores_of_nothing_however_huge() -> None:
    """The mean of eleven times -1e100 is not exactly that."""
    values = np.full(11, -1e100)

    assert fit_transform(values)(values) == pytest.approx(np.zeros(11), abs=1e-9)


def test_the_design_begins_in_the_middle_and_then_has_one_point_in_every_stratum() -> None:
    points = np.array([design_point(k, 6, 4, seed=7) for k in range(9)])

    assert points[0] == pytest.approx(np.full(6, 0.5))
    for block in (points[1:5], points[5:9]):
        assert np.array_equal(np.sort(np.floor(block * 4), axis=0), np.repeat(np.arange(4.0)[:, None], 6, axis=1))
    assert not np.allclose(points[1:5], points[5:9])


def test_a_point_is_the_same_after_its_row() -> None:
    space = problem_for("gp", MIXED).space
    encoding = Encoding(space)
    for seed in range(50):
        point = space.sample(problem_for("gp", MIXED, settings={"random_state": seed}).random(0))

        again = encoding.point(encoding.row(point))

        assert list(again) == list(point)
        assert {**again, "x": 0, "b": 0, "n": 0} == {**point, "x": 0, "b": 0, "n": 0}
        assert [float(again[name]) for name in "xbn"] == pytest.approx([float(point[name]) for name in "xbn"], rel=1e-2)


def test_every_row_that_is_drawn_is_a_row_of_its_point() -> None:
    encoding = Encoding(problem_for("gp", MIXED).space)
    rows = encoding.from_units(np.random.default_rng(0).random((50, encoding.count)))

    again = np.array([encoding.row(encoding.point(row)) for row in rows])

    assert encoding.snap(rows) == pytest.approx(rows)
    assert again == pytest.approx(rows, abs=1e-2)


def test_two_categories_are_at_distance_one() -> None:
    columns = Encoding(problem_for("gp", MIXED[2:3]).space).columns(np.array([[0.0], [1.0], [2.0]]))

    assert np.sum((columns[0] - columns[1]) ** 2) == pytest.approx(1.0)


def conditional() -> list[pb.ParameterSpec]:
    """Return a space in which `depth` is there for trees only, and `deep` for trees of depth 3 only."""
    depth = a_parameter("depth", pb.INT, min="1", max="3")
    depth.when.parameter = "model"
    depth.when.values.append("tree")
    deep = a_parameter("deep")
    deep.when.parameter = "depth"
    deep.when.values.append("3")
    return [a_parameter("model", pb.CATEGORICAL, list=["tree", "line"]), depth, deep]


def test_points_that_differ_in_absent_parameters_only_are_one_row() -> None:
    space = problem_for("gp", conditional()).space
    encoding = Encoding(space)
    rows = encoding.from_units(np.random.default_rng(0).random((200, encoding.count)))

    def names(point: Point) -> set[str]:
        return set(space.active(point))

    assert len({tuple(row) for row in rows if names(encoding.point(row)) == {"model"}}) == 1
    assert len({tuple(row) for row in rows if names(encoding.point(row)) == {"model", "depth"}}) == 2
    for row in rows[:20]:
        assert np.array_equal(encoding.row(space.complete(encoding.point(row))), row)


def test_a_subset_has_the_best_and_is_the_same_each_time() -> None:
    random = np.random.default_rng(0)
    rows, scores = random.random((500, 3)), random.normal(size=500)

    kept = subset(rows, scores, 90)

    assert len(kept) == 90
    assert set(np.argsort(scores)[:30]) <= set(kept)
    assert np.array_equal(kept, subset(rows, scores, 90))


def test_a_stopped_trial_is_as_bad_as_others_that_ran_to_their_end_and_no_better_than_its_value() -> None:
    layout = ThetaLayout(groups=np.arange(1), warped=np.arange(0), numbers=np.arange(1))
    x = np.linspace(0.0, 1.0, 12)[:, None]
    final = 4.0 * (x[:, 0] - 0.3) ** 2 - 1.0
    steps = np.where(np.arange(12) % 3 == 0, np.nan, 1.0)
    scores = np.where(np.isnan(steps), final, final + 2.0)
    scores[7], steps[7] = -1.5, 9.0

    found = final_scores(x, scores, steps, layout)

    stopped = np.flatnonzero(steps == 1.0)
    assert found[7] == -1.5
    assert np.array_equal(found[np.isnan(steps)], scores[np.isnan(steps)])
    assert np.all(found[stopped] >= np.median(scores[np.isnan(steps)]))
    assert np.all(found[stopped] < scores[stopped])
    assert final_scores(x, scores, np.full(12, np.nan), layout) is scores
    assert final_scores(x, scores, np.ones(12), layout) is scores
