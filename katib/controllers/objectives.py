"""The objective value of a trial: which reading stands for it, and which of two is better.

Policy: only finite numbers are compared. NaN, infinities and `unavailable` are kept in the observation but are never
the best and never reach a goal. A text objective (an architecture, say) has no order: the newest trial stands.
"""

from __future__ import annotations

from katib.api.metrics import is_usable
from katib.api.types import UNAVAILABLE, MetricStrategy, ObjectiveSpec, ObjectiveType, Observation


def objective_text(objective: ObjectiveSpec | None, observation: Observation | None) -> str:
    """Return the reading that the metric strategy picks, `unavailable` when there is none.

    A minimum or maximum that is unavailable falls back to the latest reading, as in Katib.
    """
    if objective is None or observation is None:
        return UNAVAILABLE
    metric = observation.metric(objective.objective_metric_name)
    if metric is None:
        return UNAVAILABLE
    strategy = objective.strategy_of(metric.name)
    if strategy == MetricStrategy.MIN and metric.min != UNAVAILABLE:
        return metric.min or UNAVAILABLE
    if strategy == MetricStrategy.MAX and metric.max != UNAVAILABLE:
        return metric.max or UNAVAILABLE
    return metric.latest or UNAVAILABLE


def objective_value(objective: ObjectiveSpec | None, observation: Observation | None) -> float | None:
    """Return the objective value when it may be compared, else None."""
    text = objective_text(objective, observation)
    return float(text) if is_usable(text) else None


def is_available(objective: ObjectiveSpec | None, observation: Observation | None) -> bool:
    """Tell whether the objective metric was read at all, as a number or as text."""
    if objective is None or observation is None:
        return False
    metric = observation.metric(objective.objective_metric_name)
    return metric is not None and metric.latest not in ("", UNAVAILABLE)


def cost(objective: ObjectiveSpec, value: float) -> float:
    """Return the value with the sign that makes smaller better."""
    return -value if objective.type == ObjectiveType.MAXIMIZE else value


def reaches_goal(objective: ObjectiveSpec | None, value: float | None) -> bool:
    """Tell whether a value is as good as the goal asks."""
    if objective is None or objective.goal is None or value is None:
        return False
    return cost(objective, value) <= cost(objective, objective.goal)
