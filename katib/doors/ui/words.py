"""The reason of the state of an experiment or a trial, in a page's words; empty if the state explains itself. Pure."""

from __future__ import annotations

import re

from katib.model.failure_text import EXIT_WITHOUT_OUTPUT
from katib.model.types import Experiment, Trial
from katib.service.tuning.reading import algorithm_of, message_of, metric_of
from katib.service.tuning.states import (
    completed_count,
    condition_of,
    early_stop_reason,
    failure_of,
    is_at_rest,
    lost_count,
    state_of,
)

_SUCCEEDED, _FAILED = "Experiment has succeeded because ", "Experiment has failed because "
_SILENT = frozenset({"Experiment is created", "Experiment is running", "Experiment is restarted"})
_NOTHING_REPORTED = re.compile(r'nothing reported "(?P<metric>[^"]*)" within ')


def experiment_sentence(experiment: Experiment, reason: str) -> str:
    """Return the reason of an experiment's state; empty if the state explains itself.

    Args:
        experiment: The Experiment.
        reason: The message of the condition.
    """
    if reason in _SILENT:
        return ""
    if reason.startswith(_SUCCEEDED):
        return _finished(experiment, reason.removeprefix(_SUCCEEDED))
    if is_at_rest(experiment):
        return _sentence(reason.partition(": ")[2])
    if reason.startswith(_FAILED):
        cause = reason.removeprefix(_FAILED)
        if cause == "max failed count has reached":
            lost = lost_count(experiment)
            return f"Failed: {lost:,} {_trials(lost)} brought no value"
        return f"Failed: {cause}"
    return reason


def trial_sentence(trial: Trial) -> str:
    """Return the reason of a trial's state; empty if the state explains itself."""
    if failure := failure_of(trial):
        is_ours = failure.startswith(EXIT_WITHOUT_OUTPUT)  # what a program said is shown as it said it
        return _sentence(failure.replace(EXIT_WITHOUT_OUTPUT, "exit code")) + "." if is_ours else failure
    message = message_of(trial)
    if state_of(trial) == "EarlyStopped":
        return early_stop_reason(message)
    if condition_of(trial, "MetricsUnavailable") is not None:
        cause = message.removeprefix("Metrics are not available: ")
        if (found := _NOTHING_REPORTED.match(cause)) is not None:
            return f"No value of {found['metric']} in its output."
        return _sentence(cause) or f"No value of {metric_of(trial)}."
    for prefix in ("Trial is created", "Trial is running: ", "Trial is running", "Trial has succeeded"):
        if message.startswith(prefix):
            return _sentence(message.removeprefix(prefix).lstrip(".,: "))
    return message


def _finished(experiment: Experiment, cause: str) -> str:
    done = completed_count(experiment)
    if cause == "max trial count has reached":
        return f"Finished: all {done:,} {_trials(done)} ran" if done > 1 else "Finished: the one trial ran"
    if cause == "Objective goal has reached":
        return f"Finished: {metric_of(experiment) or 'the objective'} reached the goal after {done:,} {_trials(done)}"
    if cause == "suggestion service has reached the end":
        return f"Finished: {algorithm_of(experiment)} has no more to try after {done:,} {_trials(done)}"
    return f"Finished: {cause}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _trials(count: int) -> str:
    return "trial" if count == 1 else "trials"
