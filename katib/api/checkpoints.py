"""Where trials keep checkpoints: the setting `suggestion_trial_dir`, and the labels that say whose to load."""

from __future__ import annotations

import re
from collections.abc import Mapping

from katib.api.names import PARENT_LABEL
from katib.api.types import AlgorithmSpec

TRIAL_DIRECTORY_SETTING = "suggestion_trial_dir"
"""Setting of an algorithm whose trials start from each other's checkpoints: the path at which each finds its own."""

DIRECTORY_VARIABLE = "KATIB_CHECKPOINT_DIR"
"""In a trial's environment: the directory of its own checkpoint, where there is one."""

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
    settings = algorithm.algorithm_settings if algorithm is not None else ()
    place = next((setting.value for setting in settings if setting.name == TRIAL_DIRECTORY_SETTING), "")
    return place if is_shared_directory(place) else ""


def parent_of(labels: Mapping[str, str]) -> str:
    """Return the trial whose checkpoint a trial starts from; empty when it starts from nothing."""
    return labels.get(PARENT_LABEL, "")
