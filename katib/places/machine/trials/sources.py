"""Sources of metrics beside the standard output of a trial: files, event files, and endpoints."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from katib.model.types import CollectorKind, ObjectiveSpec, Trial
from katib.places.machine.pods.plans import read_note
from katib.places.machine.trials.monitors import METRICS_DIRECTORY, TrialMonitor, is_primary, shielded
from metrics_collector.collector import output_parser, wanted_names
from metrics_collector.sources import FileSource, MetricSource
from metrics_collector.sources.file_tail import FileTail

if TYPE_CHECKING:
    from metrics_collector.sources.scraping import MetricsEndpoint, ScrapeResponse


def source_of(
    trial: Trial, objective: ObjectiveSpec, directory: Path, port: int | None = None, host_file: str = ""
) -> MetricSource | None:
    """Return the source to poll beside the output; None for kinds that the monitor leaves to others.

    Args:
        trial: The trial.
        objective: Its objective.
        directory: Its directory of metrics.
        port: The port for its endpoint; None if none was chosen.
        host_file: Name of the file in a pod's directory with the name of its machine; empty if pods run on this one.
    """
    spec = trial.spec.metrics_collector
    names = wanted_names(objective.metric_names, trial.spec.early_stopping_rules)
    if spec.kind == CollectorKind.FILE:
        directory.mkdir(exist_ok=True)
        path = directory / Path(_path(trial)).name
        return FileSource(FileTail(path), output_parser(trial.spec, objective), path.name)
    if spec.kind == CollectorKind.TENSORFLOW_EVENT:
        # Imported late, as below: few trials need them, and every start of the engine would be slower.
        from metrics_collector.sources.event_directory import EventDirectory

        return EventDirectory(directory, names, _path(trial))
    if spec.kind == CollectorKind.PROMETHEUS_METRIC:
        from metrics_collector.sources.prometheus import PrometheusEndpoint
        from metrics_collector.sources.scraping import MetricsEndpoint

        http_get = (spec.source and spec.source.http_get) or {}
        ports = [port] if port else []
        endpoints = [*(MetricsEndpoint.of(http_get, port) for port in ports), MetricsEndpoint.of(http_get)]
        if host_file:
            return PrometheusEndpoint(endpoints, names, scrape=partial(_scrape_at, directory.parent / host_file))
        return PrometheusEndpoint(endpoints, names)
    return None


def _scrape_at(host_file: Path, endpoint: MetricsEndpoint) -> ScrapeResponse:
    """Scrape an endpoint of the machine named in a file.

    Raises:
        ScrapeError: There is no response, or the program's machine is not known yet.
    """
    from metrics_collector.sources.scraping import LOCAL_HOST, ScrapeError, scrape

    try:
        host = host_file.read_text().strip()
    except OSError as error:
        raise ScrapeError("is on a machine that is not known yet", is_unreachable=True) from error
    return scrape(replace(endpoint, host=host) if endpoint.host == LOCAL_HOST else endpoint)


def _last_primary_pod(trial: Trial, directory: Path) -> Path | None:
    """Return the directory of the newest primary pod of a job; None if there was none."""
    found = []
    for pod in directory.glob("*/"):
        with suppress(OSError, ValueError):
            if is_primary(trial, read_note(pod).get("labels") or {}):
                found.append((pod.stat().st_ctime, pod))
    return max(found)[1] if found else None


def _path(trial: Trial) -> str:
    """Return the path of the collector's source; empty if it has none."""
    source = trial.spec.metrics_collector.source
    return source.file_system_path.path if source is not None and source.file_system_path is not None else ""


def rest_of(trial: Trial, objective: ObjectiveSpec, directory: Path) -> MetricSource | None:
    """Return a source of all output, or of all files, of the last primary pod below a directory; None without one."""
    pod = _last_primary_pod(trial, directory)
    if pod is None:
        return None
    if trial.spec.metrics_collector.kind != CollectorKind.STDOUT:
        return source_of(trial, objective, pod / METRICS_DIRECTORY)
    log = FileTail(pod / f"{trial.spec.primary_container_name}.log")
    return FileSource(log, output_parser(trial.spec, objective))


class SourceMonitor(TrialMonitor[MetricSource]):
    """Reads a source beside the output of a container."""

    @shielded
    def poll(self) -> None:
        for readings in self.source.poll():
            self.report(readings)
            if self.backlogged:
                return

    @shielded
    def hasten(self) -> None:
        self.source.hasten()

    def close(self, done: Callable[[str], None]) -> None:
        """Read the rest and call back when all is stored.

        A pending response of the program is part of the rest: it may have ended right after sending it.
        """
        self._read_all()
        self.source.settle(partial(super().close, done))

    @shielded
    def _read_all(self) -> None:
        for readings in self.source.poll():
            self.report(readings)

    def _read_end(self) -> str:
        super()._read_end()
        self.source.close()
        return self.source.problem
