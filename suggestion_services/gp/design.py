"""The initial design: the middle of the space, then Latin hypercubes.

In a block of m points every parameter has one value in each of m strata of equal probability, so that even four points
cover four parts of each. Of several random blocks the one with the largest minimum distance is used.
Source: [McKay1979] A Comparison of Three Methods for Selecting Values of Input Variables, Technometrics 21(2);
[Johnson1990] Minimax and Maximin Distance Designs, Journal of Statistical Planning and Inference 26(2).
"""

from __future__ import annotations

import numpy as np

from suggestion_services.gp.optimize import FloatArray

_TRIES = 40


def design_point(k: int, dimensions: int, block: int, seed: int) -> FloatArray:
    """Return the k-th point of the design in the unit cube, shape (dimensions,).

    Args:
        k: Counts from 0.
        dimensions: Of the cube.
        block: Points in one hypercube, at least 1.
        seed: Of the search.
    """
    if k == 0:
        return np.full(dimensions, 0.5)
    number, row = divmod(k - 1, block)
    random = np.random.default_rng([seed, number])
    best, best_distance = np.empty((block, dimensions)), -1.0
    for _ in range(_TRIES if block > 1 else 1):
        strata = np.argsort(random.random((block, dimensions)), axis=0)
        points = (strata + random.random((block, dimensions))) / block
        gaps = np.sum((points[:, None] - points[None]) ** 2, axis=2) + dimensions * np.eye(block)
        if (distance := float(gaps.min())) > best_distance:
            best, best_distance = points, distance
    return np.asarray(best[row], dtype=np.float64)
