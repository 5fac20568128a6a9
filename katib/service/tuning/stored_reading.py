"""What users ask without changing anything, answered from an object store and an observation log.

This is all that a command needs which reads a data directory, so it imports nothing that only a submission needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import NotFoundError, invalid
from katib.model import types
from katib.model.metrics import BEFORE_THE_LAST, MetricLog, trial_of_log
from katib.model.names import EXPERIMENT_LABEL, TRIAL_LABEL
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import API_VERSION
from katib.service.tuning.changes import stream_changes
from katib.service.tuning.ports import Explain, Namespaces, Part, Records, do_nothing
from katib.service.tuning.reading import metric_of
from katib.service.tuning.replicas import POD, POD_HEADER, trial_of
from katib.service.tuning.service import NOW, Change, Diagnosis, Json, NewReadings, Page, R, RecordedEvent, TrialOrder
from katib.service.tuning.trial_pages import find_trials

if TYPE_CHECKING:
    from katib.model.algorithms import AlgorithmCatalog, AlgorithmInfo
    from katib.model.types import Experiment, Trial


class ObjectReadingService:
    """The part of `katib.service.tuning.service.TuningService` that changes nothing. Thread-safe.

    Args:
        records: What is kept of experiments.
        explain: Says why something does not progress.
        catalog: Algorithms.
        clock: Measures timeouts.
        namespaces: Those that there are; left out: those with experiments.
    """

    def __init__(
        self,
        records: Records,
        explain: Explain,
        catalog: AlgorithmCatalog,
        clock: Clock,
        namespaces: Namespaces | None = None,
    ) -> None:
        self._store = records.store
        self._observations = records.observations
        self._events = records.events
        self._output = records.output
        self._settle = do_nothing if records.callers is None else records.callers.settle
        self._explain = explain
        self._catalog = catalog
        self._clock = clock
        self._namespaces = namespaces or Namespaces(records.store)

    def get(self, kind: type[R], namespace: str, name: str) -> R:
        """Return an object."""
        if kind is types.Experiment:
            self._settle()
        obj = self._require(Kind(API_VERSION, kind.__name__), Key(namespace, name))
        return kind.read(obj)

    def experiments(self, namespace: str | None = None) -> Sequence[Experiment]:
        """Return all experiments."""
        self._settle()
        return [types.Experiment.read(obj) for obj in self._store.list(EXPERIMENT, namespace).items]

    def trials(
        self,
        namespace: str,
        experiment: str,
        *,
        states: Sequence[str] = (),
        order: TrialOrder = "age",
        limit: int = 500,
        cursor: str = "",
    ) -> Page:
        """Return a page of trials."""
        key = Key(namespace, experiment)
        self._require(EXPERIMENT, key)
        found = find_trials(self._store, key, states=frozenset(states), order=order, limit=limit, cursor=cursor)
        return Page(found.items, found.cursor, found.total)

    def best(self, namespace: str, experiment: str) -> Trial | None:
        """Return the best trial."""
        name = self.get(types.Experiment, namespace, experiment).status.current_optimal_trial.best_trial_name
        found = self._find(TRIAL, Key(namespace, name)) if name else None
        return None if found is None else types.Trial.read(found)

    def metrics(self, namespace: str, trial: str, *, metric: str = "", limit: int = 100_000) -> Sequence[MetricLog]:
        """Return the newest readings of a trial, or of an earlier try of it."""
        self._require(TRIAL, Key(namespace, trial_of_log(trial)))
        return self._observations.within(namespace).newest(trial, limit=limit, metric_name=metric)

    def curve(self, namespace: str, trial: str, *, points: int, metric: str = "") -> Sequence[MetricLog]:
        """Return the curve of a metric."""
        found = self.get(types.Trial, namespace, trial)
        return self._observations.within(namespace).curve(trial, metric or metric_of(found), points)

    def readings(self, namespace: str, trial: str, *, since: str = "") -> NewReadings:
        """Return what arrived behind a cursor."""
        self._require(TRIAL, Key(namespace, trial))
        log = self._observations.within(namespace)
        if since == NOW:
            last = log.changes({trial: BEFORE_THE_LAST})
            return NewReadings((), str(last[-1].cursor) if last else "0")
        if since and not (since.isascii() and since.isdigit() and len(since) <= _MOST_DIGITS):
            raise invalid("since", f'"{since}" is not a cursor of readings', "start without one", "cursor")
        changes = log.changes({trial: int(since or 0)})
        return NewReadings(tuple(change.reading for change in changes), str(changes[-1].cursor) if changes else since)

    def pods(self, kind: str, namespace: str, name: str) -> Sequence[Json]:
        """Return the pods of a trial or an experiment."""
        owner = self._require(Kind(API_VERSION, kind), Key(namespace, name))
        label = EXPERIMENT_LABEL if kind == EXPERIMENT.kind else TRIAL_LABEL
        found = [pod for pod in self._store.list(POD, namespace, labels={label: name}).items if trial_of(pod)]
        if not found and kind == TRIAL.kind:
            found = list(self._output.past_pods(types.Trial.read(owner)))
        return [{**POD_HEADER, **pod} for pod in found]

    def logs(
        self,
        namespace: str,
        trial: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        replica: str = "",
        container: str = "",
    ) -> Iterator[bytes]:
        """Yield what the trial printed."""
        found = self.get(types.Trial, namespace, trial)
        goes_on = self._goes_on(Key(namespace, trial)) if follow else None
        return self._output.read(found, Part(goes_on, tail_lines, replica, container))

    def _goes_on(self, key: Key) -> Callable[[], bool]:
        def check() -> bool:
            obj = self._find(TRIAL, key)
            return obj is not None and trial_state(types.Trial.read(obj)) in ACTIVE

        return check

    def events(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return notable moments."""
        self._require(Kind(API_VERSION, kind), Key(namespace, name))
        return self._events.events_of(kind, namespace, name)

    def why(self, namespace: str, name: str) -> Diagnosis:
        """Explain an experiment or a trial."""
        self._settle()
        return self._explain(namespace, name)

    def algorithms(self) -> Sequence[AlgorithmInfo]:
        """Return the algorithms offered."""
        return self._catalog.all()

    def changes(
        self, namespace: str, experiment: str, *, timeout_seconds: float | None = None, since: str = ""
    ) -> Iterator[Change]:
        """Yield the state, then every change."""
        key = Key(namespace, experiment)
        self._settle()
        self._require(EXPERIMENT, key)
        store = self._namespaces.store_of(namespace)
        return stream_changes(store, key, self._clock, timeout_seconds=timeout_seconds, since=since)

    def _find(self, kind: Kind, key: Key) -> Object | None:
        with suppress(NotFoundError):
            return self._store.get(kind, key)
        return None

    def _require(self, kind: Kind, key: Key) -> Object:
        obj = self._find(kind, key)
        if obj is None:
            is_experiment = kind == TRIAL and self._find(EXPERIMENT, key) is not None
            hint = (
                f"; it is an experiment, whose trials are those of `katib trials {key.name}`" if is_experiment else ""
            )
            raise NotFoundError(f'{kind.kind.lower()} "{key.name}" is not in namespace {key.namespace}{hint}')
        return obj


_MOST_DIGITS = 18
"""Of a cursor: the numbers of readings fit into 64 bits."""
