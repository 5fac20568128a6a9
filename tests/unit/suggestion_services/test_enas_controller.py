"""The controller's gradients against finite differences, and its probabilities against counts."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
import pytest

from suggestion_services.enas.controller import (
    ControllerShape,
    FloatArray,
    ForwardPass,
    link_probability,
    replay,
    sample,
    softmax,
)
from suggestion_services.enas.credit import Choices, reward_model
from suggestion_services.enas.training import ControllerState, TrainingSettings, learn, learning_rate_for, loss_gradient

SMALL = ControllerShape(layers=4, operations=3, hidden=5)
TRIED = ((2,), (0, 1), (1, 0, 1), (2, 1, 1, 0))


def loss(training: TrainingSettings, passed: ForwardPass, advantage: float) -> float:
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


def weights(shape: ControllerShape) -> FloatArray:
    """Return weights large enough for every part of the gradient to matter."""
    return 60.0 * shape.initial(1)


@pytest.mark.parametrize(
    ("shape", "architecture"),
    [
        pytest.param(SMALL, TRIED, id="four-layers"),
        pytest.param(ControllerShape(4, 3, 5, temperature=None, bound=None), TRIED, id="scores-as-they-are"),
        pytest.param(ControllerShape(4, 3, 5, temperature=0.5, bound=1.5), TRIED, id="sharp"),
        pytest.param(ControllerShape(1, 2, 1), ((1,),), id="one-layer-one-unit"),
    ],
)
def test_gradients_agree_with_finite_differences(
    shape: ControllerShape, architecture: tuple[tuple[int, ...], ...]
) -> None:
    training = TrainingSettings(entropy_weight=0.3, skip_weight=0.7, skip_target=0.4)
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
    shape = ControllerShape(layers=2, operations=2, hidden=3, temperature=1.0)
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
    passed = replay(ControllerShape(4, 3), ControllerShape(4, 3).initial(7), TRIED)

    for scores, link_scores in zip(passed.scores, passed.link_scores, strict=True):
        np.testing.assert_allclose(softmax(scores), 1 / 3, atol=1e-3)
        np.testing.assert_allclose(link_probability(link_scores), 0.5, atol=1e-3)


def test_what_was_rewarded_above_the_others_becomes_more_probable_and_the_rest_less() -> None:
    training = TrainingSettings(learning_rate=0.01, skip_weight=0.0)
    start = ControllerState.nothing(SMALL.initial(1))
    other = ((0,), (0, 0), (0, 0, 0), (0, 0, 0, 0))

    def probability(rewarded: float) -> float:
        state = start
        for _ in range(5):
            state = learn(SMALL, training, learn(SMALL, training, state, other, 0.5), TRIED, rewarded)
        return -loss(TrainingSettings(0.0, skip_weight=0.0), replay(SMALL, state.theta, TRIED), 1.0)

    assert probability(0.1) < probability(0.5) < probability(0.9)


@pytest.mark.slow
def test_a_random_reward_leaves_the_choices_nearly_uniform() -> None:
    """With the learning rate that tutorials use; the largest share was up to 0.8 of four operations."""
    shape, training = ControllerShape(4, 4), TrainingSettings(learning_rate=5e-4)

    def largest_share(seed: int, *, noise: float) -> float:
        state, rewards = ControllerState.nothing(shape.initial(seed)), Random(seed)
        for k in range(100):
            tried = sample(shape, state.theta, Random(f"{seed}/{k}"))
            reward = (1 - noise) * sum(layer[0] == 0 for layer in tried) + noise * rewards.random()
            state = learn(shape, training, state, tried, reward)
        drawn = [sample(shape, state.theta, Random(k)) for k in range(200)]
        operations = Counter(layer[0] for tried in drawn for layer in tried)
        return max(operations.values()) / operations.total()

    assert max(largest_share(seed, noise=1) for seed in range(2)) < 0.4
    assert largest_share(0, noise=0.5) > 0.6


@pytest.mark.parametrize(
    ("trials", "steps", "rate"), [(30, 50, 3e-3), (120, 50, 1.066e-3), (120, 10, 3e-3), (10**9, 50, 1e-4)]
)
def test_the_learning_rate_suits_the_budget(trials: int, steps: int, rate: float) -> None:
    assert learning_rate_for(trials, steps) == pytest.approx(rate, rel=0.2)


@pytest.mark.slow
def test_with_its_defaults_the_controller_learns_within_a_hundred_trials() -> None:
    shape = ControllerShape(8, 5)
    training = TrainingSettings(learning_rate=learning_rate_for(120, 50))
    state, random, rewards = ControllerState.nothing(shape.initial(1)), Random(1), []
    for _ in range(120):
        tried = sample(shape, state.theta, random)
        rewards.append(0.5 + 0.4 * sum(layer[0] == 2 * i % 5 for i, layer in enumerate(tried)) / 8)
        state = learn(shape, training, state, tried, rewards[-1] + random.gauss(0, 0.03))

    assert np.mean(rewards[-30:]) - np.mean(rewards[:30]) > 0.1


def test_rewards_are_explained_by_choices_or_not_at_all() -> None:
    random = np.random.default_rng(1)
    operations, links = random.integers(0, 3, (160, 6)), random.integers(0, 2, (160, 15))
    reasons = (operations[:, 2] == 1) + 0.5 * (operations[:, 4] == 0)
    tried, fresh = Choices(operations[:60], links[:60]), Choices(operations[60:], links[60:])
    noises = [random.normal(size=60) for _ in range(50)]

    model = reward_model(tried, reasons[:60] + 0.3 * noises[0])

    assert np.corrcoef(model.predict(fresh), reasons[60:])[0, 1] > 0.85
    assert abs(model.predict(tried).mean()) < 1e-9
    assert sum(np.any(reward_model(tried, noise).predict(fresh)) for noise in noises) <= 5
    assert not np.any(reward_model(tried, np.ones(60)).predict(fresh))
    equal = Choices(np.zeros((60, 6), dtype=np.int64), np.zeros((60, 15), dtype=np.int64))
    assert not np.any(reward_model(equal, noises[0]).predict(fresh))


def test_links_approach_the_wanted_share() -> None:
    training = TrainingSettings(learning_rate=0.01, skip_target=0.1, skip_weight=5.0, entropy_weight=0.0)
    shape = ControllerShape(4, 3, temperature=None, bound=None)

    learned = learn(shape, training, ControllerState.nothing(shape.initial(1)), TRIED, 1.0)

    shares = np.concatenate([link_probability(z) for z in replay(shape, learned.theta, TRIED).link_scores])
    assert abs(shares.mean() - 0.1) < 0.05


def test_a_failed_trial_counts_as_the_worst_and_teaches_nothing_before_one_was_measured() -> None:
    training, start = TrainingSettings(), ControllerState.nothing(SMALL.initial(1))
    assert learn(SMALL, training, start, TRIED, math.nan) is start
    worst = learn(SMALL, training, learn(SMALL, training, start, TRIED, 0.9), TRIED, 0.2)

    failed, measured = (learn(SMALL, training, worst, TRIED, reward) for reward in (math.nan, 0.2))

    np.testing.assert_array_equal(failed.theta, measured.theta)


def test_steps_per_trial_decrease_after_many_trials() -> None:
    training = TrainingSettings(steps=10)
    theta = SMALL.initial(1)
    late = ControllerState(theta, np.zeros_like(theta), np.zeros_like(theta), steps=1000, trials=199)

    assert learn(SMALL, training, late, TRIED, 1.0).steps == 1003
