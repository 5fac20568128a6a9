"""From a parameter's specification to a parameter, or to everything that is wrong with it."""

from __future__ import annotations

from fractions import Fraction

from katib.api.types import Distribution, FeasibleSpace, ParameterSpec, ParameterType
from katib.errors import FieldError
from katib.space.parameters import (
    Choice,
    Grid,
    Interval,
    Parameter,
    exact_number,
    finite_number,
    uniform_or,
    whole_number,
)
from katib.space.spread import Spread

_INT64 = 2**63


def build_parameter(spec: ParameterSpec, path: str) -> tuple[Parameter | None, list[FieldError]]:
    """Return the parameter and no errors, or None and all errors.

    Args:
        spec: As the user or the wire gives it.
        path: Path of the specification, such as `spec.parameters[0]`.
    """
    errors: list[FieldError] = []
    if not spec.name:
        errors.append(FieldError(f"{path}.name", "the parameter has no name", "name it", "parameter-name"))
    match spec.parameter_type:
        case ParameterType.DOUBLE | ParameterType.INT:
            parameter = _numeric(spec, f"{path}.feasibleSpace", errors)
        case ParameterType.DISCRETE | ParameterType.CATEGORICAL:
            parameter = _choice(spec, f"{path}.feasibleSpace", errors)
        case other:
            kinds = "double, int, discrete or categorical"
            errors.append(
                FieldError(f"{path}.parameterType", f'unknown type "{other}"', f"use {kinds}", "parameter-type")
            )
            return None, errors
    return (None if errors else parameter), errors


def _choice(spec: ParameterSpec, path: str, errors: list[FieldError]) -> Parameter | None:
    values = tuple(dict.fromkeys(spec.feasible_space.list))
    if not values:
        errors.append(FieldError(f"{path}.list", "the list is empty", "give at least one value", "list-empty"))
        return None
    if spec.parameter_type == ParameterType.DISCRETE and all(map(_is_number, values)):
        return Choice(spec.name, tuple(sorted(values, key=float)), ordered=True)
    return Choice(spec.name, values)


def _is_number(text: str) -> bool:
    try:
        finite_number(text)
    except ValueError:
        return False
    return True


def _numeric(spec: ParameterSpec, path: str, errors: list[FieldError]) -> Parameter | None:
    whole = spec.parameter_type == ParameterType.INT
    space = spec.feasible_space
    low = _bound(space.min, f"{path}.min", errors, whole=whole)
    high = _bound(space.max, f"{path}.max", errors, whole=whole)
    step = _step(space, f"{path}.step", errors, whole=whole)
    distribution = _distribution(space, f"{path}.distribution", errors)
    if low is None or high is None or errors:
        return None
    if low > high:
        cause = f"min {space.min} is above max {space.max}"
        errors.append(FieldError(f"{path}.min", cause, "swap the bounds or raise max", "bounds-order"))
    elif low <= 0 and distribution in (Distribution.LOG_UNIFORM, Distribution.LOG_NORMAL):
        cause = f"min {space.min} has no logarithm, which {distribution} needs"
        remedy = "raise min above 0 or use a distribution without log"
        errors.append(FieldError(f"{path}.min", cause, remedy, "log-bounds"))
    else:
        return _range(spec.name, low, high, step, distribution, whole=whole)
    return None


def _range(
    name: str, low: Fraction, high: Fraction, step: Fraction | None, distribution: Distribution, *, whole: bool
) -> Parameter:
    if low == high:
        return Grid(name, low, Fraction(1), 1, whole)
    if step is None:
        return Interval(name, Spread(float(low), float(high), distribution))
    count = (high - low) // step + 1
    if distribution == Distribution.UNIFORM or count == 1:
        return Grid(name, low, step, count, whole)
    return Grid(name, low, step, count, whole, _grid_spread(low, high, step, count, distribution))


def _grid_spread(low: Fraction, high: Fraction, step: Fraction, count: int, distribution: Distribution) -> Spread:
    if distribution != Distribution.LOG_UNIFORM:
        return Spread(float(low), float(high), distribution)
    # Half of the lower bound is the least that a step wider than the bound leaves on a logarithmic axis.
    return Spread(float(max(low - step / 2, low / 2)), float(low + (count - 1) * step + step / 2), distribution)


def _bound(text: str, path: str, errors: list[FieldError], *, whole: bool) -> Fraction | None:
    if not text:
        errors.append(FieldError(path, "the bound is missing", "give min and max", "bounds-missing"))
        return None
    return _number(text, path, errors, whole=whole)


def _step(space: FeasibleSpace, path: str, errors: list[FieldError], *, whole: bool) -> Fraction | None:
    if not space.step:
        return Fraction(1) if whole else None
    step = _number(space.step, path, errors, whole=whole)
    if step is not None and step <= 0:
        errors.append(FieldError(path, f"step {space.step} is not above 0", "give a positive step", "step-positive"))
    return step


def _number(text: str, path: str, errors: list[FieldError], *, whole: bool) -> Fraction | None:
    try:
        number = Fraction(whole_number(text)) if whole else exact_number(text)
    except ValueError as error:
        wanted = "a whole number" if whole else "a finite number"
        errors.append(FieldError(path, str(error), f"give {wanted}", "bounds-number"))
        return None
    if whole and not -_INT64 <= number < _INT64:
        errors.append(FieldError(path, f"{text} does not fit into 64 bits", "choose a smaller range", "bounds-number"))
        return None
    return number


def _distribution(space: FeasibleSpace, path: str, errors: list[FieldError]) -> Distribution:
    try:
        return uniform_or(space.distribution)
    except ValueError:
        remedy = "use uniform, logUniform, normal or logNormal"
        errors.append(FieldError(path, f'unknown distribution "{space.distribution}"', remedy, "distribution"))
        return Distribution.UNIFORM
