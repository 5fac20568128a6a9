"""Selection of a sidecar's source and of its observation of the program, by its flags and its pod.

Katib's controller determines the kind of a collector by flags alone: a file has `-format`, a directory of event files
has not, and an endpoint has no `-path`. Our controller sets the kind, the endpoint and the launcher's directory by
environment variables, which no other collector reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from katib.model.types import CollectorKind
from metrics_collector.arguments import Arguments
from metrics_collector.collector import wanted_names
from metrics_collector.parsers import parser_for
from metrics_collector.pod_settings import PodSettings
from metrics_collector.sources import FileSource, MetricSource
from metrics_collector.sources.file_tail import FileTail


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """The source of a sidecar, and traces of its program.

    Attributes:
        directory: Directory of the markers of Katib's shell around the program; None: there is no such shell.
        left_a_trace: Returns whether a program has left output.
    """

    source: MetricSource
    directory: Path | None
    left_a_trace: Callable[[], bool] = lambda: False

    def resume_point_of(self, pod: PodSettings) -> Path | None:
        """Return the path of the resume point; None if a successor would not find it.

        The name is that of earlier versions, so that a collector can continue one of theirs.
        """
        directory = pod.launcher_directory or self.directory
        return None if directory is None else directory / f"{pod.pod_uid}.checkpoint"


def kind_of(arguments: Arguments, pod: PodSettings) -> str:
    if pod.kind:
        return pod.kind
    if arguments.path is None:
        return CollectorKind.PROMETHEUS_METRIC
    is_events = not arguments.file_format and not arguments.filters and not arguments.path.is_file()
    return CollectorKind.TENSORFLOW_EVENT if is_events else CollectorKind.FILE


def select(arguments: Arguments, pod: PodSettings, on_data: Callable[[bytes], None]) -> SourceSelection:
    """Return the source of a sidecar.

    Args:
        arguments: The command line.
        pod: The pod.
        on_data: Called with every chunk of a followed file.

    Raises:
        InvalidError: The format is unknown, or a filter is not an RE2 pattern with two groups.
    """
    # Each kind of source is imported on demand: a collector should be ready before its program ends.
    kind, path = kind_of(arguments, pod), arguments.path
    names = wanted_names(arguments.metrics, arguments.rules)
    if kind == CollectorKind.PROMETHEUS_METRIC or path is None:
        from metrics_collector.sources.prometheus import PrometheusEndpoint
        from metrics_collector.sources.scraping import MetricsEndpoint

        source = PrometheusEndpoint([MetricsEndpoint.of_text(pod.http_get)], names)
        return SourceSelection(source, None)
    if kind == CollectorKind.TENSORFLOW_EVENT:
        from metrics_collector.sources.event_directory import EventDirectory

        events = EventDirectory(path, names)
        return SourceSelection(events, path, lambda: not events.is_empty)
    parser = parser_for(arguments.file_format, names, arguments.filters)
    return SourceSelection(FileSource(FileTail(path), parser, str(path), on_data), path.parent, path.exists)
