"""A curve with fewer points that shows the same: no peak is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from katib.model.metrics import MetricLog, is_usable

MIN_POINTS = 4
"""The first, the last, and the extremes between them."""


def bucket_count(max_points: int) -> int:
    """Return into how many parts a curve is cut: each gives up to two points, beside the first and the last."""
    return max(1, (max_points - 2) // 2)


def thinned(curve: Sequence[MetricLog], max_points: int) -> list[MetricLog]:
    """Return the first and the last reading of a curve, and of each of equally long parts the smallest and the largest.

    Of equal numbers the first stands. A part without usable number gives its first reading.

    Args:
        curve: Readings of one metric, in order.
        max_points: Returned at most, from MIN_POINTS on; a curve with no more of them is returned as it is.
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
