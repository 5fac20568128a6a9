"""Files of checkpoints on one machine: `<data-dir>/checkpoints/<namespace>/<experiment>/<trial>/` of each trial.

Folders that no trial will start from are removed; see `katib.model.checkpoints.unneeded`. The removal starts from the
existing folders and from the store, not from caches, so remains of a crash are removed at the next start, even for
experiments that have ended. A folder is renamed before it is removed, so that no half of one is ever visible.

An assignment in transit from the service has a parent that is not visible yet. So nothing is removed while there may be
one; an assignment that waits to become a trial counts as running. The Suggestion is read before the trials.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.controllers.ports import EventRecorder
from katib.engine.controllers.retention import best_names
from katib.engine.runtime.objects import Key, ObjectStore
from katib.errors import NotFoundError
from katib.model.checkpoints import (
    CheckpointOwner,
    checkpoint_directory,
    keeps_all,
    unneeded,
)
from katib.model.names import (
    EXPERIMENT_LABEL,
)
from katib.model.trials import ACTIVE, ELIGIBLE, trial_state
from katib.model.types import Experiment, Suggestion, Trial, TrialAssignment
from katib.model.wording import counted, size_text
from katib.places.machine.layout import Layout
from katib.service.tuning.states import is_completed, objective_value

if TYPE_CHECKING:
    pass


class CheckpointRetention:
    """Removes unneeded checkpoints. Used by one thread at a time.

    Args:
        layout: Layout of the data directory, for checkpoints.
        store: Store of experiments, suggestions and trials.
        events: Recorder of removals, with the space of the remaining checkpoints.
    """

    def __init__(self, layout: Layout, store: ObjectStore, events: EventRecorder) -> None:
        self._layout = layout
        self._store = store
        self._events = events
        self._done: set[str] = set()  # uids of ended experiments that were cleaned since

    def look(self) -> None:
        """Remove unneeded checkpoints.

        Raises:
            KatibError: The store cannot be read; the rest is removed the next time.
        """
        for folder in sorted(self._layout.checkpoints.glob("*/*/")):
            key = Key(folder.parent.name, folder.name)
            try:
                experiment = Experiment.decode(self._store.get(EXPERIMENT, key))
                suggestion = Suggestion.decode(self._store.get(SUGGESTION, key))
            except NotFoundError:
                continue
            if suggestion.spec.requests <= suggestion.status.suggestion_count:
                self._clean(experiment, suggestion.status.suggestions, folder)

    def _clean(self, experiment: Experiment, waiting: Sequence[TrialAssignment], folder: Path) -> None:
        algorithm, uid = experiment.spec.algorithm, experiment.metadata.uid
        if not is_completed(experiment):
            self._done.discard(uid)
        elif uid in self._done:
            return
        else:
            self._done.add(uid)
        if keeps_all(algorithm) or not checkpoint_directory(algorithm):
            return
        from katib.model.files.checkpoint_folders import has_remains, remove_checkpoint

        labels = {EXPERIMENT_LABEL: experiment.name}
        listed = self._store.list(TRIAL, experiment.namespace, labels=labels, owner_uid=uid).items
        owners = {trial.name: _owner(trial) for trial in map(Trial.decode, listed)}
        for given in waiting:
            owners.setdefault(given.name, CheckpointOwner(given.name, given.labels, has_ended=False, is_measured=False))
        best = set(best_names(experiment.status))
        removed = [
            folder / name for name in unneeded(list(owners.values())) if name not in best and has_remains(folder / name)
        ]
        freed = sum(map(_size, removed))
        for path in removed:
            remove_checkpoint(path)
        if removed:
            kept = [path for path in folder.iterdir() if not path.name.startswith(".")]
            message = (
                f"Removed {_count(len(removed))} that no trial starts from any more, {size_text(freed)}; "
                f"{_count(len(kept))} kept, {size_text(sum(map(_size, kept)))}"
            )
            self._events.record(experiment, warning=False, reason="CheckpointsRemoved", message=message)


def _owner(trial: Trial) -> CheckpointOwner:
    state, value = trial_state(trial), objective_value(trial)
    is_measured = state in ELIGIBLE and value is not None and math.isfinite(float(value))
    return CheckpointOwner(trial.name, trial.metadata.labels, state not in ACTIVE, is_measured)


def _size(folder: Path) -> int:
    """Return the bytes of the files in a folder; files that disappear concurrently count as 0."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += Path(place, name).lstat().st_size
            except OSError:
                continue
    return total


def _count(number: int) -> str:
    return counted(number, "checkpoint")
