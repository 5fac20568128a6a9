"""Rules about the metrics collector."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from katib.errors import FieldError, InvalidError
from katib.model.metrics import compile_format
from katib.model.types import (
    CollectorKind,
    FileFormat,
    FileSystemKind,
    FileSystemPath,
    FilterSpec,
    MetricsCollectorSpec,
    SourceSpec,
)
from katib.model.wording import did_you_mean, one_of, shown

_PATH = "spec.metricsCollectorSpec"
_SOURCE = f"{_PATH}.source"
_FILE_SYSTEM_PATH = f"{_SOURCE}.fileSystemPath"
_MAX_PORT = 65535
_PORT = re.compile(r"[0-9]{1,9}", re.ASCII)


def check_metrics_collector(spec: MetricsCollectorSpec | None, offered: Collection[str]) -> Iterator[FieldError]:
    """Check the collector and its source.

    Args:
        spec: With defaults; None has no errors.
        offered: Kinds of collectors that can run here.
    """
    if spec is None or spec.collector is None:
        return
    kind, source = spec.collector.kind, spec.source or SourceSpec()
    where = f"{_PATH}.collector.kind"
    if kind not in tuple(CollectorKind):
        cause = f"{shown(kind)} is not a collector" if kind else "it is missing"
        yield FieldError(where, cause, did_you_mean(kind, CollectorKind), "collector-kind")
    elif kind not in offered:
        yield FieldError(where, f"{kind} is not available here", one_of(sorted(offered)), "collector-not-offered")
    if kind == CollectorKind.FILE:
        yield from _check_file(source)
    elif kind == CollectorKind.TENSORFLOW_EVENT:
        yield from _check_events(source.file_system_path)
    elif kind == CollectorKind.PROMETHEUS_METRIC:
        yield from _check_http(source.http_get or {})
    elif kind == CollectorKind.CUSTOM:
        yield from _check_custom(spec, source.file_system_path)
    yield from _check_filter(source.filter)


def _check_file(source: SourceSpec) -> Iterator[FieldError]:
    path = source.file_system_path or FileSystemPath()
    yield from _check_place(path, FileSystemKind.FILE)
    if path.format not in tuple(FileFormat):
        remedy = did_you_mean(path.format, FileFormat)
        yield FieldError(
            f"{_FILE_SYSTEM_PATH}.format", f"{shown(path.format)} is not a file format", remedy, "metrics-format"
        )
    if path.format == FileFormat.JSON and source.filter is not None:
        cause = "a JSON file is read without filters"
        yield FieldError(f"{_SOURCE}.filter", cause, "remove it or use format TEXT", "filter-with-json")


def _check_events(path: FileSystemPath | None) -> Iterator[FieldError]:
    path = path or FileSystemPath()
    yield from _check_place(path, FileSystemKind.DIRECTORY)
    if path.format:
        cause = f"{shown(path.format)} has no meaning for TensorFlow events"
        yield FieldError(f"{_FILE_SYSTEM_PATH}.format", cause, "remove it", "metrics-format-not-applicable")


def _check_place(path: FileSystemPath, kind: FileSystemKind) -> Iterator[FieldError]:
    if path.kind != kind:
        cause = f"{shown(path.kind)} is not what this collector reads"
        yield FieldError(f"{_FILE_SYSTEM_PATH}.kind", cause, f"use {kind}", "metrics-path-kind")
    if not path.path.startswith("/"):
        cause = f"{shown(path.path)} is not an absolute path"
        yield FieldError(f"{_FILE_SYSTEM_PATH}.path", cause, "begin it with /", "metrics-path")


def _check_http(http_get: dict[str, object]) -> Iterator[FieldError]:
    port, path = http_get.get("port"), http_get.get("path")
    is_number = isinstance(port, int | str) and not isinstance(port, bool) and _PORT.fullmatch(str(port)) is not None
    if not is_number or not 0 < int(str(port)) <= _MAX_PORT:
        remedy = f"use a number from 1 to {_MAX_PORT}"
        yield FieldError(f"{_SOURCE}.httpGet.port", f"{shown(port)} is not a port", remedy, "metrics-port")
    if not isinstance(path, str) or not path.startswith("/"):
        cause = f"{shown(path)} is not a path of a URL"
        yield FieldError(f"{_SOURCE}.httpGet.path", cause, "begin it with /", "metrics-url-path")


def _check_custom(spec: MetricsCollectorSpec, path: FileSystemPath | None) -> Iterator[FieldError]:
    if spec.collector is None or not spec.collector.custom_collector:
        remedy = "describe the container that collects metrics"
        where = f"{_PATH}.collector.customCollector"
        yield FieldError(where, "it is missing", remedy, "collector-container-missing")
    if path is not None and (not path.path.startswith("/") or path.kind not in tuple(FileSystemKind)):
        cause = f"{shown(path.path)} of kind {shown(path.kind)} is not an absolute File or Directory"
        remedy = "give an absolute path and kind File or Directory"
        yield FieldError(_FILE_SYSTEM_PATH, cause, remedy, "metrics-path-custom")


def _check_filter(spec: FilterSpec | None) -> Iterator[FieldError]:
    """Check that each pattern is RE2 and has groups for name and value."""
    if spec is None or not spec.metrics_format:
        return
    for i, pattern in enumerate(spec.metrics_format):
        try:
            compile_format(pattern, f"{_SOURCE}.filter.metricsFormat[{i}]")
        except InvalidError as error:
            yield from error.errors
