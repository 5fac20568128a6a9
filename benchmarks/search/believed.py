"""Problems whose optimum is known, so that a belief about it can be right or wrong; and their two splits.

A loss takes positions in [0, 1], one per parameter; a category's is its index plus a half, divided by their number.
`DEVELOPMENT` is for choosing and tuning, `FINAL` only for published figures.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.search.own import number, parameter
from benchmarks.search.problems import Variable
from katib.model.types import ParameterSpec


@dataclass(frozen=True)
class BelievedProblem:
    """A loss of positions, its parameters, and the positions of its optimum."""

    parameters: Sequence[ParameterSpec]
    loss: Callable[[Sequence[float]], float]
    optimum: Sequence[float]


def _numbers(count: int) -> list[ParameterSpec]:
    return [number(f"x{i}", 1e-5, 1e-1, log=True) if i % 2 else number(f"x{i}", -2, 3) for i in range(count)]


def _places(count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [chance.choice((chance.uniform(0.12, 0.38), chance.uniform(0.62, 0.88))) for _ in range(count)]


def _bowl(x: Sequence[float]) -> float:
    far = [(1 + i / 2) * (u - at) for i, (u, at) in enumerate(zip(x, _places(8, 1), strict=True))]
    return sum(d * d for d in far) + 0.3 * sum(a * b for a, b in pairwise(far))


def _valley(x: Sequence[float]) -> float:
    v = [4 * (u - at) + 1 for u, at in zip(x, _places(4, 2), strict=True)]
    return math.log1p(sum(20 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(v)))


def _waves(x: Sequence[float]) -> float:
    far = [u - at for u, at in zip(x, _places(5, 3), strict=True)]
    return sum(8 * d * d + 0.4 * (1 - math.cos(14 * d)) for d in far)


def _peaks(x: Sequence[float]) -> float:
    """Peaks of several heights and widths, of which the highest is narrow."""
    at = np.array([_places(6, seed) for seed in (4, 5, 6, 7)])
    heights, widths = np.array([1.0, 0.75, 0.6, 0.5]), np.array([0.35, 0.5, 0.5, 0.6])
    return 1.0 - float(np.max(heights * np.exp(-np.sum((at - np.array(x)) ** 2, axis=1) / widths**2)))


_TRAINING = (
    Variable("lr", "double", 1e-5, 1e-1, True),
    Variable("decay", "double", 1e-7, 1e-2, True),
    Variable("momentum", "double", 0.0, 0.99),
    Variable("width", "int", 16, 1024, True),
    Variable("dropout", "double", 0.0, 0.7),
    Variable("optimizer", "categorical", values=("sgd", "adam", "rmsprop", "lion")),
)


def _training(x: Sequence[float]) -> float:
    """An error rate: the best rate of learning depends on the optimizer, the momentum and the width."""
    lr, decay, momentum, width, dropout, optimizer = x
    kind = min(int(optimizer * 4), 3)
    best = (0.75, 0.5, 0.45, 0.3)[kind] - 0.15 * (momentum - 0.6) - 0.2 * (width - 0.7)
    error = 0.05 + (0.02, 0.0, 0.015, 0.04)[kind] + 0.9 * (lr - best) ** 2 / (0.1 + (lr - best) ** 2)
    error += 0.08 * (decay - 0.35) ** 2 + 0.06 * (momentum - 0.6) ** 2 + 0.1 * (width - 0.7) ** 2
    return error + 0.07 * (dropout - 0.2) ** 2 + 0.03 * abs(dropout - 0.2) * width


def _ridge(x: Sequence[float]) -> float:
    """A rotated cone, thirty times steeper in one direction than in another."""
    chance = np.random.default_rng(8)
    axes = np.linalg.qr(chance.normal(size=(6, 6)))[0]
    far = axes @ (np.array(x) - _places(6, 8))
    return float(np.sqrt(np.sum((30.0 ** np.linspace(0, 1, 6) * far) ** 2)))


_CHOICES = (
    Variable("lr", "double", 1e-6, 1.0, True),
    Variable("layers", "int", 1, 12),
    Variable("heads", "discrete", values=("1", "2", "4", "8", "16")),
    Variable("dropout", "double", 0.0, 0.8),
    Variable("norm", "categorical", values=("none", "batch", "layer", "group", "instance")),
    Variable("schedule", "categorical", values=("constant", "cosine", "linear")),
)


def _choices(x: Sequence[float]) -> float:
    """A loss in steps: two choices that fit together or not, and numbers of which three are whole."""
    lr, layers, heads, dropout, norm, schedule = x
    kind, plan = min(int(norm * 5), 4), min(int(schedule * 3), 2)
    best = 0.45 + (0.0, 0.1, 0.15, 0.1, 0.05)[kind] + (0.0, 0.05, 0.05)[plan] - 0.1 * (layers - 0.6)
    loss = (0.5, 0.25, 0.0, 0.15, 0.3)[kind] + (0.2, 0.0, 0.1)[plan] + (0.15 if (kind, plan) == (1, 1) else 0.0)
    loss += min(9 * (lr - best) ** 2, 2.0) + 1.2 * abs(layers - 0.6) + 0.8 * (heads - 0.7) ** 2
    return loss + 1.5 * (dropout - 0.3) ** 2 * (1 + layers)


_BOOSTING = (
    Variable("eta", "double", 1e-3, 0.5, True),
    Variable("depth", "int", 2, 12),
    Variable("subsample", "double", 0.3, 1.0),
    Variable("columns", "double", 0.2, 1.0),
    Variable("l2", "double", 1e-4, 100, True),
    Variable("booster", "categorical", values=("tree", "linear", "dart")),
)


def _boosting(x: Sequence[float]) -> float:
    """A log loss: deeper trees need a lower rate, fewer rows and columns more of it."""
    eta, depth, subsample, columns, l2, booster = x
    kind = min(int(booster * 3), 2)
    best = 0.65 - 0.3 * (depth - 0.4) + 0.1 * (0.7 - subsample)
    loss = 0.3 + (0.0, 0.12, 0.01)[kind] + 0.5 * abs(eta - best) ** 1.5
    loss += (0.0 if kind == 1 else 0.3) * (depth - 0.4) ** 2 + 0.1 * (subsample - 0.7) ** 2
    return loss + 0.08 * abs(columns - 0.65) + 0.06 * (l2 - 0.4) ** 2 + 0.2 * max(depth - 0.4, 0) * max(0.4 - l2, 0)


def _cliff(x: Sequence[float]) -> float:
    """A rate of learning whose best value is just below divergence, and three numbers that move the edge."""
    lr, decay, warmup, clip = (u - at for u, at in zip(x, _places(4, 12), strict=True))
    beyond = lr - 0.05 - 0.2 * warmup + 0.1 * clip
    loss = 0.5 * math.log1p(math.exp(-8 * lr)) + 2 * decay**2 + warmup**2 + 0.5 * clip**2 + 1.5 * lr**2
    return loss + (3 * min(beyond / 0.05, 1.0) if beyond > 0 else 0.0)


def _cone(x: Sequence[float]) -> float:
    far = [(1 + i / 3) * abs(u - at) for i, (u, at) in enumerate(zip(x, _places(7, 13), strict=True))]
    return math.sqrt(sum(d**1.5 for d in far) + 0.5 * max(far))


def _ripples(x: Sequence[float]) -> float:
    """A bent valley in five whose floor has ripples."""
    v = [3 * (u - at) + 1 for u, at in zip(x, _places(5, 14), strict=True)]
    ripples = sum(1 - math.cos(9 * (a - 1)) for a in v)
    return math.log1p(sum(8 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(v))) + 0.15 * ripples


DEVELOPMENT: Mapping[str, BelievedProblem] = {
    "a bowl in eight numbers": BelievedProblem(_numbers(8), _bowl, _places(8, 1)),
    "a bent valley in four": BelievedProblem(_numbers(4), _valley, _places(4, 2)),
    "waves in five": BelievedProblem(_numbers(5), _waves, _places(5, 3)),
    "four peaks in six": BelievedProblem(_numbers(6), _peaks, _places(6, 4)),
    "a training": BelievedProblem(list(map(parameter, _TRAINING)), _training, (0.5, 0.35, 0.6, 0.7, 0.2, 0.375)),
    "a ridge in six": BelievedProblem(_numbers(6), _ridge, _places(6, 8)),
    "two choices in six": BelievedProblem(list(map(parameter, _CHOICES)), _choices, (0.65, 0.6, 0.7, 0.3, 0.5, 0.5)),
}
FINAL: Mapping[str, BelievedProblem] = {
    "a boosting": BelievedProblem(list(map(parameter, _BOOSTING)), _boosting, (0.65, 0.4, 0.7, 0.65, 0.4, 1 / 6)),
    "a cliff in four": BelievedProblem(_numbers(4), _cliff, _places(4, 12)),
    "a cone in seven": BelievedProblem(_numbers(7), _cone, _places(7, 13)),
    "ripples in five": BelievedProblem(_numbers(5), _ripples, _places(5, 14)),
}
