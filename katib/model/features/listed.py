"""The list of all features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from katib.model.features.budgets.feature import Budgets
from katib.model.features.feature import Feature
from katib.model.features.repeats.feature import Repeats
from katib.model.types import Trial

FEATURES: Final[tuple[Feature, ...]] = (Budgets(), Repeats())

ENDINGS: Final[Mapping[str, Feature]] = {feature.reason: feature for feature in FEATURES if feature.reason}
"""Features that can end an experiment, by the reason of its condition."""

CUTS: Final[Mapping[str, Feature]] = {feature.cut_cause: feature for feature in FEATURES if feature.cut_cause}
"""Features that can cut a trial, by their cause."""


def changed_annotations(stored: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of features that a document changes in a stored Experiment.

    Raises:
        InvalidError: The result is invalid.
    """
    return {name: text for feature in FEATURES for name, text in feature.changes(stored, wanted).items()}


def is_cut(trial: Trial) -> bool:
    reasons = {feature.cut_reason for feature in CUTS.values()}
    return any(condition.reason in reasons and condition.status == "True" for condition in trial.status.conditions)
