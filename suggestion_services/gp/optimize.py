"""Batched minimization: a projected BFGS from several starts.

Notation: s starts, p variables; x (s, p) positions, f (s,) values, g (s, p) gradients, H (s, p, p) inverse curvatures.
Each start is a separate minimization with its own box and steps; they share the calls of the function, so ten starts
cost little more than one, and none waits while another one shortens its step.

Source: [Nocedal2006] Numerical Optimization, 2nd edition, equations 6.17 (BFGS) and 6.20 (its first curvature), 3.57
(shorter steps by interpolation) and section 16.7 (gradient projection). Variables at a bound that are pushed outwards
are fixed for the step; the rest moves along the quasi-Newton direction, is clipped to the box, and backtracks until the
value has decreased enough. A non-finite value counts as too high.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

BatchFunction = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]
"""Takes positions (r, p) and the indices (r,) of their starts; returns values (r,) and gradients."""

_DECREASE = 1e-4  # required share of the decrease predicted by the slope
_LEAST_LENGTH = 1e-6  # of a step, as a share of the first try
_LEAST_SHRINK, _MOST_SHRINK = 0.1, 0.5
_FIRST_MOVE = 0.3  # length of the first step, in scales, when the curvature is unknown
_FLAT = 1e-10  # curvature relative to the squared change of the gradient below which it is not used


def minimize(
    function: BatchFunction,
    starts: FloatArray,
    low: FloatArray,
    high: FloatArray,
    *,
    evaluations: int,
    tolerance: float = 1e-6,
    scales: FloatArray | float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """Return the final positions, shape (s, p), and values, shape (s,), never above those of the starts.

    Args:
        function: The function to minimize. A start at an infinite value stays there.
        starts: Shape (s, p); clipped to the box first.
        low: Lower bounds, shape (p,) or (s, p). Equal bounds hold a variable.
        high: Upper bounds.
        evaluations: Maximum calls of the function.
        tolerance: A start ends when a step decreases its value by less than this.
        scales: Usual changes (p,) of the variables, as far as they are known; they condition the first steps.
    """
    low, high = np.broadcast_to(low, starts.shape), np.broadcast_to(high, starts.shape)
    x = np.clip(starts, low, high)
    f, g = function(x, np.arange(len(x)))
    final_x, final_f = x, f
    rows = np.flatnonzero(np.isfinite(f))
    x, f, g, low, high = x[rows], f[rows], g[rows], low[rows], high[rows]
    h = np.tile(np.eye(x.shape[1]) * np.square(scales), (len(rows), 1, 1))
    is_known = np.zeros(len(rows), dtype=bool)
    length = np.ones(len(rows))
    for _ in range(evaluations - 1):
        if not len(rows):
            break
        direction = length[:, None] * _downhill(x, g, h, low, high)
        if not is_known.all():
            sizes = np.where(is_known, 0.0, np.linalg.norm(direction / scales, axis=1))
            direction *= (_FIRST_MOVE / np.maximum(sizes, _FIRST_MOVE))[:, None]
        new_x = np.clip(x + direction, low, high)
        new_f, new_g = function(new_x, rows)
        step = new_x - x
        promised, rise = np.einsum("sp,sp->s", g, step), new_f - f
        accepted = (rise <= _DECREASE * promised) & np.isfinite(new_f)  # False for NaN
        change = np.where(accepted[:, None] & (step != 0.0), new_g - g, 0.0)  # only of variables that moved
        is_known |= _learn(h, step, change, is_known)
        ended = rise >= -tolerance
        if accepted.all():
            x, f, g = new_x, new_f, new_g
            length.fill(1.0)
        else:
            x, g = np.where(accepted[:, None], new_x, x), np.where(accepted[:, None], new_g, g)
            f = np.where(accepted, new_f, f)
            shrink = np.full(len(rows), _LEAST_SHRINK)
            np.divide(-0.5 * promised, rise - promised, out=shrink, where=np.isfinite(rise) & (rise > promised))
            length = np.where(accepted, 1.0, length * np.clip(shrink, _LEAST_SHRINK, _MOST_SHRINK))
            ended = np.where(accepted, ended, length < _LEAST_LENGTH)
        if ended.any():
            final_x[rows], final_f[rows] = x, f
            going = ~ended
            rows, is_known, length = rows[going], is_known[going], length[going]
            x, f, g, low, high, h = (part[going] for part in (x, f, g, low, high, h))
    final_x[rows], final_f[rows] = x, f
    return final_x, final_f


def _downhill(x: FloatArray, g: FloatArray, h: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return quasi-Newton directions (s, p) of the variables that are free; steepest descent if they lead uphill."""
    fixed = ((x <= low) & (g > 0)) | ((x >= high) & (g < 0))
    downhill = np.where(fixed, 0.0, -g)
    direction = np.where(fixed, 0.0, np.einsum("spq,sq->sp", h, downhill))
    uphill = np.einsum("sp,sp->s", direction, downhill) <= 0
    return np.where(uphill[:, None], downhill, direction)


def _learn(h: FloatArray, step: FloatArray, change: FloatArray, is_known: BoolArray) -> BoolArray:
    """Update inverse curvatures (s, p, p) in place by steps and changes of gradients (s, p); return the used ones."""
    curvature, squared = np.einsum("sp,sp->s", step, change), np.einsum("sp,sp->s", change, change)
    useful = curvature > _FLAT * squared
    safe = np.where(useful, curvature, 1.0)
    by_change = np.einsum("spq,sq->sp", h, change)
    first = np.flatnonzero(useful & ~is_known)
    if len(first):
        ratio = (curvature[first] / np.einsum("sp,sp->s", change[first], by_change[first]))[:, None]
        h[first] *= ratio[:, None]
        by_change[first] *= ratio
    half = 0.5 * (1.0 + np.einsum("sp,sp->s", change, by_change) / safe)
    pull = np.where(useful, 1.0 / safe, 0.0)[:, None] * (half[:, None] * step - by_change)
    h += step[:, :, None] * pull[:, None, :]
    h += pull[:, :, None] * step[:, None, :]
    return np.asarray(useful)
