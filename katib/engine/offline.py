"""Reading a data directory without working on it."""

from __future__ import annotations

from pathlib import Path

from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.database import open_database
from katib.engine.diagnosing import JOB, LocalJobs
from katib.engine.events import RecordedEvents
from katib.engine.layout import Layout
from katib.engine.submission import local_gate
from katib.engine.trial_files import TrialFiles
from katib.errors import NotFoundError
from katib.homes.diagnosing import Diagnostician
from katib.homes.submission import ConfigMaps
from katib.homes.tuning_service import ObjectTuningService
from katib.observations.sql import SqlObservationLog
from katib.processes.client import RECORD_FILE
from katib.processes.remains import is_engine_at_work
from katib.runtime.clock import SystemClock
from katib.services.catalog import Catalog
from katib.stores.events import EventLog
from katib.stores.sql import SqlStore
from katib.tuning.service import TuningService
from katib.workloads.local.admission import HostCapacity


def open_offline(data_dir: Path) -> TuningService:
    """Return a service that reads a data directory; it refuses to change anything.

    Raises:
        NotFoundError: Nothing was ever run there.
        TerminalError: The files are of a newer version or damaged.
    """
    layout = Layout(data_dir.absolute())
    if not layout.database.is_file():
        raise NotFoundError(f"{data_dir} holds no experiments; run one with `katib run FILE`, or give --data-dir")
    clock = SystemClock()
    database = open_database(layout.database)
    store = SqlStore(database, {EXPERIMENT, SUGGESTION, TRIAL, JOB}, clock=clock)
    observations = SqlObservationLog(database)
    events = RecordedEvents(EventLog(database, clock))
    files = TrialFiles(layout)
    catalog = Catalog()
    return ObjectTuningService(
        store=store,
        observations=observations,
        events=events,
        gate=local_gate(catalog, HostCapacity.detect(), ConfigMaps(store).find),
        output=files,
        explainer=Diagnostician(
            store=store,
            observations=observations,
            events=events,
            clock=clock,
            jobs=LocalJobs(store, files),
            is_at_work=lambda: is_engine_at_work(layout.run / RECORD_FILE),
        ),
        catalog=catalog,
        clock=clock,
        read_only="it is opened for reading only",
    )
