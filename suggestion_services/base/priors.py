"""Priors of users in a search: trust in them, and draws from a mix of the belief, good trials and chance.

Notation: q_j(u) the density of the belief about parameter j, u its position in [0, 1], see `katib.model.space.priors`.

The support of a belief is the mean of q_j over the best trials, weighted by rank: 1 by chance. The trust t_j in [0, 1]
falls if the support is below 1, and if it is below the mean of all trials, since many were drawn near the belief.
Source: [Mallik2023] PriorBand: Practical Hyperparameter Optimization in the Age of Deep Learning, NeurIPS 36.
Differs from the paper: trust is per parameter, not for all together, since a user may be right about one and wrong
about another, and a good belief is compared with chance, not with the neighborhood of the best trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter, mul
from random import Random
from typing import TypeVar

from katib.model.space import Parameter, Point, SearchSpace, Value, ValueList
from katib.model.space.priors import Prior
from suggestion_services.base.algorithm import PastTrial

_UNIFORM, _UNIFORM_EARLY = 1 / 3, 1 / 2
"""Shares of uniform draws, and of those before the best trial has a neighborhood: only they can refute a belief."""
_GOOD_SHARE = 1 / 3
MOST_GOOD = 10
_REFUTED = 0.2
"""Density at the best trials, relative to a uniform one, below which they contradict a belief."""
_HELD, _MOST_HELD = 4.0, 60
"""Power of beliefs that the best trials fully support, and the number of trials after which it fades nevertheless."""
_MOST_COMPARED = 50
_MOST_NAMED = 3
_NEIGHBORHOOD = 0.25
"""Deviation around the best trial, as in the paper."""
_LEAST_KNOWN = 10
"""Trials with a value before the best of them has a neighborhood."""
_CHANGED = 0.5
"""Share of the parameters that differ from the best trial, as in the paper."""

Ranked = TypeVar("Ranked")
Rank = float | tuple[float, ...]


class PriorGuide:
    """The priors of a search with the evidence of its trials. Truthy if there are any.

    Args:
        space: Of the search.
        n_fixed: Number of trials that the user chose, which come before the first suggestion.
    """

    def __init__(self, space: SearchSpace, n_fixed: int = 0) -> None:
        self._space, self._n_fixed = space, n_fixed
        names = {p.name for p in space.parameters}
        self.priors = {prior.parameter: prior for prior in space.priors if prior.parameter in names}
        self.support: dict[str, float] = dict.fromkeys(self.priors, 1.0)
        self.trusts = dict(self.support)
        self._best: Point | None = None
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.priors)

    def learn(self, ranked: Sequence[Ranked], point_of: Callable[[Ranked], Point | None]) -> None:
        """Weigh the beliefs by trials.

        Args:
            ranked: All trials with a value, the best first.
            point_of: Returns the point of a trial; None if it is from another space. Called for a part of them.
        """
        count = min(math.ceil(_GOOD_SHARE * len(ranked)), MOST_GOOD)
        good = [point for trial in ranked[:count] if (point := point_of(trial)) is not None]
        step = max(len(ranked) // _MOST_COMPARED, 1)
        usual = [point for trial in ranked[::step] if (point := point_of(trial)) is not None]
        self._best, self._count = good[0] if good else None, len(ranked)
        by_name = {p.name: p for p in self._space.parameters}
        for name, prior in self.priors.items():
            best, all_densities = (self._densities(prior, by_name[name], points) for points in (good, usual))
            if not best:
                self.support[name] = self.trusts[name] = 1.0
                continue
            weights = range(len(best), 0, -1)
            self.support[name] = sum(map(mul, weights, best)) / sum(weights)
            gain = self.support[name] * len(all_densities) / sum(all_densities)
            self.trusts[name] = min(self.support[name], 1.0) * min(gain, 1.0) ** (len(best) / 2)

    def learn_from(self, trials: Iterable[PastTrial], rank: Callable[[PastTrial], Rank | None]) -> None:
        """Weigh the beliefs by trials; a trial counts if it has a rank, lower is better."""
        ranked = [(key, trial) for trial in trials if (key := rank(trial)) is not None]
        ranked.sort(key=itemgetter(0))
        self.learn(ranked, lambda known: self._space.nearest(known[1].assignments.items()))

    def _densities(self, prior: Prior, parameter: Parameter, points: Sequence[Point]) -> list[float]:
        name = parameter.name
        return [prior.density(parameter.to_unit(p[name])) for p in points if name not in self._space.absent(p)]

    @property
    def trust(self) -> float:
        """The mean trust in the beliefs, from 0 to 1."""
        return sum(self.trusts.values()) / max(len(self.trusts), 1)

    @property
    def agreement(self) -> float:
        """From 0 to 1, above 0 if the best trials support every belief."""
        return min(max(min(self.support.values(), default=0.0) - 1.0, 0.0), 1.0)

    def power(self, name: str, n: int, beta: float) -> float:
        """Return the power of q_j after n trials: t_j * beta / n, as [Hvarfner2022] but for the trust t_j.

        With agreement beta grows with n, so that the power does not fall below a least one.
        """
        return self.trusts[name] * max(beta, _HELD * self.agreement * min(n, _MOST_HELD)) / max(n, 1)

    def words(self, algorithm: str) -> str:
        """Return one sentence on the effect of the priors; empty without any."""
        if not self.priors:
            return ""
        if self._best is None:
            return f"{algorithm} begins near the {_of(self.priors)}"
        agreeing = [name for name, support in self.support.items() if support >= 1.0]
        refuted = [name for name, support in self.support.items() if support < _REFUTED]
        parts = [f"agree with the {_of(agreeing)}"] if agreeing else []
        parts += [f"contradict the {_of(refuted)}, which it now nearly ignores"] if refuted else []
        found = " and ".join(parts) or f"neither support nor contradict the {_of(self.priors)}"
        return f"{algorithm} favours values near the priors; its best trials {found}"

    def draw(self, random: Random, k: int) -> Point:
        """Return a whole point from the mix for the k-th suggestion; the first one has the centers of all beliefs."""
        near = self._best if self._count >= _LEAST_KNOWN else None
        begins, uniform = k == self._n_fixed, random.random() < (_UNIFORM_EARLY if near is None else _UNIFORM)
        values: dict[str, Value] = {}
        for p in self._space.parameters:
            prior, u = self.priors.get(p.name), random.random()
            odds = 0.0 if prior is None else self.support[p.name] * self.trusts[p.name]
            chance = random.random()
            believes = chance < self.trusts.get(p.name, 0.0) if near is None else chance * (1.0 + odds) < odds
            changed, jump = random.random() < _CHANGED, random.gauss(0.0, _NEIGHBORHOOD)
            if begins and prior is not None:
                u = prior.mean
            elif not uniform and believes and prior is not None:
                u = prior.quantile(u)
            elif not uniform and near is not None and not changed:
                u = p.to_unit(near[p.name])
            elif not uniform and near is not None and not _is_category(p):
                u = abs(p.to_unit(near[p.name]) + jump)
                u = max(2.0 - u, 0.0) if u > 1.0 else u
            values[p.name] = p.from_unit(u)
        return self._space.complete(values)


def _is_category(parameter: Parameter) -> bool:
    return isinstance(parameter, ValueList) and not parameter.ordered


def _of(names: Collection[str]) -> str:
    if len(names) > _MOST_NAMED:
        return f"{len(names)} priors"
    return f"prior{'s' if len(names) > 1 else ''} of {', '.join(names)}"
