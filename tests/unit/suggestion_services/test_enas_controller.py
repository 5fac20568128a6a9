"""The controller's gradients against finite differences, and its probabilities against counts."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
import pytest

from suggestion_services.enas.controller import FloatArray, Pass, Shape, link_probability, replay, sample, softmax
from suggestion_services.enas.training import Learned, Training, learn, loss_gradient

SMALL = Shape(layers=4, operations=3, hidden=5)
TRIED = ((2,), (0, 1), (1, 0, 1), (2, 1, 1, 0))


def loss(training: Training, passed: Pass, advantage: float) -> float:
    """Return what a step minimizes, as the module says it."""
    target, total, divergences = training.skip_target, 0.0, []
    for (operation, *links), scores, link_scores in zip(
        passed.architecture, passed.scores, passed.link_scores, strict=True
    ):
        p, q = softmax(scores), link_probability(link_scores)
        entropy = -sum(x * math.log(x) for x in (*p, *q, *(1 - q)))
        chosen = [p[operation], *np.where(np.array(links) > 0, q, 1 - q)]
        total -= advantage * sum(map(math.log, chosen)) + training.entropy_weight * entropy
        divergences += [x * math.log(x / target) + (1 - x) * math.log((1 - x) / (1 - target)) for x in q]
    return float(total + training.skip_weight * np.mean(divergences or [0.0]))


def weights(shape: Shape) -> FloatArray:
    """Return weights large enough for every part of the gradient to matter."""
    return 60.0 * shape.initial(1)


@pytest.mark.parametrize(
    ("shape", "architecture"),
    [
        pytest.param(SMALL, TRIED, id="four-layers"),
        pytest.param(Shape(4, 3, 5, temperature=None, bound=None), TRIED, id="scores-as-they-are"),
        pytest.param(Shape(4, 3, 5, temperature=0.5, bound=1.5), TRIED, id="sharp"),
        pytest.param(Shape(1, 2, 1), ((1,),), id="one-layer-one-unit"),
    ],
)
def test_gradients_agree_with_finite_differences(shape: Shape, architecture: tuple[tuple[int, ...], ...]) -> None:
    training = Training(entropy_weight=0.3, skip_weight=0.7, skip_target=0.4)
    theta, advantage, step = weights(shape), 1.3, 1e-6

    found = loss_gradient(shape, training, theta, architecture, advantage)

    expected = np.empty_like(theta)
    for i in range(theta.size):
        values = []
        for side in (step, -step):
            moved = theta.copy()
            moved[i] += side
            values.append(loss(training, replay(shape, moved, architecture), advantage))
        expected[i] = (values[0] - values[1]) / (2 * step)
    assert np.abs(expected).max() > 0.001
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_an_architecture_has_one_operation_and_a_bit_per_earlier_layer() -> None:
    random = Random(3)

    for _ in range(50):
        architecture = sample(SMALL, weights(SMALL), random)
        assert [len(layer) for layer in architecture] == [1, 2, 3, 4]
        assert all(layer[0] in range(3) and {0, 1}.issuperset(layer[1:]) for layer in architecture)


def test_architectures_are_drawn_as_often_as_their_probability_says() -> None:
    shape = Shape(layers=2, operations=2, hidden=3, temperature=1.0)
    theta, n = 200.0 * shape.initial(2), 4000
    random = Random(5)

    counts = Counter(sample(shape, theta, random) for _ in range(n))

    for architecture, count in counts.items():
        passed = replay(shape, theta, architecture)
        expected = 1.0
        for (operation, *links), scores, link_scores in zip(
            passed.architecture, passed.scores, passed.link_scores, strict=True
        ):
            q = link_probability(link_scores)
            expected *= softmax(scores)[operation] * np.prod(np.where(np.array(links) > 0, q, 1 - q))
        assert abs(count / n - expected) < 5 * math.sqrt(expected * (1 - expected) / n)


def test_at_first_all_choices_are_nearly_equally_probable() -> None:
    passed = replay(Shape(4, 3), Shape(4, 3).initial(7), TRIED)

    for scores, link_scores in zip(passed.scores, passed.link_scores, strict=True):
        np.testing.assert_allclose(softmax(scores), 1 / 3, atol=1e-3)
        np.testing.assert_allclose(link_probability(link_scores), 0.5, atol=1e-3)


def test_what_was_rewarded_above_the_others_becomes_more_probable_and_the_rest_less() -> None:
    training = Training(learning_rate=0.01, skip_weight=0.0)
    start = Learned.nothing(SMALL.initial(1))
    one = learn(SMALL, training, start, ((0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)), 0.5)

    better = learn(SMALL, training, one, TRIED, 0.9)
    worse = learn(SMALL, training, one, TRIED, 0.1)

    probabilities = [
        -loss(Training(0.0, skip_weight=0.0), replay(SMALL, s.theta, TRIED), 1.0) for s in (worse, one, better)
    ]
    assert probabilities == sorted(probabilities)
    assert probabilities[0] < probabilities[1] < probabilities[2]


def test_links_approach_the_wanted_share() -> None:
    training = Training(learning_rate=0.01, skip_target=0.1, skip_weight=5.0, entropy_weight=0.0)
    shape = Shape(4, 3, temperature=None, bound=None)

    learned = learn(shape, training, Learned.nothing(shape.initial(1)), TRIED, 1.0)

    shares = np.concatenate([link_probability(z) for z in replay(shape, learned.theta, TRIED).link_scores])
    assert abs(shares.mean() - 0.1) < 0.05


def test_a_failed_trial_counts_as_the_worst_and_teaches_nothing_before_one_was_measured() -> None:
    training, start = Training(), Learned.nothing(SMALL.initial(1))
    assert learn(SMALL, training, start, TRIED, math.nan) is start
    best = learn(SMALL, training, start, TRIED, 0.9)
    worst = learn(SMALL, training, best, TRIED, 0.2)

    failed, measured = (learn(SMALL, training, worst, TRIED, reward) for reward in (math.nan, 0.2))

    np.testing.assert_array_equal(failed.theta, measured.theta)


def test_steps_per_trial_decrease_after_many_trials() -> None:
    training = Training(steps=10)
    theta = SMALL.initial(1)
    late = Learned(theta, np.zeros_like(theta), np.zeros_like(theta), steps=1000, trials=199)

    assert learn(SMALL, training, late, TRIED, 1.0).steps == 1003
