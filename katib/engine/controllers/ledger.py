"""The ledger: trial counts of each experiment, kept current event by event.

It is a view of the trial cache: the informer applies every change under its own lock, so the ledger and the cache never
disagree, and the cost of one finished trial does not grow with the number of trials.

Law: the counts equal a recount of all cached trials, so a restart changes nothing.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Final

from katib.engine.runtime.objects import Key
from katib.model.loadable import Loadable
from katib.model.metrics import parse_value
from katib.model.names import BY_DEFAULT, CHOSEN_BY_LABEL, EXPERIMENT_LABEL, HELD_WORDS, PAUSED_ANNOTATION
from katib.model.trials import (
    ACTIVE,
    ELIGIBLE,
    is_feasible,
    may_be_best,
    metric_text,
    objective_costs,
    trial_state,
    waiting_words,
)
from katib.model.types import Trial, TrialState

if TYPE_CHECKING:
    from katib.engine.controllers.pareto_set import ParetoSet, ParetoSummary
    from katib.model.pareto import Point

_PARETO_SET: Final[Loadable[type[ParetoSet]]] = Loadable("katib.engine.controllers.pareto_set:ParetoSet")

LOST = (TrialState.FAILED, TrialState.METRICS_UNAVAILABLE)
"""States of trials that ended without a value."""

LISTED_NAMES = 100
"""Maximum number of names listed per state, those of the newest trials. All counts are exact; the bound keeps an
Experiment object, which is written at every step, the same size at the hundredth and at the ten-thousandth trial."""


@dataclass(frozen=True, slots=True)
class TrialCounts:
    """Counts and best trials of one experiment.

    Attributes:
        counts: Number of trials by state; states without trials are absent.
        names: Names of the newest trials by state, in order of creation.
        active: Names of all pending and running trials.
        paused: Number of active trials that a user has paused and that no longer run: others may run in their place.
        held: Number of active trials that wait because their experiment is stopped.
        best: The trial with the best objective value among the eligible ones; None if there is none. With several
            objectives the best in the first, ties broken by the next.
        pareto: Summary of the Pareto set; None with one objective.
        pareto_trials: The trials that the summary names.
        infeasible: Number of measured trials that violate the constraints; they cannot be best.
        default: The trial of the defaults; None without one.
        lost: The newest trials that failed or have no metrics, as long as every ended trial did.
        owners: Uids of the experiments that control the trials: several, or a foreign one, while trials of a deleted
            experiment of the same name still exist.
    """

    counts: Mapping[TrialState, int] = field(default_factory=dict)
    names: Mapping[TrialState, tuple[str, ...]] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    paused: int = 0
    held: int = 0
    best: Trial | None = None
    pareto: ParetoSummary | None = None
    pareto_trials: tuple[Trial, ...] = ()
    infeasible: int = 0
    default: Trial | None = None
    lost: tuple[Trial, ...] = ()
    owners: frozenset[str] = frozenset()

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def count(self, *states: TrialState) -> int:
        """Return the number of trials in any of these states."""
        total = 0
        for state in states:
            total += self.counts.get(state, 0)
        return total


@dataclass(slots=True)
class _Account:
    """The trials of one experiment, by name."""

    by_state: dict[TrialState, list[tuple[int, str]]] = field(default_factory=dict)
    places: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The key of each trial in `by_state` and `ranking`: its position and its name."""
    ranking: list[tuple[Point, tuple[int, str]]] = field(default_factory=list)
    stale: set[tuple[Point, tuple[int, str]]] = field(default_factory=set)
    """Withdrawn entries that are still in the ranking."""
    texts: dict[str, int] = field(default_factory=dict)
    infeasible: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    pareto: ParetoSet | None = None
    shown: tuple[ParetoSummary, tuple[Trial, ...]] | None = None
    owners: Counter[str] = field(default_factory=Counter)
    default: str = ""

    def remove(self, trial: Trial) -> int | None:
        name = trial.metadata.name
        place = self.places.pop(name, None)
        if place is not None:
            self._count_owners(trial, -1)
            state = trial_state(trial)
            names = self.by_state[state]
            del names[bisect_left(names, place)]
            if (rank := _rank_of(trial, state)) is not None:
                self.stale.add((rank, place))
        self.texts.pop(name, None)
        self.infeasible.discard(name)
        self.paused.discard(name)
        self.held.discard(name)
        if self.pareto is not None:
            self.pareto.remove(name)
        return None if place is None else place[0]

    def _note_waiting(self, trial: Trial) -> None:
        if trial_state(trial) is TrialState.PENDING and PAUSED_ANNOTATION in trial.metadata.annotations:
            self.paused.add(trial.name)
        if _is_held(trial):
            self.held.add(trial.name)

    def add(self, trial: Trial, order: int) -> None:
        state, name = trial_state(trial), trial.metadata.name
        if trial.metadata.labels.get(CHOSEN_BY_LABEL) == BY_DEFAULT:
            self.default = name
        self._count_owners(trial, 1)
        place = self.places[name] = (order, name)
        insort(self.by_state.setdefault(state, []), place)
        self._note_waiting(trial)
        objective, observation = trial.spec.objective, trial.status.observation
        if objective is None or not may_be_best(trial, state):
            return
        if (rank := _rank_of(trial, state)) is not None:
            entry = rank, place
            if entry in self.stale:
                self.stale.remove(entry)
            else:
                heapq.heappush(self.ranking, entry)
            if objective.has_several:
                self._compare(name, order, rank)
        elif objective.constraints and not is_feasible(objective, observation):
            if objective_costs(objective, observation) is not None:
                self.infeasible.add(name)
        else:
            text = metric_text(objective, observation)
            if text is not None and parse_value(text) is None and not objective.has_several:
                self.texts[name] = order

    def _compare(self, name: str, order: int, rank: Point) -> None:
        """Add a trial to the Pareto set."""
        if self.pareto is None:
            self.pareto = _PARETO_SET.load()()
        self.pareto.add(name, order, rank)

    def _count_owners(self, trial: Trial, change: int) -> None:
        """Adjust the trial count of the controlling experiment, by uid."""
        for owner in trial.metadata.owner_references:
            if owner.controller and owner.kind == "Experiment":
                self.owners[owner.uid] += change
                if not self.owners[owner.uid]:
                    del self.owners[owner.uid]

    def best(self) -> str:
        """Return the name of the best trial; empty if there is none."""
        while self.ranking:
            if (entry := self.ranking[0]) not in self.stale:
                return entry[1][1]
            self.stale.remove(heapq.heappop(self.ranking))
        return max(self.texts, key=lambda name: (self.texts[name], name), default="")


def _rank_of(trial: Trial, state: TrialState) -> Point | None:
    objective, observation = trial.spec.objective, trial.status.observation
    if objective is None or not may_be_best(trial, state):
        return None
    if objective.constraints and not is_feasible(objective, observation):
        return None
    return objective_costs(objective, observation)


_NAME = itemgetter(1)

OrderOf = Callable[[Trial], int]


def creation_second(trial: Trial) -> int:
    """Return a trial's creation time in seconds; trials of the same second are ordered by name."""
    created = trial.metadata.creation_timestamp
    return 0 if created is None else int(created.timestamp())


class TrialLedger:
    """Counts of all trials by experiment. `apply` runs under the informer's lock; any thread may call `counts`.

    Args:
        find: Returns a cached trial; the ledger itself keeps only the values that it counts and compares.
        order_of: Position of a trial among the others. The default is the order of arrival: a store lists trials in
            order of creation, so that a restart finds the same order. A store that cannot order objects created within
            a second must supply it.
    """

    def __init__(self, find: Callable[[Key], Trial | None], order_of: OrderOf | None = None) -> None:
        self._find = find
        self._order_of = order_of
        self._accounts: dict[Key, _Account] = {}
        self._counter = itertools.count()
        self._lock = Lock()

    def apply(self, old: Trial | None, new: Trial | None) -> None:
        """Apply one change: added (old is None), modified, or deleted (new is None)."""
        if old is not None and new is not None:
            before, after = old.metadata, new.metadata
            if (  # no counted field of an active trial changed, as when it becomes Created
                trial_state(old) is trial_state(new)
                and trial_state(new) in ACTIVE
                and before.labels == after.labels
                and before.owner_references == after.owner_references
                and (PAUSED_ANNOTATION in before.annotations) is (PAUSED_ANNOTATION in after.annotations)
                and _is_held(old) is _is_held(new)
            ):
                return
        with self._lock:
            order = None
            if old is not None:
                experiment = experiment_of(old)
                if (account := self._accounts.get(experiment)) is not None:
                    order = account.remove(old)
                    if not account.places:
                        del self._accounts[experiment]
            if new is not None:
                if self._order_of is not None:
                    order = self._order_of(new)
                elif order is None:
                    order = next(self._counter)
                experiment = experiment_of(new)
                if (account := self._accounts.get(experiment)) is None:
                    account = self._accounts[experiment] = _Account()
                account.add(new, order)

    def counts(self, experiment: Key) -> TrialCounts:
        with self._lock:
            account = self._accounts.get(experiment)
            if account is None:
                return TrialCounts()
            filled, names, active = {}, {}, list[str]()
            for state, places in account.by_state.items():
                if places:
                    filled[state] = len(places)
                    names[state] = tuple(map(_NAME, places[-LISTED_NAMES:]))
            for state in ACTIVE:
                active += map(_NAME, account.by_state.get(state, ()))
            counts = TrialCounts(
                counts=filled,
                names=names,
                active=tuple(active),
                paused=len(account.paused),
                held=len(account.held),
                infeasible=len(account.infeasible),
                owners=frozenset(account.owners),
            )
            best = account.best()
            if best and account.pareto is not None:
                counts = replace(counts, pareto=account.pareto.summary())
            default = account.default
            lost = [] if not ELIGIBLE.isdisjoint(filled) else [n for state in LOST for n in counts.names.get(state, ())]
        # Outside the lock, which the cache acquires under its own.
        if default:
            counts = replace(counts, default=self._find(Key(experiment.namespace, default)))
        if best:
            if counts.pareto is not None:
                shown = self._shown(experiment.namespace, account, counts.pareto)
                counts = replace(counts, pareto_trials=shown)
            return replace(counts, best=self._find(Key(experiment.namespace, best)))
        found = (self._find(Key(experiment.namespace, name)) for name in lost)
        return replace(counts, lost=tuple(trial for trial in found if trial is not None)) if lost else counts

    def _shown(self, namespace: str, account: _Account, pareto: ParetoSummary) -> tuple[Trial, ...]:
        """Return the trials that a set's summary names, looked up once per summary."""
        known = account.shown
        if known is None or known[0] is not pareto:
            found = (self._find(Key(namespace, name)) for name in pareto.names)
            known = account.shown = pareto, tuple(trial for trial in found if trial is not None)
        return known[1]

    def ended_and_active(self, experiment: Key) -> tuple[int, int]:
        """Return the numbers of ended and active trials of an experiment; cheaper than `counts`."""
        with self._lock:
            account = self._accounts.get(experiment)
            if account is None:
                return 0, 0
            active = 0
            for state in ACTIVE:
                active += len(account.by_state.get(state, ()))
            return len(account.places) - active, active


def experiment_of(trial: Trial) -> Key:
    return Key(trial.metadata.namespace, trial.metadata.labels.get(EXPERIMENT_LABEL, ""))


def _is_held(trial: Trial) -> bool:
    """Return whether a trial waits because its experiment is stopped."""
    return trial_state(trial) is TrialState.PENDING and waiting_words(trial).endswith(HELD_WORDS)
