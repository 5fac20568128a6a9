"""The search for the row with the largest acquisition value.

Many candidates are scored at once; the best few climb: their continuous numbers by gradients, all other parameters by
trying neighbors one parameter at a time, in turn, until neither helps. A number on a coarse grid, or a category, tries
all of its values; a fine grid tries its next ones, and climbs like a continuous number before it is rounded to a level.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from suggestion_services.gp.acquisition import Acquisition
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.optimize import BoolArray, FloatArray, IntArray, minimize
from suggestion_services.gp.regions import Box

_SPREAD = 1024  # candidates all over the space; the models of several objectives share them
_NEAR = 512  # candidates near the best rows
_CENTERS = 5  # best rows with candidates near them
_CLIMBERS = 8
_EVALUATIONS = 30
_ROUNDS = 4  # of climbing and trying neighbors in turn
_ALL_LEVELS = 12  # a grid with more values tries the next ones only
_STEPS = (-2, -1, 1, 2)
_HALVINGS = 4  # of a step beyond the constraints
_SAME = 1e-9  # rows nearer than this in every parameter are the same point


class AcquisitionSearch:
    """A search for one row.

    Args:
        encoding: Encoding of the space.
        promise: The function to maximize.
        box: The bounds.
        random: Source of the candidates.
        allowed: Returns a mask of the rows that satisfy the constraints; None if there are none.
    """

    def __init__(
        self,
        encoding: Encoding,
        promise: Acquisition,
        box: Box,
        random: np.random.Generator,
        allowed: Callable[[FloatArray], BoolArray] | None = None,
    ) -> None:
        self._encoding, self._promise, self._box, self._random = encoding, promise, box, random
        self._allowed = allowed
        coarse = [levels is not None and len(levels) <= _ALL_LEVELS for levels in encoding.levels]
        self._held = np.flatnonzero(coarse)
        self._has_neighbors = encoding.count > encoding.n_numbers or any(x is not None for x in encoding.levels)
        self._climbs = len(self._held) < encoding.n_numbers

    def best(self, centers: FloatArray, taken: FloatArray, more: FloatArray) -> FloatArray:
        """Return the best row found that is not taken; the best of all if all are taken.

        Args:
            centers: Rows with candidates near them, best first.
            taken: Rows (n, d) to exclude.
            more: Further candidates (q, d).
        """
        candidates = np.concatenate([self._all_over(), self._near(centers[:_CENTERS]), more])
        promises = self._score(candidates)
        top = np.argsort(-promises, kind="stable")[:_CLIMBERS]
        rows, row_promises = candidates[top], promises[top]
        for _ in range(_ROUNDS):
            before = row_promises.max()
            if self._climbs:
                rows, row_promises = self._climb(rows, row_promises)
            if not self._has_neighbors:
                break
            rows, row_promises = self._try_neighbors(rows, row_promises)
            if row_promises.max() <= before + 1e-6:
                break
        for some, theirs in ((rows, row_promises), (candidates, promises)):
            for i in np.argsort(-theirs, kind="stable"):
                if not is_among(some[i], taken):
                    return np.asarray(some[i])
        return np.asarray(rows[int(np.argmax(row_promises))])

    def _score(self, rows: FloatArray) -> FloatArray:
        promises = self._promise(self._encoding.columns(rows))
        return promises if self._allowed is None else np.where(self._allowed(rows), promises, -np.inf)

    def _all_over(self) -> FloatArray:
        units = self._random.random((_SPREAD // len(self._promise.thetas), self._encoding.count))
        n, box = self._encoding.n_numbers, self._box
        units[:, :n] = box.low + units[:, :n] * (box.high - box.low)
        return self._encoding.from_units(units)

    def _wide(self) -> tuple[FloatArray, FloatArray]:
        """Return the box extended by all categories."""
        sizes = np.array(self._encoding.categories, dtype=np.float64)
        return np.concatenate([self._box.low, 0 * sizes]), np.concatenate([self._box.high, sizes - 1])

    def _near(self, centers: FloatArray) -> FloatArray:
        """Return rows that differ from the centers in some parameters, a little or a lot."""
        encoding, random, n = self._encoding, self._random, self._encoding.n_numbers
        rows = centers[random.integers(0, len(centers), _NEAR)]
        changed = random.random(rows.shape) < max(0.3, 2.0 / encoding.count)
        reach = 10.0 ** random.uniform(-3.0, -0.5, (_NEAR, 1))
        moved = encoding.from_units(random.random(rows.shape))
        moved[:, :n] = rows[:, :n] + reach * random.normal(size=(_NEAR, n))
        return encoding.snap(np.clip(np.where(changed, moved, rows), *self._wide()))

    def _climb(self, rows: FloatArray, promises: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the rows after gradient ascent in their numbers, and their values."""
        encoding, n = self._encoding, self._encoding.n_numbers
        low, high = np.tile(self._box.low, (len(rows), 1)), np.tile(self._box.high, (len(rows), 1))
        held = encoding.absent(rows)[:, :n]
        held[:, self._held] = True
        low[held] = high[held] = rows[:, :n][held]
        columns = encoding.columns(rows)

        def loss(x: FloatArray, numbers: IntArray) -> tuple[FloatArray, FloatArray]:
            full = columns[numbers]
            full[:, :n] = x
            values, slopes = self._promise.with_slopes(full)
            return -values, -slopes[:, :n]

        moved = rows.copy()
        moved[:, :n] = minimize(loss, rows[:, :n], low, high, evaluations=_EVALUATIONS, tolerance=1e-4)[0]
        moved = encoding.snap(moved)
        for _ in range(_HALVINGS if self._allowed is not None else 0):
            beyond = np.isneginf(self._score(moved))
            moved[beyond] = encoding.snap((moved[beyond] + rows[beyond]) / 2)
        after = self._score(moved)
        better = after > promises
        return np.where(better[:, None], moved, rows), np.where(better, after, promises)

    def _try_neighbors(self, rows: FloatArray, promises: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return for each row the best of itself and its neighbors, and their values."""
        neighbors = [
            rows,
            *(self._changed(rows, i, value) for i in range(rows.shape[1]) for value in self._values(rows, i)),
        ]
        stacked = np.stack(neighbors, axis=1)
        scores = self._score(stacked.reshape(-1, rows.shape[1])).reshape(len(rows), -1)
        scores[:, 0] = promises
        best = np.argmax(scores, axis=1)
        every = np.arange(len(rows))
        return stacked[every, best], scores[every, best]

    def _changed(self, rows: FloatArray, i: int, values: FloatArray) -> FloatArray:
        changed = rows.copy()
        changed[:, i] = values
        return self._encoding.settle(changed)

    def _values(self, rows: FloatArray, i: int) -> list[FloatArray]:
        """Return the values to try for a parameter, each of shape (n,)."""
        encoding, n = self._encoding, self._encoding.n_numbers
        if i >= n:
            return [np.full(len(rows), float(k)) for k in range(encoding.categories[i - n])]
        levels = encoding.levels[i]
        if levels is None:
            return []
        if len(levels) <= _ALL_LEVELS:
            return [np.full(len(rows), level) for level in levels]
        at = np.searchsorted(levels, rows[:, i])
        return [levels[np.clip(at + step, 0, len(levels) - 1)] for step in _STEPS]


def is_among(row: FloatArray, rows: FloatArray) -> bool:
    """Whether a row (d,) is one of the rows (n, d)."""
    return bool(np.any(np.all(np.abs(rows - row) < _SAME, axis=1)))
