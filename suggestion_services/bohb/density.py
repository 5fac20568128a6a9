"""The model of BOHB: densities of good configurations and of the others.

Notation: n trials, d parameters; U (n, d) in the unit cube; l, g densities of the good trials and of the others.
Source: [Falkner2018] BOHB, ICML 2018, section 3.2 and appendix: l and g are products of kernels, l has the best 15 % of
the trials and at least d + 1; candidates are drawn around good trials with a wider kernel, and the one with the largest
l / g is taken. Kernels of categories: [Aitchison1976] Multivariate binary discrimination by the kernel method.
Differs from the paper: failed trials and pending configurations belong to g, so that configurations requested together
spread. Kernels are truncated at the bounds, or g would be too low in corners; both densities have the same share of a
uniform one, so that l / g is 1, not arbitrary, far from all trials; and few trials keep kernels wide ([Bergstra2011]
Algorithms for Hyper-Parameter Optimization, NeurIPS 24), or the first good ones would be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from typing_extensions import override

from katib.model.space import Point
from katib.model.space.parameters import ValueList
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, TrialOutcome
from suggestion_services.hyperband.rungs import rank_of

_GOOD_SHARE = 0.15
_CANDIDATES = 64
_WIDER = 3.0
_LEAST_BANDWIDTH = 1e-3  # of categories
_FINEST = 100  # a kernel of n trials is at least 1 / (n + 1) wide, and 1 / 100
_UNIFORM = 0.1

Rows = NDArray[np.float64]


class DensityModel(Algorithm):
    """Suggests points at which good trials are dense, or random ones if no trial has a value."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._categories = np.array(
            [
                len(p.values) if isinstance(p, ValueList) and not p.ordered else 0  # 0: a number
                for p in problem.space.parameters
            ]
        )
        self._known: dict[int, tuple[PastTrial, list[float] | None]] = {}

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        good, others = self._split(trials)
        for k in range(first, first + count):
            if not len(good):
                yield self.problem.space.sample(self.problem.random(k))
                continue
            chosen = self._draw(good, others, np.random.default_rng(self.problem.seed_of(k)))
            others = np.vstack((others, chosen))
            yield self._point(chosen)

    def _point(self, row: Rows) -> Point:
        return {p.name: p.from_unit(float(u)) for p, u in zip(self.problem.space.parameters, row, strict=True)}

    def _split(self, trials: Sequence[PastTrial]) -> tuple[Rows, Rows]:
        """Return the good trials and all others that count, as rows of the unit cube."""
        ranked: list[tuple[tuple[float, float], list[float]]] = []
        others: list[list[float]] = []
        known = [self._known.get(id(trial)) or (trial, self._row(trial)) for trial in trials]
        self._known = {id(trial): (trial, row) for trial, row in known}  # keeps the trials, so that no id is reused
        for trial, row in known:
            if row is None or trial.outcome is TrialOutcome.SILENT:
                continue
            rank = rank_of(trial, maximize=self.problem.maximize)
            if rank is None:
                others.append(row)
            else:
                ranked.append((rank, row))
        ranked.sort()
        d = len(self._categories)
        good = max(d + 1, int(_GOOD_SHARE * len(ranked)))
        rows = [row for _, row in ranked]
        return np.array(rows[:good]).reshape(-1, d), np.array(rows[good:] + others).reshape(-1, d)

    def _row(self, trial: PastTrial) -> list[float] | None:
        """Return the position of a trial in the unit cube; None if it does not fit the space."""
        point = self.problem.space.nearest(trial.assignments.items())
        return None if point is None else [p.to_unit(point[p.name]) for p in self.problem.space.parameters]

    def _draw(self, good: Rows, others: Rows, random: np.random.Generator) -> Rows:
        """Return the best of the candidates, shape (d,)."""
        widths, of_others = self._bandwidths(good), self._bandwidths(others)
        around = good[random.integers(len(good), size=_CANDIDATES)]
        drawn = around + random.normal(size=around.shape) * widths * _WIDER
        drawn = np.clip(np.abs(np.where(drawn > 1, 2 - drawn, drawn)), 0.0, 1.0)  # reflected at the bounds
        candidates = np.where(self._categories > 0, self._other_categories(around, widths, random), drawn)
        promise = np.log(self._density(candidates, good, widths)) - np.log(self._density(candidates, others, of_others))
        if self.problem.space.constraints:
            promise[[not self.problem.space.allows(self._point(row)) for row in candidates]] = -np.inf
        best: Rows = candidates[int(np.argmax(promise))]
        return best

    def _other_categories(self, around: Rows, widths: Rows, random: np.random.Generator) -> Rows:
        """Return the rows with some categories redrawn."""
        sizes = np.maximum(self._categories, 1)
        fresh = (random.integers(0, sizes, size=around.shape) + 0.5) / sizes
        return np.where(random.random(around.shape) < np.minimum(widths * _WIDER, 1.0), fresh, around)

    def _bandwidths(self, rows: Rows) -> Rows:
        """Return a bandwidth for each parameter, shape (d,): by Scott's rule; for categories the share that differs."""
        d = len(self._categories)
        scale = max(len(rows), 1) ** (-1 / (d + 4))
        spread = rows.std(axis=0) if len(rows) > 1 else np.full(d, 0.3)
        numbers = np.maximum(spread * scale, 1 / min(_FINEST, len(rows) + 1))
        categories = np.minimum(scale, 1.0) * (1 - 1 / np.maximum(self._categories, 1))
        widths: Rows = np.where(self._categories > 0, np.maximum(categories, _LEAST_BANDWIDTH), numbers)
        return widths

    def _density(self, at: Rows, rows: Rows, widths: Rows) -> Rows:
        """Return the density at each point, shape (m,): the mean of their kernels, mixed with a uniform one."""
        uniform: float = np.prod(1 / np.maximum(self._categories, 1))
        if not len(rows):
            return np.full(len(at), uniform)
        distance = at[:, None, :] - rows[None, :, :]
        inside = ndtr((1 - rows) / widths) - ndtr(-rows / widths)
        numbers = np.exp(-0.5 * (distance / widths) ** 2) / (widths * np.sqrt(2 * np.pi) * inside)
        differs = np.abs(distance) > _LEAST_BANDWIDTH / np.maximum(self._categories, 1)
        categories = np.where(differs, widths / np.maximum(self._categories - 1, 1), 1 - widths)
        kernels = np.where(self._categories > 0, categories, numbers)
        density: Rows = (1 - _UNIFORM) * kernels.prod(axis=2).mean(axis=1) + _UNIFORM * uniform
        return density
