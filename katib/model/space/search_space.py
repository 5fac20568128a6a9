"""The search space: all parameters of an experiment together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from random import Random
from typing import TYPE_CHECKING

from katib.errors import FieldError, InvalidError, invalid
from katib.model.search_space import check_parameters
from katib.model.space.build import build_parameter
from katib.model.space.conditions import ParentCondition, absent_parameters, build_conditions, parents_first
from katib.model.space.parameters import Parameter, Value
from katib.model.space.priors import Prior, build_priors
from katib.model.types import ParameterSpec

if TYPE_CHECKING:
    from katib.model.space.where import Constraint


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


LISTED = 10_000
"""Points up to which a space with constraints is listed: that takes half a second."""
_DRAWS = 100_000  # of a point; a thousandth of the space is found a hundred times
_ENOUGH = 200  # points that are found
_HOPELESS = (20_000, 4)  # so many draws find at most so many points: with a thousandth, the odds are 1 to 60,000

Point = Mapping[str, Value]
"""Values by name, in the order of the parameters. A *whole* point has one for every parameter."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The parameters of an experiment, in the user's order.

    Some may have a value only with certain values of another parameter, and be absent from a trial. An algorithm can
    ignore this: the points that it receives are whole, with the middle of the unit interval for an absent parameter,
    and `format` drops absent parameters from the whole points that it returns. So equal trials have equal points.
    `conditions` has the rules, and `active` returns points without their absent parameters.

    Attributes:
        parameters: All of them, absent or not.
        conditions: For each parameter that may be absent, the values with which it is present; parents first.
        priors: Beliefs about the best values of some parameters.
        constraints: Comparisons that every point satisfies. A space of up to `LISTED` points is listed without the
            others: `size` and `at` leave them out. `sample` leaves them out in every space.
    """

    parameters: tuple[Parameter, ...]
    conditions: tuple[ParentCondition, ...] = ()
    priors: tuple[Prior, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    _counting: CountedSpace | None = field(init=False, repr=False, compare=False)
    _allowed: list[int] = field(init=False, repr=False, compare=False, default_factory=list)
    _by_name: Mapping[str, Parameter] = field(init=False, repr=False, compare=False)
    _parents: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {parameter.name: parameter for parameter in self.parameters})
        object.__setattr__(self, "_parents", frozenset(condition.parent for condition in self.conditions))
        is_finite = all(parameter.size is not None for parameter in self.parameters)
        object.__setattr__(self, "_counting", CountedSpace(self.parameters, self.conditions) if is_finite else None)

    @classmethod
    def of(
        cls, specs: Sequence[ParameterSpec], path: str = "spec.parameters", *, constraints: Sequence[str] = ()
    ) -> SearchSpace:
        """Build the space from specifications and constraints.

        Raises:
            InvalidError: All their errors.
        """
        parameters = {spec.name: parameter for spec in specs if (parameter := build_parameter(spec)) is not None}
        if not specs:
            raise invalid(path, "there are no parameters", "give at least one", "parameters-empty")
        if len(parameters) < len(specs):
            errors = list(check_parameters(specs, path))
            remedy = "use double, int, discrete or categorical"
            untyped = FieldError(path, "a parameter is of the type unknown", remedy, "parameter-type")
            raise InvalidError(errors or [untyped])  # Katib's admission accepts that type
        if any(spec.when is not None for spec in specs):
            from katib.model.conditional_parameters import check_conditions

            if errors := list(check_conditions(specs, path)):
                raise InvalidError(errors)
        try:
            conditions = build_conditions(specs, parameters)
        except ValueError as error:  # not covered by `check_conditions`, since the parent's specification is unusual
            raise invalid(path, str(error), "list values of that parameter", "condition-value-unknown") from error
        built: tuple[Constraint, ...] = ()
        if constraints:
            from katib.model.space.where import build_constraints

            built = build_constraints(tuple(constraints), tuple(specs))
        return cls(tuple(parameters.values()), conditions, build_priors(specs, parameters), built)

    @property
    def size(self) -> int | None:
        """Number of distinct points, without absent parameters; None if a parameter is continuous.

        With constraints and more than `LISTED` points, those that violate the constraints are counted as well.
        """
        if self._counting is None:
            return None
        return len(self._listed(self._counting)) if self._is_listed else self._counting.size

    @property
    def _is_listed(self) -> bool:
        return bool(self.constraints) and self._counting is not None and self._counting.size <= LISTED

    def _listed(self, counting: CountedSpace) -> list[int]:
        """Return the indices of the points that satisfy the constraints; computed once."""
        if not self._allowed:
            found = [i for i in range(counting.size) if self._satisfied(counting.at(i))]
            self._allowed[:] = found  # at once, for other threads
        return self._allowed

    def allows(self, point: Point) -> bool:
        """Return whether a point, whole or not, satisfies the constraints."""
        return not self.constraints or self._satisfied(self.active(point))

    def _satisfied(self, point: Point) -> bool:
        return all(constraint.holds(point) for constraint in self.constraints)

    def at(self, index: int) -> Point:
        """Return the index-th whole point of a finite space in natural order: the last parameter changes fastest.

        Parents come before their children, even if the user's order differs. The cost is independent of the index and
        the size of the space.

        Raises:
            IndexError: There is no such point.
        """
        if self._counting is None:
            [endless, *_] = [parameter.name for parameter in self.parameters if parameter.size is None]
            raise IndexError(f"the space has no {index}-th point: {endless} is continuous")
        if not 0 <= index < (self.size or 0):
            raise IndexError(f"the space has {self.size} points, there is none at {index}")
        return self.complete(self._counting.at(self._allowed[index] if self._is_listed else index))

    def sample(self, random: Random) -> Point:
        """Draw a whole point, each parameter from its own distribution, with one number of the random source each.

        Points that violate the constraints are drawn again; after many, the last one is returned.
        """
        for _ in range(_DRAWS):
            point = self.complete({parameter.name: parameter.sample(random) for parameter in self.parameters})
            if self.allows(point):
                break
        return point

    def share(self) -> float:
        """Return the share of the space that the constraints leave: exact in a listed one, else estimated.

        The estimate ends early once the share is clearly above or below a thousandth.
        """
        if self._is_listed and self._counting is not None:
            return (self.size or 0) / max(self._counting.size, 1)
        space, random, found = replace(self, constraints=()), Random(0), 0
        for drawn in range(1, _DRAWS + 1):
            found += self.allows(space.sample(random))
            if found >= _ENOUGH or (drawn == _HOPELESS[0] and found <= _HOPELESS[1]):
                return found / drawn
        return found / _DRAWS

    def absent(self, point: Point) -> frozenset[str]:
        """Return the names of the parameters that are absent from the trial of a point, whole or not."""
        return frozenset(absent_parameters(self.conditions, point.get))

    def active(self, point: Point) -> Point:
        """Return a point without the values of its absent parameters."""
        absent = self.absent(point)
        return {p.name: point[p.name] for p in self.parameters if p.name not in absent}

    def complete(self, point: Point) -> Point:
        """Return the whole point of a trial, with the middle value for each absent parameter."""
        absent = self.absent(point)
        return {p.name: p.from_unit(0.5) if p.name in absent else point[p.name] for p in self.parameters}

    def format(self, point: Point) -> dict[str, str]:
        """Return the texts of a point, whole or not, by name, without absent parameters."""
        absent = self.absent(point)
        return {p.name: p.format(point[p.name]) for p in self.parameters if p.name not in absent}

    def drop_absent(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """Return texts by parameter name without those of absent parameters; other names are kept."""
        absent = absent_parameters(self.conditions, self._parent_values(texts).get)
        return {name: text for name, text in texts.items() if name not in absent}

    def nearest(self, assignments: Iterable[tuple[str, str]]) -> Point | None:
        """Return the feasible whole point closest to the assignments of a trial; None if there is none.

        There is none if a present parameter has no value, or one out of bounds. Assignments of other names, and of
        absent parameters, are ignored.
        """
        texts = dict(assignments)
        absent = absent_parameters(self.conditions, self._parent_values(texts).get)
        try:
            return {p.name: p.from_unit(0.5) if p.name in absent else p.nearest(texts[p.name]) for p in self.parameters}
        except (KeyError, ValueError):
            return None

    def _parent_values(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """Return the values of the parent parameters, as far as they are readable."""
        values: dict[str, Value] = {}
        for name in self._parents:
            with suppress(KeyError, ValueError):
                values[name] = self._by_name[name].nearest(texts[name])
        return values
