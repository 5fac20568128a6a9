"""Reading a data directory without working on it.

What a command shows are mostly objects, which SQLite's driver reads in milliseconds. So everything else is imported and
opened when it is asked for: the observation log and the events, what explains, what reads the output of trials.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.databases.sqlite import Database, OutdatedError, open_copy, open_database
from katib.engine.runtime.clock import SystemClock
from katib.engine.stores.sql import SqlStore
from katib.errors import NotFoundError, invalid
from katib.places.machine.layout import Layout
from katib.places.machine.resting import RestingStore
from katib.places.machine.trials.run_time_note import noted_seconds
from katib.service.tuning.ports import Records
from katib.service.tuning.stored_reading import ObjectReadingService
from katib.service.tuning.trial_pages import TRIAL_FACTS
from katib.service.tuning.verbs import A, Verb

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
