"""The data directory of an engine, held and open: objects, readings, events, and files of trials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from katib.engine.algorithm_services.catalog import MachineSettings
from katib.engine.controllers.kinds import EXPERIMENT, OPTIMIZATION_JOB, POD, SUGGESTION, TRIAL
from katib.engine.databases.sqlite import Database, open_database
from katib.engine.observations.quick import observation_log
from katib.engine.runtime.clock import Clock
from katib.engine.stores.events import EventLog
from katib.engine.stores.sql import SqlStore
from katib.errors import UnavailableError
from katib.model.loadable import Deferred
from katib.places.machine.claims import HeldDirectory
from katib.places.machine.ended import EndedExperiments
from katib.places.machine.events import LoggedEvents
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.batch.job import with_defaults as with_job_defaults
from katib.places.machine.jobs.dependencies import JobSettings
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.layout import Layout
from katib.places.machine.on_demand import OUTPUT
from katib.places.machine.ownership import Ownership
from katib.places.machine.pods.environment import inherited_environment
from katib.places.machine.pods.log_file import LogLimits
from katib.places.machine.report_metrics import DIRECTORY as REPORT_METRICS
from katib.places.machine.trials.files import TrialFiles
from katib.places.machine.trials.run_time_note import RunTimeNote
from katib.service.tuning.trial_pages import TRIAL_FACTS

if TYPE_CHECKING:
    from katib.places.machine.trials.output import TrialOutput

STATUS_KINDS = frozenset({EXPERIMENT, SUGGESTION, TRIAL, OPTIMIZATION_JOB, *JobKinds()})
"""Kinds whose status is written by controllers only."""

DEFAULTS = {JOB: with_job_defaults}


class EngineData:
    """Everything that an engine keeps.

    Attributes:
        directory: The directory; its loss stops the engine.
        store: All objects.
        ended: The experiments among them that the caches do not see.
        ownership: The experiments that this engine runs.
        observations: Readings.
        events: Events; `recorder` writes them for objects.
        run_times: How long trials have run.
        files: Removes the files of trials; `output` reads them.

    Args:
        layout: Layout of the directory.
        directory: The directory.
        database: Its database, which its owner closes.
        clock: Time.
        is_elsewhere: Whether programs run on other machines.
    """

    def __init__(
        self, layout: Layout, directory: HeldDirectory, database: Database, clock: Clock, *, is_elsewhere: bool
    ) -> None:
        self.layout = layout
        self.directory = directory
        self.database = database
        self.clock = clock
        self.store = SqlStore(
            database, STATUS_KINDS, uid_kinds=(POD,), defaults=DEFAULTS, facts=TRIAL_FACTS, clock=clock
        )
        self.ended = EndedExperiments(self.store)
        self.ownership = Ownership(self.store)
        self.observations = observation_log(database)
        self.events = EventLog(database, clock)
        self.recorder = LoggedEvents(self.events)
        self.run_times = RunTimeNote(layout.run, clock, is_elsewhere=is_elsewhere)
        self.files = TrialFiles(layout)
        self.output: Deferred[TrialOutput] = Deferred(lambda: OUTPUT.load()(layout))

    def job_settings(self, settings: MachineSettings) -> JobSettings:
        """Return the limits of jobs, whose files are in the directory."""
        return JobSettings(
            self.layout.trials,
            inherited=inherited_environment(os.environ, self.layout.python),
            visible=(REPORT_METRICS,),
            log_limits=LogLimits(settings.log_max_bytes, settings.log_max_files),
            reserve=self.layout.reserve,
            is_lost=self.directory.is_lost,
        )

    def answers(self) -> bool:
        """Return whether the database can be read."""
        try:
            self.observations.count("")
        except UnavailableError:
            return False
        return True

    def write_run_times(self) -> None:
        """Write down how long trials have run, unless the directory is lost."""
        if not self.directory.is_lost():
            self.run_times.write()


@contextmanager
def opened_database(layout: Layout) -> Iterator[Database]:
    """Open the database; it is created for its owner alone, wherever it is.

    Raises:
        TerminalError: The file is of a newer version or damaged.
    """
    os.close(os.open(layout.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with open_database(layout.database) as database:
        yield database
