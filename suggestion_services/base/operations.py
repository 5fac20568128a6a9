"""The operations of an architecture search, with all combinations of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product

from katib.model.types import NasConfig, ParameterSpec, ParameterType

Value = str | int | float


@dataclass(frozen=True, slots=True)
class OperationChoice:
    """A possible operation of a layer, with values of its parameters.

    Attributes:
        number: Index from 0, in the order of the experiment's file.
        values: By name of its parameter: text for lists, numbers for ranges.
    """

    number: int
    type: str
    values: dict[str, Value]


def choices_of(config: NasConfig) -> tuple[OperationChoice, ...]:
    """Return all operations with all combinations of their values; the last parameter changes fastest."""
    return tuple(OperationChoice(number, type_, values) for number, (type_, values) in enumerate(_combinations(config)))


def count_choices(config: NasConfig) -> int:
    """Return the number of choices, without creating them."""
    total = 0
    for operation in config.operations:
        size = 1
        for parameter in operation.parameters:
            size *= _count(parameter)
        total += size
    return total


def values_of(parameter: ParameterSpec) -> Sequence[Value]:
    """Return the values of a checked parameter of an operation.

    Reversed bounds, which Katib's services accept, are swapped.
    """
    kind, space = parameter.parameter_type, parameter.feasible_space
    if kind not in (ParameterType.INT, ParameterType.DOUBLE):
        return space.list
    low, step, count = _range(parameter)
    if kind == ParameterType.INT:
        return [int(low + k * step) for k in range(count)]
    return [float(low + k * step) for k in range(count)]


def _combinations(config: NasConfig) -> Iterator[tuple[str, dict[str, Value]]]:
    for operation in config.operations:
        names = [parameter.name for parameter in operation.parameters]
        for values in product(*map(values_of, operation.parameters)):
            yield operation.operation_type, dict(zip(names, values, strict=True))


def _count(parameter: ParameterSpec) -> int:
    is_range = parameter.parameter_type in (ParameterType.INT, ParameterType.DOUBLE)
    return _range(parameter)[2] if is_range else len(parameter.feasible_space.list)


def _range(parameter: ParameterSpec) -> tuple[Decimal, Decimal, int]:
    """Return the first value, the step and the number of values. Decimals: 0.1 to 0.3 by 0.1 are three."""
    space = parameter.feasible_space
    low, high = sorted((Decimal(space.min), Decimal(space.max)))
    step = Decimal(space.step or "1")
    return low, step, int((high - low) / step) + 1
