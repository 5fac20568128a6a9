"""The objects of a data directory as they are while no engine works on it: nothing runs, whatever was written last.

An engine that is killed leaves experiments and trials that say Running, and one that ends writes nothing of those that
it interrupts. So whoever reads the objects without an engine sees them through this view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import structs

from katib.engine.controllers.experiment.plan import interrupted
from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.controllers.trial.plan import WAITING_REASON, with_run_time, with_running
from katib.engine.runtime.objects import Key, Kind, Object, ObjectList
from katib.engine.runtime.search import SearchPage, SearchQuery
from katib.engine.stores.sql import SqlStore
from katib.model.conditions import has_ended
from katib.model.trials import state_in
from katib.model.types import Experiment, Trial, TrialState

CUT_OFF = "Trial waits: its experiment is interrupted"


class RestingStore:
    """A store of which the reading calls show what rests. Fits `katib.engine.runtime.objects.ObjectStore` for readers.

    Args:
        has_programs: Returns whether programs of trials may run.
        ran_seconds: Returns how long trials and experiments have run that were cut off, by uid.
    """

    def __init__(
        self, store: SqlStore, has_programs: Callable[[], bool], ran_seconds: Callable[[], Mapping[str, float]]
    ) -> None:
        self._store = store
        self._has_programs = has_programs
        self._ran_seconds = ran_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, kind: Kind, key: Key) -> Object:
        return self._shown(kind)(self._store.get(kind, key))

    def list(self, kind: Kind, namespace: str | None = None, **selection: Any) -> ObjectList:
        found = self._store.list(kind, namespace, **selection)
        return replace(found, items=tuple(map(self._shown(kind), found.items)))

    def pages(self, kind: Kind, namespace: str | None = None, **selection: Any) -> Iterator[ObjectList]:
        for page in self._store.pages(kind, namespace, **selection):
            yield replace(page, items=tuple(map(self._shown(kind), page.items)))

    def search(self, query: SearchQuery) -> SearchPage | None:
        """Find objects by their facts, which those of an interrupted experiment contradict: they are read in turn."""
        namespace, _, name = query.scope.partition("/")
        found = self._store.get(EXPERIMENT, Key(namespace, name))
        is_over = has_ended(Experiment.decode(found).status.conditions)
        return self._store.search(query) if is_over or self._has_programs() else None

    def _shown(self, kind: Kind) -> Callable[[Object], Object]:
        show = _SHOWN.get(kind)
        return _as_it_is if show is None or self._has_programs() else partial(show, ran=self._ran_seconds())


def _as_it_is(obj: Object) -> Object:
    return obj


def _resting_experiment(obj: Object, ran: Mapping[str, float]) -> Object:
    experiment = Experiment.read(obj)
    status = experiment.status
    if experiment.spec.trial_template is None or status.start_time is None or has_ended(status.conditions):
        return obj
    status = structs.replace(
        interrupted(status, experiment, datetime.now(UTC)),
        trials_running=0,
        run_seconds=ran.get(experiment.metadata.uid, status.run_seconds),
        running_trial_list=(),
        trials_pending=status.trials_pending + status.trials_running,
        pending_trial_list=(*status.pending_trial_list, *status.running_trial_list),
    )
    return {**obj, "status": status.encode()}


def _resting_trial(obj: Object, ran: Mapping[str, float]) -> Object:
    if state_in(obj) is not TrialState.RUNNING:
        return obj
    trial, now = Trial.decode(obj), datetime.now(UTC)
    status = with_running(trial.status, WAITING_REASON, CUT_OFF, now, runs=False)
    status = with_run_time(status, ran.get(trial.metadata.uid), now)
    return {**obj, "status": status.encode()}


_SHOWN = {EXPERIMENT: _resting_experiment, TRIAL: _resting_trial}
