"""The parameters of a search space in groups that are present together.

A trial has the parameters without a condition, and the groups whose condition its values meet. Each group has a model
of its own: a trial has either all parameters of a group or none, so a joint model loses no trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optuna.distributions import BaseDistribution

from katib.model.space import ParentCondition, SearchSpace
from suggestion_services.tpe.dimensions import Dimension

Group = Mapping[str, BaseDistribution]


class Branches:
    """The groups of a search space with their parameters as Optuna distributions."""

    def __init__(self, space: SearchSpace, dimensions: Mapping[str, Dimension]) -> None:
        self._dimensions = dimensions
        condition_of = {condition.parameter: condition for condition in space.conditions}
        names = [p.name for p in space.parameters if p.name not in condition_of]
        groups: dict[Any, tuple[ParentCondition | None, dict[str, BaseDistribution]]] = {}
        for name in [*names, *condition_of]:  # parents first
            condition = condition_of.get(name)
            key = (condition.parent, condition.values) if condition else None
            groups.setdefault(key, (condition, {}))[1][name] = dimensions[name].distribution
        self._groups = tuple(groups.values())
        self.joint_space: dict[str, BaseDistribution] = {
            name: distribution
            for _, group in self._groups
            for name, distribution in group.items()
            if not distribution.single()
        }
        """Of all groups, without parameters that have one value: there is nothing to learn about them."""

    def present(self, params: Mapping[str, Any]) -> Iterator[Group]:
        """Yield the groups that are present in a trial, parents first.

        Args:
            params: The values so far, as Optuna values; read again before each group.
        """
        names: set[str] = set()
        for condition, group in self._groups:
            if condition is None or (condition.parent in names and self._is_met(condition, params)):
                names.update(group)
                yield group

    def _is_met(self, condition: ParentCondition, params: Mapping[str, Any]) -> bool:
        dimension = self._dimensions[condition.parent]
        if condition.parent not in params:
            return dimension.distribution.single() and dimension.parameter.at(0) in condition.values
        return dimension.decode(params[condition.parent]) in condition.values
