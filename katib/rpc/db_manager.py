"""The DBManager of the wire: an observation log served over gRPC.

Katib's rules hold, where its DB manager works: a reading without time stamp is skipped, one with an unreadable time
stamp fails the whole report, an unknown trial has an empty log. Where it crashes or fails, this one answers: a report
without usable reading stores nothing, and errors carry the status code of their class instead of UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Protocol

import grpc

from katib.api.metrics import MetricLog
from katib.api.timestamps import parse_time
from katib.errors import FieldError, InvalidError, KatibError, UnavailableError
from katib.rpc._generated import api_pb2 as pb
from katib.rpc._generated import health_pb2
from katib.rpc._generated.api_pb2_grpc import DBManagerServicer, add_DBManagerServicer_to_server
from katib.rpc._generated.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server
from katib.rpc.errors import status_of
from katib.rpc.metric_logs import message_of, time_error

DEFAULT_PORT = 6789

HEALTH_SERVICES = frozenset({"", "grpc.health.v1.Health"})

_WORKERS = 10
_UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


class StoredLog(Protocol):
    """The log that is served. Thread-safe."""

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings; all or none."""

    def read(
        self, trial_name: str, *, metric_name: str = "", start: datetime | None = None, end: datetime | None = None
    ) -> tuple[Sequence[MetricLog], str]:
        """Return readings in order of time, and a cursor that is empty."""

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial; an unknown trial is fine."""

    def check(self) -> None:
        """Raise UnavailableError when the log does not answer."""


class DbManagerServicer(DBManagerServicer):
    """Answers the calls of a DBManager from a log."""

    def __init__(self, log: StoredLog) -> None:
        self._log = log

    def ReportObservationLog(  # noqa: N802 - the method's name on the wire
        self, request: pb.ReportObservationLogRequest, context: grpc.ServicerContext
    ) -> pb.ReportObservationLogReply:
        """Append readings."""
        try:
            self._log.report(_trial_name(request), _readings(request.observation_log))
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets its status
            _abort(context, error)
        return pb.ReportObservationLogReply()

    def GetObservationLog(  # noqa: N802 - as above
        self, request: pb.GetObservationLogRequest, context: grpc.ServicerContext
    ) -> pb.GetObservationLogReply:
        """Return readings in order of time."""
        reply = pb.GetObservationLogReply()
        try:
            logs, _ = self._log.read(
                _trial_name(request),
                metric_name=request.metric_name,
                start=_bound("start_time", request.start_time),
                end=_bound("end_time", request.end_time),
            )
            reply.observation_log.metric_logs.extend(map(message_of, logs))
        except Exception as error:  # noqa: BLE001 - as above
            _abort(context, error)
        return reply

    def DeleteObservationLog(  # noqa: N802 - as above
        self, request: pb.DeleteObservationLogRequest, context: grpc.ServicerContext
    ) -> pb.DeleteObservationLogReply:
        """Remove the log of a trial."""
        try:
            self._log.delete(_trial_name(request))
        except Exception as error:  # noqa: BLE001 - as above
            _abort(context, error)
        return pb.DeleteObservationLogReply()


class DbManagerHealth(HealthServicer):
    """Tells whether the log answers."""

    def __init__(self, log: StoredLog) -> None:
        self._log = log

    def Check(  # noqa: N802 - as above
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Answer SERVING, or fail with UNKNOWN as Katib's probes expect."""
        if request.service not in HEALTH_SERVICES:
            context.abort(grpc.StatusCode.UNKNOWN, f"unknown service {request.service!r}")
        try:
            self._log.check()
        except KatibError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


class DbManagerServer:
    """A running server; `address` is where it listens, with the port it got."""

    def __init__(self, server: grpc.Server, address: str) -> None:
        self.address = address
        self._server = server

    def stop(self, grace_seconds: float = 1.0) -> None:
        """Take no more calls, let those under way end, and return when the port is free."""
        self._server.stop(grace_seconds).wait()


def serve_db_manager(log: StoredLog, address: str = f"127.0.0.1:{DEFAULT_PORT}") -> DbManagerServer:
    """Serve a log; messages may be of any size.

    Args:
        log: What to serve; stays open and is closed by its owner.
        address: `host:port`; port 0 takes a free one.

    Raises:
        UnavailableError: The address cannot be listened on.
    """
    # Without so_reuseport=0 two servers would share a port and take calls by turns.
    options = (*_UNLIMITED, ("grpc.so_reuseport", 0))
    server = grpc.server(ThreadPoolExecutor(_WORKERS, thread_name_prefix="db-manager"), options=options)
    add_DBManagerServicer_to_server(DbManagerServicer(log), server)  # type: ignore[no-untyped-call]  # generated
    add_HealthServicer_to_server(DbManagerHealth(log), server)  # type: ignore[no-untyped-call]  # generated
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise UnavailableError(f"{address}: cannot listen there; end what uses the port or take another") from error
    server.start()
    return DbManagerServer(server, f"{address.rpartition(':')[0]}:{port}")


def _abort(context: grpc.ServicerContext, error: Exception) -> None:
    status = status_of(error)
    context.set_trailing_metadata(status.metadata)
    context.abort(status.code, status.details)


def _trial_name(request: Any) -> str:
    if not request.trial_name:
        raise InvalidError([FieldError("trial_name", "empty", "name the trial", "trial-name-required")])
    return str(request.trial_name)


def _readings(log: pb.ObservationLog) -> list[MetricLog]:
    """Return the readings of a report.

    Raises:
        InvalidError: A time stamp is unreadable, or a reading names no metric.
    """
    readings: list[MetricLog] = []
    errors: list[FieldError] = []
    for index, entry in enumerate(log.metric_logs):
        path = f"observation_log.metric_logs[{index}]"
        if not entry.time_stamp:
            continue
        time = parse_time(entry.time_stamp)
        if time is None:
            errors.append(time_error(f"{path}.time_stamp", entry.time_stamp))
        elif not entry.metric.name:
            errors.append(FieldError(f"{path}.metric.name", "empty", "name the metric", "metric-name-required"))
        else:
            readings.append(MetricLog(time, entry.metric.name, entry.metric.value))
    if errors:
        raise InvalidError(errors)
    return readings


def _bound(path: str, text: str) -> datetime | None:
    time = parse_time(text) if text else None
    if text and time is None:
        raise InvalidError([time_error(path, text)])
    return time
