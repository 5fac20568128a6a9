"""Reading a data directory without working on it, as it is while nothing runs, whatever was written last.

An engine that is killed leaves experiments and trials that say Running, and one that ends writes nothing of those that
it interrupts. So objects are read through `RestingStore`.

What a command shows are mostly objects, which SQLite's driver reads in milliseconds. So everything else is imported and
opened when it is asked for: the observation log and the events, what explains, what reads the output of trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import structs

from katib.engine.controllers.experiment.plan import interrupted
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.controllers.trial.plan import WAITING_REASON, with_run_time, with_running
from katib.engine.databases.sqlite import Database, OutdatedError, open_copy, open_database
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectList
from katib.engine.runtime.search import SearchPage, SearchQuery
from katib.engine.stores.sql import SqlStore
from katib.errors import NotFoundError, invalid
from katib.model.conditions import has_ended
from katib.model.trials import state_in
from katib.model.types import Experiment, Trial, TrialState
from katib.places.machine.layout import Layout
from katib.places.machine.trials.run_time_note import noted_seconds
from katib.service.tuning.ports import Records
from katib.service.tuning.stored_reading import ObjectReadingService
from katib.service.tuning.trial_pages import TRIAL_FACTS
from katib.service.tuning.verbs import A, Verb

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


if TYPE_CHECKING:
    from katib.engine.observations.sql import SqlObservationLog
    from katib.model.algorithms import AlgorithmCatalog
    from katib.places.machine.trials.output import TrialOutput
    from katib.service.tuning.ports import EventReader
    from katib.service.tuning.service import Diagnosis, TuningService

T = TypeVar("T")


def open_offline(data_dir: Path) -> TuningService:
    """Return a service that reads a data directory; it refuses to change anything.

    Raises:
        NotFoundError: Nothing was ever run there.
        TerminalError: The files are of a newer version or damaged.
    """
    layout = Layout(data_dir.absolute())
    if not layout.has_database():
        raise NotFoundError(f"{data_dir} holds no experiments; run one with `katib run FILE`, or give --data-dir")
    parts = _Parts(layout)
    return OfflineService(parts.records, parts.explain, _when_asked(lambda: parts.catalog), parts.clock)


class OfflineService(ObjectReadingService):
    """The tuning service over a data directory; it refuses to change anything."""

    def call(self, request: Verb[A]) -> A:
        """Return the answer to a request that only reads."""
        if request.rest.method != "GET":
            raise invalid("--data-dir", "it is opened for reading only", "start `katib serve` there", "read-only")
        return super().call(request)


class _WhenAsked:
    """Stands for a part that is made when something of it is asked for first."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)


def _when_asked(make: Callable[[], T]) -> T:
    return cast("T", _WhenAsked(make))


class _Parts:
    """The parts of the service, each made once."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.clock = SystemClock()

    @cached_property
    def records(self) -> Records:
        return Records(
            RestingStore(self.store, self._layout.has_programs, partial(noted_seconds, self._layout.run)),
            _when_asked(lambda: self.observations),
            _when_asked(lambda: self.events),
            lambda: self.files,
        )

    @cached_property
    def store(self) -> SqlStore:
        kinds = {EXPERIMENT, SUGGESTION, TRIAL}
        return self._opened(lambda database: SqlStore(database, kinds, facts=TRIAL_FACTS, clock=self.clock))

    @cached_property
    def observations(self) -> SqlObservationLog:
        from katib.engine.observations.sql import SqlObservationLog

        return self._opened(SqlObservationLog)

    @cached_property
    def events(self) -> EventReader:
        from katib.engine.stores.events import EventLog
        from katib.places.machine.events import LoggedEvents

        return LoggedEvents(self._opened(lambda database: EventLog(database, self.clock)))

    @cached_property
    def files(self) -> TrialOutput:
        from katib.places.machine.trials.output import TrialOutput

        return TrialOutput(self._layout)

    @cached_property
    def catalog(self) -> AlgorithmCatalog:
        from katib.engine.algorithm_services.catalog import Catalog

        return Catalog()

    def explain(self, namespace: str, name: str) -> Diagnosis:
        from katib.places.machine.trials.facts import LocalFacts
        from katib.service.explaining.diagnostician import Diagnostician

        facts = LocalFacts(self.store, self.files, self._layout)
        return Diagnostician(self.records, facts, self.clock).explain(namespace, name)

    def _opened(self, build: Callable[[Database], T]) -> T:
        """Build on the file, or on a copy when its tables have to be brought up to date: reading changes nothing."""
        try:
            return build(self._file)
        except OutdatedError:
            return build(self._copy)

    @cached_property
    def _file(self) -> Database:
        return open_database(self._layout.database, read_only=True)

    @cached_property
    def _copy(self) -> Database:
        return open_copy(self._layout.database)
