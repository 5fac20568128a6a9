"""Which trials a model is made of, where they are too many for all of them."""

from __future__ import annotations

import numpy as np

from suggestion_services.gp.optimize import FloatArray, IntArray


def subset(rows: FloatArray, scores: FloatArray, most: int) -> IntArray:
    """Return which rows (n, d) are kept where there are more than `most`, in their order.

    A third are those with the best scores, a third those nearest to the best row, and the rest any others, so that the
    model is exact where the optimum may be and knows the space as a whole. The same history gives the same subset.
    """
    if len(rows) <= most:
        return np.arange(len(rows))
    share = most // 3
    order = np.argsort(scores, kind="stable")
    distances = np.sum((rows - rows[order[0]]) ** 2, axis=1)
    kept = np.zeros(len(rows), dtype=bool)
    kept[order[:share]] = True
    kept[np.argsort(np.where(kept, np.inf, distances), kind="stable")[:share]] = True
    others = np.flatnonzero(~kept)
    chosen = np.random.default_rng(len(rows)).permutation(len(others))[: most - int(kept.sum())]
    kept[others[chosen]] = True
    return np.flatnonzero(kept)
