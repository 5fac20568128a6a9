"""Past trials as an Optuna storage.

Optuna's own in-memory storage copies every trial that is added and numbers it in order of arrival. Here the history is
exactly the list it is given, numbered from -n to -1 in that order, so that a service which saw the trials arrive one by
one and a service which sees them all at once have the same history. Trials that Optuna asks for live beside it,
numbered from 0, and go away with the storage.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

_NO_CONSTRAINTS: Mapping[str, float] = MappingProxyType({})
_STATES = tuple(TrialState)  # going through an enumeration's members takes Python longer than what is done with them
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # Optuna's times carry no zone, and its samplers do not look at them


class KnownTrial(FrozenTrial):
    """A trial of the history. It has no constraints and is never changed, which spares Optuna most of its reading.

    Attributes:
        numbers: The parameters as Optuna's models see them; a category is its index.
    """

    number: int = -1  # plain attributes, where Optuna has properties that it reads thousands of times per suggestion
    value: float | None = None

    def __init__(
        self, state: TrialState, value: float | None, params: dict[str, Any], space: dict[str, BaseDistribution]
    ) -> None:
        super().__init__(
            number=-1,
            trial_id=-1,
            state=state,
            value=None,
            datetime_start=_EPOCH,
            datetime_complete=None if state is TrialState.RUNNING else _EPOCH,
            params=params,
            distributions=space,
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )
        self.value = value
        self.numbers = {name: space[name].to_internal_repr(param) for name, param in params.items()}

    @property
    @override
    def constraints(self) -> dict[str, float]:
        return _NO_CONSTRAINTS  # type: ignore[return-value]  # a read-only dictionary


class History(InMemoryStorage):
    """A storage that begins with these trials. It does not change them, except for their numbers."""

    def __init__(self, trials: Sequence[KnownTrial]) -> None:
        super().__init__()
        self._history = trials
        self._by_states: dict[frozenset[TrialState], list[FrozenTrial]] = {}
        for i, trial in enumerate(trials):
            trial.number = i - len(trials)

    @override
    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        wanted = frozenset(state for state in _STATES if states is None or state in states)
        if wanted not in self._by_states:
            self._by_states[wanted] = [trial for trial in self._history if trial.state in wanted]
        known = self._by_states[wanted]
        asked = super().get_all_trials(study_id, deepcopy=deepcopy, states=states)
        return (copy.deepcopy(known) if deepcopy else known) + asked
