"""The whole service on one machine: what is made, what it is given, and in which order it starts and stops.

    submit -> store -> controllers -> Job -> job controller -> process -> collector -> reporter -> observation log
                           |                                                                          |
                           +-- suggestion services (gRPC) <---- early stopping reads ----- LogServers ---+

An engine is opened (files, processes), may be given work, is started (threads) and stopped. Opening and starting are
apart so that an experiment can be refused before anything runs, and its suggestion service can come up meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from katib.engine.algorithm_services.catalog import Catalog, MachineSettings
from katib.engine.controllers.assembly import Ports, Queues, assemble
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import EXPERIMENT, OPTIMIZATION_JOB, POD, SUGGESTION, TRIAL, key_of
from katib.engine.controllers.ledger import experiment_of
from katib.engine.controllers.retention import COMPLAINT, PERIOD_SECONDS, Retention
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.controllers.trial.plan import TrialEvent
from katib.engine.databases.sqlite import open_database
from katib.engine.observations.quick import observation_log
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.informer import InformerEvent
from katib.engine.runtime.interpreter import tune_interpreter
from katib.engine.runtime.objects import Key, Kind, Object
from katib.engine.runtime.periodic import PeriodicTasks
from katib.engine.runtime.shared_thread import SharedThread
from katib.engine.stores.event_queue import EventSubject
from katib.engine.stores.events import EventLog
from katib.engine.stores.sql import SqlStore
from katib.errors import ConflictError, KatibError, TerminalError, UnavailableError
from katib.model.conditions import has_ended
from katib.model.files.disks import keep_reserve
from katib.model.loadable import Deferred
from katib.model.names import STOPPED_ANNOTATION
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Experiment, Trial
from katib.places.machine.admission.host import group_limits
from katib.places.machine.claims import claimed
from katib.places.machine.ended import EndedExperiments
from katib.places.machine.events import LoggedEvents
from katib.places.machine.jobs.batch.defaults import with_defaults as with_job_defaults
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.jobs.dependencies import JobSettings, Machine
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.jobs.prepare import trial_owner
from katib.places.machine.layout import Layout
from katib.places.machine.on_demand import (
    ATTRIBUTES,
    CHOSEN_TRIALS,
    EXPLAINING,
    FACTS,
    LEASES,
    OBJECT_ADMISSION,
    OUTPUT,
    READ_SETTINGS,
    REPEATS,
    SERVED_OBJECTS,
    SUSPEND,
    TEMPLATES,
)
from katib.places.machine.ownership import Ownership
from katib.places.machine.pods.environment import inherited_environment
from katib.places.machine.pods.log_file import LogLimits
from katib.places.machine.pods.requests import Capacity
from katib.places.machine.processes.client import Processes
from katib.places.machine.report_metrics import DIRECTORY as REPORT_METRICS
from katib.places.machine.report_metrics import python_path
from katib.places.machine.services.host import ServiceHost
from katib.places.machine.sites import Site, SiteSettings, open_site
from katib.places.machine.submission import LocalHome, shipped_config_map, shipped_config_maps
from katib.places.machine.trials.files import LocalAftermath, TrialFiles
from katib.places.machine.trials.jobs import CheckpointRetention, TrialJobs, TrialPods
from katib.places.machine.trials.log_access import LOOPBACK_HOST, LogServers
from katib.places.machine.trials.monitors import TrialMonitors
from katib.places.machine.trials.run_time_note import PERIOD_SECONDS as NOTE_SECONDS
from katib.places.machine.trials.run_time_note import RunTimeNote
from katib.service.tuning.ports import CallersLog, Records
from katib.service.tuning.service import DEFAULT_NAMESPACE, Document
from katib.service.tuning.states import is_stopped
from katib.service.tuning.stored_service import ObjectTuningService
from katib.service.tuning.submission import Admitted, Gate, StoredObjects
from katib.service.tuning.trial_pages import TRIAL_FACTS
from metrics_collector.reporter import Reporter
from metrics_collector.uncollected import UncollectedTrials

if TYPE_CHECKING:
    from katib.engine.controllers.metrics import ControllerMetrics
    from katib.service.tuning.chosen_trials import ChosenTrials
    from katib.service.tuning.object_home import ObjectAdmission, ObjectHome

STATUS_KINDS = frozenset({EXPERIMENT, SUGGESTION, TRIAL, OPTIMIZATION_JOB, *JobKinds()})
"""Kinds whose status is written by controllers only."""

DEFAULTS = {JOB: with_job_defaults}
FLUSH_SECONDS = 0.5
"""How long the parameters of a trial that a caller evaluates may be missing in its object."""

_FLUSH = "parameters of trials cannot be written"
_NOTE = "how long trials have run cannot be noted"

T = TypeVar("T")

CLOSE_SECONDS = 1.0
"""For readings that wait as everything stops: they are of trials that were cut off, and begin again."""


class Engine:
    """One engine over one data directory. A context manager: entered, it is open; `start` sets it to work.

    Args:
        data_dir: Where everything is kept.
        config: Further algorithms.
        own_process: Whether this process is there for the engine. If so, its interpreter is set up for it, and it
            adopts what its guard leaves behind; processes of other owners are not changed.
        settings: Knobs of the controllers.
        metrics: Counts what happens, from the start on.
        containers: What runs the images of trials, as for `katib.places.machine.open_engine`.
        orphan_seconds: How long programs of trials wait for the next engine, as for `katib.places.machine.open_engine`.
        slurm: Options of `sbatch` where trials run as jobs of Slurm; None: they run on this machine.
        slurm_wins: Whether they count before those of a template.

    Attributes:
        in_slurm: In Slurm, how many trials with checkpoints ended when it was stopped, and how many continue; None
            before, and elsewhere.
        is_cut_off: Whether the allocation of Slurm in which this process runs ended before it was stopped.
        on_cut_off: Called, on any thread, when it ends or the data directory is lost. Set it before the start.
        lost: Why the data directory is no longer at its path, with a remedy; empty while it is. No job is touched then,
            and no path in it: the files that are open are those of the directory, wherever it is.

    Raises (on entering):
        TerminalError: Another engine is at work there, the files are of a newer version or damaged, or the runtime that
            is to run images does not answer.

    Raises (on leaving, as `stop`):
        TerminalError: The data directory was moved or removed.
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
        orphan_seconds: float = 0.0,
        slurm: Sequence[str] | None = None,
        slurm_wins: bool = False,
    ) -> None:
        self._own_process = own_process
        self._layout = Layout(data_dir.absolute())
        self._config = MachineSettings() if config is None else READ_SETTINGS.load()(config)
        self._catalog = Catalog(self._config.infos)
        self._containers = containers or self._config.containers or "never"
        self._settings = settings
        self._metrics = metrics
        self._clock = SystemClock()
        self._orphan_seconds = orphan_seconds
        self._slurm = slurm
        self._slurm_wins = slurm_wins
        self._leaves = self._interrupted = False
        self.in_slurm: tuple[int, int] | None = None
        self.is_cut_off = False
        self.lost = ""
        self.on_cut_off: Callable[[], None] = lambda: None
        self._open = ExitStack()
        self._running = ExitStack()
        self._started = self._stopped = False
        self._starting = threading.Lock()
        self._settling = threading.Lock()
        self._told: dict[Key, None] = {}  # experiments whose status may not hold yet what their callers told
        self._counting = threading.Lock()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._layout.create()
            self._claim = stack.enter_context(claimed(self._layout.root))
            machine = self._machine(stack)
            # Before SQLite makes it: only its owner may read it, wherever it lies.
            os.close(os.open(self._layout.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._database = database = stack.enter_context(open_database(self._layout.database))
            self._store = SqlStore(
                database, STATUS_KINDS, uid_kinds=(POD,), defaults=DEFAULTS, facts=TRIAL_FACTS, clock=self._clock
            )
            self._ownership = Ownership(self._store)
            self._ended = EndedExperiments(self._store, self._is_cached)
            self._observations = observation_log(database)
            self._events = EventLog(database, self._clock)
            self._files = TrialFiles(self._layout)
            self._output = Deferred(lambda: OUTPUT.load()(self._layout))
            self._run_times = RunTimeNote(self._layout.run, self._clock, is_elsewhere=self._site.is_elsewhere)
            self._log_servers = LogServers(self._observations, self._config.plans, self._site.address or LOOPBACK_HOST)
            stack.callback(self._log_servers.close)
            self._services = ServiceHost(
                machine.processes,
                self._layout.services,
                plans=self._log_servers.plans,
                catalog=self._catalog,
                db_manager_address=self._log_servers.address_for,
                clock=self._clock,
            )
            stack.callback(self._services.close)
            self._assemble(stack, machine)
            self.service = self._tuning_service()
            self._chosen_trials = Deferred(
                lambda: CHOSEN_TRIALS.load()(
                    self._ended.written(),
                    ATTRIBUTES.load()(database),
                    CallersLog(self._observations, on_end=self._ended_by_caller),
                    self.service.delete,
                    self._clock,
                    DEFAULT_NAMESPACE,
                )
            )
            self._caches.experiments.add_handler(self._experiment_changed)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaves = self._leaves or not self._started  # then what an earlier engine left waits for the next one
        try:
            self.stop()
        finally:
            self._open.close()

    @property
    def chosen_trials(self) -> ChosenTrials:
        """The experiments whose parameters are chosen by callers."""
        return self._chosen_trials.get()

    @cached_property
    def objects(self) -> ObjectHome:
        """All objects, for those who read and write any kind of them."""
        return SERVED_OBJECTS.load()(
            objects=self._store,
            written=self._ended.written(),
            admission=self._object_admission,
            status_kinds=STATUS_KINDS,
            service=self.service,
            output=self._output.get(),
            events=self._events.newest,
            defaults=DEFAULTS,
        )

    def admit(self, document: Document, *, source: str, namespace: str | None = None) -> Admitted:
        """Return the experiment of a document as the engine would store it where nothing is stored yet.

        The engine need not be open: what it would refuse then leaves no data directory behind.

        Raises:
            InvalidError: Anything wrong with it, all errors at once.
            TerminalError: The runtime that is to run images does not answer.
        """
        gate = Gate(self._catalog, LocalHome(self._site.host, slurm=self._site.gate), StoredObjects(None))
        return gate.admit(gate.load(document, source=source, namespace=namespace or DEFAULT_NAMESPACE))

    def start_for(self, own: Key | None) -> None:
        """Set to work for one experiment of a command, or for none; others that are unfinished stay interrupted.

        Experiments that are submitted or resumed meanwhile run as well.
        """
        self._ownership.take(own)
        self.start()

    def start(self) -> None:
        """Set everything to work; unfinished experiments continue that no command has left interrupted."""
        with self._starting:
            if not self._started:
                self._check_placement()
                self._start()
                self._started = True

    def _check_placement(self) -> None:
        """Check that Slurm takes the trials of experiments that continue: options may be others than before.

        Raises:
            InvalidError: It refuses those of an experiment.
        """
        for stored in self._store.list(EXPERIMENT).items if self._site.gate is not None else ():
            experiment = Experiment.read(stored)
            rests = is_stopped(experiment) or self._ownership.is_interrupted(experiment)
            if not rests and not has_ended(experiment.status.conditions):
                self._gate.check_placement(experiment)

    def _start(self) -> None:
        if self._own_process:
            tune_interpreter()
        if self._config.retention is None:  # old logs are looked for in the caches
            self._ended.hide()
        with ExitStack() as stack:
            self._events.start()
            stack.callback(self._events.stop)
            stack.callback(self._retention.look)  # an experiment has often ended just before
            stack.callback(self._reporter.close, CLOSE_SECONDS)
            stack.callback(self._write_run_times)  # after the last program has ended
            # The controllers first: jobs are looked up in their caches, and so are the trials of jobs.
            self._processes.renew_grace()
            self._thread.start()
            stack.callback(self._thread.stop)
            self._manager.start()
            stack.callback(self._manager.stop)
            active = (trial for trial in self._caches.trials.all() if trial_state(trial) in ACTIVE)
            unended = (one for one in self._caches.experiments.all() if not has_ended(one.status.conditions))
            self._run_times.times.keep({one.metadata.uid for one in (*active, *unended)})
            for experiment in self._caches.experiments.all():
                is_begun = experiment.status.start_time is not None and not has_ended(experiment.status.conditions)
                if is_begun and not self._ownership.is_interrupted(experiment):
                    message = "An engine was started and continues with it; trials that were cut off are restarted"
                    self._recorder.record(experiment, warning=False, reason="Resumed", message=message)
            flushing = PeriodicTasks(
                "chosen-trials", [self._flush_chosen_trials], FLUSH_SECONDS, self._clock, complaint=_FLUSH
            )
            measuring = PeriodicTasks(
                "run-times", [self._note_run_times, self._look_at_disk], NOTE_SECONDS, self._clock, complaint=_NOTE
            )
            for thread in (flushing, measuring):
                thread.start()
                stack.callback(thread.stop)
            self._retention.start()
            stack.callback(self._retention.stop)
            stack.callback(self._stop_jobs)
            self._jobs.start()
            self._running = stack.pop_all()

    def _flush_chosen_trials(self) -> None:
        if (chosen := self._chosen_trials.made) is not None:
            chosen.flush()

    def _note_run_times(self) -> None:
        """Write down how long trials have run; look at those that run after a step of the clock."""
        self._write_run_times()
        if self._run_times.has_stepped():
            for key in self._run_times.times.running():
                self._queues.trials.add(key)
            for experiment in self._caches.experiments.all():
                self._queues.experiments.add(key_of(experiment))

    def _write_run_times(self) -> None:
        if not self._is_lost():
            self._run_times.write()

    def _look_at_disk(self) -> None:
        """Keep some room of the disk; when there is none left, end the trial that has taken it."""
        if self._is_lost():
            return
        if self._layout.is_full():
            self._jobs.disk_full()
        else:
            keep_reserve(self._layout.reserve)

    def _is_lost(self) -> bool:
        """Return whether the data directory is no longer at its path, and have this engine stopped if so."""
        if not self.lost and (loss := self._claim.loss()):
            self.lost = loss
            self.on_cut_off()
        return bool(self.lost)

    def check_directory(self) -> None:
        """Check that the data directory is at its path.

        Raises:
            TerminalError: It was moved or removed.
        """
        if self._is_lost():
            raise TerminalError(self.lost)

    def stop(self, *, interrupted: bool = False) -> None:
        """End all trials and come to rest; what is unfinished continues with the next start. Stopping twice is fine.

        Args:
            interrupted: Whether trials in Slurm, which continue otherwise, end where they keep a checkpoint.

        Raises:
            TerminalError: The data directory was moved or removed; everything has come to rest.
        """
        self._stopped, self._interrupted = True, interrupted
        if self._started and not self._leaves:
            self._processes.keep_nothing()  # now: a second signal may end this process at any moment
        self._running.close()
        if self._started:
            self._ownership.release()
            self.check_directory()

    def note_hangup(self, namespace: str, experiment: str) -> None:
        """Record that the terminal from which an experiment is run is gone, and that it continues."""
        message = "The terminal is gone; the run continues, and `katib watch` shows it"
        subject = EventSubject("Experiment", namespace, experiment, experiment)
        self._events.record(subject, warning=False, reason="TerminalGone", message=message)

    @property
    def can_leave(self) -> bool:
        """Whether programs of trials can outlive this engine."""
        return self._processes.keeps and not self.lost

    def leave(self) -> None:
        """Come to rest as `stop` does, but leave programs of trials that can outlive this engine to the next one."""
        self._leaves = self.can_leave
        self.stop()

    def _cut_off(self) -> None:
        self.on_cut_off()

    def _stop_jobs(self) -> None:
        leaves = self._leaves or not self._started or self._site.is_elsewhere
        counts = self._jobs.stop(leaves=leaves, leaves_checkpointed=not self._interrupted)
        if self._site.is_elsewhere and self.in_slurm is None:
            self.in_slurm = counts
            self.is_cut_off = self._site.is_ending()

    def interrupted(self) -> Sequence[str]:
        """Return the names of unfinished experiments that this engine does not run until they are resumed."""
        return [found.name for found in self.service.experiments() if self._ownership.is_interrupted(found)]

    def readiness(self) -> dict[str, bool]:
        """Return whether experiments continue: the parts that must work, and whether they do."""
        return {"controllers": self._started and not self._stopped, "database": self._database_answers()}

    # --- parts --------------------------------------------------------------------------------------------------------

    @cached_property
    def _site(self) -> Site:
        """Where trials run."""
        settings = SiteSettings(self._layout.root, self._containers, self._slurm or (), self._slurm_wins, self._cut_off)
        return open_site("machine" if self._slurm is None else "slurm", settings)

    def _machine(self, stack: ExitStack) -> Machine:
        """Return what trials run on: processes or images, and what may be leased."""
        site = self._site
        images = site.images.prepared() if site.images is not None else None
        self._processes = processes = Processes(
            self._layout.run,
            adopt_orphans=self._own_process,
            grace_seconds=self._orphan_seconds if images is None else 0.0,
        )
        found, host = Capacity.of_machine(), site.host  # what may be leased is exactly what admission accepts
        capacity = replace(
            found,
            cpu=Decimal(str(host.cpus)),
            memory=Decimal(host.memory_bytes),
            limits=(*found.limits, *group_limits()),
            is_scheduled=site.is_elsewhere,
        )
        leases = Deferred(
            lambda: LEASES.load().of(os.environ, capacity, processes.hold, self._clock, self._layout.root)
        )

        def close_leases() -> None:
            if leases.made is not None:
                leases.made.close(leaves=self._leaves)

        stack.callback(close_leases)  # after the last process has ended
        processes.start()
        stack.callback(lambda: processes.stop(leaves=self._leaves))
        if processes.inherited is not None and processes.inherited.held:
            leases.get().take_over(processes.inherited.held)
        if images is not None:
            images = images.of_engine(processes.engine_id)
            stack.enter_context(processes.executing_last(["/bin/sh", "-c", images.removal()], images.environment))
        stack.enter_context(site.cleaning(self._layout.run, images))
        place = site.place(self._layout.slurm, self._clock)
        return Machine(processes, self._clock, capacity, images, leases, place, site.node_images, site.inherits)

    def _assemble(self, stack: ExitStack, machine: Machine) -> None:
        """Make the controllers, from the reporter of readings up to who looks after old logs. `start` starts them."""
        kinds = JobKinds(StoredObjects(self._store).find)
        self._thread = SharedThread("controllers", self._clock)
        self._caches = Caches.of(
            self._ended.seen(),
            tuple(kinds),
            self._clock,
            job_store=self._store,
            offered=self._store,
            has_optimization_jobs=True,
            thread=self._thread,
        )
        self._recorder = LoggedEvents(self._events)
        if self._metrics is not None:
            self._metrics.follow(self._caches, self._ended.hidden)
        self._reporter = Reporter(
            self._observations.report, report_all=self._observations.report_all, clock=self._clock
        )
        stack.callback(self._reporter.close, CLOSE_SECONDS)
        self._monitors = TrialMonitors(
            self._caches.trials,
            self._reporter,
            self._observations,
            self._recorder,
            self._clock,
            self._log_servers.variables_of if self._site.sees_machine else self._variables_elsewhere,
            python_path({} if machine.runs_images else os.environ),
            self._site.host_file,
        )
        self._reporter.on_refusal = self._monitors.readings_wait
        self._caches.trials.add_handler(self._trial_changed)
        for informer in self._caches.jobs.known:
            informer.add_handler(self._job_changed)
        self._queues = queues = Queues.of(self._clock)
        trial_jobs = TrialJobs(
            self._files,
            self._layout,
            self._caches.trials,
            self._caches.experiments,
            self._recorder,
            queues.trials.add,
            self._went_on,
            self._ownership.is_interrupted,
        )
        self._reporter.on_stored = self._readings_stored
        self._log_servers.on_stored = lambda trial_name: self._readings_stored([trial_name])
        self._services.on_change(queues.wake_suggestion)
        self._monitors.keeps_checkpoint = lambda job: trial_jobs.provision(job).checkpoint is not None
        self._jobs = JobController(
            self._store,
            machine,
            JobSettings(
                self._layout.trials,
                inherited=inherited_environment(os.environ, self._layout.python),
                visible=(REPORT_METRICS,),
                log_limits=LogLimits(self._config.log_max_bytes, self._config.log_max_files),
                reserve=self._layout.reserve,
                is_lost=self._is_lost,
            ),
            kinds,
            self._caches.jobs,
            trial_jobs,
            self._monitors,
            self._thread,
        )
        stack.callback(self._stop_jobs)
        logs = TrialLogs(self._observations)
        self._manager = assemble(
            self._store,
            self._caches,
            queues,
            Ports(
                services=self._services,
                logs=logs,
                events=self._recorder,
                given_rules=UncollectedTrials(self._observations),
                pods=TrialPods(self._jobs, trial_jobs),
                shipped_template=shipped_config_map,
                admit=lambda experiment: self._object_admission.new(dict(experiment)).obj,
                suspend=lambda experiment, suspended: SUSPEND.load()(self._store, experiment, suspended),
                times=self._run_times.times,
                is_interrupted=self._ownership.is_interrupted,
            ),
            self._clock,
            settings=self._settings,
            thread=self._thread,
        )
        retention = Retention(
            self._caches.experiments.all,
            self._caches.trials.all,
            logs,
            lambda: self._config.retention,
            self._clock,
        )
        self._checkpoints = CheckpointRetention(self._layout, self._store, self._recorder)
        looks = [retention.look, self._checkpoints.look, self._database.give_back]
        self._retention = PeriodicTasks("retention", looks, PERIOD_SECONDS, self._clock, complaint=COMPLAINT)

    def _went_on(self, trial: Trial, until: float | None) -> None:
        """Count the time in which programs of a trial ran without an engine."""
        self._run_times.times.add(trial, self._run_times.seconds_without_engine(until))

    def _readings_stored(self, trial_names: Sequence[str]) -> None:
        for name in trial_names:
            if (trial := self._monitors.followed.get(name)) is not None:
                self._look_at_readings(trial)

    def _ended_by_caller(self, trial: Trial, event: TrialEvent) -> None:
        self._told[experiment_of(trial)] = None
        self._recorder.record(trial, warning=event.warning, reason=event.reason, message=event.message)

    def _settle(self) -> None:
        """Bring the status of experiments up to date with the trials that callers ended since the last call."""
        with self._settling:
            while self._told and self._started:
                key, _ = self._told.popitem()
                try:
                    self._thread.call(partial(self._manager.summarize, key))  # informers take their turns before it
                except ConflictError:
                    self._told[key] = None
                except KatibError:
                    return  # the controller meets the same error, and reports it

    def _look_at_readings(self, trial: Trial) -> None:
        """Have the early stopping of a trial's experiment look at new readings at once."""
        key = experiment_of(trial)
        experiment = self._caches.experiments.get(key)
        if experiment is not None and experiment.spec.early_stopping is not None:
            with self._counting:  # threads of the reporter and of servers
                self._caches.stored_readings[key] += 1
            self._queues.early_stopping.add(key)

    def _undisturbed(self, experiment: Key, work: Callable[[], T]) -> T:
        """Call a function that writes an experiment, while no controller does; return what it returns."""
        with self._starting:
            if not self._started:
                return work()
        self._ended.show(experiment)
        return self._thread.call(work)

    def _tuning_service(self) -> ObjectTuningService:
        callers = CallersLog(self._observations, self._look_at_readings, self._ended_by_caller, self._settle)
        records = Records(self._store, self._observations, self._recorder, self._output.get, callers)
        diagnostician = Deferred(
            lambda: EXPLAINING.load()(
                records,
                FACTS.load()(self._store, self._output.get(), self._layout, self._jobs, self._services),
                self._clock,
            )
        )
        return ObjectTuningService(
            replace(records, store=self._ended.written()),
            self._gate,
            lambda namespace, name: diagnostician.get().explain(namespace, name),
            self._clock,
            aftermath=LocalAftermath(self._events, self._files, self._jobs.wait_until_gone, self._clock),
            templates=lambda: TEMPLATES.load()(self._store, shared=shipped_config_maps),
            repeats=lambda: REPEATS.load()(
                self._store,
                self._observations.delete,
                self._events.rename,
                self._clock,
                self._undisturbed,
                self._run_times.times.of_trial,
            ),
        )

    @cached_property
    def _home(self) -> LocalHome:
        return LocalHome(self._site.host, self._prewarm, self._site.gate)

    @cached_property
    def _gate(self) -> Gate:
        return Gate(self._catalog, self._home, StoredObjects(self._store))

    @cached_property
    def _object_admission(self) -> ObjectAdmission:
        return OBJECT_ADMISSION.load()(self._gate, self._home, StoredObjects(self._store).find)

    def _is_cached(self, kind: Kind, key: Key) -> bool:
        if kind == TRIAL:
            return self._caches.trials.has(key)
        if kind == EXPERIMENT:
            return self._caches.experiments.has(key)
        return self._caches.suggestions.has(key)

    def _database_answers(self) -> bool:
        try:
            self._observations.count("")
        except UnavailableError:
            return False
        return True

    def _prewarm(self, algorithm: str) -> None:
        if self._catalog.find(algorithm) is not None:
            self._services.prewarm(algorithm)

    def _variables_elsewhere(self, trial_name: str, _metrics: Collection[str], /, *, pushes: bool) -> Mapping[str, str]:
        """Return where a container pushes, or a node of Slurm: no file of this machine is seen there."""
        if not self._site.address:
            return {}
        return self._log_servers.variables_of(trial_name, pushes=pushes)

    def _trial_changed(self, event: InformerEvent[Trial]) -> None:
        if event.new is None or trial_state(event.new) not in ACTIVE:
            self._monitors.forget(event.key.name)
            self._log_servers.end(event.key.name)
        if (chosen := self._chosen_trials.made) is not None:
            chosen.note(event.key, event.new)
        if event.new is None:
            self._files.remove(event.key)

    def _job_changed(self, event: InformerEvent[Object]) -> None:
        """Remove the files of a deleted job without a trial; of one that runs still, they go with its last program."""
        if event.new is not None or event.old is None or trial_owner(event.old) is not None:
            return
        if not self._jobs.runs(event.key) and not self._caches.trials.has(event.key):
            self._files.remove(event.key)

    def _experiment_changed(self, event: InformerEvent[Experiment]) -> None:
        old, new = event.old, event.new
        if new is None:
            if (chosen := self._chosen_trials.made) is not None:
                chosen.forget(event.key)
        elif old is not None and (
            ((is_held := self._ownership.is_interrupted)(old) and not is_held(new))
            or old.metadata.annotations.get(STOPPED_ANNOTATION) != new.metadata.annotations.get(STOPPED_ANNOTATION)
        ):
            for trial in self._caches.active_trials(event.key):
                self._queues.trials.add(key_of(trial))
                self._jobs.look(key_of(trial))
