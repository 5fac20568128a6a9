"""Past trials as an Optuna storage.

Optuna's own in-memory storage copies every added trial and numbers it in order of arrival. Here the history is exactly
the given list, numbered from -n to -1 in that order, so that it does not depend on whether a service received the
trials one by one or all at once. Trials that Optuna asks for are kept separately, numbered from 0, and discarded with
the storage.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NO_CONSTRAINTS: Mapping[str, float] = MappingProxyType({})
_STATES = tuple(TrialState)  # iterating over an enumeration is slow in Python
_COSTS = {TrialState.PRUNED: math.inf, TrialState.RUNNING: math.nan}  # in sorting order
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # Optuna's times carry no zone, and its samplers do not look at them


class KnownTrial(FrozenTrial):
    """A trial of the history. It has no constraints and is never changed, which saves Optuna most of its copying.

    Attributes:
        numbers: The parameters as numbers of Optuna's models; a category is its index.
    """

    number: int = -1  # plain attributes instead of Optuna's properties, read thousands of times per suggestion
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


class HistoryStorage(InMemoryStorage):
    """A storage of one study with initial trials. It does not change them, except for their numbers."""

    def __init__(self, name: str, trials: Sequence[KnownTrial], *, maximize: bool) -> None:
        super().__init__()
        direction = StudyDirection.MAXIMIZE if maximize else StudyDirection.MINIMIZE
        self._study_id = self.create_new_study([direction], name)
        self._history = trials
        self._maximize = maximize
        self._by_states: dict[frozenset[TrialState], list[FrozenTrial]] = {}
        self._columns: dict[str, FloatArray] = {}
        self._split: tuple[int, IntArray, IntArray] | None = None
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

    def live_trials(self) -> list[FrozenTrial]:
        return super().get_all_trials(self._study_id, deepcopy=False)

    def column(self, name: str) -> FloatArray:
        """Return the numbers (n,) of one parameter in the history; NaN if it is absent."""
        column = self._columns.get(name)
        if column is None:
            column = np.array([trial.numbers.get(name, math.nan) for trial in self._history], dtype=float)
            self._columns[name] = column
        return column

    def split(self, gamma: Callable[[int], int]) -> tuple[IntArray, IntArray]:
        """Return the indices of the good trials and of the others, each in the order of the history.

        Args:
            gamma: Number of good trials among ended ones. If fewer have values, failed trials fill up.
        """
        if self._split is None or self._split[0] != gamma(self.n_ended):
            n_good = gamma(self.n_ended)
            good = np.zeros(len(self._history), dtype=bool)
            good[np.argsort(self._costs, kind="stable")[: min(n_good, self.n_ended)]] = True
            self._split = n_good, np.flatnonzero(good), np.flatnonzero(~good)
        return self._split[1:]

    @cached_property
    def _costs(self) -> FloatArray:
        """Sort keys of trials (n,): lower is better, failed ones after all values, running ones last."""
        sign = -1.0 if self._maximize else 1.0
        return np.array([_COSTS[t.state] if t.value is None else sign * t.value for t in self._history], dtype=float)

    @cached_property
    def n_ended(self) -> int:
        """Number of trials that ended, with a value or without."""
        return int(np.count_nonzero(~np.isnan(self._costs)))
