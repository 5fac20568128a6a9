"""The whole service on one machine: what is made, what it is given, and in which order it starts and stops.

    submit -> store -> controllers -> Job object -> runner -> process -> collector -> reporter -> observation log
                           |                                                                          |
                           +-- suggestion services (gRPC) <---- early stopping reads ----- LogServers ---+

An engine is opened (files, processes), may be given work, is started (threads) and stopped. Opening and starting are
apart so that an experiment can be refused before anything runs, and its suggestion service can come up meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Self

from katib.api.names import EXPERIMENT_LABEL, WORKSPACE_ANNOTATION
from katib.api.trials import ACTIVE, trial_state
from katib.api.types import Trial
from katib.controllers.assembly import Caches, assemble
from katib.controllers.experiment.plan import is_completed
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL, key_of
from katib.controllers.retention import COMPLAINT, PERIOD_SECONDS, Retention
from katib.controllers.settings import ControllerSettings
from katib.controllers.trial.observing import TrialLogs
from katib.controllers.trial.plan import is_stopping
from katib.databases.sqlite import open_database
from katib.diagnosis import ServiceFacts
from katib.diagnosis.diagnostician import Diagnostician
from katib.errors import NotFoundError, UnavailableError
from katib.local.admission import HostCapacity
from katib.local.admission.host import group_limits
from katib.local.aftermath import LocalAftermath
from katib.local.checkpoints import TrialCheckpoints
from katib.local.claims import claimed
from katib.local.containers import choose, chosen, keep_clean
from katib.local.containers.remains import NOTE_FILE, removal_script
from katib.local.diagnosing import LocalJobs
from katib.local.events import LoggedEvents, RecordedEvents
from katib.local.jobs.kinds import job_kinds
from katib.local.jobs.pod_objects import label_of_trial
from katib.local.jobs.run import Standing
from katib.local.jobs.runner import LocalJobRunner
from katib.local.layout import Layout
from katib.local.log_access import LogServers
from katib.local.monitoring import TrialMonitors
from katib.local.pods.inherited import inherited_environment
from katib.local.pods.leases import LeaseTable, lease_directory
from katib.local.pods.log_file import LogLimits
from katib.local.pods.tokens import Capacity
from katib.local.processes.client import Processes
from katib.local.pulling import TrialJobs
from katib.local.report_metrics import DIRECTORY as REPORT_METRICS
from katib.local.report_metrics import python_path
from katib.local.services.host import ServiceHost
from katib.local.submission import local_gate
from katib.local.trial_files import TrialFiles
from katib.local.trial_templates import shipped_config_map, shipped_config_maps
from katib.monitoring import ControllerMetrics
from katib.observations.sql import SqlObservationLog
from katib.runtime.clock import SystemClock
from katib.runtime.informer import InformerEvent
from katib.runtime.interpreter import tune_interpreter
from katib.runtime.objects import Key, Kind, Object
from katib.runtime.periodic import Periodic
from katib.runtime.shared_thread import SharedThread
from katib.services.catalog import Catalog
from katib.services.config import ServicesConfig, read_config
from katib.stores.events import EventLog
from katib.stores.sql import SqlStore
from katib.tuning.offered_templates import OfferedTemplates
from katib.tuning.replicas import POD
from katib.tuning.service import TuningService
from katib.tuning.stored_service import ObjectTuningService
from katib.tuning.submission import ConfigMaps, has_experiment
from katib.tuning.trial_pages import TRIAL_FACTS
from metrics_collector.reporter import Reporter
from metrics_collector.uncollected import UncollectedTrials

STATUS_KINDS = frozenset({EXPERIMENT, SUGGESTION, TRIAL, *(kind.kind for kind in job_kinds())})
"""Kinds whose status is written by controllers only."""

CLOSE_SECONDS = 1.0
"""For readings that wait as everything stops: they are of trials that were cut off, and begin anew."""


class Engine:
    """One engine over one data directory. A context manager: entered, it is open; `start` sets it to work.

    Args:
        data_dir: Where everything is kept.
        config: Further algorithms.
        own_process: Whether this process is there for the engine. If so, its interpreter is set up for it, and it
            adopts what its guard leaves behind; a process that is somebody else's stays as it is.
        settings: Knobs of the controllers.
        metrics: Counts what happens, from the start on.
        containers: What runs the images of trials, as for `katib.local.open_engine`.

    Raises (on entering):
        TerminalError: Another engine is at work there, the files are of a newer version or damaged, or the runtime that
            is to run images does not answer.
    """

    def __init__(
        self,
        data_dir: Path,
        config: Path | None = None,
        *,
        own_process: bool = True,
        settings: ControllerSettings | None = None,
        metrics: ControllerMetrics | None = None,
        containers: str | None = None,
    ) -> None:
        self._own_process = own_process
        self._layout = Layout(data_dir.absolute())
        self._config = ServicesConfig() if config is None else read_config(config)
        self._config_directory = Path.cwd() if config is None else config.absolute().parent
        self._containers = chosen(containers, self._config)
        self._settings = settings
        self._metrics = metrics
        self._clock = SystemClock()
        self._open = ExitStack()
        self._running = ExitStack()
        self._started = self._stopped = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._layout.create()
            stack.enter_context(claimed(self._layout.root))
            self._images = choose(self._containers, os.environ, self._layout.root)
            limits = self._images.abilities.limits if self._images is not None else frozenset()
            self._host = replace(
                HostCapacity.detect(),
                runs_images=self._images is not None,
                names_pods=self._images is not None and self._images.has_names,
                limits=limits,
            )
            self._processes = Processes(self._layout.run, adopt_orphans=self._own_process)
            capacity = _capacity(self._host)
            self._leases = LeaseTable(
                lease_directory(os.environ), capacity, self._processes.hold, self._clock, self._layout.root
            )
            stack.callback(self._leases.close)  # after the last process has ended
            self._processes.start()
            stack.callback(self._processes.stop)
            if self._images is not None:
                self._images = self._images.of_engine(self._processes.engine_id)
                script = removal_script(self._images.program, self._images.path, self._processes.engine_id)
                argv = ["/bin/sh", "-c", script]
                stack.enter_context(self._processes.executing_last(argv, self._images.environment))
            note = self._layout.run / NOTE_FILE
            stack.enter_context(keep_clean(note, self._layout.root, self._images, os.environ))
            self._catalog = Catalog(self._config.infos())
            self._layout.keep_database_private()
            self._database = stack.enter_context(open_database(self._layout.database))
            self._store = SqlStore(self._database, STATUS_KINDS, uid_kinds=(POD,), facts=TRIAL_FACTS, clock=self._clock)
            self._kinds = job_kinds(self._find)
            self._observations = SqlObservationLog(self._database)
            self._log_servers = LogServers(self._observations, self._config.plans(self._config_directory))
            stack.callback(self._log_servers.close)
            self._services = ServiceHost(
                self._processes,
                self._layout.services,
                plans=self._log_servers.plans,
                catalog=self._catalog,
                db_manager_address=self._log_servers.address_for,
                clock=self._clock,
            )
            stack.callback(self._services.close)
            self._events = EventLog(self._database, self._clock)
            self._files = TrialFiles(self._layout)
            self._runner: LocalJobRunner | None = None
            self.service: TuningService = self._tuning_service()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._open.close()

    def start(self) -> None:
        """Set everything to work; unfinished experiments of the data directory go on."""
        if self._started:
            return
        if self._own_process:
            tune_interpreter()
        with ExitStack() as stack:
            self._events.start()
            stack.callback(self._events.stop)
            self._start_controllers(stack)
            self._running = stack.pop_all()
        self._started = True

    def stop(self) -> None:
        """End all trials and come to rest; what is unfinished goes on with the next start. Stopping twice is fine."""
        self._stopped = True
        self._running.close()

    def readiness(self) -> dict[str, bool]:
        """Return whether experiments go on: the parts that must work, and whether they do."""
        return {"controllers": self._started and not self._stopped, "database": self._database_answers()}

    # --- parts --------------------------------------------------------------------------------------------------------

    def _start_controllers(self, stack: ExitStack) -> None:
        thread = SharedThread("controllers", self._clock)
        caches = Caches.of(self._store, [kind.kind for kind in self._kinds], self._clock, thread=thread)
        events = LoggedEvents(self._events)
        reporter = Reporter(self._observations.report, report_all=self._observations.report_all, clock=self._clock)
        stack.callback(lambda: reporter.close(CLOSE_SECONDS))
        if self._metrics is not None:
            self._metrics.follow(caches)
        monitors = TrialMonitors(
            caches.trials,
            reporter,
            self._observations.delete,
            events,
            self._clock,
            self._log_servers.variables_of,
            python_path({} if self._images is not None else os.environ),
        )
        reporter.on_refusal = monitors.readings_wait
        caches.trials.add_handler(lambda event: self._trial_changed(event, monitors))

        def is_ending(trial: Trial) -> bool:
            return self._runner is not None and self._runner.runs(key_of(trial))

        def pulling(job: Key) -> str:
            return self._runner.pulling(job) if self._runner is not None else ""

        def wake_trial(trial: Key) -> None:
            assembly.wake_trial(trial)

        def standing(job: Key) -> Standing | None:
            return self._runner.standing(job) if self._runner is not None else None

        trial_jobs = TrialJobs(caches.trials.get, events, pulling, standing, wake_trial)
        logs = TrialLogs(self._observations)
        assembly = assemble(
            store=self._store,
            caches=caches,
            services=self._services,
            observations=logs,
            events=events,
            clock=self._clock,
            settings=self._settings,
            given_rules=UncollectedTrials(self._observations),
            is_ending=is_ending,
            pods=trial_jobs,
            thread=thread,
            shipped_template=shipped_config_map,
        )

        def job_gone(job: Object) -> None:
            monitors.job_gone(job)
            wake_trial(Key.of(job))

        def retried(job: Object, how: str) -> None:
            if (trial := caches.trials.get(Key.of(job))) is not None:
                message = f"Job {trial.name}: {how}"
                events.record(trial, warning=True, reason="JobRetrying", message=message)

        self._services.on_change(lambda namespace, name: assembly.wake_suggestion(Key(namespace, name)))
        runner = LocalJobRunner(
            self._store,
            self._processes,
            monitors,
            self._layout.trials,
            workspace=_Workspaces(caches).of,
            kinds=self._kinds,
            capacity=_capacity(self._host),
            clock=self._clock,
            rewrites=monitors.rewrites,
            images=self._images,
            visible=(REPORT_METRICS,),
            needs_machine=monitors.need_machine,
            inherited=inherited_environment(os.environ, self._layout.python),
            variables=monitors.variables,
            labels=lambda job: _labels_of_pods(job, caches.trials.get(Key.of(job))),
            may_start=lambda job: not _is_stopping(caches.trials.get(Key.of(job))),
            companions=monitors.companions,
            checkpoint=TrialCheckpoints(self._layout, caches.trials, caches.experiments).of,
            may_delete=lambda job: not _is_active(caches.trials.get(Key.of(job))),
            pulled=trial_jobs.told,
            retried=retried,
            stands=lambda job: wake_trial(Key.of(job)),
            gone=job_gone,
            log_limits=LogLimits(self._config.container_log_max_bytes, self._config.container_log_max_files),
            leases=self._leases,
            jobs={kind.kind: caches.jobs[kind.kind] for kind in self._kinds},
            thread=thread,
        )
        self._runner = runner
        # The controllers first: the runner asks their cache for the trial of a job.
        thread.start()
        stack.callback(thread.stop)
        assembly.manager.start()
        stack.callback(assembly.manager.stop)
        self._note_resumed(caches, events)
        retention = Retention(
            caches.experiments.all, caches.trials.all, logs, lambda: self._config.metrics_retention, self._clock
        )
        keeper = Periodic("retention", [retention.look], PERIOD_SECONDS, self._clock, complaint=COMPLAINT)
        keeper.start()
        stack.callback(keeper.stop)
        runner.start()
        stack.callback(runner.stop)

    def _tuning_service(self) -> TuningService:
        config_maps = ConfigMaps(self._store).find
        gate = local_gate(
            self._catalog, self._host, config_maps, self._prewarm, has_experiment(self._store), self._find
        )
        events = RecordedEvents(self._events)
        diagnostician = Diagnostician(
            store=self._store,
            observations=self._observations,
            events=events,
            clock=self._clock,
            jobs=LocalJobs(self._store, self._files, self._waiting_reason),
            services=self._service_facts,
            disk_is_full=self._layout.is_full,
        )
        return ObjectTuningService(
            store=self._store,
            observations=self._observations,
            events=events,
            gate=gate,
            output=self._files,
            explain=diagnostician.explain,
            catalog=self._catalog,
            clock=self._clock,
            aftermath=LocalAftermath(self._events, self._files, self._await_end, self._clock),
            templates=OfferedTemplates(self._store, shared=shipped_config_maps),
        )

    def _find(self, kind: Kind, key: Key) -> Object | None:
        try:
            return self._store.get(kind, key)
        except NotFoundError:
            return None

    def _database_answers(self) -> bool:
        try:
            self._observations.count("")
        except UnavailableError:
            return False
        return True

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
            self._log_servers.end(event.key.name)
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
    limits = (*machine.limits, *group_limits())
    return replace(machine, cpu=Decimal(str(host.cpus)), memory=Decimal(host.memory_bytes), limits=limits)


def _labels_of_pods(job: Object, trial: Trial | None) -> Mapping[str, str]:
    """Return what the pods of a trial's job are labelled with, as in a cluster."""
    own = trial.metadata.labels if trial is not None else {}
    return {**own, **label_of_trial(job)}


def _is_stopping(trial: Trial | None) -> bool:
    return trial is not None and is_stopping(trial)


def _is_active(trial: Trial | None) -> bool:
    return trial is not None and trial_state(trial) in ACTIVE
