"""Priors: beliefs of a user about the best value of a parameter, as densities over the unit interval.

Notation: u in [0, 1] a position as of `Parameter.to_unit`; q(u) the density relative to a uniform draw, so that q = 1
says nothing. A number has a normal density around its center, cut off at the bounds; a category has the density of its
weight. A small share of every density is uniform, so that no value is impossible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from katib.model.search_space import LOGARITHMIC
from katib.model.space.parameters import Grid, Interval, Parameter, Value, ValueList, uniform_or
from katib.model.types import ParameterPrior, ParameterSpec

UNIFORM_SHARE = 0.05
_WIDTH = 0.15
"""Deviation without a factor or width, as a share of the axis between the bounds."""
_LEAST_WIDTH = 1e-3
_FAVOURED = 4.0
"""Weight of a category that is a center; all others weigh 1."""


@dataclass(frozen=True)
class Prior:
    """The belief about one parameter.

    Attributes:
        parameter: Its name.
        mean: Center of a number; the likeliest category's position.
        deviation: Of a number.
        shares: Probabilities of the categories, in their order; empty for a number.
    """

    parameter: str
    mean: float
    deviation: float = 1.0
    shares: tuple[float, ...] = ()

    def density(self, u: float) -> float:
        """Return q(u), between `UNIFORM_SHARE` and its largest value at the mean."""
        if self.shares:
            n = len(self.shares)
            own = n * self.shares[min(int(u * n), n - 1)]
        else:
            z = (u - self.mean) / self.deviation
            own = self.peak * math.exp(-0.5 * z * z)
        return (1.0 - UNIFORM_SHARE) * own + UNIFORM_SHARE

    def quantile(self, v: float) -> float:
        """Return the position below which the share v of the belief lies, without its uniform part."""
        v = min(v, 1.0 - 1e-9)
        if self.shares:
            n = len(self.shares)
            for i, share in enumerate(self.shares):
                if v < share:
                    return (i + v / share) / n
                v -= share
            return self.mean
        from statistics import NormalDist  # late, as in `spread`

        low, high = self._tails
        normal = NormalDist(self.mean, self.deviation)
        return min(max(normal.inv_cdf(min(max(low + v * (high - low), 1e-15), 1.0 - 1e-15)), 0.0), 1.0)

    @cached_property
    def peak(self) -> float:
        """Density of a number's belief at its mean, without the uniform part."""
        low, high = self._tails
        return 1.0 / (self.deviation * math.sqrt(2.0 * math.pi) * (high - low))

    @cached_property
    def _tails(self) -> tuple[float, float]:
        scale = self.deviation * math.sqrt(2.0)
        return 0.5 * math.erfc(self.mean / scale), 1.0 - 0.5 * math.erfc((1.0 - self.mean) / scale)


def build_priors(specs: Iterable[ParameterSpec], parameters: Mapping[str, Parameter]) -> tuple[Prior, ...]:
    """Return the priors of a search space. Those that `check_priors` refuses, or that say nothing, are left out."""
    found = (_build(spec.prior, spec, parameters[spec.name]) for spec in specs if spec.prior is not None)
    return tuple(prior for prior in found if prior is not None)


def _build(prior: ParameterPrior, spec: ParameterSpec, parameter: Parameter) -> Prior | None:
    if parameter.size == 1:
        return None
    try:
        if prior.weights:
            return _weighted(parameter, {parameter.parse(text): weight for text, weight in prior.weights.items()})
        center = parameter.nearest(prior.center)
        if isinstance(parameter, ValueList) and not parameter.ordered:
            weights: dict[Value, float] = {value: _FAVOURED if value == center else 1.0 for value in parameter.values}
            return _weighted(parameter, weights)
        deviation = _deviation(prior, spec, parameter)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    if not 0.0 < deviation < math.inf:
        return None
    return Prior(spec.name, parameter.to_unit(center), max(deviation, _LEAST_WIDTH))


def _weighted(parameter: Parameter, weights: Mapping[Value, float]) -> Prior | None:
    if not isinstance(parameter, ValueList):
        return None
    given = [max(weights.get(value, 0.0), 0.0) for value in parameter.values]
    total = sum(given)
    if not 0.0 < total < math.inf:
        return None
    shares = tuple(weight / total for weight in given)
    return Prior(parameter.name, (shares.index(max(shares)) + 0.5) / len(shares), shares=shares)


def _deviation(prior: ParameterPrior, spec: ParameterSpec, parameter: Parameter) -> float:
    """Return the deviation on the unit interval."""
    if isinstance(parameter, Interval | Grid):
        low, high = float(spec.feasible_space.min), float(spec.feasible_space.max)
        if prior.factor and uniform_or(spec.feasible_space.distribution) in LOGARITHMIC:
            return math.log(float(prior.factor)) / (math.log(high) - math.log(low))
        if prior.width:
            return float(prior.width) / (high - low)
    return _WIDTH
