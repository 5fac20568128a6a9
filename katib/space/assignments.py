"""Whether the assignments of a suggestion service can become a trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from katib.api.types import Distribution, ParameterAssignment, ParameterSpec, ParameterType
from katib.errors import FieldError
from katib.space.build import build_parameter
from katib.space.parameters import finite_number, whole_number

_BELL = (Distribution.NORMAL, Distribution.LOG_NORMAL)


def check_assignments(
    parameters: Sequence[ParameterSpec], assignments: Sequence[ParameterAssignment]
) -> list[FieldError]:
    """Return what is wrong with a reply: a parameter missing, repeated or unknown, a value outside its space.

    Services of other makers are given some room: another spelling of a number, a value between two steps (most of
    Katib's own services pass over the step), and for normal and logNormal a value beyond the bounds.
    """
    specs = {spec.name: spec for spec in parameters}
    counts = Counter(assignment.name for assignment in assignments)
    errors = [_missing(name) for name in specs if name not in counts]
    errors += [_repeated(name) for name, count in counts.items() if count > 1 and name in specs]
    for i, assignment in enumerate(assignments):
        errors += _check_one(specs.get(assignment.name), assignment, f"parameterAssignments[{i}]")
    return errors


def _check_one(spec: ParameterSpec | None, assignment: ParameterAssignment, path: str) -> list[FieldError]:
    if spec is None:
        cause, remedy = f'unknown parameter "{assignment.name}"', "name parameters of the experiment only"
        return [FieldError(f"{path}.name", cause, remedy, "assignment-unknown")]
    problem = _infeasible(spec, assignment.value)
    if problem is None:
        return []
    remedy = "stay in the feasible space"
    return [FieldError(f"{path}.value", f"{spec.name}: {problem}", remedy, "assignment-infeasible")]


def _missing(name: str) -> FieldError:
    return FieldError("parameterAssignments", f"{name} has no value", "assign every parameter", "assignment-missing")


def _repeated(name: str) -> FieldError:
    return FieldError("parameterAssignments", f"{name} has several values", "assign it once", "assignment-duplicate")


def _infeasible(spec: ParameterSpec, text: str) -> str | None:
    parameter, _ = build_parameter(spec, spec.name)
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
        return str(error)
    return None
