"""New values near those of a member that was copied. Pure.

Katib multiplies and cuts off at the bounds, which leaves the grid of steps and lets zeros and bounds never move again.
Here every result is a feasible value, and another one than before wherever the parameter has one.
"""

from __future__ import annotations

from random import Random

from katib.space import Choice, Grid, Interval, Parameter, Point, SearchSpace, Value

FACTORS = (0.8, 1.2)
"""[Jaderberg2017], and Katib."""

_SHARE_OF_RANGE = 0.1
"""How far a value moves that no factor moves: zero."""


def explored(space: SearchSpace, point: Point, random: Random, resample_probability: float) -> Point:
    """Return a point near another one.

    Args:
        space: The parameters.
        point: Values of all of them.
        random: Decides.
        resample_probability: For each parameter, the probability that its value is drawn again instead.
    """
    return {
        parameter.name: parameter.sample(random)
        if random.random() < resample_probability
        else perturbed(parameter, point[parameter.name], random)
        for parameter in space.parameters
    }


def perturbed(parameter: Parameter, value: Value, random: Random) -> Value:
    """Return a number times 0.8 or 1.2, an entry of a list one place to the left or to the right."""
    factor = random.choice(FACTORS)
    other = sum(FACTORS) - factor
    for one in (factor, other):  # the other way at the end of the range
        moved = _moved(parameter, value, one)
        if moved != value:
            return moved
    return value


def _moved(parameter: Parameter, value: Value, factor: float) -> Value:
    direction = 1 if factor > 1 else -1
    if isinstance(parameter, Choice):
        place = parameter.index_of(value) + direction
        size = len(parameter.values)
        return parameter.at(min(max(place, 0), size - 1) if parameter.ordered else place % size)
    number = float(value)
    if isinstance(parameter, Interval):
        low, high = parameter.spread.low, parameter.spread.high
        target = number * factor if number else direction * _SHARE_OF_RANGE * (high / 2 - low / 2)
        return min(max(target, low), high) + 0.0
    if isinstance(parameter, Grid):
        here = parameter.index_of(value)
        place = parameter.index_of(number * factor)
        away = direction if number >= 0 else -direction
        return parameter.at(min(max(place if place != here else here + away, 0), parameter.count - 1))
    return parameter.from_unit(min(max(parameter.to_unit(value) + direction * _SHARE_OF_RANGE, 0.0), 1.0))
