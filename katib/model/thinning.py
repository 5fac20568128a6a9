"""Reduction of a curve to fewer points that keeps its peaks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from katib.model.metrics import MetricLog, is_usable

MIN_POINTS = 4
"""The first, the last, and the extremes between them."""


def bucket_count(max_points: int) -> int:
    """Return the number of parts of a curve: each gives up to two points, in addition to the first and the last."""
    return max(1, (max_points - 2) // 2)


def thinned(curve: Sequence[MetricLog], max_points: int) -> list[MetricLog]:
    """Return the first and last readings of a curve, and the smallest and largest of each of equally long parts.

    The first one of equal numbers counts. A part without usable number gives its first reading.

    Args:
        curve: Readings of one metric, in order.
        max_points: Maximum number returned, at least MIN_POINTS; a curve with no more is returned unchanged.
    """
    total = len(curve)
    if total <= max_points:
        return list(curve)
    buckets = bucket_count(max_points)
    kept = {0, total - 1}
    bounds = [-(-number * total // buckets) for number in range(buckets + 1)]
    for first, end in pairwise(bounds):
        numbers = [(float(curve[n].value), n) for n in range(first, end) if is_usable(curve[n].value)]
        if numbers:
            kept |= {min(numbers)[1], min(numbers, key=lambda pair: (-pair[0], pair[1]))[1]}
        else:
            kept.add(first)
    return [curve[number] for number in sorted(kept)]
