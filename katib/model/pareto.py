"""Trials with several objectives: the set that no other trial dominates, and its hypervolume.

Notation: a point is a tuple of m costs, lower is better in each. All costs are finite numbers.
Hypervolume: [Zitzler1999] Multiobjective evolutionary algorithms: a comparative case study, IEEE TEC 3(4); with three
objectives by a sweep along the last one that keeps the staircase of the first two, as [Fonseca2006] An improved
dimension-sweep algorithm for the hypervolume indicator, CEC. Exact up to three objectives. Beyond, it is estimated from
points that are drawn with a fixed seed: the exact computation grows exponentially with m.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from itertools import repeat
from operator import mul
from random import Random

Point = tuple[float, ...]

REFERENCE_TRIALS = 10
"""Number of first trials that determine the reference point. It is fixed from then on, so that the hypervolume can only
grow and its course shows progress."""

_MARGIN = 0.1
"""Distance of the reference point beyond the worst values, as a share of the range, so that these still count."""

_EXACT = 3
_COMPARISONS = 100_000
"""Limits the time of an estimate to about a tenth of a second."""
_FEWEST_DRAWS, _MOST_DRAWS = 300, 5_000


def dominates(one: Point, other: Point) -> bool:
    """Return whether a point is nowhere worse than another, and somewhere better."""
    for a, b in zip(one, other, strict=True):  # a set of a thousand is compared with every new trial
        if a > b:
            return False
    return one != other


def front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the nondominated points, in the order of the costs; equal points are all included."""
    order = sorted(range(len(points)), key=lambda i: points[i])
    kept: list[int] = []
    lowest = math.inf  # with two objectives, sorted by the first, the second alone decides
    for i in order:
        point = points[i]
        if kept and points[kept[-1]] == point:
            kept.append(i)
        elif len(point) == 2:  # noqa: PLR2004 - the plane
            if point[1] < lowest:
                lowest = point[1]
                kept.append(i)
        elif not any(dominates(points[j], point) for j in kept):
            kept.append(i)
    return kept


def spread(points: Sequence[Point], size: int) -> list[int]:
    """Return the indices of at most `size` representative points of a front, in the order of the costs.

    First the best of each objective; then repeatedly the point that is farthest from those taken, with each objective
    scaled to its range.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i], i))
    if len(order) <= size:
        return order
    columns = list(zip(*points, strict=True))
    scales = [1 / (max(costs) - min(costs) or 1.0) for costs in columns]
    scaled = [tuple(map(mul, point, scales)) for point in points]
    taken = dict.fromkeys(min(order, key=lambda i: (costs[i], points[i])) for costs in columns[:size])
    centers = [scaled[i] for i in taken]
    # The distance to the nearest point taken only falls, so an outdated distance is a bound: most points are never
    # measured again.
    bounds = [(-_nearest(scaled[i], centers), place, len(centers)) for place, i in enumerate(order) if i not in taken]
    heapify(bounds)
    while len(taken) < size:
        bound, place, compared = bounds[0]
        point = scaled[order[place]]
        if compared < len(centers):
            heapreplace(bounds, (max(bound, -_nearest(point, centers[compared:])), place, len(centers)))
            continue
        heappop(bounds)
        taken[order[place]] = None
        centers.append(point)
    return [i for i in order if i in taken]


def _nearest(point: Point, centers: Sequence[Point]) -> float:
    return min(map(math.dist, repeat(point), centers))


def reference_point(points: Sequence[Point]) -> Point:
    """Return the point from which the hypervolume is measured, slightly worse than the worst value of each objective.

    Args:
        points: The first trials, at least one, good and bad ones.
    """
    return tuple(max(costs) + _MARGIN * (max(costs) - min(costs)) for costs in zip(*points, strict=True))


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Return the volume between some points and a reference point: the region dominated by any of them.

    Points that are not better than the reference in every objective add nothing.
    """
    inside = [point for point in points if all(a < b for a, b in zip(point, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) > _EXACT:
        return _estimate(inside, reference)
    if len(reference) == 1:
        return reference[0] - min(inside)[0]
    if len(reference) == 2:  # noqa: PLR2004 - the plane
        total, height = 0.0, reference[1]
        for x, y in sorted(inside):
            total += (reference[0] - x) * max(height - y, 0.0)
            height = min(height, y)
        return total
    return _volume(inside, reference)


def _volume(points: Sequence[Point], reference: Point) -> float:
    """Sweep from the best third cost to the reference; each slab is an area times the distance to the next cost."""
    xs, ys = [-math.inf, reference[0]], [reference[1], -math.inf]  # the staircase: x rises, y falls
    area = total = 0.0
    ordered = sorted(points, key=lambda point: point[2])
    for (x, y, z), after in zip(ordered, [point[2] for point in ordered[1:]] + [reference[2]], strict=True):
        area += _step(xs, ys, x, y)
        total += area * (after - z)
    return total


def _step(xs: list[float], ys: list[float], x: float, y: float) -> float:
    """Add a step to a staircase; return the area that it adds."""
    i = bisect_left(xs, x)
    if ys[i - 1] <= y or (xs[i] == x and ys[i] <= y):
        return 0.0
    added, left, height, j = 0.0, x, ys[i - 1], i
    while ys[j] >= y:  # steps that the new one covers; the last one, at minus infinity, is never covered
        added += (xs[j] - left) * (height - y)
        left, height, j = xs[j], ys[j], j + 1
    added += (xs[j] - left) * (height - y)
    xs[i:j], ys[i:j] = [x], [y]
    return added


def _estimate(points: Sequence[Point], reference: Point) -> float:
    best = [min(costs) for costs in zip(*points, strict=True)]
    box = math.prod(worst - low for low, worst in zip(best, reference, strict=True))
    scale = [1 / (worst - low) for low, worst in zip(best, reference, strict=True)]
    near = sorted(points, key=lambda p: sum((a - low) * s for a, low, s in zip(p, best, scale, strict=True)))
    draws = max(_FEWEST_DRAWS, min(_MOST_DRAWS, _COMPARISONS // len(near)))
    random = Random(0)
    hits = 0
    for _ in range(draws):
        drawn = [random.uniform(low, worst) for low, worst in zip(best, reference, strict=True)]
        hits += _is_covered(drawn, near)
    return float(box * hits / draws)


def _is_covered(drawn: Sequence[float], points: Sequence[Point]) -> bool:
    """Return whether one of the points is nowhere worse than the drawn one."""
    for point in points:
        for a, b in zip(point, drawn, strict=True):
            if a > b:
                break
        else:
            return True
    return False
