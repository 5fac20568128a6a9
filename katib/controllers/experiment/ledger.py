"""The ledger: what an experiment's trials add up to, kept current event by event.

It is a view of the trial cache: the informer applies every change under its own lock, so the ledger and the cache never
disagree, and the cost of one finished trial does not grow with the number of trials.

Law: a tally equals what counting all cached trials would give, so a restart changes nothing.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

from katib.api.metrics import parse_value
from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import UNAVAILABLE, Trial
from katib.controllers.objectives import cost, objective_text, objective_value
from katib.controllers.trial_states import ACTIVE, ELIGIBLE, TrialState, state_of
from katib.runtime.objects import Key

LISTED_NAMES = 100
"""How many names of each state a tally lists, the newest ones. All counts are exact; the bound keeps an Experiment
object, which is written at every step, the same size at the hundredth and at the ten-thousandth trial."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What the trials of one experiment add up to.

    Attributes:
        counts: Number of trials by state; states without trials are absent.
        names: Names by state in order of creation, the newest ones.
        active: Names of all trials that are pending or running.
        best: The trial with the best objective value among those that may be best; None when there is none.
        owners: Uids of the experiments that control the trials: more than one, or another than the experiment's own,
            while trials of a deleted experiment of the same name are still going.
    """

    counts: Mapping[TrialState, int] = field(default_factory=dict)
    names: Mapping[TrialState, tuple[str, ...]] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    best: Trial | None = None
    owners: frozenset[str] = frozenset()

    @property
    def total(self) -> int:
        """Number of trials that exist."""
        return sum(self.counts.values())

    @property
    def completed(self) -> int:
        """Number of trials that will not change their state any more."""
        return self.total - len(self.active)

    def count(self, *states: TrialState) -> int:
        """Return the number of trials in any of these states."""
        return sum(self.counts.get(state, 0) for state in states)


@dataclass(slots=True)
class _Account:
    """The trials of one experiment."""

    by_state: dict[TrialState, list[tuple[int, str]]] = field(default_factory=dict)
    state: dict[str, tuple[TrialState, int]] = field(default_factory=dict)
    candidates: dict[str, tuple[float, int, Trial]] = field(default_factory=dict)
    ranking: list[tuple[float, int, str]] = field(default_factory=list)
    texts: dict[str, tuple[int, Trial]] = field(default_factory=dict)
    owners: Counter[str] = field(default_factory=Counter)

    def remove(self, trial: Trial) -> None:
        name = trial.name
        place = self.state.pop(name, None)
        if place is not None:
            self.owners -= Counter(_owners_of(trial))
            state, order = place
            names = self.by_state[state]
            del names[bisect_left(names, (order, name))]
        self.candidates.pop(name, None)
        self.texts.pop(name, None)

    def add(self, trial: Trial, order: int) -> None:
        state = state_of(trial)
        self.state[trial.name] = (state, order)
        self.owners.update(_owners_of(trial))
        insort(self.by_state.setdefault(state, []), (order, trial.name))
        if state in ELIGIBLE:
            self._enter(trial, order)

    def _enter(self, trial: Trial, order: int) -> None:
        objective = trial.spec.objective
        value = objective_value(objective, trial.status.observation)
        if objective is not None and value is not None:
            rank = cost(objective, value)
            self.candidates[trial.name] = (rank, order, trial)
            heapq.heappush(self.ranking, (rank, order, trial.name))
            return
        text = objective_text(objective, trial.status.observation)
        if text != UNAVAILABLE and parse_value(text) is None:
            self.texts[trial.name] = (order, trial)

    def best(self) -> Trial | None:
        while self.ranking:
            rank, order, name = self.ranking[0]
            candidate = self.candidates.get(name)
            if candidate is not None and candidate[:2] == (rank, order):
                return candidate[2]
            heapq.heappop(self.ranking)  # an older value of this trial, or the trial is gone
        if not self.texts:
            return None
        _, newest = max(self.texts.items(), key=lambda item: (item[1][0], item[0]))
        return newest[1]


OrderOf = Callable[[Trial], int]


def creation_second(trial: Trial) -> int:
    """Return when a trial was created, to the second; trials of one second are ordered by name."""
    created = trial.metadata.creation_timestamp
    return 0 if created is None else int(created.timestamp())


class TrialLedger:
    """Tallies of all experiments. `apply` runs under the informer's lock; `tally` may be called from any thread.

    Args:
        order_of: Where a trial stands among the others. By default trials keep the order in which they came: a store
            lists them in order of creation, so that a restart finds the same. A store that does not know the order of
            what was created within a second has to be asked for what it does know.
    """

    def __init__(self, order_of: OrderOf | None = None) -> None:
        self._order_of = order_of
        self._accounts: dict[Key, _Account] = {}
        self._order: dict[str, int] = {}
        self._counter = itertools.count()
        self._lock = Lock()

    def apply(self, old: Trial | None, new: Trial | None) -> None:
        """Take in one change: added (old is None), modified, or deleted (new is None)."""
        with self._lock:
            if old is not None:
                self._withdraw(old, keeps_order=new is not None)
            if new is not None:
                order = self._place_of(new)
                self._accounts.setdefault(experiment_of(new), _Account()).add(new, order)

    def tally(self, experiment: Key) -> Tally:
        """Return what the trials of an experiment add up to now."""
        with self._lock:
            account = self._accounts.get(experiment)
            if account is None:
                return Tally()
            filled = {state: names for state, names in account.by_state.items() if names}
            return Tally(
                counts={state: len(names) for state, names in filled.items()},
                names={state: tuple(name for _, name in names[-LISTED_NAMES:]) for state, names in filled.items()},
                active=tuple(name for state in ACTIVE for _, name in filled.get(state, ())),
                best=account.best(),
                owners=frozenset(account.owners),
            )

    def _place_of(self, trial: Trial) -> int:
        if self._order_of is not None:
            return self._order_of(trial)
        return self._order.setdefault(trial.metadata.uid, next(self._counter))

    def _withdraw(self, trial: Trial, *, keeps_order: bool) -> None:
        key = experiment_of(trial)
        account = self._accounts.get(key)
        if account is None:
            return
        account.remove(trial)
        if not keeps_order:
            self._order.pop(trial.metadata.uid, None)
        if not account.state:
            del self._accounts[key]


def experiment_of(trial: Trial) -> Key:
    """Return the experiment that a trial belongs to, by its label."""
    return Key(trial.namespace, trial.metadata.labels.get(EXPERIMENT_LABEL, ""))


def _owners_of(trial: Trial) -> Iterator[str]:
    """Yield the uid of the experiment that controls a trial, if one does."""
    return (owner.uid for owner in trial.metadata.owner_references if owner.controller and owner.kind == "Experiment")
