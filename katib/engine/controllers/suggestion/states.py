"""Conditions of a Suggestion: the state of its conversation with the service.

Theory of operation: Created, then DeploymentReady follows the service, then Running once the service accepted the
experiment. Succeeded (closed by the experiment) and Failed end it. Exhausted: the search space has no more points.
WaitingForTrials: there are more once a running trial has ended. ServiceUnavailable: the service does not answer for a
transient cause; it stays until an answer arrives. Reopening a closed one sets Running False with the reason
`Experiment is restarting`, which makes the controller validate again.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from katib.model.conditions import Conditions, find_condition, has_ended, is_true, set_condition, without_condition
from katib.model.types import ResumePolicy, SuggestionCondition

EXHAUSTED = "Exhausted"
WAITING = "WaitingForTrials"
UNAVAILABLE = "ServiceUnavailable"
CLOSED_REASON = "Experiment is succeeded"
RESTARTING_REASON = "Experiment is restarting"

_CLOSED_FOR_GOOD = "Suggestion is succeeded, can't be restarted"
_CLOSED_FOR_NOW = "Suggestion is succeeded, suggestion volume is not deleted, can be restarted"


is_exhausted = partial(is_true, type_=EXHAUSTED)
"""Takes conditions; returns whether the search space has no more points."""


is_closed = has_ended
"""Takes conditions; returns whether the Suggestion has ended, by the same conditions as an experiment."""


def deployment_ready(conditions: Conditions, now: datetime) -> Conditions:
    """Return the conditions of a Suggestion whose service can be asked."""
    return set_condition(
        conditions, SuggestionCondition.DEPLOYMENT_READY, "DeploymentReady", "Deployment is ready", now
    )


def deployment_not_ready(conditions: Conditions, waiting_for: str, now: datetime) -> Conditions:
    """Return the conditions of a Suggestion whose service cannot be asked yet, with the cause if known."""
    message = f"Deployment is not ready: {waiting_for}" if waiting_for else "Deployment is not ready"
    type_, reason = SuggestionCondition.DEPLOYMENT_READY, "DeploymentNotReady"
    return set_condition(conditions, type_, reason, message, now, holds=False, restates=True)


def running(conditions: Conditions, now: datetime) -> Conditions:
    """Return the conditions of a Suggestion whose service accepted the experiment."""
    conditions = without_condition(conditions, SuggestionCondition.SUCCEEDED)
    return set_condition(conditions, SuggestionCondition.RUNNING, "SuggestionRunning", "Suggestion is running", now)


def unavailable(conditions: Conditions, cause: str, now: datetime) -> Conditions:
    """Return the conditions of a Suggestion whose service does not answer for a transient cause."""
    return set_condition(conditions, UNAVAILABLE, "ServiceAway", cause, now, restates=True)


def unavailable_cause(conditions: Conditions) -> str:
    """Return the transient cause of the service's silence; empty if there is none."""
    condition = find_condition(conditions, UNAVAILABLE)
    return "" if condition is None else condition.message


def restarting(conditions: Conditions, now: datetime) -> Conditions:
    """Return the conditions of a closed Suggestion that is reopened."""
    conditions = without_condition(conditions, SuggestionCondition.SUCCEEDED)
    return set_condition(
        conditions, SuggestionCondition.RUNNING, RESTARTING_REASON, "Suggestion is not running", now, holds=False
    )


def failed(conditions: Conditions, message: str, now: datetime) -> Conditions:
    conditions = without_condition(conditions, UNAVAILABLE, WAITING)
    return set_condition(conditions, SuggestionCondition.FAILED, "SuggestionFailed", message, now)


def exhausted(conditions: Conditions, now: datetime) -> Conditions:
    """Return the conditions of a Suggestion whose service has no more points."""
    return set_condition(conditions, EXHAUSTED, "SearchSpaceExhausted", "Suggestion service has reached the end", now)


def waiting_for_trials(conditions: Conditions, explanation: str, now: datetime) -> Conditions:
    """Return the conditions of a Suggestion whose service has no more points until a running trial ends."""
    message = explanation or "Suggestion service waits for a running trial to end"
    return set_condition(conditions, WAITING, "TrialsRunning", message, now, restates=True)


def closed(conditions: Conditions, resume_policy: str, now: datetime) -> Conditions:
    """Return the conditions of a Suggestion whose experiment is over."""
    if is_true(conditions, SuggestionCondition.SUCCEEDED):
        return conditions
    conditions = without_condition(conditions, UNAVAILABLE, WAITING)
    for type_, message in (
        (SuggestionCondition.RUNNING, "Suggestion is not running"),
        (SuggestionCondition.DEPLOYMENT_READY, "Deployment is not ready"),
    ):
        if find_condition(conditions, type_) is not None:
            conditions = set_condition(conditions, type_, "Suggestion is succeeded", message, now, holds=False)
    message = _CLOSED_FOR_NOW if resume_policy == ResumePolicy.FROM_VOLUME else _CLOSED_FOR_GOOD
    return set_condition(conditions, SuggestionCondition.SUCCEEDED, CLOSED_REASON, message, now)
