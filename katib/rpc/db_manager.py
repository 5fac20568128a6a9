"""The DBManager of the wire: an observation log served over gRPC, and a client that is an observation log.

Katib's rules hold, where its DB manager works: a reading without time stamp is skipped, one with an unreadable time
stamp fails the whole report, an unknown trial has an empty log. Where it crashes or fails, this one answers: a report
without usable reading stores nothing, and errors carry the status code of their class instead of UNKNOWN.

A report is one call, all or none. When its answer is lost (deadline, broken connection) the caller cannot know whether
it was stored; a repeated report is then stored twice, as the wire has no means to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Protocol

import grpc

from katib.api.metrics import MetricLog
from katib.api.summary import observation_of
from katib.api.timestamps import format_timestamp, parse_time
from katib.api.types import Observation
from katib.errors import FieldError, InvalidError, KatibError, UnavailableError
from katib.rpc._generated import api_pb2 as pb
from katib.rpc._generated import health_pb2
from katib.rpc._generated.api_pb2_grpc import DBManagerServicer, DBManagerStub, add_DBManagerServicer_to_server
from katib.rpc._generated.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server
from katib.rpc.connection import CHANNEL_OPTIONS, DEADLINE_SECONDS
from katib.rpc.errors import Status, error_of, status_of

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
            reply.observation_log.metric_logs.extend(map(_message, logs))
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


class DbManagerClient:
    """An observation log behind a DBManager, for controllers, collectors and readers. Thread-safe.

    Args:
        target: `host:port`, or a channel, which stays open when the client is closed.
        timeout_seconds: Deadline of each call.
    """

    def __init__(self, target: str | grpc.Channel, *, timeout_seconds: float = DEADLINE_SECONDS) -> None:
        self._own_channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS) if isinstance(target, str) else None
        self._peer = f"DB manager at {target}" if isinstance(target, str) else "DB manager"
        self._timeout_seconds = timeout_seconds
        self._stub: Any = DBManagerStub(self._own_channel or target)  # type: ignore[no-untyped-call]  # generated

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings; all or none."""
        if logs:
            message = pb.ObservationLog(metric_logs=map(_message, logs))
            request = pb.ReportObservationLogRequest(trial_name=trial_name, observation_log=message)
            self._call(self._stub.ReportObservationLog, request)

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics; None when there is no reading of the first one."""
        requests = [pb.GetObservationLogRequest(trial_name=trial_name, metric_name=name) for name in metrics]
        replies = [self._call(self._stub.GetObservationLog, request) for request in requests]
        entries = (entry.metric for reply in replies for entry in reply.observation_log.metric_logs)
        return observation_of(metrics, ((metric.name, metric.value) for metric in entries))

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial; an unknown trial is fine."""
        self._call(self._stub.DeleteObservationLog, pb.DeleteObservationLogRequest(trial_name=trial_name))

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> tuple[list[MetricLog], str]:
        """Return readings in order of time and a cursor to go on from.

        The wire has no pages: each call carries everything from the cursor's time on.
        """
        seen_time, seen = _position(cursor)
        begin = max((time for time in (start, seen_time) if time is not None), default=None)
        request = pb.GetObservationLogRequest(
            trial_name=trial_name,
            metric_name=metric_name,
            start_time=format_timestamp(begin) if begin else "",
            end_time=format_timestamp(end) if end else "",
        )
        reply = self._call(self._stub.GetObservationLog, request)
        logs = [_reading(entry) for entry in reply.observation_log.metric_logs][seen:]
        if limit is None or len(logs) <= limit:
            return logs, ""
        return logs[:limit], _cursor_after(logs[:limit], seen_time, seen) if limit else cursor

    def close(self) -> None:
        """End the connection, when it is the client's own."""
        if self._own_channel is not None:
            self._own_channel.close()

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            status = Status(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
            raise error_of(status, peer=self._peer, path="observation_log") from error
        except ValueError as error:  # a call on a closed channel
            raise UnavailableError(f"{self._peer}: the connection was closed") from error


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
            errors.append(_no_time(f"{path}.time_stamp", entry.time_stamp))
        elif not entry.metric.name:
            errors.append(FieldError(f"{path}.metric.name", "empty", "name the metric", "metric-name-required"))
        else:
            readings.append(MetricLog(time, entry.metric.name, entry.metric.value))
    if errors:
        raise InvalidError(errors)
    return readings


def _message(log: MetricLog) -> pb.MetricLog:
    return pb.MetricLog(time_stamp=format_timestamp(log.time), metric=pb.Metric(name=log.name, value=log.value))


def _reading(entry: pb.MetricLog) -> MetricLog:
    time = parse_time(entry.time_stamp)
    if time is None:
        raise InvalidError([_no_time("time_stamp", entry.time_stamp)])
    return MetricLog(time, entry.metric.name, entry.metric.value)


def _bound(path: str, text: str) -> datetime | None:
    time = parse_time(text) if text else None
    if text and time is None:
        raise InvalidError([_no_time(path, text)])
    return time


def _no_time(path: str, text: str) -> FieldError:
    return FieldError(path, f"{text!r} is no RFC 3339 time stamp", "write it as 2024-03-04T17:55:08Z", "time-format")


def _cursor_after(logs: Sequence[MetricLog], seen_time: datetime | None, seen: int) -> str:
    """Return the time of the last reading and how many of that time were returned so far."""
    last = logs[-1].time
    count = sum(log.time == last for log in logs) + (seen if last == seen_time else 0)
    return f"{format_timestamp(last)}/{count}"


def _position(cursor: str) -> tuple[datetime | None, int]:
    if not cursor:
        return None, 0
    time_text, _, count = cursor.partition("/")
    time = parse_time(time_text)
    if time is None or not count.isdecimal():
        raise InvalidError(
            [FieldError("cursor", f"{cursor!r} is no cursor of this log", "pass one it returned", "cursor")]
        )
    return time, int(count)
