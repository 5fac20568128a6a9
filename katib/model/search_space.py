"""Rules about the search space: every parameter can be sampled, and each of its values makes sense.

`katib.model.space`, which builds parameters from accepted specs, takes its errors from here.

Numbers are compared as decimals, not as floats: `step: 0.1` fits between 0.5 and 0.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from katib.errors import FieldError
from katib.model.metrics import is_usable
from katib.model.types import Distribution, ExperimentSpec, FeasibleSpace, ParameterSpec, ParameterType
from katib.model.wording import did_you_mean, one_of, shown

_NUMERIC = (ParameterType.DOUBLE, ParameterType.INT)
_LISTED = (ParameterType.DISCRETE, ParameterType.CATEGORICAL)
LOGARITHMIC = (Distribution.LOG_UNIFORM, Distribution.LOG_NORMAL)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
INT64 = range(-(2**63), 2**63)
"""Range of the 64-bit integers of services."""


def check_search_space(spec: ExperimentSpec) -> Iterator[FieldError]:
    """Check that there is exactly one search space, and each of its parameters."""
    if not spec.parameters and spec.nas_config is None:
        remedy = "list what to tune in spec.parameters"
        yield FieldError("spec", "it has neither parameters nor nasConfig", remedy, "search-space-missing")
    if spec.parameters and spec.nas_config is not None:
        yield FieldError("spec", "it has both parameters and nasConfig", "keep one of them", "search-space-both")
    yield from check_parameters(spec.parameters, "spec.parameters")
    if any(parameter.when is not None for parameter in spec.parameters):
        from katib.model.conditional_parameters import check_conditions

        yield from check_conditions(spec.parameters, "spec.parameters")
    if any(parameter.prior is not None for parameter in spec.parameters):
        from katib.model.parameter_priors import check_priors

        yield from check_priors(spec.parameters, "spec.parameters")
    for i, operation in enumerate(spec.nas_config.operations if spec.nas_config else ()):
        path = f"spec.nasConfig.operations[{i}].parameters"
        yield from check_parameters(operation.parameters, path)
        for j in (j for j, parameter in enumerate(operation.parameters) if parameter.when is not None):
            cause = "a parameter of an operation cannot be conditional"
            yield FieldError(f"{path}[{j}].when", cause, "remove it, or use two operations", "condition-of-operation")
        for j in (j for j, parameter in enumerate(operation.parameters) if parameter.prior is not None):
            cause = "a parameter of an operation has no prior"
            yield FieldError(f"{path}[{j}].prior", cause, "remove it", "prior-of-operation")


def find_odd_values(parameters: Sequence[ParameterSpec]) -> Iterator[FieldError]:
    """Yield a warning for each value of a discrete parameter that is not a number: accepted, but probably a mistake."""
    for i, parameter in enumerate(parameters):
        for j, value in enumerate(parameter.feasible_space.list):
            if parameter.parameter_type == ParameterType.DISCRETE and not is_usable(value):
                path = f"spec.parameters[{i}].feasibleSpace.list[{j}]"
                cause = f"{shown(value)} is not a number, some algorithms refuse it"
                yield FieldError(path, cause, "use parameterType categorical", "discrete-not-numeric")


def check_parameters(parameters: Sequence[ParameterSpec], path: str) -> Iterator[FieldError]:
    """Check each parameter of a list; `path` is that of the list, such as `spec.parameters`."""
    seen: set[str] = set()
    for i, parameter in enumerate(parameters):
        where = f"{path}[{i}]"
        name = parameter.name
        if not name.strip():
            yield FieldError(f"{where}.name", "it is missing", "name the parameter", "parameter-name-missing")
        elif name in seen:
            cause = f"{shown(name)} is used twice"
            yield FieldError(f"{where}.name", cause, "give each parameter its own name", "parameter-name-duplicate")
        seen.add(name)
        yield from _check_parameter(parameter, where)


def _check_parameter(parameter: ParameterSpec, path: str) -> Iterator[FieldError]:
    kind, space = parameter.parameter_type, parameter.feasible_space
    inside = f"{path}.feasibleSpace"
    if kind not in tuple(ParameterType):
        cause = f"{shown(kind)} is not a parameter type" if kind else "it is missing"
        remedy = did_you_mean(kind, [*_NUMERIC, *_LISTED])
        yield FieldError(f"{path}.parameterType", cause, remedy, "parameter-type")
    yield from _check_distribution(kind, space, inside)
    if not (space.min or space.max or space.step or space.list):
        remedy = "give a list" if kind in _LISTED else "give min and max"
        yield FieldError(inside, "it is empty", remedy, "feasible-space-empty")
    elif kind in _NUMERIC:
        yield from _check_numeric(kind, space, inside)
    elif kind in _LISTED:
        yield from _check_listed(kind, space, inside)


def _check_distribution(kind: str, space: FeasibleSpace, path: str) -> Iterator[FieldError]:
    distribution = space.distribution
    where = f"{path}.distribution"
    if distribution and distribution not in tuple(Distribution):
        remedy = did_you_mean(distribution, [word for word in Distribution if word != Distribution.UNKNOWN])
        yield FieldError(where, f"{shown(distribution)} is not a distribution", remedy, "distribution-unknown")
    elif kind in _LISTED and distribution not in {"", Distribution.UNIFORM}:
        cause = f"{distribution} has no meaning for a {kind} parameter"
        yield FieldError(where, cause, "remove it", "distribution-not-applicable")


def _check_numeric(kind: str, space: FeasibleSpace, path: str) -> Iterator[FieldError]:
    if space.list:
        cause = f"a {kind} parameter takes no list"
        yield FieldError(f"{path}.list", cause, f"give min and max, or {one_of(_LISTED)}", "list-not-applicable")
    numbers: dict[str, Decimal] = {}
    for name, text in (("min", space.min), ("max", space.max), ("step", space.step)):
        where = f"{path}.{name}"
        if not text:
            if name != "step":
                yield FieldError(where, "it is missing", f"give {name}", "bounds-missing")
        elif not is_usable(text):
            yield FieldError(where, f"{shown(text)} is not a finite number", "write a number", "bound-not-number")
        elif kind == ParameterType.INT and not _is_whole(text):
            yield FieldError(
                where, f"{shown(text)} is not a whole number of 64 bits", "write one, or use double", "bound-not-whole"
            )
        else:
            numbers[name] = Decimal(text)
    yield from _check_numbers(space, numbers, path)


def _is_whole(text: str) -> bool:
    return bool(_WHOLE.fullmatch(text)) and len(text) < 30 and int(text) in INT64  # noqa: PLR2004  # 64 bits fit


def _check_numbers(space: FeasibleSpace, numbers: dict[str, Decimal], path: str) -> Iterator[FieldError]:
    """Check the readable numbers against each other."""
    low, high, step = numbers.get("min"), numbers.get("max"), numbers.get("step")
    if low is not None and space.distribution in LOGARITHMIC and low <= 0:
        cause = f"{space.min} is not above 0, as {space.distribution} needs"
        yield FieldError(f"{path}.min", cause, "raise min or use uniform", "bound-not-logarithmic")
    if step is not None and step <= 0:
        yield FieldError(f"{path}.step", f"{space.step} is not above 0", "use a positive step", "step-not-positive")
    if low is None or high is None:
        return
    if low > high:
        remedy = "swap the bounds or raise max"
        yield FieldError(f"{path}.min", f"{space.min} is above max {space.max}", remedy, "bounds-order")
    elif step is not None and step > high - low > 0:
        cause = f"{space.step} does not fit between min {space.min} and max {space.max}"
        yield FieldError(f"{path}.step", cause, f"use at most {high - low}", "step-too-large")


def _check_listed(kind: str, space: FeasibleSpace, path: str) -> Iterator[FieldError]:
    given = [name for name, text in (("max", space.max), ("min", space.min), ("step", space.step)) if text]
    if given:
        cause = f"a {kind} parameter takes no {' or '.join(given)}"
        yield FieldError(path, cause, "give a list, or use double or int", "bounds-not-applicable")
    if not space.list:
        yield FieldError(f"{path}.list", "it is empty", "list at least one value", "list-empty")
    seen: set[str] = set()
    for i, value in enumerate(space.list):
        if value in seen:
            where = f"{path}.list[{i}]"
            yield FieldError(where, f"{shown(value)} is listed twice", "keep one of them", "list-duplicate")
        seen.add(value)
