"""Rules about trials that no algorithm proposed: defaults, initial trials, and earlier ones to learn from.

Whether a value is in the feasible space of its parameter is checked by `katib.model.space`, which knows the values; the
names in an initial trial are checked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from katib.errors import FieldError
from katib.model.types import ExperimentSpec, ParameterAssignment, ParameterSpec, WarmStartSpec
from katib.model.wording import did_you_mean, shown

MOST_INITIAL_TRIALS = 1_000
MOST_EARLIER_TRIALS = 5_000
"""Number that fits into an object beside everything else."""


PointCheck = Callable[[Sequence[ParameterSpec], Sequence[ParameterAssignment], Sequence[str]], list[FieldError]]
"""Returns errors if assignments, all with known names, are not a point of the space of these parameters that satisfies
these constraints."""


def no_point_errors(
    _parameters: Sequence[ParameterSpec], _assignments: Sequence[ParameterAssignment], _constraints: Sequence[str]
) -> list[FieldError]:
    """Return no errors; for callers that cannot interpret values."""
    return []


def check_initial_trials(spec: ExperimentSpec, check_point: PointCheck = no_point_errors) -> Iterator[FieldError]:
    """Check that initial trials are points of the search space, and that the budget has room for them."""
    path, count = "spec.initialTrials", len(spec.initial_trials)
    budget = spec.max_trial_count
    if budget is not None and any(parameter.default is not None for parameter in spec.parameters):
        budget -= 1
    if count and spec.nas_config is not None:
        yield FieldError(path, "an architecture search has no parameters to choose", "remove it", "initial-trials-nas")
        return
    if count > MOST_INITIAL_TRIALS:
        remedy = f"list at most {MOST_INITIAL_TRIALS}"
        yield FieldError(path, f"{count} are more than an object can hold", remedy, "initial-trials-count")
    elif count and budget is not None and count > max(budget, 0):  # below 0 is an error of its own
        remedy = "raise spec.maxTrialCount or remove some"
        yield FieldError(
            path,
            f"{count} are more than the budget of {spec.max_trial_count} has room for",
            remedy,
            "initial-trials-budget",
        )
    for i, trial in enumerate(spec.initial_trials):
        errors = list(check_names(spec, trial.parameter_assignments, f"{path}[{i}].parameterAssignments"))
        yield from errors
        if not errors:
            for error in check_point(spec.parameters, trial.parameter_assignments, spec.parameter_constraints):
                yield FieldError(f"{path}[{i}].{error.path}", error.cause, error.remedy, error.origin)


def check_defaults(spec: ExperimentSpec, check_point: PointCheck = no_point_errors) -> Iterator[FieldError]:
    """Check that each default is a value of its parameter."""
    for i, parameter in enumerate(spec.parameters):
        if parameter.default is None:
            continue
        alone = structs.replace(parameter, when=None)
        for error in check_point([alone], [ParameterAssignment(name=parameter.name, value=parameter.default)], ()):
            remedy = "give the value in use today, widen the search space, or remove the default"
            cause = error.cause.removeprefix(f"{parameter.name}: ")
            yield FieldError(f"spec.parameters[{i}].default", cause, remedy, "default-infeasible")


def check_names(spec: ExperimentSpec, assignments: Sequence[ParameterAssignment], path: str) -> Iterator[FieldError]:
    known = [parameter.name for parameter in spec.parameters]
    counts = Counter(assignment.name for assignment in assignments)
    for i, assignment in enumerate(assignments):
        if assignment.name not in known:
            cause = f"{shown(assignment.name)} is not a parameter of this experiment"
            yield FieldError(f"{path}[{i}].name", cause, did_you_mean(assignment.name, known), "assignment-unknown")
    for name, count in counts.items():
        if count > 1 and name in known:
            yield FieldError(path, f"{name} has several values", "assign it once", "assignment-duplicate")


def check_warm_start(spec: ExperimentSpec, name: str) -> Iterator[FieldError]:
    """Check the sources of earlier trials."""
    start, path = spec.warm_start, "spec.warmStart"
    if start is None:
        return
    if spec.nas_config is not None:
        yield FieldError(path, "an architecture search cannot use earlier trials", "remove it", "warm-start-nas")
    yield from _check_experiments(start, name, f"{path}.experiments")
    if len(start.trials) > MOST_EARLIER_TRIALS:
        remedy = f"list at most {MOST_EARLIER_TRIALS}, the best ones"
        cause = f"{len(start.trials)} are more than an object can hold"
        yield FieldError(f"{path}.trials", cause, remedy, "warm-start-count")


def _check_experiments(start: WarmStartSpec, own: str, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, name in enumerate(start.experiments):
        if not name:
            remedy = "name an experiment or remove the entry"
            yield FieldError(f"{path}[{i}]", "it is empty", remedy, "warm-start-empty")
        elif name == own:
            remedy = "name an earlier one"
            yield FieldError(f"{path}[{i}]", f"{shown(name)} is this experiment", remedy, "warm-start-itself")
        elif name in seen:
            yield FieldError(f"{path}[{i}]", f"{shown(name)} is listed twice", "keep one of them", "warm-start-twice")
        seen.add(name)
