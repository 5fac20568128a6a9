"""Input of the injection beyond the pod: settings, and the path of its trial's metrics."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from katib.errors import invalid
from katib.model.defaults import DEFAULT_METRICS_FILE
from katib.model.types import CollectorKind, FileSystemKind, MetricsCollectorSpec, Trial
from katib.places.cluster.configuration.models import MetricsCollectorConfig
from katib.wire.rpc.credentials import NO_CREDENTIALS, DbManagerCredentials


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A claim mounted in the primary container, with which trials of an experiment share files.

    Attributes:
        sub_path: This trial's part of the volume.
    """

    mount_path: str
    claim_name: str
    sub_path: str


@dataclass(frozen=True, slots=True)
class InjectionSettings:
    """Settings for the pods of one trial.

    Attributes:
        db_manager_address: `host:port` of the DB manager.
        status_address: `host:port` for the status of Kubeflow Trainer; empty for none.
        collectors: Entries by collector kind.
        inject_security_context: Whether the collector gets a copy of the primary container's security context.
        early_stopping_address: `host:port` of the early stopping service; empty if the experiment has none.
        suggestion_volume: The claim of the algorithm setting `suggestion_trial_dir`, if set.
    """

    db_manager_address: str
    collectors: Mapping[str, MetricsCollectorConfig] = field(default_factory=dict)
    inject_security_context: bool = False
    early_stopping_address: str = ""
    suggestion_volume: VolumeClaim | None = None
    credentials: DbManagerCredentials = NO_CREDENTIALS
    status_address: str = ""


@dataclass(frozen=True, slots=True)
class MetricsPath:
    """A metrics file or directory, and the directory that pod and collector share."""

    path: str
    directory: str


def collector_kind(trial: Trial) -> str:
    return trial.spec.metrics_collector.kind


def metrics_path(trial: Trial) -> MetricsPath | None:
    """Return the path of the metrics; None for kinds that read no file.

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


def http_get(trial: Trial) -> Mapping[str, Any]:
    """Return the endpoint of the collector's source."""
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
