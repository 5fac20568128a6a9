"""The search space: all parameters of an experiment together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from random import Random

from katib.api.types import ParameterAssignment, ParameterSpec
from katib.errors import FieldError, InvalidError
from katib.space.build import build_parameter
from katib.space.parameters import Parameter, Value

Point = Mapping[str, Value]
"""One value for every parameter, by name, in the order of the parameters."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The parameters of an experiment, in the order the user gave them."""

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, specs: Sequence[ParameterSpec], path: str = "spec.parameters") -> SearchSpace:
        """Build the space from specifications.

        Raises:
            InvalidError: Everything that is wrong with them.
        """
        errors: list[FieldError] = []
        parameters: dict[str, Parameter] = {}
        for i, spec in enumerate(specs):
            parameter, found = build_parameter(spec, f"{path}[{i}]")
            errors.extend(found)
            if parameter is not None and spec.name in parameters:
                cause = f"there is another parameter {spec.name}"
                errors.append(FieldError(f"{path}[{i}].name", cause, "rename one of them", "parameter-duplicate"))
            elif parameter is not None:
                parameters[spec.name] = parameter
        if not specs:
            errors.append(FieldError(path, "there are no parameters", "give at least one", "parameters-empty"))
        if errors:
            raise InvalidError(errors)
        return cls(tuple(parameters.values()))

    @property
    def size(self) -> int | None:
        """Number of points; None when a parameter is continuous."""
        sizes = [parameter.size for parameter in self.parameters]
        return None if None in sizes else prod(size for size in sizes if size is not None)

    def at(self, index: int) -> Point:
        """Return the index-th point of a finite space in natural order: the last parameter changes fastest.

        Costs the same for every index, however large the space.

        Raises:
            IndexError: There is no such point.
        """
        values: list[Value] = []
        rest = index
        for parameter in reversed(self.parameters):
            rest, k = divmod(rest, parameter.size or 0) if parameter.size else (rest, -1)
            values.append(parameter.at(k))
        if rest != 0:
            raise IndexError(f"the space has {self.size} points, there is none at {index}")
        return dict(zip((parameter.name for parameter in self.parameters), reversed(values), strict=True))

    def sample(self, random: Random) -> Point:
        """Draw a point, each parameter from its own distribution."""
        return {parameter.name: parameter.sample(random) for parameter in self.parameters}

    def format(self, point: Point) -> tuple[ParameterAssignment, ...]:
        """Return the assignments of a point."""
        return tuple(
            ParameterAssignment(name=parameter.name, value=parameter.format(point[parameter.name]))
            for parameter in self.parameters
        )

    def nearest(self, assignments: Iterable[tuple[str, str]]) -> Point | None:
        """Return the feasible point closest to the assignments of a trial; None when one is missing or out of bounds.

        Assignments of other names are passed over.
        """
        texts = dict(assignments)
        try:
            return {parameter.name: parameter.nearest(texts[parameter.name]) for parameter in self.parameters}
        except (KeyError, ValueError):
            return None
