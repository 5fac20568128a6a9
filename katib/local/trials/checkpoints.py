"""Removes the checkpoints that no trial will start from; see `katib.api.checkpoints.unneeded` for which these are.

It begins with the folders that exist and with the store, not with caches, so what a crash left is removed at the next
start, also of experiments that have ended. A folder is renamed before it is removed, so that none is ever half there.

A suggestion that is on its way from the service has a parent that cannot be seen. So nothing is removed while one may
be; one that waits to become a trial counts as running. The Suggestion is read before the trials.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from katib.api.checkpoints import CheckpointOwner, checkpoint_directory, keeps_all, unneeded
from katib.api.names import EXPERIMENT_LABEL
from katib.api.trials import ACTIVE, ELIGIBLE, trial_state
from katib.api.types import Experiment, Suggestion, Trial, TrialAssignment
from katib.checkpoint_folders import has_remains, remove_checkpoint
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.controllers.ports import EventRecorder
from katib.controllers.retention import best_names
from katib.errors import NotFoundError
from katib.local.layout import Layout
from katib.runtime.objects import Key, ObjectStore
from katib.tuning.reading import is_completed, objective_value


class CheckpointRetention:
    """Looks for checkpoints that may go. Used by one thread at a time.

    Args:
        layout: Where checkpoints are.
        store: Where experiments, suggestions and trials are.
        events: Where it is noted what was removed, and the room that the others take.
    """

    def __init__(self, layout: Layout, store: ObjectStore, events: EventRecorder) -> None:
        self._layout = layout
        self._store = store
        self._events = events
        self._done: set[str] = set()  # uids of experiments that have ended and were looked at since

    def look(self) -> None:
        """Remove what may go.

        Raises:
            KatibError: The store cannot be read; what is left goes the next time.
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
                f"Removed {_count(len(removed))} that no trial starts from any more, {_shown(freed)}; "
                f"{_count(len(kept))} kept, {_shown(sum(map(_size, kept)))}"
            )
            self._events.record(experiment, warning=False, reason="CheckpointsRemoved", message=message)


def _owner(trial: Trial) -> CheckpointOwner:
    state, value = trial_state(trial), objective_value(trial)
    is_measured = state in ELIGIBLE and value is not None and math.isfinite(float(value))
    return CheckpointOwner(trial.name, trial.metadata.labels, state not in ACTIVE, is_measured)


def _size(folder: Path) -> int:
    """Return the bytes of the files in a folder; what disappears meanwhile counts as nothing."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += Path(place, name).lstat().st_size
            except OSError:
                continue
    return total


def _count(number: int) -> str:
    return f"{number} checkpoint{'s' * (number != 1)}"


def _shown(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
