"""Where trials keep checkpoints: the setting `suggestion_trial_dir`, and the labels that say whose to load."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from katib.model.names import MEMBER_LABEL, PARENT_LABEL, STEP_LABEL
from katib.model.types import AlgorithmSpec

TRIAL_DIRECTORY_SETTING = "suggestion_trial_dir"
"""Setting of an algorithm whose trials start from each other's checkpoints: the path at which each finds its own."""

KEEP_SETTING = "keep_checkpoints"
"""Setting of the same algorithms: `needed`, the default, or `all`."""

KEEP_ALL = "all"

DIRECTORY_VARIABLE = "KATIB_CHECKPOINT_DIR"
"""In a trial's environment: the directory of its own checkpoint, where there is one."""

DEFAULT_DIRECTORY = "/katib-checkpoint"
"""Where a container finds it that its algorithm does not ask for, but the user."""

CHECKPOINT_ROOT_VARIABLE = "KATIB_CHECKPOINT_ROOT"
"""In the environment of a suggestion service: where the volume is that it shares with trials; empty: there is none."""

NAMESPACE_VARIABLE = "KATIB_CHECKPOINT_NAMESPACE"
"""In the same: whose trials these are."""

_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Return whether checkpoints are kept in a store of the user's, by the trials themselves."""
    return _URL.fullmatch(place) is not None


def is_shared_directory(place: str) -> bool:
    """Return whether a place is an absolute path of a directory that can stand for a trial's own."""
    return place.startswith("/") and place.strip("/") != "" and ".." not in place.split("/")


def checkpoint_directory(algorithm: AlgorithmSpec | None) -> str:
    """Return where a container finds the checkpoint of its trial; empty where nothing is provided."""
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
    """A trial with a checkpoint.

    Attributes:
        name: Of the trial.
        labels: Of the trial.
        has_ended: Whether it runs no more.
        is_measured: Whether it ended with a value.
    """

    name: str
    labels: Mapping[str, str]
    has_ended: bool
    is_measured: bool


def unneeded(trials: Sequence[CheckpointOwner]) -> list[str]:
    """Return the trials whose checkpoints no trial will start from, in the order given.

    Of each member of a population the latest measured step is needed, and what comes after it; of all others, a trial
    whose continuation has been measured is not. The parent of a trial that runs is needed, and that of a member's
    latest step that failed, which is tried again. Once a trial is unneeded, it stays so with any later trials, unless a
    trial that was given before starts from it.
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
    """Return the trial whose checkpoint a trial starts from; empty when it starts from nothing."""
    return labels.get(PARENT_LABEL, "")
