"""Batched minimization: a projected L-BFGS from several starts.

Notation: s starts, p variables; x (s, p) positions, f (s,) values, g (s, p) gradients. Each start is a separate
minimization with its own box; they share the calls of the function, so ten starts cost little more than one.

Source: [Nocedal2006] Numerical Optimization, 2nd edition, algorithm 7.4 (two-loop recursion) and section 16.7 (gradient
projection). Variables at a bound that are pushed outwards are fixed for the step; the rest moves along the quasi-Newton
direction, is clipped to the box, and backtracks until the value has decreased enough. A non-finite value counts as too
high.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

BatchFunction = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]
"""Takes positions (r, p) and the indices (r,) of their starts; returns values (r,) and gradients."""

_MEMORY = 8  # pairs kept per start; more gains nothing for tens of variables
_DECREASE = 1e-4  # required share of the decrease predicted by the slope
_BACKTRACKS = 12
_SHRINK = 0.3
_FIRST_MOVE = 0.3  # length of the first step, when the curvature is unknown; variables are of order one
_FLAT = 1e-10  # curvature relative to the squared change of the gradient below which a pair is not used


def minimize(
    function: BatchFunction,
    starts: FloatArray,
    low: FloatArray,
    high: FloatArray,
    *,
    iterations: int,
    tolerance: float = 1e-6,
) -> tuple[FloatArray, FloatArray]:
    """Return the final positions, shape (s, p), and values, shape (s,), never above those of the starts.

    Args:
        function: The function to minimize. A start at an infinite value stays there.
        starts: Shape (s, p); clipped to the box first.
        low: Lower bounds, shape (p,) or (s, p). Equal bounds hold a variable.
        high: Upper bounds.
        iterations: Maximum steps per start.
        tolerance: A start ends when a step decreases its value by less than this.
    """
    low, high = np.broadcast_to(low, starts.shape), np.broadcast_to(high, starts.shape)
    x = np.clip(starts, low, high)
    rows = np.arange(len(x))
    f, g = function(x, rows)
    rows = np.flatnonzero(np.isfinite(f))
    pairs = _Pairs(x.shape)
    for _ in range(iterations):
        if not len(rows):
            break
        box = low[rows], high[rows]
        free = ~(((x[rows] <= box[0]) & (g[rows] > 0)) | ((x[rows] >= box[1]) & (g[rows] < 0)))
        downhill = np.where(free, -g[rows], 0.0)
        direction = np.where(free, pairs.direction(downhill, rows), 0.0)
        uphill = np.sum(direction * g[rows], axis=1) >= 0
        direction[uphill] = downhill[uphill]
        new_x, new_f, new_g = _search(function, rows, (x[rows], f[rows], g[rows]), direction, box)
        pairs.add(rows, new_x - x[rows], new_g - g[rows])
        going = f[rows] - new_f > tolerance
        x[rows], f[rows], g[rows] = new_x, new_f, new_g
        rows = rows[going]
    return x, f


class _Pairs:
    """Curvature information from the last steps of each start."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._kept: deque[tuple[FloatArray, FloatArray, FloatArray]] = deque(maxlen=_MEMORY)
        self._scale = np.zeros(shape[0])  # of the inverse curvature; 0 if unknown

    def add(self, rows: IntArray, step: FloatArray, change: FloatArray) -> None:
        """Record the changes of the gradients (r, p) of these starts over the steps (r, p)."""
        curvature, squared = np.sum(step * change, axis=1), np.sum(change * change, axis=1)
        useful = curvature > _FLAT * squared
        steps, changes, inverse = np.zeros(self._shape), np.zeros(self._shape), np.zeros(self._shape[0])
        steps[rows], changes[rows] = step, change
        inverse[rows] = np.where(useful, 1.0 / np.where(useful, curvature, 1.0), 0.0)
        self._kept.append((steps, changes, inverse))
        safe = np.where(useful, squared, 1.0)
        self._scale[rows] = np.where(useful, curvature / safe, self._scale[rows])

    def direction(self, downhill: FloatArray, rows: IntArray) -> FloatArray:
        """Return the quasi-Newton directions (r, p) for negative gradients (r, p)."""
        lengths = np.linalg.norm(downhill, axis=1)
        first = _FIRST_MOVE / np.maximum(lengths, _FIRST_MOVE)
        scale = np.where(self._scale[rows] > 0, self._scale[rows], first)
        q = downhill.copy()
        kept = [(steps[rows], changes[rows], inverse[rows]) for steps, changes, inverse in self._kept]
        weights = []
        for step, change, inverse in reversed(kept):
            weight = inverse * np.sum(step * q, axis=1)
            q -= weight[:, None] * change
            weights.append(weight)
        q *= scale[:, None]
        for (step, change, inverse), weight in zip(kept, reversed(weights), strict=True):
            q += (weight - inverse * np.sum(change * q, axis=1))[:, None] * step
        return q


def _search(
    function: BatchFunction,
    rows: IntArray,
    at: tuple[FloatArray, FloatArray, FloatArray],
    direction: FloatArray,
    box: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return positions, values and gradients after one backtracking step; unchanged if none decreases enough."""
    x, f, g = at
    new_x, new_f, new_g = x.copy(), f.copy(), g.copy()
    open_rows = np.arange(len(rows))
    length = 1.0
    for _ in range(_BACKTRACKS):
        i = open_rows
        trial_x = np.clip(x[i] + length * direction[i], box[0][i], box[1][i])
        trial_f, trial_g = function(trial_x, rows[i])
        promised = np.sum(g[i] * (trial_x - x[i]), axis=1)
        accepted = trial_f <= f[i] + _DECREASE * promised  # False for NaN
        accepted &= np.isfinite(trial_f)
        done = i[accepted]
        new_x[done], new_f[done], new_g[done] = trial_x[accepted], trial_f[accepted], trial_g[accepted]
        open_rows = i[~accepted]
        if not len(open_rows):
            break
        length *= _SHRINK
    return new_x, new_f, new_g
