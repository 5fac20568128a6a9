"""Collection of metrics: from the output of pods, and from programs that push, to the observation log."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan
from katib.engine.controllers.assembly import Queues
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.ledger import experiment_of
from katib.model.types import Trial
from katib.places.machine.data import EngineData
from katib.places.machine.report_metrics import python_path
from katib.places.machine.sites import Site
from katib.places.machine.trials.log_access import LOOPBACK_HOST, LogServers
from katib.places.machine.trials.monitors import TrialMonitors
from metrics_collector.reporter import Reporter

CLOSE_SECONDS = 1.0
"""For readings that wait as everything stops: they are of trials that were cut off, and begin again."""


class MetricCollection:
    """The collectors of an engine. Stored readings enqueue the early stopping of their experiment.

    Attributes:
        monitors: Read the output of pods.
        servers: Give programs that push, and services, access to the log.

    Args:
        data: The data of the engine.
        caches: Trials and experiments.
        queues: The keys to reconcile.
        site: Where trials run.
        plans: Services that a user plugged in.
        environment: The environment that programs start from, as far as Python's path is concerned.
    """

    def __init__(
        self,
        data: EngineData,
        caches: Caches,
        queues: Queues,
        site: Site,
        plans: Mapping[ServiceId, ServicePlan],
        environment: Mapping[str, str],
    ) -> None:
        self._caches = caches
        self._early_stopping = queues.early_stopping
        self._site = site
        self._counting = threading.Lock()
        self.servers = LogServers(data.observations, plans, site.address or LOOPBACK_HOST)
        self._reporter = Reporter(data.observations.report, report_all=data.observations.report_all, clock=data.clock)
        self.monitors = TrialMonitors(
            caches.trials,
            self._reporter,
            data.observations,
            data.recorder,
            data.clock,
            self.servers.variables_of if site.sees_machine else self._variables_elsewhere,
            python_path(environment),
            site.host_file,
        )
        self._reporter.on_refusal = self.monitors.readings_wait
        self._reporter.on_stored = self._stored
        self.servers.on_stored = lambda trial_name: self._stored([trial_name])

    def look_at(self, trial: Trial) -> None:
        """Enqueue the early stopping of a trial's experiment, because readings were stored. For any thread."""
        key = experiment_of(trial)
        experiment = self._caches.experiments.get(key)
        if experiment is not None and experiment.spec.early_stopping is not None:
            with self._counting:  # threads of the reporter and of servers
                self._caches.stored_readings[key] += 1
            self._early_stopping.add(key)

    def end(self, trial_name: str) -> None:
        self.monitors.forget(trial_name)
        self.servers.end(trial_name)

    def flush(self) -> None:
        """Store what waits, or give it up: nothing more comes. Idempotent."""
        self._reporter.close(CLOSE_SECONDS)

    def close(self) -> None:
        """Flush, and refuse further calls. Idempotent."""
        self.flush()
        self.servers.close()

    def _stored(self, trial_names: Sequence[str]) -> None:
        for name in trial_names:
            if (trial := self.monitors.followed.get(name)) is not None:
                self.look_at(trial)

    def _variables_elsewhere(self, trial_name: str, _metrics: Collection[str], /, *, pushes: bool) -> Mapping[str, str]:
        """Return the address for pushing of a container or a node of Slurm, which sees no file of this machine."""
        if not self._site.address:
            return {}
        return self.servers.variables_of(trial_name, pushes=pushes)
