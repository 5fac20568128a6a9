"""Whether an experiment that has ended can continue with a larger budget."""

from __future__ import annotations

from katib.model.conditions import find_condition, is_true
from katib.model.features.listed import ENDINGS
from katib.model.types import Experiment, ExperimentCondition, ResumePolicy

MAX_TRIALS_REACHED = "ExperimentMaxTrialsReached"


_USED_UP = frozenset({MAX_TRIALS_REACHED, *ENDINGS})
"""Reasons of experiments that can continue with a larger budget."""


_RESUMABLE_POLICIES = (ResumePolicy.LONG_RUNNING, ResumePolicy.FROM_VOLUME)


def is_restartable(experiment: Experiment) -> bool:
    """Return whether a finished experiment continues when its budget is raised."""
    succeeded = find_condition(experiment.status.conditions, ExperimentCondition.SUCCEEDED)
    return (
        succeeded is not None
        and is_true([succeeded], ExperimentCondition.SUCCEEDED)
        and succeeded.reason in _USED_UP
        and experiment.spec.resume_policy in _RESUMABLE_POLICIES
    )


def awaits_restart(experiment: Experiment) -> bool:
    """Return whether an ended experiment has since got a larger budget and is about to continue."""
    succeeded = find_condition(experiment.status.conditions, ExperimentCondition.SUCCEEDED)
    if succeeded is None or not is_restartable(experiment):
        return False
    if (feature := ENDINGS.get(succeeded.reason)) is not None:
        return feature.end(experiment) not in succeeded.message
    return experiment.spec.max_trial_count is None or experiment.spec.max_trial_count > experiment.status.trials
