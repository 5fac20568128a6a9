"""Means of repeated runs, their intervals, and probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from katib.service.tuning.certainty import estimates


def test_the_interval_of_one_configuration_is_that_of_student() -> None:
    (one,) = estimates([[1.0, 2.0, 3.0, 4.0, 5.0]])

    half = 2.1318 * math.sqrt(2.5 / 5)  # the 95 % quantile of four degrees of freedom
    assert (one.mean, one.probability) == (3.0, 1.0)
    assert one.low == pytest.approx(3 - half, abs=1e-3)
    assert one.high == pytest.approx(3 + half, abs=1e-3)


def test_one_run_of_each_tells_the_means_only() -> None:
    found = estimates([[2.0], [1.0]])

    assert [one.mean for one in found] == [2.0, 1.0]
    assert {one.probability for one in found} | {one.low for one in found} == {None}


def test_one_run_of_one_borrows_the_noise_of_the_others() -> None:
    found = estimates([[1.0], [1.0, 1.2, 1.1, 0.9], [5.0, 5.1]])

    assert all(one.low is not None and one.low < one.mean for one in found)
    assert found[2].probability == pytest.approx(0.0, abs=1e-3)
    assert sum(one.probability or 0 for one in found) == pytest.approx(1.0)


def test_without_noise_only_equal_means_leave_a_doubt() -> None:
    assert [one.probability for one in estimates([[1.0, 1.0], [2.0, 2.0]])] == [1.0, 0.0]
    assert [one.probability for one in estimates([[1.0, 1.0], [1.0, 1.0], [3.0, 3.0]])] == [0.5, 0.5, 0.0]
    assert [one.behind for one in estimates([[0.0, 0.0], [0.0, 0.0]])] == [None, 0.5]


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_probabilities_do_not_depend_on_the_scale(scale: float) -> None:
    runs = [[1.0, 1.3, 0.9], [1.1, 1.6, 1.2], [1.0, 2.0, 1.5]]

    found = estimates([[value * scale for value in values] for values in runs])

    assert [one.probability for one in found] == [one.probability for one in estimates(runs)]
    assert all(math.isfinite(one.low or math.inf) for one in found)


def test_a_lead_that_noise_explains_is_believed_less_than_by_the_noise_alone() -> None:
    first, second = estimates([[0.0, 1.0, -1.0, 0.5, -0.5], [0.6, 1.6, -0.4, 1.1, 0.1]])

    alone = 0.5 * (1 + math.erf(0.6 / (math.sqrt(2 * 0.625 / 5) * math.sqrt(2))))  # without a prior
    assert second.behind is not None
    assert 0.5 < second.behind < alone
    assert first.probability == pytest.approx(second.behind, abs=1e-9)


def test_stated_probabilities_are_those_of_the_truth() -> None:
    random = np.random.default_rng(7)
    stated, hits = [], []
    for _ in range(150):
        truths = random.normal(0.0, 0.5, 3)
        runs = [[float(x) for x in random.normal(truth, 1.0, 5)] for truth in truths]
        winner = min(range(3), key=lambda i: np.mean(runs[i]))
        stated.append(estimates(runs)[winner].probability or 0.0)
        hits.append(winner == truths.argmin())

    assert np.mean(stated) == pytest.approx(np.mean(hits), abs=0.1)
