"""The schedule of brackets: starting trials, promotions, and their resources.

Notation: R largest resource (`r_l`), eta reduction factor, s_max number of brackets - 1; bracket s starts with
R * eta^-s and has s + 1 rungs.
Source: [Li2018] Hyperband, JMLR 18(185), algorithm 1: n = ceil((s_max + 1) * eta^s / (s + 1)) trials start, and
floor(n * eta^-i) of them, at least one, reach rung i.
Differs from the paper: resources are values of a parameter. A rung with the same value as the one before would repeat
its trials, so it is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from katib.model.space.parameters import Grid, Interval, Parameter, Value, ValueList

MAX_RUNGS = 50
MAX_STARTING = 100_000
"""More trials in one bracket, or more rungs, are a typing error: an eta of 1.001, for example."""

_ROUNDING = 1e-9  # relative: the logarithm of 243 to the base 3 is a little less than 5 in floats


@dataclass(frozen=True, slots=True)
class Rung:
    """One level of a bracket.

    Attributes:
        resource: Value of the resource parameter; None if there is no such parameter.
        size: Maximum number of trials.
    """

    resource: Value | None
    size: int


@dataclass(frozen=True, slots=True)
class BracketPlan:
    """One run of successive halving.

    Attributes:
        s: How often the resource is multiplied by eta, before rungs are left out.
        least: Resource of the first rung as a number, before it becomes a value of the parameter.
        rungs: The first one holds the starting trials; there is at least one.
    """

    s: int
    least: float
    rungs: tuple[Rung, ...]

    @property
    def size(self) -> int:
        """Maximum number of trials."""
        return sum(rung.size for rung in self.rungs)


def plans_of(largest: float, eta: float, s_max: int, parameter: Parameter | None) -> tuple[BracketPlan, ...]:
    """Return the brackets of one round, the one with most trials first.

    Args:
        largest: R, above 0.
        eta: Above 1.
        s_max: At least 0.
        parameter: The parameter that receives the resource.
    """
    return tuple(_plan(largest, eta, s_max, s, parameter) for s in range(s_max, -1, -1))


def _plan(largest: float, eta: float, s_max: int, s: int, parameter: Parameter | None) -> BracketPlan:
    starting = starting_trials(eta, s_max, s)
    rungs: list[Rung] = []
    for i in range(s + 1):
        value = None if parameter is None else feasible_resource(parameter, largest / eta ** (s - i))
        if not rungs or value != rungs[-1].resource:
            rungs.append(Rung(value, max(math.floor(starting / eta**i * (1 + _ROUNDING)), 1)))
    return BracketPlan(s, largest / eta**s, tuple(rungs))


def starting_trials(eta: float, s_max: int, s: int) -> int:
    """Return the number of trials that start in bracket s."""
    return math.ceil((s_max + 1) * eta**s / (s + 1) * (1 - _ROUNDING))


def halvings_between(least: float, largest: float, eta: float) -> int:
    """Return how often `largest` can be divided by eta without falling below `least`; at least 0."""
    if largest <= least:
        return 0
    return math.floor(math.log(largest / least) / math.log(eta) * (1 + _ROUNDING))


def feasible_resource(parameter: Parameter, amount: float) -> Value:
    """Return the value of the parameter for an amount of the resource.

    For integers the amount is rounded down, as in Katib; then the nearest value within the bounds is used.
    """
    match parameter:
        case Interval(spread=spread):
            return min(max(amount, spread.low), spread.high)
        case Grid(whole=True):
            return parameter.at(parameter.index_of(math.floor(amount * (1 + _ROUNDING))))
        case Grid():
            return parameter.at(parameter.index_of(amount))
    return min(_numbers(parameter), key=lambda pair: (abs(pair[0] - amount), pair[0]))[1]


def least_resource(parameter: Parameter) -> float:
    """Return the least amount of a trial: the lower bound of the parameter, at least 1 for integers."""
    match parameter:
        case Interval(spread=spread):
            return spread.low if spread.low > 0 else 1.0
        case Grid(whole=whole):
            least = float(parameter.at(0))
            return least if least > 0 and (not whole or least > 1) else 1.0
    return next((number for number, _ in sorted(_numbers(parameter)) if number > 0), 1.0)


def is_resource(parameter: Parameter) -> bool:
    """Whether the values of a parameter are amounts."""
    return not isinstance(parameter, ValueList) or parameter.ordered


def _numbers(parameter: Parameter) -> list[tuple[float, str]]:
    return [(float(text), text) for text in parameter.values] if isinstance(parameter, ValueList) else []
