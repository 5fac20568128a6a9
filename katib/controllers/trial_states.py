"""The life of a trial as one word.

Theory of operation: a trial is Pending until its job exists, Running until its end is known, and then in exactly one
final state for good. Conditions record the same as facts, several of which may hold at once (an early stopped trial of
the reference keeps Running); the table below says which one counts. First match wins.
"""

from __future__ import annotations

from enum import StrEnum

from katib.api.conditions import true_types
from katib.api.types import Trial, TrialCondition


class TrialState(StrEnum):
    """Where a trial stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"
    EARLY_STOPPED = "EarlyStopped"
    METRICS_UNAVAILABLE = "MetricsUnavailable"


_PRECEDENCE: tuple[tuple[str, TrialState], ...] = (
    (TrialCondition.KILLED, TrialState.KILLED),
    (TrialCondition.FAILED, TrialState.FAILED),
    (TrialCondition.SUCCEEDED, TrialState.SUCCEEDED),
    (TrialCondition.EARLY_STOPPED, TrialState.EARLY_STOPPED),
    (TrialCondition.METRICS_UNAVAILABLE, TrialState.METRICS_UNAVAILABLE),
    (TrialCondition.RUNNING, TrialState.RUNNING),
)

ACTIVE = (TrialState.RUNNING, TrialState.PENDING)
ELIGIBLE = frozenset({TrialState.SUCCEEDED, TrialState.EARLY_STOPPED})
"""States whose trials may be the best one."""


def state_of(trial: Trial) -> TrialState:
    """Return the state of a trial."""
    holding = true_types(trial.status.conditions)
    return next((state for type_, state in _PRECEDENCE if type_ in holding), TrialState.PENDING)
