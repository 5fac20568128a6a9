"""The whole service on one machine: what is made, what it is given, and in which order it starts and stops.

    submit -> store -> controllers -> Job object -> runner -> process -> collector -> reporter -> observation log
                           |                                                                          |
                           +-- suggestion services (gRPC) <---- early stopping reads ----- DBManager --+

An engine is opened (files, processes), may be given work, is started (threads) and stopped. Opening and starting are
apart so that an experiment can be refused before anything runs, and its suggestion service can come up meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Self

from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import Trial
from katib.controllers.assembly import Caches, assemble
from katib.controllers.experiment.plan import is_completed
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.controllers.settings import ControllerSettings
from katib.controllers.trial_states import ACTIVE, state_of
from katib.database import open_database
from katib.diagnosis import ServiceFacts
from katib.engine.aftermath import LocalAftermath
from katib.engine.claims import claimed
from katib.engine.diagnosing import LocalJobs
from katib.engine.events import LoggedEvents, RecordedEvents
from katib.engine.layout import Layout
from katib.engine.monitoring import TrialMonitors
from katib.engine.submission import local_gate
from katib.engine.trial_files import TrialFiles
from katib.engine.watched_log import WatchedLog
from katib.homes.diagnosing import Diagnostician
from katib.homes.submission import WORKSPACE_ANNOTATION, ConfigMaps
from katib.homes.tuning_service import ObjectTuningService
from katib.observations.sql import SqlObservationLog
from katib.processes.client import Processes
from katib.runtime.clock import SystemClock
from katib.runtime.informer import InformerEvent
from katib.runtime.interpreter import tune_interpreter
from katib.runtime.objects import Key, Object
from katib.services.catalog import Catalog
from katib.services.config import ServicesConfig, read_config
from katib.services.host import ServiceHost
from katib.stores.events import EventLog
from katib.stores.sql import SqlStore
from katib.tuning.service import TuningService
from katib.workloads.local.admission import HostCapacity
from katib.workloads.local.runner import JOB, LocalJobRunner
from katib.workloads.local.tokens import Capacity
from metrics_collector.reporter import Reporter

STATUS_KINDS = frozenset({EXPERIMENT, SUGGESTION, TRIAL, JOB})
"""Kinds whose status is written by controllers only."""

CLOSE_SECONDS = 10.0

DB_MANAGER_VARIABLE = "KATIB_DB_MANAGER_ADDRESS"
"""Tells trials that push their metrics where the observation log listens."""


class Engine:
    """One engine over one data directory. A context manager: entered, it is open; `start` sets it to work.

    Args:
        data_dir: Where everything is kept.
        config: Further algorithms.
        settings: Knobs of the controllers.

    Raises (on entering):
        TerminalError: Another engine is at work there, or the files are of a newer version or damaged.
    """

    def __init__(
        self, data_dir: Path, config: Path | None = None, *, settings: ControllerSettings | None = None
    ) -> None:
        self._layout = Layout(data_dir.absolute())
        self._config = ServicesConfig() if config is None else read_config(config)
        self._config_directory = Path.cwd() if config is None else config.absolute().parent
        self._settings = settings
        self._clock = SystemClock()
        self._open = ExitStack()
        self._running = ExitStack()
        self._started = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(claimed(self._layout.root))
            self._layout.create()
            self._host = HostCapacity.detect()
            self._processes = Processes(self._layout.run)
            self._processes.start()
            stack.callback(self._processes.stop)
            self._catalog = Catalog(self._config.infos())
            self._services = ServiceHost(
                self._processes,
                self._layout.services,
                plans=self._config.plans(self._config_directory),
                catalog=self._catalog,
            )
            stack.callback(self._services.close)
            self._database = stack.enter_context(open_database(self._layout.database))
            self._store = SqlStore(self._database, STATUS_KINDS, clock=self._clock)
            self._observations = SqlObservationLog(self._database)
            self._events = EventLog(self._database, self._clock)
            self._files = TrialFiles(self._layout)
            self._runner: LocalJobRunner | None = None
            self.service: TuningService = self._tuning_service()
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        self._open.close()

    def start(self) -> None:
        """Set everything to work; unfinished experiments of the data directory go on."""
        if self._started:
            return
        self._started = True
        tune_interpreter()
        with ExitStack() as stack:
            self._events.start()
            stack.callback(self._events.stop)
            self._serve_observations(stack)
            self._start_controllers(stack)
            self._running = stack.pop_all()

    def stop(self) -> None:
        """End all trials and come to rest; what is unfinished goes on with the next start. Stopping twice is fine."""
        self._running.close()

    # --- parts --------------------------------------------------------------------------------------------------------

    def _start_controllers(self, stack: ExitStack) -> None:
        caches = Caches.of(self._store, [JOB], self._clock)
        events = LoggedEvents(self._events)
        log = WatchedLog(self._observations)
        reporter = Reporter(log)
        stack.callback(lambda: reporter.close(CLOSE_SECONDS))
        monitors = TrialMonitors(caches.trials, reporter, self._observations.delete, events, self._clock)
        log.on_refusal = monitors.readings_wait
        caches.trials.add_handler(lambda event: self._trial_changed(event, monitors))
        assembly = assemble(
            store=self._store,
            caches=caches,
            services=self._services,
            observations=self._observations,
            events=events,
            clock=self._clock,
            settings=self._settings,
        )
        self._services.on_change(lambda namespace, name: assembly.wake_suggestion(Key(namespace, name)))
        runner = LocalJobRunner(
            self._store,
            self._processes,
            monitors,
            self._layout.trials,
            workspace=_Workspaces(caches).of,
            capacity=_capacity(self._host),
            clock=self._clock,
            rewrites=monitors.rewrites,
            variables={DB_MANAGER_VARIABLE: self._services.db_manager_address()},
            may_delete=lambda job: not _is_active(caches.trials.get(Key.of(job))),
            gone=monitors.job_gone,
        )
        self._runner = runner
        # The controllers first: the runner asks their cache for the trial of a job.
        assembly.manager.start()
        self._note_resumed(caches, events)
        stack.callback(assembly.manager.stop)
        runner.start()
        stack.callback(runner.stop)

    def _serve_observations(self, stack: ExitStack) -> None:
        """Serve the observation log over gRPC, for early stopping services and for trials that push their metrics."""
        from katib.rpc.db_manager import serve_db_manager

        server = serve_db_manager(self._observations, "127.0.0.1:0")
        stack.callback(lambda: server.stop(0))
        self._services.db_manager_address = lambda: server.address

    def _tuning_service(self) -> TuningService:
        gate = local_gate(self._catalog, self._host, ConfigMaps(self._store).find, self._prewarm)
        events = RecordedEvents(self._events)
        diagnostician = Diagnostician(
            store=self._store,
            observations=self._observations,
            events=events,
            clock=self._clock,
            jobs=LocalJobs(self._store, self._files, self._waiting_reason),
            services=self._service_facts,
        )
        return ObjectTuningService(
            store=self._store,
            observations=self._observations,
            events=events,
            gate=gate,
            output=self._files,
            explainer=diagnostician,
            catalog=self._catalog,
            clock=self._clock,
            aftermath=LocalAftermath(self._events, self._files, self._await_end, self._clock),
        )

    def _await_end(self, trial: Key, timeout_seconds: float) -> bool:
        runner = self._runner
        return runner is None or runner.wait_until_gone(trial, timeout_seconds)

    def _prewarm(self, algorithm: str) -> None:
        if self._catalog.find(algorithm) is not None:
            self._services.prewarm(algorithm)

    def _waiting_reason(self, job: Object) -> str:
        runner = self._runner
        return runner.waiting_reason(*Key.of(job)) if runner is not None else ""

    def _service_facts(self, experiment: Object) -> Iterator[ServiceFacts]:
        for state in self._services.states_of(*Key.of(experiment)):
            yield ServiceFacts(
                algorithm=state.service.algorithm,
                state=state.state,
                attempts=state.attempts,
                last_error=state.last_error,
                address=state.address,
            )

    def _note_resumed(self, caches: Caches, events: LoggedEvents) -> None:
        """Say of every unfinished experiment that an engine has taken it up again."""
        for experiment in caches.experiments.all():
            if experiment.status.start_time is not None and not is_completed(experiment.status.conditions):
                message = "An engine was started and goes on with it; trials that were cut off start anew"
                events.record(experiment, warning=False, reason="Resumed", message=message)

    def _trial_changed(self, event: InformerEvent[Trial], monitors: TrialMonitors) -> None:
        if not _is_active(event.new):
            monitors.forget(event.key.name)
        if event.new is None:
            self._files.remove(event.key)


class _Workspaces:
    """Where the relative paths of a job's commands start."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._default = Path.cwd()

    def of(self, job: Object) -> Path:
        """Return the directory that the experiment of a job was submitted from, else where the engine was started."""
        key = Key.of(job)
        trial = self._caches.trials.get(key)
        if trial is None:
            return self._default
        experiment = self._caches.experiments.get(Key(key.namespace, trial.metadata.labels.get(EXPERIMENT_LABEL, "")))
        text = experiment.metadata.annotations.get(WORKSPACE_ANNOTATION, "") if experiment is not None else ""
        return Path(text) if text else self._default


def _capacity(host: HostCapacity) -> Capacity:
    """Return what may be leased: exactly what admission accepts."""
    machine = Capacity.of_machine()
    return Capacity(Decimal(str(host.cpus)), Decimal(host.memory_bytes), machine.gpus)


def _is_active(trial: Trial | None) -> bool:
    return trial is not None and state_of(trial) in ACTIVE
