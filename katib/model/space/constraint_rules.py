"""Rules about the constraints of an experiment's parameters, for its submission."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from katib.errors import FieldError, InvalidError
from katib.model.space.assignments import default_assignments
from katib.model.space.search_space import SearchSpace
from katib.model.space.where import PATH, Constraint, build_constraints
from katib.model.types import AlgorithmSpec, ExperimentSpec

LEAST_SHARE = 1e-3
"""Share of the search space that constraints have to leave: algorithms draw points again until one is left."""


def check_constraints(spec: ExperimentSpec) -> list[FieldError]:
    """Return the faults of the constraints: in their text, and too few points left; other fields may be invalid."""
    texts = spec.parameter_constraints
    if texts and not spec.parameters:
        remedy = "remove them, or search parameters"
        return [FieldError(PATH, "there are no parameters to compare", remedy, "where-parameters")]
    try:
        built = build_constraints(texts, spec.parameters)
    except InvalidError as error:
        return list(error.errors)
    return [*_contradicted(spec, built)] or [*_nothing_left(spec, texts)] if texts else []


def _contradicted(spec: ExperimentSpec, constraints: Sequence[Constraint]) -> Iterator[FieldError]:
    """Check that constraints leave the resource to the algorithm, and allow the defaults."""
    settings = (spec.algorithm or AlgorithmSpec()).algorithm_settings
    resource = next((setting.value for setting in settings if setting.name == "resource_name"), "")
    point = {one.name: one.value for one in default_assignments(spec.parameters, spec.parameter_constraints)}
    for i, constraint in enumerate(constraints):
        if resource in constraint.names:
            cause = f"{resource} is the resource, whose amount the algorithm decides"
            yield FieldError(f"{PATH}[{i}]", cause, "compare other parameters", "where-resource")
        if point and not constraint.holds(point):
            values = ", ".join(f"{name}={value}" for name, value in point.items() if name in constraint.names)
            cause, remedy = f"the defaults violate it: {values}", "change the defaults, or relax the constraint"
            yield FieldError(f"{PATH}[{i}]", cause, remedy, "where-default")


def _nothing_left(spec: ExperimentSpec, texts: Sequence[str]) -> Iterator[FieldError]:
    try:
        share = SearchSpace.of(spec.parameters, constraints=texts).share()
    except InvalidError:  # the parameters are wrong, which is reported elsewhere
        return
    if share < LEAST_SHARE:
        left = f"about {share:.1g} of the points satisfy" if share else "no point satisfies"
        remedy = "relax them, or choose narrower ranges"
        yield FieldError(PATH, f"{left} {' and '.join(texts)}", remedy, "where-nothing-left")
