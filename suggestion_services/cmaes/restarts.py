"""Restarts after a search has converged.

`ipop` doubles the population each time: [Auger2005] A Restart CMA Evolution Strategy With Increasing Population Size,
CEC 2005. `bipop` alternates between that and searches of a small population and a small deviation, as long as those
have
used fewer trials than the large ones: [Hansen2009] Benchmarking a BI-Population CMA-ES on the BBOB-2009 Function
Testbed, GECCO 2009.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np

from suggestion_services.cmaes.distribution import SearchStart

_FACTOR = 2
_MOST = 10_000  # trials of a generation


@dataclass(frozen=True)
class Restarts:
    """The searches of one experiment so far.

    Attributes:
        strategy: `none`, `ipop` or `bipop`.
        first: The start of the first search.
        count: Number of restarts.
        large: Number of restarts with a larger population.
        is_small: Whether the current search has a small population.
    """

    strategy: str
    first: SearchStart
    count: int = 0
    large: int = 0
    large_used: int = 0
    small_used: int = 0
    is_small: bool = False

    def next(self, used: int, random: Random) -> tuple[Restarts, SearchStart]:
        """Return the restarts and the start of the next search after one has converged."""
        large_used = self.large_used + (0 if self.is_small else used)
        small_used = self.small_used + (used if self.is_small else 0)
        is_small = self.strategy == "bipop" and self.count > 0 and small_used < large_used
        large = self.large + (0 if is_small else 1)
        after = replace(
            self, count=self.count + 1, large=large, large_used=large_used, small_used=small_used, is_small=is_small
        )
        mean = np.array([random.random() for _ in self.first.mean])
        usual, largest = self.first.population, min(self.first.population * _FACTOR**large, _MOST)
        if not is_small:
            return after, SearchStart(mean, self.first.sigma, largest)
        share = random.random() ** 2
        population = max(int(usual * (largest / usual / 2) ** share), usual)
        return after, SearchStart(mean, self.first.sigma * 10 ** (-2 * random.random()), population)
