"""Conversion of a parameter's specification to a parameter. Validation is in `katib.model.search_space`."""

from __future__ import annotations

from fractions import Fraction

from katib.model.search_space import INT64, LOGARITHMIC
from katib.model.space.parameters import (
    Grid,
    Interval,
    Parameter,
    Spread,
    ValueList,
    exact_number,
    finite_number,
    uniform_or,
    whole_number,
)
from katib.model.types import Distribution, ParameterSpec, ParameterType


def build_parameter(spec: ParameterSpec) -> Parameter | None:
    """Return the parameter, None if the specification breaks a rule that leaves it meaningless.

    Harmless violations pass, since the specification may come over the wire from another controller: a value listed
    twice, a step wider than the bounds.
    """
    if not spec.name:
        return None
    try:
        if spec.parameter_type in (ParameterType.DOUBLE, ParameterType.INT):
            return _numeric(spec)
    except ValueError:
        return None
    is_listed = spec.parameter_type in (ParameterType.DISCRETE, ParameterType.CATEGORICAL)
    return _choice(spec) if is_listed and spec.feasible_space.list else None


def _choice(spec: ParameterSpec) -> Parameter:
    values = tuple(dict.fromkeys(spec.feasible_space.list))
    if spec.parameter_type == ParameterType.DISCRETE and all(map(_is_number, values)):
        return ValueList(spec.name, tuple(sorted(values, key=float)), ordered=True)
    return ValueList(spec.name, values)


def _is_number(text: str) -> bool:
    try:
        finite_number(text)
    except ValueError:
        return False
    return True


def _numeric(spec: ParameterSpec) -> Parameter | None:
    whole, space = spec.parameter_type == ParameterType.INT, spec.feasible_space
    low, high = _number(space.min, whole=whole), _number(space.max, whole=whole)
    step = _number(space.step or "1", whole=whole) if space.step or whole else None
    distribution = uniform_or(space.distribution)
    if low > high or (step is not None and step <= 0) or (low <= 0 and distribution in LOGARITHMIC):
        return None
    if low == high:
        return Grid(spec.name, low, Fraction(1), 1, whole)
    if step is None:
        return Interval(spec.name, Spread(float(low), float(high), distribution))
    count = (high - low) // step + 1
    if distribution == Distribution.UNIFORM or count == 1:
        return Grid(spec.name, low, step, count, whole)
    return Grid(spec.name, low, step, count, whole, _grid_spread(low, high, step, count, distribution))


def _number(text: str, *, whole: bool) -> Fraction:
    if not whole:
        return exact_number(text)
    number = whole_number(text)
    if number not in INT64:
        raise ValueError(f"{text} does not fit into 64 bits")
    return Fraction(number)


def _grid_spread(low: Fraction, high: Fraction, step: Fraction, count: int, distribution: Distribution) -> Spread:
    if distribution != Distribution.LOG_UNIFORM:
        return Spread(float(low), float(high), distribution)
    # Half of the lower bound is the minimum that remains on a logarithmic axis for a step wider than the bound.
    return Spread(float(max(low - step / 2, low / 2)), float(low + (count - 1) * step + step / 2), distribution)
