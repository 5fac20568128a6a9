"""Which parameters predict the objective best, in a millisecond: the default choice of figures.

Measured by eta squared: the share of the variance of the objective's ranks that lies between groups of trials, where a
group is a tenth of the range of a number, a choice, or those that do not have the parameter. It sees single parameters
only; `katib.figures.importance` sees what they do together, and takes a thousand times as long.
"""

from __future__ import annotations

import numpy as np

from katib.figures.targets import target_of
from katib.figures.trials import Floats, TrialTable

_GROUPS = 10
_MOST_TRIALS = 5_000
"""The newest measured ones: enough to put parameters in an order."""


def most_telling(trials: TrialTable, count: int, metric: str = "") -> tuple[str, ...]:
    """Return the names of at most so many parameters in the order of the search space.

    When there are more, those that say most about the metric are kept.
    """
    if len(trials.values) <= count:
        return tuple(trials.values)
    kept = set(by_telling(trials, metric)[:count])
    return tuple(name for name in trials.values if name in kept)


def by_telling(trials: TrialTable, metric: str = "") -> tuple[str, ...]:
    """Return the names of all parameters, the most telling first."""
    target = target_of(trials, metric)
    rows = target.rows[-_MOST_TRIALS:]
    ranks = np.argsort(np.argsort(target.values[rows], kind="stable"), kind="stable").astype(np.float64)
    shares = {
        name: _explained(_groups(column[rows], is_categorical=trials.parameter(name).is_categorical), ranks)
        for name, column in trials.values.items()
    }
    return tuple(sorted(shares, key=lambda name: -shares[name]))


def _groups(values: Floats, *, is_categorical: bool) -> Floats:
    """Return a number of each trial's group; -1 for those that do not have the parameter."""
    present = ~np.isnan(values)
    if is_categorical or not present.any():
        return np.where(present, values, -1.0)
    edges = np.unique(np.quantile(values[present], np.linspace(0, 1, _GROUPS + 1)[1:-1]))
    return np.where(present, np.searchsorted(edges, np.where(present, values, 0.0), side="right"), -1.0)


def _explained(groups: Floats, ranks: Floats) -> float:
    """Return the share of the variance between groups, less what as many groups of no meaning would explain."""
    n = len(ranks)
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    total = float(np.sum((ranks - ranks.mean()) ** 2)) if n else 0.0
    if len(sizes) < 2 or total == 0 or n <= len(sizes):  # noqa: PLR2004 - one group tells nothing
        return -1.0
    means = np.bincount(place, weights=ranks) / sizes
    between = float(np.sum(sizes * (means - ranks.mean()) ** 2))
    within = (total - between) / (n - len(sizes))
    return (between - (len(sizes) - 1) * within) / total
