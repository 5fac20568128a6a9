"""Rules about the objective."""

from __future__ import annotations

import math
from collections.abc import Iterator

from katib.errors import FieldError
from katib.model.defaults import compares_means
from katib.model.types import ExperimentSpec, MetricStrategy, ObjectiveSpec, ObjectiveType
from katib.model.types.words import mean_count
from katib.model.wording import did_you_mean, shown

_PATH = "spec.objective"


def check_objective(objective: ObjectiveSpec | None) -> Iterator[FieldError]:
    """Check direction, goal, and the names and strategies of metrics."""
    if objective is None:
        remedy = "say what to optimize with type and objectiveMetricName"
        yield FieldError(_PATH, "it is missing", remedy, "objective-missing")
        return
    if objective.objectives:
        yield from _check_terms(objective)
        yield from _check_first(objective)
    else:
        yield from _check_direction(objective.type, objective.goal, _PATH)
        yield from _check_metric(objective.objective_metric_name, f"{_PATH}.objectiveMetricName")
    yield from _check_additional(objective)
    yield from _check_constraints(objective)
    yield from _check_strategies(objective)


def check_means(spec: ExperimentSpec) -> Iterator[FieldError]:
    """Check that the value of a trial is a mean if early stopping compares means."""
    objective = spec.objective
    if objective is None or not compares_means(spec):
        return
    for i, strategy in enumerate(objective.metric_strategies):
        if strategy.name == objective.objective_metric_name and mean_count(strategy.value) is None:
            cause = f"{shown(strategy.value)} is one reading, and wilcoxon compares the means of folds"
            remedy = "use mean, or leave it out"
            yield FieldError(f"{_PATH}.metricStrategies[{i}].value", cause, remedy, "strategy-wilcoxon")


def _check_terms(objective: ObjectiveSpec) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, term in enumerate(objective.objectives):
        path = f"{_PATH}.objectives[{i}]"
        yield from _check_metric(term.name, f"{path}.name")
        if term.name and term.name in seen:
            remedy = "keep one of them"
            yield FieldError(f"{path}.name", f"{shown(term.name)} is listed twice", remedy, "objective-duplicate")
        yield from _check_direction(term.type, term.goal, path)
        seen.add(term.name)


def _check_first(objective: ObjectiveSpec) -> Iterator[FieldError]:
    """Check that the fields for one objective match the first of the list; absent ones do."""
    first = objective.objectives[0]
    pairs = (
        ("type", objective.type, first.type),
        ("objectiveMetricName", objective.objective_metric_name, first.name),
        ("goal", objective.goal, first.goal),
    )
    for field, given, expected in pairs:
        if expected not in ("", given):
            wanted = "nothing" if expected is None else shown(expected)
            cause = f"{shown(given)} is not that of objectives[0], {wanted}"
            yield FieldError(f"{_PATH}.{field}", cause, "remove it, objectives says it", "objective-conflict")


def _check_direction(type_: str, goal: float | None, path: str) -> Iterator[FieldError]:
    if type_ not in tuple(ObjectiveType):
        cause = f"{shown(type_)} is not a direction" if type_ else "it is missing"
        yield FieldError(f"{path}.type", cause, did_you_mean(type_, ObjectiveType), "objective-type")
    if goal is not None and not math.isfinite(goal):
        remedy = "use a finite number, or remove it to use up the budget"
        yield FieldError(f"{path}.goal", f"{goal} can never be reached", remedy, "goal-not-finite")


def _check_metric(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError(path, "it is missing", "name the metric that trials print", "metric-missing")
    yield from _check_name(name, path)


def _check_constraints(objective: ObjectiveSpec) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, bounds in enumerate(objective.constraints):
        path, low, high = f"{_PATH}.constraints[{i}]", bounds.min, bounds.max
        yield from _check_metric(bounds.metric_name, f"{path}.metricName")
        if bounds.metric_name and bounds.metric_name in seen:
            cause = f"{shown(bounds.metric_name)} is bounded twice"
            yield FieldError(f"{path}.metricName", cause, "give it one entry with min and max", "constraint-duplicate")
        for field, bound in (("min", low), ("max", high)):
            if bound is not None and not math.isfinite(bound):
                remedy = "use a finite number, or remove it"
                yield FieldError(f"{path}.{field}", f"{bound} is not a bound", remedy, "constraint-not-finite")
        if low is None and high is None:
            yield FieldError(path, "it has no bound", "give it min, max or both", "constraint-unbounded")
        elif low is not None and high is not None and low > high:
            cause, remedy = f"{low:g} is above max {high:g}", "swap the bounds or raise max"
            yield FieldError(f"{path}.min", cause, remedy, "constraint-order")
        seen.add(bounds.metric_name)


def _check_additional(objective: ObjectiveSpec) -> Iterator[FieldError]:
    objectives = [term.name for term in objective.terms]
    seen: set[str] = set()
    for i, name in enumerate(objective.additional_metric_names):
        path = f"{_PATH}.additionalMetricNames[{i}]"
        if not name:
            yield FieldError(path, "it is empty", "name a metric or remove the entry", "metric-empty")
        elif name in objectives:
            cause = f"{shown(name)} is {'the' if len(objectives) == 1 else 'an'} objective metric"
            yield FieldError(path, cause, "remove it, the objective is always collected", "metric-is-objective")
        elif name in seen:
            yield FieldError(path, f"{shown(name)} is listed twice", "keep one of them", "metric-duplicate")
        yield from _check_name(name, path)
        seen.add(name)


def _check_name(name: str, path: str) -> Iterator[FieldError]:
    """Check for names that no collector could find: it takes a list split at `;`, and trims its input."""
    if ";" in name:
        yield FieldError(path, f"{shown(name)} contains ;", "rename the metric, ; separates metrics", "metric-name")
    elif name != name.strip() or "\n" in name:
        remedy = "remove the blanks around it and the line breaks in it"
        yield FieldError(path, f"{shown(name)} can never be read from a line", remedy, "metric-name")


def _check_strategies(objective: ObjectiveSpec) -> Iterator[FieldError]:
    metrics = [name for name in objective.metric_names if name]
    seen: set[str] = set()
    for i, strategy in enumerate(objective.metric_strategies):
        path = f"{_PATH}.metricStrategies[{i}]"
        if strategy.name not in objective.metric_names:
            cause = f"{shown(strategy.name)} is not a metric of this experiment"
            yield FieldError(f"{path}.name", cause, did_you_mean(strategy.name, metrics), "strategy-metric")
        elif strategy.name in seen:
            cause = f"{shown(strategy.name)} has a strategy already"
            yield FieldError(f"{path}.name", cause, "keep one of them", "strategy-duplicate")
        if strategy.value not in tuple(MetricStrategy) and mean_count(strategy.value) is None:
            remedy = did_you_mean(strategy.value, MetricStrategy)
            yield FieldError(f"{path}.value", f"{shown(strategy.value)} is not a strategy", remedy, "strategy-value")
        seen.add(strategy.name)
