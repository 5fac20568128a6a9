"""Rules about conditional parameters: the parent is a parameter of the same list, with values that can be listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from katib.errors import FieldError
from katib.model.metrics import is_usable
from katib.model.types import ParameterSpec, ParameterType
from katib.model.wording import did_you_mean, one_of, shown

_MAX_LISTED = 10


def check_conditions(parameters: Sequence[ParameterSpec], path: str) -> Iterator[FieldError]:
    """Check the conditions of a list of parameters, whose other fields may be invalid."""
    by_name = {parameter.name: parameter for parameter in parameters}
    parents = {parameter.name: parameter.when.parameter for parameter in parameters if parameter.when is not None}
    reported: set[str] = set()
    for i, parameter in enumerate(parameters):
        when, where = parameter.when, f"{path}[{i}].when"
        if when is None:
            continue
        cycle = _cycle(parameter.name, parents)
        parent = by_name.get(when.parameter)
        if not when.parameter:
            remedy = "name the parameter that decides"
            yield FieldError(f"{where}.parameter", "it is missing", remedy, "condition-parameter-missing")
        elif parent is None:
            cause = f"{shown(when.parameter)} is not a parameter of the search space"
            remedy = did_you_mean(when.parameter, [name for name in by_name if name != parameter.name])
            yield FieldError(f"{where}.parameter", cause, remedy, "condition-parameter-unknown")
        elif cycle:
            if reported.isdisjoint(cycle):
                yield _circular(f"{where}.parameter", cycle)
            reported.update(cycle)
        elif _is_continuous(parent):
            cause = f"{parent.name} can have any value between its bounds, so its values cannot be listed"
            remedy = "give it a feasibleSpace.step, or name a discrete, categorical or int parameter"
            yield FieldError(f"{where}.parameter", cause, remedy, "condition-parameter-continuous")
        else:
            yield from _check_values(when.values, parent, f"{where}.values")
        if not when.values:
            remedy = f"list the values with which {parameter.name or 'it'} is wanted"
            yield FieldError(f"{where}.values", "it is empty", remedy, "condition-values-empty")


def _cycle(name: str, parents: Mapping[str, str]) -> list[str]:
    """Return the parameters that lead from this one back to itself; empty if there is no cycle."""
    line = [name]
    while (name := parents.get(name, "")) and name not in line:
        line.append(name)
    return line if name and name == line[0] else []


def _circular(path: str, cycle: Sequence[str]) -> FieldError:
    if len(cycle) == 1:
        cause = f"{cycle[0]} depends on itself"
    else:
        cause = f"{' depends on '.join([*cycle, cycle[0]])}, so none of them could have a value"
    return FieldError(path, cause, "remove one of the conditions", "condition-circular")


def _is_continuous(parameter: ParameterSpec) -> bool:
    space = parameter.feasible_space
    return parameter.parameter_type == ParameterType.DOUBLE and not space.step and space.min != space.max


def _check_values(values: Sequence[str], parent: ParameterSpec, path: str) -> Iterator[FieldError]:
    seen: set[str | Decimal] = set()
    for j, value in enumerate(values):
        key = _key(parent.parameter_type, value)
        if not _is_value(parent, value):
            is_word = parent.parameter_type == ParameterType.CATEGORICAL
            remedy = did_you_mean(value, parent.feasible_space.list) if is_word else one_of(_examples(parent))
            yield FieldError(
                f"{path}[{j}]", f"{shown(value)} is not a value of {parent.name}", remedy, "condition-value-unknown"
            )
        elif key in seen:
            cause = f"{shown(value)} is listed twice"
            yield FieldError(f"{path}[{j}]", cause, "keep one of them", "condition-value-duplicate")
        seen.add(key)


def _key(kind: str, value: str) -> str | Decimal:
    """Return the key for comparing values: `1` and `1.0` are the same number, but not the same category."""
    return Decimal(value) if kind != ParameterType.CATEGORICAL and is_usable(value) else value


def _is_value(parameter: ParameterSpec, value: str) -> bool:
    """Return whether a parameter can have this value; true as well if its own specification is invalid."""
    kind, space = parameter.parameter_type, parameter.feasible_space
    if kind == ParameterType.CATEGORICAL:
        return value in space.list
    if kind == ParameterType.DISCRETE:
        return _key(kind, value) in {_key(kind, listed) for listed in space.list}
    step_text = space.step or "1"
    if not all(map(is_usable, (space.min, space.max, step_text))):
        return True
    low, high, step = _exact(space.min), _exact(space.max), _exact(step_text)
    if low > high or step <= 0:
        return True
    if not is_usable(value):
        return False
    x = _exact(value)
    return low <= x <= high and (x - low) % step == 0


def _exact(text: str) -> Fraction:
    """Return a number of any size without the memory that `1e-999999999` would take."""
    try:
        return Fraction(int(text))
    except ValueError:
        return Fraction(repr(float(text)))


def _examples(parameter: ParameterSpec) -> list[str]:
    """Return values to suggest to the user: all of a list, the first of a grid."""
    space = parameter.feasible_space
    if space.list:
        return list(space.list)
    low, step = _exact(space.min), _exact(space.step or "1")
    count = (_exact(space.max) - low) // step + 1
    if count > _MAX_LISTED:
        return [f"{_text(low)}, {_text(low + step)}, ..., {_text(low + (count - 1) * step)}"]
    return [_text(low + k * step) for k in range(count)]


def _text(number: Fraction) -> str:
    return str(int(number)) if number.denominator == 1 else repr(float(number))
