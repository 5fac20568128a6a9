"""State and value of a trial.

Theory of operation: a trial is Pending until a part of its job runs, and again while no part of it does; Running while
a part does; and in exactly one final state once its end is known. Conditions record the same as facts, several of which
may hold at once (an early stopped trial of Katib keeps Running); the first match in a table decides which one counts.

The strategy of a metric picks one of its readings: `min`, `max` or `latest`; or it is their mean, `mean` of all and
`mean(5)` of the last five, which is NaN if one of them is not a finite number. If the smallest or largest is
unavailable, the latest is used; a metric without strategy has no value, as in Katib, whose defaults give one to each.
Only finite numbers are compared: NaN, infinities and text stay in the observation, but never reach a goal. A text
objective (an architecture, say) has no order.

A trial of several objectives counts once all of them were read. Constraints hold for a trial whose metrics were read
and lie within the bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from katib.model.conditions import find_condition
from katib.model.metrics import is_usable
from katib.model.names import AHEAD_ANNOTATION, ASKED_ANNOTATION, BY_CALLER, CHOSEN_BY_LABEL, EVALUATED_BY_LABEL
from katib.model.types import UNAVAILABLE, MetricStrategy, ObjectiveType, TrialCondition, TrialState
from katib.model.types.words import TRIAL_RANKS, TRIAL_STATES, mean_count

if TYPE_CHECKING:
    from katib.model.types import Experiment, ObjectiveSpec, ObjectiveTerm, Observation, Trial


ACTIVE = (TrialState.RUNNING, TrialState.PENDING)
_STOPPED_AT = re.compile(r"\b(?:at|up to) (?:step|reading) (\d+)\b")
ELIGIBLE = frozenset({TrialState.SUCCEEDED, TrialState.EARLY_STOPPED})
"""States of trials that may be the best one."""

_STRATEGIES = frozenset(map(str, MetricStrategy))
_NOTHING = ("", UNAVAILABLE)


trial_state: Callable[[Trial], TrialState] = attrgetter("state")
"""Returns the state of a trial, computed once per object."""


def state_in(obj: Mapping[str, Any]) -> TrialState:
    """Return the state of a trial in its JSON form, for callers to which full decoding is too slow."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    last = len(TRIAL_STATES) - 1
    ranks = [TRIAL_RANKS.get(one.get("type"), last) for one in conditions if one.get("status") == "True"]
    return TRIAL_STATES[min(ranks, default=last)]


def ran_seconds(trial: Trial) -> float | None:
    """Return the run time of a trial that is not running; None if it never ran.

    Precise to the second for a trial of an earlier version, or one that its caller ended.
    """
    status = trial.status
    if status.run_seconds is not None or status.start_time is None:
        return status.run_seconds
    until = status.completion_time
    if until is None and (running := find_condition(status.conditions, TrialCondition.RUNNING)) is not None:
        until = running.last_transition_time
        return None if until is None or until == status.start_time else (until - status.start_time).total_seconds()
    return None if until is None else max((until - status.start_time).total_seconds(), 0.0)


def waiting_words(trial: Trial) -> str:
    """Return why an active trial waits, as it follows its name: `waits for 2 cpu`, `waits: its job is suspended`.

    Empty for a running or ended trial, and while no reason is known.
    """
    if trial_state(trial) is not TrialState.PENDING:
        return ""
    found = find_condition(trial.status.conditions, TrialCondition.RUNNING)
    return "" if found is None else found.message.removeprefix("Trial ")


def metric_text(objective: ObjectiveSpec | None, observation: Observation | None, name: str = "") -> str | None:
    """Return the decisive reading of a metric; None if it was not read or has no strategy.

    Args:
        name: The metric; empty for the objective metric.
    """
    if objective is None or observation is None:
        return None
    name = name or objective.objective_metric_name
    strategy, metric = objective.strategy_of(name), observation.metric(name)
    if metric is None or (strategy not in _STRATEGIES and mean_count(strategy) is None):
        return None
    if strategy.startswith(MetricStrategy.MEAN):
        return metric.mean if metric.mean not in _NOTHING else None
    text: str = getattr(metric, strategy)
    text = metric.latest if text in _NOTHING else text
    return None if text in _NOTHING else text


def may_be_best(trial: Trial, state: TrialState) -> bool:
    """Return whether a trial of this state may be the best one.

    False for an early stopped trial compared by the mean of all readings: its fewer readings may be the easier folds.
    """
    objective = trial.spec.objective
    if state is not TrialState.EARLY_STOPPED or objective is None:
        return state in ELIGIBLE
    return all(objective.strategy_of(name) != MetricStrategy.MEAN for name in objective.objective_names)


def stopped_at(message: str) -> str:
    """Return the step, or number of the reading, in a sentence on a trial that was stopped early; empty if unknown."""
    found = _STOPPED_AT.search(message)
    return found[1] if found else ""


def objective_number(objective: ObjectiveSpec | None, observation: Observation | None) -> float | None:
    """Return the objective value if it may be compared, else None."""
    text = metric_text(objective, observation)
    return float(text) if text is not None and is_usable(text) else None


def objective_costs(objective: ObjectiveSpec, observation: Observation | None) -> tuple[float, ...] | None:
    """Return the values of all objectives, negated if maximized; None unless all may be compared."""
    if not objective.has_several:
        value = objective_number(objective, observation)
        return None if value is None else (cost(objective, value),)
    texts = [metric_text(objective, observation, term.name) for term in objective.objectives]
    if not all(text is not None and is_usable(text) for text in texts):
        return None
    return tuple(cost(term, float(text or 0)) for term, text in zip(objective.objectives, texts, strict=True))


def missing_objective(objective: ObjectiveSpec | None, observation: Observation | None) -> str | None:
    """Return the first objective metric without any reading, number or text; None if each has one."""
    for name in ("",) if objective is None else objective.objective_names:
        metric = None if observation is None else observation.metric(name)
        if metric is None or metric.latest in _NOTHING:
            return name
    return None


def objective_names(objective: ObjectiveSpec | None) -> tuple[str, ...]:
    return ("",) if objective is None else objective.objective_names


def is_feasible(objective: ObjectiveSpec | None, observation: Observation | None) -> bool:
    """Return whether all constraints are known to hold."""
    if objective is None or not objective.constraints:
        return True
    return all(
        (text := metric_text(objective, observation, name)) is not None
        and is_usable(text)
        and (low is None or float(text) >= low)
        and (high is None or float(text) <= high)
        for name, low, high in bounds_of(objective)
    )


def bounds_of(objective: ObjectiveSpec | None) -> list[tuple[str, float | None, float | None]]:
    """Return the metric, lower bound and upper bound of each constraint; None for a missing bound."""
    if objective is None:
        return []
    return [(bounds.metric_name, bounds.min, bounds.max) for bounds in objective.constraints]


def cost(objective: ObjectiveSpec | ObjectiveTerm, value: float) -> float:
    """Return the value, negated if maximized."""
    return -value if objective.type == ObjectiveType.MAXIMIZE else value


def reaches_goals(objective: ObjectiveSpec | None, costs: Sequence[float]) -> bool:
    """Return whether the costs of one trial reach every goal. Objectives without a goal may have any value."""
    terms = () if objective is None else objective.terms
    goals = [cost(term, term.goal) if term.goal is not None else math.inf for term in terms]
    if all(map(math.isinf, goals)):
        return False
    return all(value <= goal for value, goal in zip(costs, goals, strict=True))


# --- trials that callers evaluate -------------------------------------------------------------------------------------


def is_asked(experiment: Experiment) -> bool:
    """Return whether callers, not jobs, evaluate the trials of an experiment."""
    return experiment.spec.trial_template is None


def is_callers(trial: Trial) -> bool:
    return trial.metadata.labels.get(EVALUATED_BY_LABEL) == BY_CALLER


def is_chosen(resource: Experiment | Trial) -> bool:
    """Return whether callers, not an algorithm, choose the parameters of a trial, or of an experiment's trials."""
    return resource.metadata.labels.get(CHOSEN_BY_LABEL) == BY_CALLER


def asked_count(experiment: Experiment) -> int:
    """Return the number of trials that callers have requested since an experiment began."""
    return _count(experiment, ASKED_ANNOTATION)


def ahead_count(experiment: Experiment) -> int:
    """Return the number of assignments kept ready for callers, 0 if each is made on request."""
    return _count(experiment, AHEAD_ANNOTATION)


def _count(experiment: Experiment, annotation: str) -> int:
    text = experiment.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else 0
