"""Budgets that were raised beside the file of an experiment."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from katib.api.loading import Submission
from katib.api.names import SUBMITTED_BUDGET_ANNOTATION
from katib.api.types import Experiment


def with_raised_budget(submission: Submission, stored: Experiment) -> Submission:
    """Return a document with the budget of the stored experiment where its own is the one that was raised since.

    Args:
        submission: The document, whose budget may be that of before.
        stored: The experiment, with defaults.
    """
    before = stored.metadata.annotations.get(SUBMITTED_BUDGET_ANNOTATION)
    experiment = submission.experiment
    if before is None or str(experiment.spec.max_trial_count) != before:
        return submission
    spec = structs.replace(experiment.spec, max_trial_count=stored.spec.max_trial_count)
    return replace(submission, experiment=structs.replace(experiment, spec=spec))
