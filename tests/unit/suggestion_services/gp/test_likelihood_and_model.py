"""The Gaussian process: gradients against differences, posterior against the formulas of the textbook."""

from __future__ import annotations

import numpy as np
import pytest

from suggestion_services.gp.kernel import matern, squared_distances
from suggestion_services.gp.likelihood import JITTER, Likelihood, ThetaLayout, trend_bases
from suggestion_services.gp.model import GaussianModel, fit
from suggestion_services.gp.optimize import FloatArray
from suggestion_services.gp.warping import kumaraswamy

LAYOUT = ThetaLayout(groups=np.array([0, 1, 2, 3, 3, 3, 3]), warped=np.array([0, 2]), numbers=np.arange(3))
"""Three numbers, of which two are warped, and a category of four values."""


def columns(n: int, seed: int = 0) -> FloatArray:
    random = np.random.default_rng(seed)
    categories = np.eye(4)[random.integers(0, 4, n)] * np.sqrt(0.5)
    return np.concatenate([0.05 + 0.9 * random.random((n, 3)), categories], axis=1)


def hyperparameters(seed: int = 1) -> FloatArray:
    return 0.4 * np.random.default_rng(seed).normal(size=4 + 4 + 4)


def covariance(a: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """Return the covariance (n, m) of the function, one pair at a time, from its definition."""
    lengths, (matern_variance, _, linear, quadratic) = np.exp(theta[:4]), np.exp(theta[4:8])
    result = np.empty((len(a), len(b)))
    for i, p in enumerate(a):
        for j, q in enumerate(b):
            x, y = p.copy(), q.copy()
            for column, exponent, other in zip((0, 2), np.exp(theta[8:10]), np.exp(theta[10:12]), strict=True):
                x[column], y[column] = (1 - (1 - v[column] ** exponent) ** other for v in (p, q))
            t = np.sqrt(5 * np.sum(((x - y) / lengths[LAYOUT.groups]) ** 2))
            trend = 0.0
            for c in range(3):
                u, v = 2 * p[c] - 1, 2 * q[c] - 1
                trend += linear * 3 * u * v / 4 + quadratic * 5 * (1.5 * u * u - 0.5) * (1.5 * v * v - 0.5) / 4
            trend += linear * 2 * (p[3:] @ q[3:]) / 4
            result[i, j] = matern_variance * (1 + t + t * t / 3) * np.exp(-t) + trend
    return result


def test_the_slope_of_the_kernel_is_its_derivative_also_at_zero() -> None:
    r2 = np.array([0.0, 0.3, 2.0])

    assert (matern(r2 + 1e-7)[0] - matern(r2)[0]) / 1e-7 == pytest.approx(matern(r2)[1], abs=1e-5)


def test_distances_are_never_negative() -> None:
    x = np.full((3, 2), 0.1234567)

    assert np.all(squared_distances(x, x) >= 0)


def test_the_gradient_of_the_likelihood_is_exact() -> None:
    likelihood = Likelihood(columns(12), np.random.default_rng(2).normal(size=12), LAYOUT)
    theta, rows, step = np.stack([hyperparameters(1), hyperparameters(3)]), np.arange(2), 1e-5
    differences = np.stack(
        [
            (likelihood(theta + step * unit, rows)[0] - likelihood(theta - step * unit, rows)[0]) / (2 * step)
            for unit in np.eye(12)
        ],
        axis=1,
    )

    assert likelihood(theta, rows)[1] == pytest.approx(differences, abs=1e-6)


def test_the_likelihood_is_that_of_a_normal_distribution_times_the_prior() -> None:
    x, y = columns(9), np.random.default_rng(2).normal(size=9)
    likelihood, theta = Likelihood(x, y, LAYOUT), hyperparameters()
    k = covariance(x, x, theta) + (np.exp(theta[5]) + JITTER * np.exp(theta[4])) * np.eye(9)
    expected = 0.5 * y @ np.linalg.solve(k, y) + 0.5 * np.linalg.slogdet(k)[1]

    prior = Likelihood(x[:0], y[:0], LAYOUT)(theta[None], np.arange(1))[0][0]
    assert likelihood(theta[None], np.arange(1))[0][0] - prior == pytest.approx(expected)


def test_several_candidates_at_once_are_the_same_as_one_by_one() -> None:
    likelihood = Likelihood(columns(12), np.random.default_rng(2).normal(size=12), LAYOUT)
    theta = np.stack([hyperparameters(seed) for seed in range(3)])

    together = likelihood(theta, np.arange(3))

    for i in range(3):
        values, gradients = likelihood(theta[i : i + 1], np.array([i]))
        assert together[0][i] == pytest.approx(values[0])
        assert together[1][i] == pytest.approx(gradients[0])


def test_the_starts_of_several_objectives_take_turns() -> None:
    y, theta = np.random.default_rng(2).normal(size=(2, 12)), np.stack([hyperparameters(seed) for seed in range(4)])

    values = Likelihood(columns(12), y, LAYOUT)(theta, np.arange(4))[0]

    alone = [Likelihood(columns(12), y[i % 2], LAYOUT)(theta[i : i + 1], np.array([0]))[0][0] for i in range(4)]
    assert values == pytest.approx(alone)


def test_the_posterior_is_that_of_the_direct_formulas() -> None:
    x, q, theta = columns(10), columns(5, seed=9), hyperparameters()
    y = np.random.default_rng(2).normal(size=10)
    k = covariance(x, x, theta) + (np.exp(theta[5]) + JITTER * np.exp(theta[4])) * np.eye(10)
    cross, prior = covariance(q, x, theta), covariance(q, q, theta)

    mean, variance = GaussianModel(x, y, LAYOUT, theta).predict(q)

    assert mean == pytest.approx(cross @ np.linalg.solve(k, y))
    assert variance == pytest.approx(np.diag(prior - cross @ np.linalg.solve(k, cross.T)))


def test_the_slopes_of_the_posterior_are_exact() -> None:
    model = GaussianModel(columns(10), np.random.default_rng(2).normal(size=10), LAYOUT, hyperparameters())
    q = columns(5, seed=9)

    mean, variance, by_mean, by_variance = model.predict_with_slopes(q)

    assert (mean, variance) == (pytest.approx(model.predict(q)[0]), pytest.approx(model.predict(q)[1]))
    for column in range(3):
        step = 1e-6 * np.eye(7)[column]
        above, below = model.predict(q + step), model.predict(q - step)
        assert by_mean[:, column] == pytest.approx((above[0] - below[0]) / 2e-6, abs=1e-6)
        assert by_variance[:, column] == pytest.approx((above[1] - below[1]) / 2e-6, abs=1e-6)


def test_believing_a_running_trial_changes_no_mean_and_leaves_less_to_learn() -> None:
    model = GaussianModel(columns(10), np.random.default_rng(2).normal(size=10), LAYOUT, hyperparameters())
    q = columns(3, seed=9)

    believing = model.believing(q)

    assert believing.predict(q)[0] == pytest.approx(model.predict(q)[0], abs=1e-6)
    assert np.all(believing.predict(q)[1] < model.predict(q)[1])


def test_identical_rows_without_noise_still_have_a_model() -> None:
    theta = LAYOUT.expand(0.0, 0.0, -80.0, -80.0, 0.0)

    mean, variance = GaussianModel(np.repeat(columns(1), 5, axis=0), np.ones(5), LAYOUT, theta).predict(columns(1))

    assert mean == pytest.approx([1.0], abs=1e-2)
    assert np.all(variance > 0)


def test_a_warp_maps_the_interval_onto_itself_and_its_derivatives_are_exact() -> None:
    x, a, b = np.array([0.01, 0.3, 0.9]), np.array(0.4), np.array(1.7)
    step = 1e-6

    w, by_x, by_log_a, by_log_b = kumaraswamy(x, a, b)

    assert kumaraswamy(np.array([0.0, 1.0]), a, b)[0] == pytest.approx([0.0, 1.0], abs=0.01)
    assert by_x == pytest.approx((kumaraswamy(x + step, a, b)[0] - w) / step, rel=1e-3)
    assert by_log_a == pytest.approx((kumaraswamy(x, a * np.exp(step), b)[0] - w) / step, rel=1e-3)
    assert by_log_b == pytest.approx((kumaraswamy(x, a, b * np.exp(step))[0] - w) / step, rel=1e-3)


def test_what_does_not_matter_gets_the_longest_scale() -> None:
    x = np.random.default_rng(4).random((40, 3))
    layout = ThetaLayout(groups=np.arange(3), warped=np.arange(3), numbers=np.arange(3))

    lengths = layout.lengths(fit(x, np.sin(9 * x[:, 1]), layout).theta)
    assert lengths[1] < min(lengths[0], lengths[2]) - 1


def test_a_logarithm_that_nobody_declared_is_found() -> None:
    x = np.random.default_rng(4).random((40, 1)) ** 3
    layout = ThetaLayout(groups=np.arange(1), warped=np.arange(1), numbers=np.arange(1))

    a, _ = layout.exponents(fit(x, np.sin(2 * np.log(x[:, 0] + 1e-3)), layout).theta)
    assert a[0] < 0.8


def test_a_straight_line_is_continued_beyond_what_was_seen() -> None:
    x = np.linspace(0.0, 0.5, 8)[:, None]
    layout = ThetaLayout(groups=np.arange(1), warped=np.arange(1), numbers=np.arange(1))

    mean, _ = fit(x, 4 * x[:, 0] - 1, layout).predict(np.array([[1.0]]))

    assert mean[0] == pytest.approx(3.0, abs=0.3)


def test_features_of_the_trend_are_orthonormal() -> None:
    layout = ThetaLayout(groups=np.arange(1), warped=np.arange(1), numbers=np.arange(1))

    linear, quadratic = trend_bases((np.arange(10_000)[:, None] + 0.5) / 10_000, layout)

    gram = np.concatenate([linear, quadratic], axis=1)
    assert gram.T @ gram / 10_000 == pytest.approx(np.eye(2), abs=1e-6)
