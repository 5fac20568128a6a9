"""Conditional parameters: which parameters have a value in a trial, depending on the values of others.

Notation: a *child* is a parameter with a condition, its *parent* the parameter in the condition. Each child has one
parent, so parents and children form a forest; a parameter without a condition is a root, and present in every trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from katib.model.space.parameters import Parameter, Value
from katib.model.types import ParameterSpec


@dataclass(frozen=True, slots=True)
class ParentCondition:
    """A parameter has a value only if its parent has one of these."""

    parameter: str
    parent: str
    values: frozenset[Value]


def build_conditions(specs: Sequence[ParameterSpec], parameters: dict[str, Parameter]) -> tuple[ParentCondition, ...]:
    """Return the conditions of a search space that `check_conditions` accepts, parents first."""
    given = {
        spec.name: ParentCondition(
            spec.name, spec.when.parameter, frozenset(map(parameters[spec.when.parameter].parse, spec.when.values))
        )
        for spec in specs
        if spec.when is not None
    }
    return tuple(given[name] for name in parents_first(given, given))


def absent_parameters(
    conditions: Sequence[ParentCondition], value_of: Callable[[str], Value | None]
) -> AbstractSet[str]:
    """Return the names of the parameters without a value.

    Args:
        conditions: The conditions, parents first.
        value_of: Returns the value of a parent by name; None if unknown. Not called for an absent one.
    """
    absent: set[str] = set()
    for condition in conditions:
        if condition.parent in absent or value_of(condition.parent) not in condition.values:
            absent.add(condition.parameter)
    return absent


def parents_first(names: Iterable[str], conditions: Mapping[str, ParentCondition]) -> list[str]:
    """Return the names in the given order, except that each comes after its parent if that is one of them."""
    wanted, ordered = set(names), dict[str, None]()
    for name in names:
        line = dict[str, None]()
        at = name
        while at in wanted and at not in ordered and at not in line:
            line[at] = None
            at = conditions[at].parent if at in conditions else ""
        ordered.update(reversed(line.items()))
    return list(ordered)
