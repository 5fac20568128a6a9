"""Plan of an experiment's next step from the observed state. Pure: no I/O, no clock.

Theory of operation. An experiment is Created, then Running while trials exist, then Succeeded or Failed, for good
unless its budget is raised. While it runs, there are three kinds of work under way: *active* trials, *waiting*
assignments that a suggestion service gave and no trial took yet, and *outstanding* requests without an answer. Their
sum, without the trials that users have paused, never exceeds the parallelism, and with the completed trials never the
budget, so the number of trials is exact.

The order of writes makes every crash harmless: trials are named by their assignment, so creating one twice is a
conflict; a request is a total, not an increment, so raising it twice is one request.

If callers evaluate the trials, a caller's request makes its trial from a waiting assignment; the plan decides how many
assignments there are. One more limit holds then: no more than callers have asked for, which is a total, too. Only if
later assignments would know no more are some kept ahead, whatever the parallelism.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from msgspec import structs

from katib.engine.controllers.ledger import LOST, TrialCounts
from katib.engine.controllers.settings import FINISH, FINISH_ANNOTATION
from katib.engine.controllers.suggestion.replies import initial_trials_left
from katib.engine.controllers.suggestion.states import is_closed, is_exhausted, unavailable_cause
from katib.model.conditions import (
    find_condition,
    has_ended,
    is_true,
    set_condition,
    whole_second,
    with_start,
    without_condition,
)
from katib.model.failure_text import TRIAL_HAS_FAILED
from katib.model.features.feature import Part
from katib.model.features.listed import ENDINGS
from katib.model.loadable import Loadable
from katib.model.names import (
    EXPERIMENT_INTERRUPTED,
    EXPERIMENT_STOPPED,
    FIRST_FAILURES,
    FIRST_FAILURES_ANNOTATION,
    SERVICE_UNAVAILABLE,
    STOPPED,
    STOPPED_ANNOTATION,
    TEMPLATE_MISSING,
)
from katib.model.restarts import MAX_TRIALS_REACHED, awaits_restart
from katib.model.trials import (
    ACTIVE,
    ELIGIBLE,
    ahead_count,
    asked_count,
    cost,
    is_asked,
    is_chosen,
    objective_costs,
    reaches_goals,
    trial_state,
)
from katib.model.types import (
    CollectorKind,
    ConditionStatus,
    DefaultTrial,
    Experiment,
    ExperimentCondition,
    ExperimentStatus,
    MetricValue,
    Observation,
    OptimalTrial,
    ParetoSet,
    ResumePolicy,
    Suggestion,
    SuggestionCondition,
    Trial,
    TrialAssignment,
    TrialCondition,
    TrialState,
)

_DEFAULT_TRIAL: Final[Loadable[Callable[..., DefaultTrial | None]]] = Loadable(
    "katib.model.default_trial:default_trial_of"
)

GOAL_REACHED = "ExperimentGoalReached"
SUGGESTION_END_REACHED = "ExperimentSuggestionEndReached"
EXPERIMENT_FAILED = "ExperimentFailed"
FIRST_TRIALS_FAILED = "ExperimentFirstTrialsFailed"
NO_USABLE_TRIAL = "ExperimentNoUsableTrial"
_DIFFERENT = re.compile(r"0x[0-9a-f]+|[\d.]+(?:e[+-]?\d+)?|'[^']*'|\"[^\"]*\"")
_ALL_THE_SAME = f'the annotation {FIRST_FAILURES_ANNOTATION}: "0" runs the others all the same'
_WAITS = (
    FIRST_TRIALS_FAILED,
    TEMPLATE_MISSING,
    EXPERIMENT_STOPPED,
    EXPERIMENT_INTERRUPTED,
    SERVICE_UNAVAILABLE,
    *ENDINGS,
)
"""Reasons of the condition Running of an experiment whose next trials wait."""
_STOPPED_MESSAGE = "Experiment is stopped: no further trial starts until it is resumed"
_INTERRUPTED_MESSAGE = "Experiment is interrupted: none of its trials runs until it is resumed"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an experiment's trials cannot be made.

    Attributes:
        cause: A sentence.
        may_pass: Whether it may pass without a change of the experiment, which then waits.
    """

    cause: str
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """Final condition of an experiment."""

    type: ExperimentCondition
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """Writes to make, in this order.

    Attributes:
        requests: New total of the Suggestion's requests; None leaves it.
        stop_trials: Trials to kill because the experiment is over.
        cut_trials: Trials to stop early: their readings count.
        resume_trials: Trials stopped that way that continue.
        close_suggestion: Whether to mark the Suggestion Succeeded, so that its service may stop.
        again_after_seconds: When to reconcile again although nothing changes.
        status: The new status; the very same object if nothing changed.
    """

    status: ExperimentStatus
    create_trials: tuple[TrialAssignment, ...] = ()
    requests: int | None = None
    create_suggestion: bool = False
    stop_trials: tuple[str, ...] = ()
    cut_trials: tuple[str, ...] = ()
    cut_cause: str = ""
    resume_trials: tuple[str, ...] = ()
    close_suggestion: bool = False
    restart_suggestion: bool = False
    again_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state.

    Attributes:
        waiting: Assignments of the Suggestion that no trial has taken.
        obstacle: Why no trial can be made; None if they can.
        is_interrupted: Whether the experiment is not for this engine.
        is_summary_due: Whether the trial counts are written even if nothing else is.
        run_seconds: Time in which at least one trial ran.
    """

    experiment: Experiment
    suggestion: Suggestion | None
    counts: TrialCounts
    waiting: tuple[TrialAssignment, ...] = ()
    obstacle: Obstacle | None = None
    is_interrupted: bool = False
    is_summary_due: bool = True
    run_seconds: float = 0.0
    parts: tuple[Part, ...] = ()
    now: datetime = field(kw_only=True)


def plan_experiment(seen: Observed) -> ExperimentPlan:
    """Return the next step for an experiment that is not being deleted."""
    for part in seen.parts:
        if part.means is not None:
            counts = replace(seen.counts, best=part.means.best, default=part.means.default)
            seen = replace(seen, counts=counts)
    plan = _next_step(seen, with_start(seen.experiment.status, "Experiment", seen.now))
    if seen.parts and not has_ended(plan.status.conditions):
        times = [part.again_after_seconds for part in seen.parts if part.again_after_seconds is not None]
        plan = replace(plan, again_after_seconds=min(times, default=None))
    if seen.is_summary_due or plan.status.conditions is not seen.experiment.status.conditions:
        return replace(plan, status=_with_summary(plan.status, seen))
    return plan


def _next_step(seen: Observed, status: ExperimentStatus) -> ExperimentPlan:
    if has_ended(status.conditions):
        if not awaits_restart(structs.replace(seen.experiment, status=_with_summary(status, seen))):
            return _wind_down(seen, status)
        status = _restarted(status, seen.now)
    if seen.is_interrupted:
        return ExperimentPlan(status=interrupted(status, seen.experiment, seen.now))
    ending = _ending(seen)
    if ending is not None:
        return _wind_down(seen, _ended(status, ending, seen.now))
    return _under_way(seen, status)


def _under_way(seen: Observed, status: ExperimentStatus) -> ExperimentPlan:
    for part in seen.parts:
        if part.cuts:
            message = f"Experiment ends, for {part.end}: trials that run are stopped early"
            waiting = _waiting(status, seen, part.feature.reason, message)
            return ExperimentPlan(status=waiting, cut_trials=seen.counts.active, cut_cause=part.feature.cut_cause)
    if is_stopped(seen.experiment):
        return ExperimentPlan(status=_waiting(status, seen, EXPERIMENT_STOPPED, _STOPPED_MESSAGE))
    if cause := _first_failures(seen):
        message = f"Experiment starts no further trial while others run, for {cause}; {_ALL_THE_SAME}"
        return ExperimentPlan(status=_waiting(status, seen, FIRST_TRIALS_FAILED, message))
    if seen.obstacle is not None and seen.obstacle.may_pass:
        return ExperimentPlan(status=_waiting(status, seen, TEMPLATE_MISSING, seen.obstacle.cause))
    suggestion = seen.suggestion
    if suggestion is not None and suggestion.spec.requests > suggestion.status.suggestion_count:  # some are outstanding
        away = unavailable_cause(suggestion.status.conditions)
        if away:
            message = f"Experiment waits for its algorithm: {away}"
            return _go_on(seen, _waiting(status, seen, SERVICE_UNAVAILABLE, message))
    return _go_on(seen, _running(status, seen))


# --- status -----------------------------------------------------------------------------------------------------------


def _with_summary(status: ExperimentStatus, seen: Observed) -> ExperimentStatus:
    counts = seen.counts
    update = {
        "trials": counts.total,
        "current_optimal_trial": optimal_trial(counts.best),
        "pareto_set": _pareto_set(seen),
        "default_trial": _default_trial(seen),
        "trials_infeasible": counts.infeasible,
        "trials_completed": counts.total - sum(counts.counts.get(state, 0) for state in ACTIVE),
    }
    for part in seen.parts:
        update.update(part.status)
    for state, (names_field, count_field) in _SUMMARY_FIELDS.items():
        update[names_field] = counts.names.get(state, ())
        update[count_field] = counts.counts.get(state, 0)
    status = structs.replace(status, **update)
    if not counts.counts or status == seen.experiment.status:
        return status
    return structs.replace(status, run_seconds=round(seen.run_seconds, 3), last_reconcile_time=whole_second(seen.now))


_SUMMARY_FIELDS = {
    TrialState.PENDING: ("pending_trial_list", "trials_pending"),
    TrialState.RUNNING: ("running_trial_list", "trials_running"),
    TrialState.SUCCEEDED: ("succeeded_trial_list", "trials_succeeded"),
    TrialState.FAILED: ("failed_trial_list", "trials_failed"),
    TrialState.KILLED: ("killed_trial_list", "trials_killed"),
    TrialState.EARLY_STOPPED: ("early_stopped_trial_list", "trials_early_stopped"),
    TrialState.METRICS_UNAVAILABLE: ("metrics_unavailable_trial_list", "trial_metrics_unavailable"),
}


def optimal_trial(best: Trial | None) -> OptimalTrial:
    """Return the best trial as an experiment's status shows it."""
    if best is None:
        return OptimalTrial()
    return OptimalTrial(
        best_trial_name=best.name,
        parameter_assignments=best.spec.parameter_assignments,
        observation=best.status.observation or Observation(),
    )


def _default_trial(seen: Observed) -> DefaultTrial | None:
    """Return the trial of the defaults as an experiment's status shows it; one that was deleted remains."""
    counts = seen.counts
    if counts.default is None:
        return seen.experiment.status.default_trial
    return _DEFAULT_TRIAL.load()(seen.experiment.spec, counts.default, counts.best, counts.pareto_trials)


def _pareto_set(seen: Observed) -> ParetoSet | None:
    """Return the Pareto set as an experiment's status shows it."""
    objective, pareto = seen.experiment.spec.objective, seen.counts.pareto
    if objective is None or pareto is None:
        return None
    reference = zip(objective.terms, pareto.reference, strict=True)
    return ParetoSet(
        trials=tuple(map(optimal_trial, seen.counts.pareto_trials)),
        trial_count=pareto.count,
        hypervolume=pareto.hypervolume,
        reference_point=tuple(MetricValue(name=t.name, value=f"{cost(t, worst):.9g}") for t, worst in reference),
    )


def _running(status: ExperimentStatus, seen: Observed) -> ExperimentStatus:
    """Set Running if there are trials, and undo `_waiting`."""
    conditions, type_ = status.conditions, ExperimentCondition.RUNNING
    old = find_condition(conditions, type_)
    if old is not None and old.reason in _WAITS:
        conditions = without_condition(conditions, type_)
    if seen.counts.counts:
        conditions = set_condition(conditions, type_, "ExperimentRunning", "Experiment is running", seen.now)
    return status if conditions is status.conditions else structs.replace(status, conditions=conditions)


def _waiting(status: ExperimentStatus, seen: Observed, reason: str, message: str) -> ExperimentStatus:
    """Set why the next trials wait; running ones continue."""
    type_, runs = ExperimentCondition.RUNNING, len(seen.counts.active) > seen.counts.held
    conditions = set_condition(status.conditions, type_, reason, message, seen.now, holds=runs, restates=True)
    return structs.replace(status, conditions=conditions)


def interrupted(status: ExperimentStatus, experiment: Experiment, now: datetime) -> ExperimentStatus:
    """Return the status of an unfinished experiment without running trials."""
    told = EXPERIMENT_INTERRUPTED, _INTERRUPTED_MESSAGE
    reason, message = (EXPERIMENT_STOPPED, _STOPPED_MESSAGE) if is_stopped(experiment) else told
    type_ = ExperimentCondition.RUNNING
    conditions = set_condition(status.conditions, type_, reason, message, now, holds=False, restates=True)
    return structs.replace(status, conditions=conditions)


def is_stopped(experiment: Experiment) -> bool:
    return experiment.metadata.annotations.get(STOPPED_ANNOTATION) == STOPPED


# --- the end ----------------------------------------------------------------------------------------------------------


def _ending(seen: Observed) -> Ending | None:
    """Return the ending that is due; the first rule that holds wins, None if the experiment continues."""
    spec, counts = seen.experiment.spec, seen.counts
    if _goal_is_reached(seen):
        return _succeeded(GOAL_REACHED, "Objective goal has reached")
    if spec.max_failed_trial_count is not None and counts.count(*LOST) >= max(1, spec.max_failed_trial_count):
        return _failed("Experiment has failed because max failed count has reached")
    reopened = sum(part.reopened for part in seen.parts)
    if spec.max_trial_count is not None and counts.total - len(counts.active) - reopened >= spec.max_trial_count:
        return _without_value(seen) or _succeeded(MAX_TRIALS_REACHED, "max trial count has reached")
    if not counts.active and (cause := _first_failures(seen)):
        return _failed(f"Experiment has failed because {cause}; {_ALL_THE_SAME}", FIRST_TRIALS_FAILED)
    return None if counts.active else _ended_by_feature(seen) or _dead_end(seen)


def _ended_by_feature(seen: Observed) -> Ending | None:
    for part in seen.parts:
        if part.end and seen.counts.best is None and _is_measured(seen.experiment):
            message = f"Experiment has failed because {part.end}, and no trial brought a value"
            return _failed(message, part.feature.reason)
        if part.end:
            return _succeeded(part.feature.reason, part.end)
    return None


def _first_failures(seen: Observed) -> str:
    """Return the common cause if the first trials all failed alike, so that the others would, too; empty if not."""
    annotation = seen.experiment.metadata.annotations.get(FIRST_FAILURES_ANNOTATION, "")
    limit = int(annotation) if annotation.isascii() and annotation.isdigit() else FIRST_FAILURES
    lost = seen.counts.lost
    if not lost or not limit or len(lost) < limit or len({_likeness(trial) for trial in lost}) > 1:
        return ""
    return f"its first {len(lost)} trials failed alike: {_cause_of(lost[-1])}"


def _likeness(trial: Trial) -> tuple[TrialState, str]:
    """Return the part of a failure to compare: numbers and quoted text may differ."""
    state = trial_state(trial)
    return state, "" if state is TrialState.METRICS_UNAVAILABLE else _DIFFERENT.sub("#", _cause_of(trial))


def _cause_of(trial: Trial) -> str:
    """Return why a trial has no value."""
    types = (TrialCondition.FAILED, TrialCondition.METRICS_UNAVAILABLE)
    condition = next(
        (found for found in trial.status.conditions if found.type in types and found.status == "True"), None
    )
    return "" if condition is None else condition.message.removeprefix(f"{TRIAL_HAS_FAILED}: ")


def _without_value(seen: Observed) -> Ending | None:
    """Return the ending of an experiment that has an objective and no trial with a value."""
    objective, counts = seen.experiment.spec.objective, seen.counts
    ended = counts.count(*LOST, *ELIGIBLE)
    if (
        objective is None
        or not _is_measured(seen.experiment)
        or counts.best is not None
        or counts.infeasible
        or not ended
    ):
        return None
    names = " and ".join(term.name for term in objective.terms)
    cause = (
        f"none of its {ended} trials brought a value of {names}"
        if ended > 1
        else f"its trial brought no value of {names}"
    )
    return _failed(f"Experiment has failed because {cause}", NO_USABLE_TRIAL)


def _is_measured(experiment: Experiment) -> bool:
    collector = experiment.spec.metrics_collector_spec
    return experiment.spec.objective is not None and (collector is None or collector.kind != CollectorKind.NONE)


def _goal_is_reached(seen: Observed) -> bool:
    """Return whether one trial reaches all goals. If any does, then a member of the Pareto set does, too."""
    objective, best, pareto = seen.experiment.spec.objective, seen.counts.best, seen.counts.pareto
    if objective is None or best is None or (objective.goal is None and not objective.objectives):
        return False
    points = [objective_costs(objective, best.status.observation)] if pareto is None else pareto.points
    return any(point is not None and reaches_goals(objective, point) for point in points)


def _dead_end(seen: Observed) -> Ending | None:
    """Return the ending if nothing more can start and nothing runs: a running trial may still be the best."""
    if seen.obstacle is not None and not seen.obstacle.may_pass:
        return _failed(seen.obstacle.cause)
    if seen.suggestion is None or any(part.again for part in seen.parts):
        return None
    conditions = seen.suggestion.status.conditions
    failure = find_condition(conditions, SuggestionCondition.FAILED)
    if failure is not None and failure.status == ConditionStatus.TRUE:
        return _failed(f"Suggestion has failed: {failure.message}")
    if is_exhausted(conditions) and not seen.waiting:
        return _without_value(seen) or _succeeded(SUGGESTION_END_REACHED, "suggestion service has reached the end")
    return None


def _succeeded(reason: str, cause: str) -> Ending:
    return Ending(ExperimentCondition.SUCCEEDED, reason, f"Experiment has succeeded because {cause}")


def _failed(message: str, reason: str = EXPERIMENT_FAILED) -> Ending:
    return Ending(ExperimentCondition.FAILED, reason, message)


def _ended(status: ExperimentStatus, ending: Ending, now: datetime) -> ExperimentStatus:
    conditions = status.conditions
    for type_ in (ExperimentCondition.RESTARTING, ExperimentCondition.RUNNING):
        old = find_condition(conditions, type_)
        if old is not None and old.reason in _WAITS:
            conditions = without_condition(conditions, type_)
        elif old is not None:
            conditions = set_condition(conditions, type_, old.reason, old.message, now, holds=False)
    conditions = set_condition(conditions, ending.type, ending.reason, ending.message, now)
    return structs.replace(status, conditions=conditions, completion_time=whole_second(now))


def _wind_down(seen: Observed, status: ExperimentStatus) -> ExperimentPlan:
    suggestion = seen.suggestion
    keeps_service = seen.experiment.spec.resume_policy == ResumePolicy.LONG_RUNNING
    close = suggestion is not None and not keeps_service and not is_closed(suggestion.status.conditions)
    lets_finish = seen.experiment.metadata.annotations.get(FINISH_ANNOTATION) == FINISH
    return ExperimentPlan(
        status=status,
        stop_trials=() if lets_finish else seen.counts.active,
        close_suggestion=close,
    )


# --- restart ----------------------------------------------------------------------------------------------------------


def _restarted(status: ExperimentStatus, now: datetime) -> ExperimentStatus:
    conditions = set_condition(
        without_condition(status.conditions, ExperimentCondition.SUCCEEDED, ExperimentCondition.FAILED),
        ExperimentCondition.RESTARTING,
        "ExperimentRestarting",
        "Experiment is restarted",
        now,
    )
    return structs.replace(status, conditions=conditions, completion_time=None)


# --- the way on -------------------------------------------------------------------------------------------------------


def _go_on(seen: Observed, status: ExperimentStatus) -> ExperimentPlan:
    if seen.obstacle is not None or is_chosen(seen.experiment):
        return ExperimentPlan(status=status)
    spec = seen.experiment.spec
    parallel = max(spec.parallel_trial_count or 1, 1)  # the last edit may have bypassed the webhook
    slots = max(parallel - len(seen.counts.active) + seen.counts.paused, 0)
    resume = tuple(name for part in seen.parts for name in part.resumable)[:slots]
    slots -= len(resume)
    asked = is_asked(seen.experiment)
    ahead = ahead_count(seen.experiment) if asked else 0
    if asked:
        slots = ahead or min(slots, max(asked_count(seen.experiment) - seen.counts.total, 0))
    if spec.max_trial_count is not None:
        slots = min(slots, max(spec.max_trial_count - seen.counts.total, 0))
    slots = int(min((slots, *(part.room for part in seen.parts))))
    again = tuple(run for part in seen.parts for run in part.again)[:slots]
    slots = int(min((slots - len(again), *(part.new_room for part in seen.parts))))
    create = () if asked else again + seen.waiting[:slots]
    missing = max(slots - len(seen.waiting), 0)
    suggestion = seen.suggestion
    if asked and ahead:
        missing = _missing_ahead(missing, ahead, len(seen.waiting), suggestion)
    if suggestion is None:
        return ExperimentPlan(status=status, create_suggestion=True, requests=missing, resume_trials=resume)
    conditions = suggestion.status.conditions
    if is_exhausted(conditions):
        missing = min(missing, initial_trials_left(suggestion))
    wanted = suggestion.status.suggestion_count + missing
    return ExperimentPlan(
        status=status,
        create_trials=create,
        resume_trials=resume,
        requests=wanted if wanted != suggestion.spec.requests else None,
        restart_suggestion=is_true(conditions, SuggestionCondition.SUCCEEDED),
    )


def _missing_ahead(missing: int, ahead: int, waiting: int, suggestion: Suggestion | None) -> int:
    """Return how many assignments to request if some are kept ahead: half of them at once, not one by one."""
    if suggestion is None:
        return missing
    outstanding = max(suggestion.spec.requests - suggestion.status.suggestion_count, 0)
    return min(missing, outstanding) if 2 * (waiting + outstanding) >= ahead else missing
