"""Past trials as an Optuna storage.

Optuna's own in-memory storage copies every trial that is added and numbers it in order of arrival. Here the history is
exactly the list it is given, numbered from -n to -1 in that order, so that a service which saw the trials arrive one by
one and a service which sees them all at once have the same history. Trials that Optuna asks for live beside it,
numbered from 0, and go away with the storage.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence

from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override


class History(InMemoryStorage):
    """A storage that begins with these trials. It does not change them, except for their numbers."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._history = trials
        for i, trial in enumerate(trials):
            trial.number = i - len(trials)

    @override
    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        asked = super().get_all_trials(study_id, deepcopy=deepcopy, states=states)
        trials = [t for t in self._history if states is None or t.state in states]
        return (copy.deepcopy(trials) if deepcopy else trials) + asked
