"""Locations of checkpoints: the setting `suggestion_trial_dir`, and the labels that name the checkpoint to load."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from katib.model.names import MEMBER_LABEL, PARENT_LABEL, STEP_LABEL
from katib.model.types import AlgorithmSpec

TRIAL_DIRECTORY_SETTING = "suggestion_trial_dir"
"""Setting of algorithms whose trials start from each other's checkpoints: the path of a trial's own checkpoint."""

KEEP_SETTING = "keep_checkpoints"
"""Setting of the same algorithms: `needed`, the default, or `all`."""

KEEP_ALL = "all"

DIRECTORY_VARIABLE = "KATIB_CHECKPOINT_DIR"
"""Environment variable of a trial: the directory of its own checkpoint, if there is one."""

DEFAULT_DIRECTORY = "/katib-checkpoint"
"""Path in the container if the user, not the algorithm, requests checkpoints."""

CHECKPOINT_ROOT_VARIABLE = "KATIB_CHECKPOINT_ROOT"
"""Environment variable of a suggestion service: path of the volume shared with trials; empty if there is none."""

NAMESPACE_VARIABLE = "KATIB_CHECKPOINT_NAMESPACE"
"""Environment variable of a suggestion service: the namespace of its trials."""

_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Return whether the trials themselves keep checkpoints in a store of the user's."""
    return _URL.fullmatch(place) is not None


def is_shared_directory(place: str) -> bool:
    """Return whether a place is an absolute path of a directory that can stand for a trial's own."""
    return place.startswith("/") and place.strip("/") != "" and ".." not in place.split("/")


def checkpoint_directory(algorithm: AlgorithmSpec | None) -> str:
    """Return the path of a trial's checkpoint in its container; empty if none is provided."""
    for setting in algorithm.algorithm_settings if algorithm is not None else ():
        if setting.name == TRIAL_DIRECTORY_SETTING:
            return setting.value if is_shared_directory(setting.value) else ""
    return ""


def keeps_all(algorithm: AlgorithmSpec | None) -> bool:
    """Return whether each trial keeps its checkpoint until the experiment is deleted."""
    settings = algorithm.algorithm_settings if algorithm is not None else ()
    return any(setting.name == KEEP_SETTING and setting.value == KEEP_ALL for setting in settings)


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """A trial with a checkpoint."""

    name: str
    labels: Mapping[str, str]
    has_ended: bool
    is_measured: bool


def unneeded(trials: Sequence[CheckpointOwner]) -> list[str]:
    """Return the trials whose checkpoints no trial will start from, in the order given.

    For each member of a population, the latest measured step and all later steps are needed. Other trials are needed
    until a continuation has been measured. The parent of a running trial is needed, and so is the parent of a member's
    latest step that failed, because that step is retried. An unneeded trial stays unneeded with any later trials,
    unless an earlier trial starts from it.
    """
    members: dict[str, list[CheckpointOwner]] = {}
    for trial in trials:
        if MEMBER_LABEL in trial.labels:
            members.setdefault(trial.labels[MEMBER_LABEL], []).append(trial)
    needed = {parent_of(trial.labels) for trial in trials if not trial.has_ended}
    passed = {parent_of(trial.labels) for trial in trials if trial.is_measured and MEMBER_LABEL not in trial.labels}
    for steps in members.values():
        steps.sort(key=_step)
        measured = [i for i, step in enumerate(steps) if step.is_measured]
        passed.update(step.name for step in steps[: measured[-1] if measured else 0])
        if not steps[-1].is_measured:
            needed.add(parent_of(steps[-1].labels))
    gone = passed - needed
    return [trial.name for trial in trials if trial.has_ended and trial.name in gone]


def _step(trial: CheckpointOwner) -> tuple[int, str]:
    text = trial.labels.get(STEP_LABEL, "")
    return int(text) if text.isascii() and text.isdigit() else 0, trial.name


def parent_of(labels: Mapping[str, str]) -> str:
    """Return the trial whose checkpoint a trial starts from; empty if there is none."""
    return labels.get(PARENT_LABEL, "")
