"""Where a trial's metrics are written, and on which volume."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from katib.api.defaults import DEFAULT_METRICS_FILE
from katib.api.types import CollectorKind, FileSystemKind, MetricsCollectorSpec, Trial
from katib.errors import invalid


@dataclass(frozen=True, slots=True)
class MetricsPath:
    """A metrics file or directory, and the directory that pod and collector share."""

    path: str
    directory: str


def collector_kind(trial: Trial) -> str:
    """Return the kind of the trial's collector."""
    return trial.spec.metrics_collector.kind


def metrics_path(trial: Trial) -> MetricsPath | None:
    """Return where metrics are written; None for kinds that read no file.

    Raises:
        InvalidError: The directory cannot be a volume of its own.
    """
    path, kind = _path_and_kind(trial.spec.metrics_collector, collector_kind(trial))
    if not path:
        return None
    directory = posixpath.dirname(path) if kind == FileSystemKind.FILE else path
    if not posixpath.isabs(directory) or posixpath.normpath(directory).strip("/") == "":
        cause = f"{path!r} does not lie in a directory of its own, which collector and program could share"
        remedy = "choose a path such as /var/log/katib/metrics.log"
        where = "spec.metricsCollectorSpec.source.fileSystemPath.path"
        raise invalid(where, cause, remedy, "metrics-directory")
    return MetricsPath(path, directory)


def marker_path(trial: Trial, primary: Mapping[str, Any]) -> MetricsPath | None:
    """Return where the shell around the program and the collector exchange how far they are.

    None where no shell is put around it: a custom collector knows none, and a Prometheus endpoint can be scraped of a
    program whose command is not known here, too.
    """
    kind = collector_kind(trial)
    if kind == CollectorKind.PROMETHEUS_METRIC:
        if not primary.get("command"):
            return None
        return MetricsPath(DEFAULT_METRICS_FILE, posixpath.dirname(DEFAULT_METRICS_FILE))
    return None if kind == CollectorKind.CUSTOM else metrics_path(trial)


def http_get(trial: Trial) -> Mapping[str, Any]:
    """Return the endpoint that the collector's source names."""
    source = trial.spec.metrics_collector.source
    return (source and source.http_get) or {}


def _path_and_kind(spec: MetricsCollectorSpec, kind: str) -> tuple[str, str]:
    if kind == CollectorKind.STDOUT:
        return DEFAULT_METRICS_FILE, FileSystemKind.FILE
    if kind not in {CollectorKind.FILE, CollectorKind.TENSORFLOW_EVENT, CollectorKind.CUSTOM}:
        return "", ""
    source = spec.source
    if source is None or source.file_system_path is None:
        return "", ""
    return source.file_system_path.path, source.file_system_path.kind
