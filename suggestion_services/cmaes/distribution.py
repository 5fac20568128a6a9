"""The distribution of CMA-ES: a normal distribution of the numbers, and probabilities of the categories.

The package `cmaes` moves the normal distribution: [Hansen2016] The CMA Evolution Strategy: A Tutorial,
arXiv:1604.00772. Its margin for grids, [Hamano2022] CMA-ES with Margin, GECCO 2022, is not used; see `coordinates`.
The probabilities of the categories move towards those of the better half of a generation by the same weights, and each
category keeps a least probability: the idea of [Hamano2024] CatCMA: Stochastic Optimization for Mixed-Category
Problems, GECCO 2024, with a fixed rate in place of its adaptive one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cmaes import CMA

from suggestion_services.cmaes.coordinates import Candidate, Vector

_RATE = 0.3  # of the categories' probabilities; chosen on functions outside the published figures
_RENEWAL = 0.73  # probability that a converged search draws only its best categories, as in CatCMA
_DRAWS_PER_NUMBER = 10  # attempts at a point between the bounds; then the last one is clipped
_CONVERGED = 1e-6  # of the range of every parameter: smaller differences do not matter


@dataclass(frozen=True)
class SearchStart:
    """The start of a search.

    Attributes:
        mean: Shape (d,), in [0, 1].
        sigma: Standard deviation as a share of the range of a parameter.
        covariance: Shape (d, d); None for the unit matrix.
    """

    mean: Vector
    sigma: float
    population: int
    covariance: Vector | None = None


def usual_population(size: int) -> int:
    """Return the usual population size for a number of free parameters [Hansen2016, eq. 48]."""
    return 4 + math.floor(3 * math.log(max(size, 1)))


@dataclass
class SearchDistribution:
    """A distribution updated by generations of trials.

    Args:
        sizes: Number of values of each categorical parameter.
    """

    start: SearchStart
    sizes: Sequence[int]
    has_converged: bool = field(default=False, init=False)
    """Whether the search has converged."""
    is_exhausted: bool = field(default=False, init=False)
    """Whether further updates would be numerically unstable."""

    def __post_init__(self) -> None:
        self._shares = [np.full(size, 1.0 / size) for size in self.sizes]
        self._normal = _normal(self.start) if len(self.start.mean) else None

    @property
    def population(self) -> int:
        """Number of trials of a generation."""
        return self.start.population

    def draw(self, seed: int) -> Candidate:
        """Return a candidate, deterministic in the seed."""
        random = np.random.RandomState(seed)
        categories = tuple(int(random.choice(len(shares), p=shares)) for shares in self._shares)
        if self._normal is None:
            return Candidate(np.empty(0), categories)
        self._normal.reseed_rng(seed)
        return Candidate(self._normal.ask(), categories)

    def tell(self, generation: Sequence[tuple[Candidate, float]]) -> None:
        """Update the distribution.

        Args:
            generation: As many candidates as the population has, each with its cost; infinite for a failed trial.
        """
        costs = [cost for _, cost in generation]
        if not any(map(math.isfinite, costs)):
            return  # no differences to learn from
        ranked = sorted(generation, key=lambda one: one[1])
        self._tell_categories([candidate for candidate, cost in ranked if math.isfinite(cost)])
        if self._normal is None:
            return
        with np.errstate(all="ignore"):  # infinite costs, and the largest floats
            self._normal.tell([(candidate.numbers, cost) for candidate, cost in ranked])
            places = np.array([candidate.numbers for candidate, _ in ranked])
            self.is_exhausted = self._normal.should_stop()
            self.has_converged = self.is_exhausted or bool(np.all(np.ptp(places, axis=0) < _CONVERGED))

    def copy(self) -> SearchDistribution:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def _tell_categories(self, ranked: Sequence[Candidate]) -> None:
        """Move the probabilities of the categories towards the better half; `ranked` are the candidates, best first."""
        best = ranked[: max(self.population // 2, 1)]
        weights = np.array([math.log((self.population + 1) / 2) - math.log(i + 1) for i in range(len(best))])
        weights /= weights.sum()
        for j, shares in enumerate(self._shares):
            wanted = np.bincount([candidate.categories[j] for candidate in best], weights, len(shares))
            moved = (1 - _RATE) * shares + _RATE * wanted
            least = min((1 - _RENEWAL ** (1 / len(self._shares))) / (len(shares) - 1), 0.5 / len(shares))
            self._shares[j] = least + (1 - least * len(shares)) * moved


def _normal(start: SearchStart) -> CMA:
    d = len(start.mean)
    return CMA(
        mean=start.mean.copy(),
        sigma=start.sigma,
        bounds=np.tile([0.0, 1.0], (d, 1)),
        n_max_resampling=_DRAWS_PER_NUMBER * d,
        seed=0,  # every draw sets its own
        population_size=start.population,
        cov=None if start.covariance is None else start.covariance.copy(),
    )
