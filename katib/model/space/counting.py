"""Number of distinct points of a finite space, and access to the k-th point.

Notation: the weight of a parameter is the number of ways to assign it and its descendants; the weight of one of its
values, the product of the weights of the children present with it. Most values have no children and weigh 1, so a
parameter is a few runs of values of equal weight, however many values it has.

Points are counted in the order of their texts with parents written before their children: the last parameter changes
fastest. An absent parameter counts as one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from katib.model.space.conditions import ParentCondition, parents_first
from katib.model.space.parameters import Parameter, Value


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighboring values of one parameter with the same children present."""

    first: int
    count: int
    children: tuple[str, ...]
    weight: int


class CountedSpace:
    """The points of a space whose parameters all have a size. Immutable."""

    def __init__(self, parameters: Sequence[Parameter], conditions: Sequence[ParentCondition]) -> None:
        below = {condition.parameter: condition for condition in conditions}
        by_name = {parameter.name: parameter for parameter in parameters}
        self._parameters = tuple(by_name[name] for name in parents_first(by_name, below))
        children: dict[str, list[ParentCondition]] = {}
        for condition in conditions:
            children.setdefault(condition.parent, []).append(condition)
        self._roots = tuple(p.name for p in self._parameters if p.name not in below)
        self._runs: dict[str, tuple[_Run, ...]] = {}
        self._weights: dict[str, int] = {}
        for parameter in reversed(self._parameters):  # children before parents
            runs = tuple(self._runs_of(parameter, children.get(parameter.name, [])))
            self._runs[parameter.name] = runs
            self._weights[parameter.name] = sum(run.count * run.weight for run in runs)
        self.size = prod(self._weights[name] for name in self._roots)

    def _runs_of(self, parameter: Parameter, children: Sequence[ParentCondition]) -> Iterator[_Run]:
        present: dict[int, list[str]] = {}
        for child in children:
            for value in child.values:
                present.setdefault(parameter.index_of(value), []).append(child.parameter)
        end = 0
        for index in sorted(present):
            if index > end:
                yield _Run(end, index - end, (), 1)
            names = tuple(present[index])
            yield _Run(index, 1, names, prod(self._weights[name] for name in names))
            end = index + 1
        size = parameter.size or 0
        if size > end:
            yield _Run(end, size - end, (), 1)

    def at(self, index: int) -> dict[str, Value]:
        """Return the index-th point without its absent parameters, in time linear in the number of parameters.

        Args:
            index: From 0 to `size - 1`.
        """
        open_names, rest = set(self._roots), self.size  # rest: ways to assign all open parameters
        values: dict[str, Value] = {}
        for parameter in self._parameters:
            if parameter.name not in open_names:
                continue
            others = rest // self._weights[parameter.name]
            for run in self._runs[parameter.name]:
                block = run.weight * others
                if index < run.count * block:
                    break
                index -= run.count * block
            k, index = divmod(index, block)
            values[parameter.name] = parameter.at(run.first + k)
            open_names.update(run.children)
            rest = block
        return values
