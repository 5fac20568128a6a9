"""The whole service on one machine: its parts, and what each is given.

    submit -> store -> controllers -> Job -> job controller -> process -> collector -> reporter -> observation log
                           |                                                                          |
                           +-- suggestion services (gRPC) <---- early stopping reads ----- LogServers ---+

An engine is opened (files, processes), may be given work, is started (threads) and stopped (`life.py`). Opening and
starting are apart so that an experiment can be refused before anything runs, and its suggestion service can come up
meanwhile.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from katib.engine.algorithm_services.catalog import Catalog, MachineSettings
from katib.engine.controllers.assembly import Ports, Queues, assemble
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.shared_thread import SharedThread
from katib.places.machine.claims import HeldDirectory, claimed
from katib.places.machine.collection import MetricCollection
from katib.places.machine.data import EngineData, opened_database
from katib.places.machine.event_handlers import EventHandlers
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.layout import Layout
from katib.places.machine.life import EngineLife, EngineParts
from katib.places.machine.on_demand import GIVEN_RULES, READ_SETTINGS, SUSPEND
from katib.places.machine.processes.client import Processes
from katib.places.machine.requests import CallersEnds, Requests
from katib.places.machine.services.host import ServiceHost
from katib.places.machine.sites import SiteSettings, SlurmOptions, open_machine, open_site
from katib.places.machine.submission import LocalHome, shipped_config_map
from katib.places.machine.trials.jobs import TrialJobs, TrialPods
from katib.places.machine.upkeep import Upkeep
from katib.service.tuning.service import DEFAULT_NAMESPACE, Document
from katib.service.tuning.submission import Admitted, Gate, StoredObjects

if TYPE_CHECKING:
    from katib.engine.controllers.metrics import ControllerMetrics


class Engine(EngineLife):
    """One engine over one data directory. A context manager: entered, it is open; `start` sets it to work.

    Args:
        settings: Knobs of the controllers.
        slurm: Options for trials that run as jobs of Slurm; None: they run on this machine.
        data_dir, config, own_process, metrics, containers, orphan_seconds: As for `katib.places.machine.open_engine`.

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
        slurm: SlurmOptions | None = None,
    ) -> None:
        super().__init__(own_process=own_process)
        self._layout = Layout(data_dir.absolute())
        self._config = MachineSettings() if config is None else READ_SETTINGS.load()(config)
        self._catalog = Catalog(self._config.infos)
        self._settings = settings
        self._metrics = metrics
        self._orphan_seconds = orphan_seconds
        runtime = containers or self._config.containers or "never"
        self._site = open_site(SiteSettings(self._layout.root, runtime, slurm, self._cut_off))

    def admit(self, document: Document, *, source: str, namespace: str | None = None) -> Admitted:
        """Return the experiment of a document as the engine would store it if nothing is stored yet.

        The engine need not be open: what it would refuse then leaves no data directory behind.

        Raises:
            InvalidError: Anything wrong with it, all errors at once.
            TerminalError: The runtime that is to run images does not answer.
        """
        gate = Gate(self._catalog, LocalHome(self._site.host, slurm=self._site.gate), StoredObjects(None))
        return gate.admit(gate.load(document, source=source, namespace=namespace or DEFAULT_NAMESPACE))

    @override
    def _compose(self, stack: ExitStack) -> EngineParts:
        layout, site, config, clock = self._layout, self._site, self._config, SystemClock()
        layout.create()
        directory = HeldDirectory(stack.enter_context(claimed(layout.root)), self._cut_off)
        grace_seconds = self._orphan_seconds if site.images is None else 0.0
        processes = Processes(layout.run, adopt_orphans=self._own_process, grace_seconds=grace_seconds)
        machine = open_machine(stack, site, layout, processes, clock, leaves=lambda: self._leaves)
        database = stack.enter_context(opened_database(layout))
        data = EngineData(layout, directory, database, clock, is_elsewhere=site.is_elsewhere)
        store, ownership, times = data.store, data.ownership, data.run_times

        kinds = JobKinds(StoredObjects(store).find)
        thread = SharedThread("controllers", clock)
        caches = Caches.of(
            data.ended.seen(),
            tuple(kinds),
            clock,
            job_store=store,
            offered=store,
            has_optimization_jobs=True,
            thread=thread,
        )
        if self._metrics is not None:
            self._metrics.follow(caches, data.ended.hidden)
        queues = Queues.of(clock)
        collection = MetricCollection(
            data, caches, queues, site, config.plans, {} if machine.runs_images else os.environ
        )
        stack.callback(collection.close)
        services = ServiceHost(
            processes,
            layout.services,
            plans=collection.servers.plans,
            catalog=self._catalog,
            db_manager_address=collection.servers.address_for,
            clock=clock,
        )
        stack.callback(services.close)
        services.on_change(queues.wake_suggestion)

        trial_jobs = TrialJobs(
            data.files,
            layout,
            caches.trials,
            caches.experiments,
            data.recorder,
            queues.trials.add,
            times.went_on,
            ownership.is_interrupted,
        )
        collection.monitors.keeps_checkpoint = trial_jobs.keeps_checkpoint
        jobs = JobController(
            store, machine, data.job_settings(config), kinds, caches.jobs, trial_jobs, collection.monitors, thread
        )

        home = LocalHome(site.host, services.prewarm, site.gate)
        ends = CallersEnds(data, self.summarized)
        requests = Requests(data, home, self._catalog, jobs, services, collection.look_at, ends, self.undisturbed)
        EventHandlers(data, caches, queues, jobs, collection, requests).connect()
        logs = TrialLogs(data.observations)
        ports = Ports(
            services=services,
            logs=logs,
            events=data.recorder,
            given_rules=lambda: GIVEN_RULES.load()(data.observations),
            pods=TrialPods(jobs, trial_jobs),
            shipped_template=shipped_config_map,
            admit=lambda experiment: requests.admission.get().new(dict(experiment)).obj,
            suspend=lambda experiment, suspended: SUSPEND.load()(store, experiment, suspended),
            times=times.times,
            is_interrupted=ownership.is_interrupted,
        )
        controllers = assemble(store, caches, queues, ports, clock, settings=self._settings, thread=thread)
        upkeep = Upkeep(data, caches, queues, jobs, requests, logs, config.retention)
        return EngineParts(site, processes, data, thread, caches, collection, jobs, controllers, upkeep, requests)
