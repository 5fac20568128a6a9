"""Assignments of trials: those that come before an algorithm's, and the check of a suggestion service's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache
from random import Random

from katib.errors import FieldError, InvalidError
from katib.model.space.build import build_parameter
from katib.model.space.parameters import Parameter, Value, ValueList, finite_number, whole_number
from katib.model.types import (
    Distribution,
    ExperimentSpec,
    InitialTrial,
    ParameterAssignment,
    ParameterCondition,
    ParameterSpec,
    ParameterType,
)

_DRAWS = 10_000  # of values for parameters without a default

_parameter_of = lru_cache(maxsize=1024)(build_parameter)
"""The same specifications are used for each assignment of an experiment."""

_BELL = (Distribution.NORMAL, Distribution.LOG_NORMAL)


def first_trials(spec: ExperimentSpec) -> tuple[InitialTrial, ...]:
    """Return the trial of the defaults, if there are any, and the initial trials without a repetition of it."""
    settings = {} if spec.algorithm is None else {one.name: one.value for one in spec.algorithm.algorithm_settings}
    whole = settings.get("resource_name", ""), settings.get("r_l", "")
    chosen = default_assignments(spec.parameters, spec.parameter_constraints, whole)
    if not chosen:
        return spec.initial_trials
    same = frozenset(chosen)
    others = (trial for trial in spec.initial_trials if frozenset(trial.parameter_assignments) != same)
    return (InitialTrial(parameter_assignments=chosen), *others)


def has_defaults(spec: ExperimentSpec) -> bool:
    return any(parameter.default is not None for parameter in spec.parameters)


@lru_cache(maxsize=64)
def default_assignments(
    specs: tuple[ParameterSpec, ...], constraints: tuple[str, ...] = (), whole: tuple[str, str] = ("", "")
) -> tuple[ParameterAssignment, ...]:
    """Return the assignments of the defaults, each as written; empty if no parameter has one.

    A parameter without a default has the middle of its range, by its distribution, or the first value of its list; if
    that violates the constraints, a value that does not. Empty, too, if the parameters are invalid, which only an
    installation without our admission accepts.

    Args:
        specs: All parameters.
        constraints: Constraints between them.
        whole: The parameter that is the resource of rungs, and the amount of a whole training, which it has without a
            default, so that other trainings can be compared with this one.
    """
    given = {spec.name: spec.default for spec in specs if spec.default is not None}
    if not given:
        return ()
    from katib.model.space.search_space import SearchSpace

    try:
        space = SearchSpace.of(specs, constraints=constraints)
        point = {p.name: p.parse(given[p.name]) if p.name in given else _usual(p, whole) for p in space.parameters}
    except (InvalidError, ValueError):
        return ()
    random = Random(0)
    for _ in range(_DRAWS if len(given) < len(specs) else 0):
        if space.allows(point):
            break
        fixed = {*given, whole[0]}
        point = {p.name: point[p.name] if p.name in fixed else p.sample(random) for p in space.parameters}
    texts = space.format(point)
    return tuple(ParameterAssignment(name=name, value=given.get(name, text)) for name, text in texts.items())


def _usual(parameter: Parameter, whole: tuple[str, str]) -> float | int | str:
    if parameter.name == whole[0]:
        with suppress(ValueError):
            return parameter.nearest(whole[1])
    return parameter.at(0) if isinstance(parameter, ValueList) and not parameter.ordered else parameter.from_unit(0.5)


def check_assignments(
    parameters: Sequence[ParameterSpec], assignments: Sequence[ParameterAssignment], constraints: Sequence[str] = ()
) -> list[FieldError]:
    """Return the errors of a reply: a parameter missing, repeated, unknown or absent, a value outside its space.

    Assignments without such an error are tested against the constraints.

    Other vendors' services have some tolerance: another spelling of a number, a value between two steps (most of
    Katib's own services ignore the step), and for normal and logNormal a value beyond the bounds.
    """
    specs, conditional = dict[str, ParameterSpec](), list[ParameterSpec]()
    for spec in parameters:
        specs[spec.name] = spec
        if spec.when is not None:
            conditional.append(spec)
    values = {assignment.name: assignment.value for assignment in assignments}
    absent = _absent(specs, conditional, values) if conditional else frozenset()
    errors = [_missing(name) for name in specs if name not in values and name not in absent]
    if len(values) < len(assignments):
        counts = Counter(assignment.name for assignment in assignments)
        errors += [_repeated(name) for name, count in counts.items() if count > 1 and name in specs]
    for i, assignment in enumerate(assignments):
        path = f"parameterAssignments[{i}]"
        if assignment.name in absent:
            errors.append(_not_absent(specs[assignment.name], f"{path}.name"))
        else:
            errors += _check_one(specs.get(assignment.name), assignment, path)
    return errors or (_violated(parameters, assignments, constraints) if constraints else [])


def _violated(
    parameters: Sequence[ParameterSpec], assignments: Sequence[ParameterAssignment], constraints: Sequence[str]
) -> list[FieldError]:
    """Return the first violated constraint of assignments that are a point; none if the constraints are invalid."""
    from katib.model.space.where import build_constraints

    point = {assignment.name: assignment.value for assignment in assignments}
    try:
        built = build_constraints(tuple(constraints), tuple(parameters))
    except InvalidError:
        return []
    violated = next((constraint for constraint in built if not constraint.holds(point)), None)
    if violated is None:
        return []
    values = ", ".join(f"{one.name}={one.value}" for one in assignments if one.name in violated.names)
    cause, remedy = f"{values} violates {violated.text}", "choose values that satisfy it, or relax the constraint"
    return [FieldError("parameterAssignments", cause, remedy, "assignment-constraint")]


def _absent(
    specs: Mapping[str, ParameterSpec], conditional: Sequence[ParameterSpec], texts: Mapping[str, str]
) -> AbstractSet[str]:
    """Return the parameters that must not have a value; none if the conditions themselves are invalid."""
    from katib.model.space.conditions import absent_parameters, build_conditions

    parents = {
        spec.when.parameter: parameter
        for spec in conditional
        if spec.when and spec.when.parameter in specs and (parameter := _parameter_of(specs[spec.when.parameter]))
    }

    def value_of(name: str) -> Value | None:
        try:
            return parents[name].nearest(texts[name])
        except (KeyError, ValueError):
            return None

    try:
        return absent_parameters(build_conditions(conditional, parents), value_of)
    except (KeyError, ValueError):
        return frozenset()


def _not_absent(spec: ParameterSpec, path: str) -> FieldError:
    when = spec.when or ParameterCondition()
    cause = f"{spec.name} has a value, but {when.parameter} is none of {', '.join(when.values)}"
    return FieldError(path, cause, "leave it out", "assignment-not-absent")


def _check_one(spec: ParameterSpec | None, assignment: ParameterAssignment, path: str) -> list[FieldError]:
    if spec is None:
        cause, remedy = f'unknown parameter "{assignment.name}"', "name parameters of the experiment only"
        return [FieldError(f"{path}.name", cause, remedy, "assignment-unknown")]
    parameter, text = _parameter_of(spec), assignment.value
    try:
        if parameter is not None and spec.feasible_space.distribution not in _BELL:
            parameter.nearest(text)
        elif spec.parameter_type == ParameterType.INT:
            whole_number(text)
        elif spec.parameter_type == ParameterType.DOUBLE:
            finite_number(text)
        elif parameter is not None:
            parameter.parse(text)
    except ValueError as error:
        cause = f"{spec.name}: {error}"
        return [FieldError(f"{path}.value", cause, "stay in the feasible space", "assignment-infeasible")]
    return []


def _missing(name: str) -> FieldError:
    return FieldError("parameterAssignments", f"{name} has no value", "assign every parameter", "assignment-missing")


def _repeated(name: str) -> FieldError:
    return FieldError("parameterAssignments", f"{name} has several values", "assign it once", "assignment-duplicate")
