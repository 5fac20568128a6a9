"""How a trial is read: its state, and the value that stands for it.

Theory of operation: a trial is Pending until something of its job runs, and again while nothing of it does; Running
while something does; and in exactly one final state when its end is known. Conditions record the same as facts, several
of which may hold at once (an early stopped trial of Katib keeps Running); a table says which one counts, first match
wins.

The strategy of a metric picks one of its readings: `min`, `max` or `latest`; or it is their mean, `mean` of all and
`mean(5)` of the last five, which is NaN if one of them is not a finite number. A smallest or largest that is
unavailable gives way to the latest; a metric without strategy has no value, as in Katib, whose defaults give one to
each. Only finite numbers are compared: NaN, infinities and text stay in the observation, but never reach a goal. A text
objective (an architecture, say) has no order.

A trial of several objectives counts when all of them were read. Constraints hold for a trial whose metrics were read
and lie within the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from katib.model.conditions import find_condition
from katib.model.metrics import is_usable
from katib.model.types import UNAVAILABLE, MetricStrategy, ObjectiveType, TrialCondition, TrialState
from katib.model.types.words import TRIAL_RANKS, TRIAL_STATES, mean_count

if TYPE_CHECKING:
    from katib.model.types import ObjectiveSpec, ObjectiveTerm, Observation, Trial


ACTIVE = (TrialState.RUNNING, TrialState.PENDING)
ELIGIBLE = frozenset({TrialState.SUCCEEDED, TrialState.EARLY_STOPPED})
"""States whose trials may be the best one."""

_STRATEGIES = frozenset(map(str, MetricStrategy))
_NOTHING = ("", UNAVAILABLE)


trial_state: Callable[[Trial], TrialState] = attrgetter("state")
"""Returns the state of a trial, found once for each that is read."""


def state_in(obj: Mapping[str, Any]) -> TrialState:
    """Return the state of a trial in its JSON form, where reading all of it would take too long."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    last = len(TRIAL_STATES) - 1
    ranks = [TRIAL_RANKS.get(one.get("type"), last) for one in conditions if one.get("status") == "True"]
    return TRIAL_STATES[min(ranks, default=last)]


def ran_seconds(trial: Trial) -> float | None:
    """Return how long a trial that does not run now has run; None if it never has.

    Of a trial of an earlier version, or one that its caller ended, it is known to the second.
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
    """Return what an active trial waits for, as it follows its name: `waits for 2 cpu`, `waits: its job is suspended`.

    Empty while it runs, when it has ended, and as long as nothing is known that keeps it from running.
    """
    if trial_state(trial) is not TrialState.PENDING:
        return ""
    found = find_condition(trial.status.conditions, TrialCondition.RUNNING)
    return "" if found is None else found.message.removeprefix("Trial ")


def metric_text(objective: ObjectiveSpec | None, observation: Observation | None, name: str = "") -> str | None:
    """Return the reading that stands for a metric; None when it was not read or no strategy names it.

    Args:
        objective: Of the trial.
        observation: Of the trial.
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

    The mean of all readings of a trial that was stopped early is of fewer of them, such as the easier folds.
    """
    objective = trial.spec.objective
    if state is not TrialState.EARLY_STOPPED or objective is None:
        return state in ELIGIBLE
    return all(objective.strategy_of(name) != MetricStrategy.MEAN for name in objective.objective_names)


def objective_number(objective: ObjectiveSpec | None, observation: Observation | None) -> float | None:
    """Return the objective value when it may be compared, else None."""
    text = metric_text(objective, observation)
    return float(text) if text is not None and is_usable(text) else None


def objective_costs(objective: ObjectiveSpec, observation: Observation | None) -> tuple[float, ...] | None:
    """Return the values of all objectives with the sign that makes smaller better; None unless all may be compared."""
    if not objective.has_several:
        value = objective_number(objective, observation)
        return None if value is None else (cost(objective, value),)
    texts = [metric_text(objective, observation, term.name) for term in objective.objectives]
    if not all(text is not None and is_usable(text) for text in texts):
        return None
    return tuple(cost(term, float(text or 0)) for term, text in zip(objective.objectives, texts, strict=True))


def missing_objective(objective: ObjectiveSpec | None, observation: Observation | None) -> str | None:
    """Return the first objective metric that was not read, be it as a number or as text; None when each was."""
    for name in ("",) if objective is None else objective.objective_names:
        metric = None if observation is None else observation.metric(name)
        if metric is None or metric.latest in _NOTHING:
            return name
    return None


def objective_names(objective: ObjectiveSpec | None) -> tuple[str, ...]:
    """Return the names of the objective metrics."""
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
    """Return each constraint as the metric, the lower bound and the upper one; None where there is no bound."""
    if objective is None:
        return []
    return [(bounds.metric_name, bounds.min, bounds.max) for bounds in objective.constraints]


def cost(objective: ObjectiveSpec | ObjectiveTerm, value: float) -> float:
    """Return the value with the sign that makes smaller better."""
    return -value if objective.type == ObjectiveType.MAXIMIZE else value


def reaches_goals(objective: ObjectiveSpec | None, costs: Sequence[float]) -> bool:
    """Return whether one trial is as good as every goal asks. Objectives without a goal may be anything.

    Args:
        objective: Of the experiment.
        costs: Of all objectives, as `objective_costs` returns them.
    """
    terms = () if objective is None else objective.terms
    goals = [cost(term, term.goal) if term.goal is not None else math.inf for term in terms]
    if all(map(math.isinf, goals)):
        return False
    return all(value <= goal for value, goal in zip(costs, goals, strict=True))
