"""Rules about what is optimized."""

from __future__ import annotations

import math
from collections.abc import Iterator

from katib.api.types import MetricStrategy, ObjectiveSpec, ObjectiveType
from katib.api.wording import did_you_mean, shown
from katib.errors import FieldError

_PATH = "spec.objective"


def check_objective(objective: ObjectiveSpec | None) -> Iterator[FieldError]:
    """Check direction, goal, names of metrics and their strategies."""
    if objective is None:
        remedy = "say what to optimize with type and objectiveMetricName"
        yield FieldError(_PATH, "it is missing", remedy, "objective-missing")
        return
    if objective.type not in tuple(ObjectiveType):
        cause = f"{shown(objective.type)} is no direction" if objective.type else "it is missing"
        yield FieldError(f"{_PATH}.type", cause, did_you_mean(objective.type, ObjectiveType), "objective-type")
    if objective.goal is not None and not math.isfinite(objective.goal):
        remedy = "use a finite number, or remove it to use up the budget"
        yield FieldError(f"{_PATH}.goal", f"{objective.goal} can never be reached", remedy, "goal-not-finite")
    yield from _check_metrics(objective)
    yield from _check_strategies(objective)


def _check_metrics(objective: ObjectiveSpec) -> Iterator[FieldError]:
    metric = objective.objective_metric_name
    path = f"{_PATH}.objectiveMetricName"
    if not metric:
        yield FieldError(path, "it is missing", "name the metric that trials print", "metric-missing")
    yield from _check_name(metric, path)
    seen: set[str] = set()
    for i, name in enumerate(objective.additional_metric_names):
        path = f"{_PATH}.additionalMetricNames[{i}]"
        if not name:
            yield FieldError(path, "it is empty", "name a metric or remove the entry", "metric-empty")
        elif name == metric:
            cause = f"{shown(name)} is the objective metric"
            yield FieldError(path, cause, "remove it, the objective is always collected", "metric-is-objective")
        elif name in seen:
            yield FieldError(path, f"{shown(name)} is listed twice", "keep one of them", "metric-duplicate")
        yield from _check_name(name, path)
        seen.add(name)


def _check_name(name: str, path: str) -> Iterator[FieldError]:
    """Check what no collector could find: it takes a list split at `;`, and trims what it reads."""
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
            cause = f"{shown(strategy.name)} is no metric of this experiment"
            yield FieldError(f"{path}.name", cause, did_you_mean(strategy.name, metrics), "strategy-metric")
        elif strategy.name in seen:
            cause = f"{shown(strategy.name)} has a strategy already"
            yield FieldError(f"{path}.name", cause, "keep one of them", "strategy-duplicate")
        if strategy.value not in tuple(MetricStrategy):
            remedy = did_you_mean(strategy.value, MetricStrategy)
            yield FieldError(f"{path}.value", f"{shown(strategy.value)} is no strategy", remedy, "strategy-value")
        seen.add(strategy.name)
