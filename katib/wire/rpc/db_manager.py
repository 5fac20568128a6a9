"""Server of the observation log: Katib's DBManager over gRPC.

Katib's rules apply if its DB manager works: a reading without time stamp is skipped, one with an unreadable time stamp
fails the whole report, an unknown trial has an empty log. If Katib's crashes or fails, this one answers: a report
without usable reading stores nothing, and errors carry the status code of their class instead of UNKNOWN.

The same port serves further calls for the controllers (`proto/observations.proto`). With a guard, callers are
authenticated (`katib.wire.rpc.log_guard`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc

from katib.errors import AlreadyExistsError, FieldError, InvalidError, KatibError, UnavailableError, invalid
from katib.model.metrics import REPORTER_LENGTH, BatchId, LogAccess, MetricLog, ObservationLog, parse_time
from katib.model.thinning import MIN_POINTS
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import health_pb2
from katib.wire.rpc._generated import observations_pb2 as ours
from katib.wire.rpc.errors import status_of
from katib.wire.rpc.log_guard import LogCaller, LogGuard
from katib.wire.rpc.readings import message_of, our_message_of, time_error
from katib.wire.rpc.services import SERVER_OPTIONS, add_servicer

DEFAULT_PORT = 6789

HEALTH_SERVICES = frozenset({"", "grpc.health.v1.Health"})

_WORKERS = 10


OnCall = Callable[[Exception | None], None]
"""Receives the error of a call; None for success."""


OnReport = Callable[[str], None]
"""Receives the name of a trial whose readings were just stored."""


def ignore_report(_trial_name: str) -> None:
    """Do nothing."""


class DbManagerServicer:
    """Serves a log: Katib's calls, further calls for the controllers, and health checks.

    Args:
        guard: Authenticates callers; None to allow everything to everyone.
        on_report: Called after readings were stored.
    """

    def __init__(
        self,
        log: ObservationLog,
        guard: LogGuard | None = None,
        on_call: OnCall | None = None,
        on_report: OnReport = ignore_report,
    ) -> None:
        self._log = log
        self._guard = guard
        self._on_call = on_call
        self._on_report = on_report

    # --- Katib's calls ------------------------------------------------------------------------------------------------

    def ReportObservationLog(
        self, request: pb.ReportObservationLogRequest, context: grpc.ServicerContext
    ) -> pb.ReportObservationLogReply:
        with self._answered(context):
            trial = self._reportable(request, context)
            self._log.report(trial, _readings(request.observation_log))
            self._on_report(trial)
            return pb.ReportObservationLogReply()

    def GetObservationLog(
        self, request: pb.GetObservationLogRequest, context: grpc.ServicerContext
    ) -> pb.GetObservationLogReply:
        """Return readings in order of time."""
        with self._answered(context):
            found = pb.ObservationLog(metric_logs=map(message_of, self._read(request, context)))
            return pb.GetObservationLogReply(observation_log=found)

    def DeleteObservationLog(
        self, request: pb.DeleteObservationLogRequest, context: grpc.ServicerContext
    ) -> pb.DeleteObservationLogReply:
        """Remove the log of a trial, but not that of another namespace's trial of this name."""
        with self._answered(context):
            trial = _trial_name(request)
            if self._guard is None:
                self._log.delete(trial)
            elif not self._guard.belongs_to_another(self._guard.check_control(LogCaller.of(context), trial), trial):
                self._log.delete(trial)
                self._guard.forget(trial)  # last: the owner can repeat an interrupted deletion
            return pb.DeleteObservationLogReply()

    # --- what the controllers ask beyond them -------------------------------------------------------------------------

    def Summarize(self, request: ours.SummarizeRequest, context: grpc.ServicerContext) -> ours.SummarizeReply:
        """Return summaries of the metrics that have a reading."""
        with self._answered(context):
            reply = ours.SummarizeReply()
            found = self._log.summarize(self._readable(request, context), list(request.metric_names))
            for metric in () if found is None else found.metrics:
                reply.metrics.add(name=metric.name, min=metric.min, max=metric.max, latest=metric.latest)
            return reply

    def GetNewest(self, request: ours.GetNewestRequest, context: grpc.ServicerContext) -> ours.GetNewestReply:
        """Return the newest readings in order of time."""
        with self._answered(context):
            trial = self._readable(request, context)
            newest = self._log.newest(trial, limit=request.limit, metric_name=request.metric_name)
            return ours.GetNewestReply(readings=map(our_message_of, newest))

    def Report(self, request: ours.ReportRequest, context: grpc.ServicerContext) -> ours.ReportReply:
        """Append readings with their steps; an empty report asks whether numbered batches are supported."""
        with self._answered(context):
            trial = self._reportable(request, context)
            if readings := _our_readings(request.readings):
                self._log.report(trial, readings, _batch_id(request))
                self._on_report(trial)
            knows = bool(readings) or self._log.knows_batches(trial)
        if not knows:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "the table of this log has no place for numbers of readings")
        return ours.ReportReply()

    def Read(self, request: ours.ReadRequest, context: grpc.ServicerContext) -> ours.ReadReply:
        """Return readings in the order of their curve."""
        with self._answered(context):
            return ours.ReadReply(readings=map(our_message_of, self._read(request, context)))

    def GetChanges(self, request: ours.GetChangesRequest, context: grpc.ServicerContext) -> ours.GetChangesReply:
        """Return the readings of a metric after the cursors."""
        with self._answered(context):
            reply = ours.GetChangesReply()
            cursors = {entry.trial_name: entry.cursor for entry in request.cursors}
            self._check_reads(cursors, context)
            for trial, cursor, reading in self._log.changes(cursors, request.metric_name):
                reply.changes.add(trial_name=trial, cursor=cursor, reading=our_message_of(reading))
            return reply

    def Count(self, request: ours.CountRequest, context: grpc.ServicerContext) -> ours.CountReply:
        with self._answered(context):
            trial = self._readable(request, context)
            return ours.CountReply(count=self._log.count(trial, metric_name=request.metric_name))

    def GetCurve(self, request: ours.GetCurveRequest, context: grpc.ServicerContext) -> ours.GetCurveReply:
        with self._answered(context):
            trial = self._readable(request, context)
            curve = self._log.curve(trial, request.metric_name, max(MIN_POINTS, request.max_points))
            return ours.GetCurveReply(readings=map(our_message_of, curve))

    def GetBest(self, request: ours.GetBestRequest, context: grpc.ServicerContext) -> ours.GetBestReply:
        with self._answered(context):
            reply = ours.GetBestReply()
            self._check_reads(request.trial_names, context)
            found = self._log.best(request.trial_names, request.metric_name, maximize=request.maximize)
            if found is not None:
                reply.best.trial_name, reply.best.value = found
            return reply

    def Begin(self, request: ours.BeginRequest, context: grpc.ServicerContext) -> ours.BeginReply:
        """Empty the log of a trial and register its owner."""
        with self._answered(context):
            trial, guard = _trial_name(request), self._guard
            if guard is None:
                self._log.delete(trial)
                return ours.BeginReply()
            claims = guard.check_control(LogCaller.of(context), trial)
            if guard.belongs_to_another(claims, trial):
                raise AlreadyExistsError(f"trial {trial}: a trial of this name in another namespace has the log")
            self._log.delete(trial)
            access = LogAccess(claims.namespace, request.reports_without_token, request.reads_without_token)
            guard.begin(trial, access)
            return ours.BeginReply()

    def End(self, request: ours.EndRequest, context: grpc.ServicerContext) -> ours.EndReply:
        """Close the log of a trial to further readings, but not that of another namespace's trial."""
        with self._answered(context):
            trial = _trial_name(request)
            if self._guard is not None:
                claims = self._guard.check_control(LogCaller.of(context), trial)
                if not self._guard.belongs_to_another(claims, trial):
                    self._guard.end(trial)
            return ours.EndReply()

    def GetRefusal(self, request: ours.GetRefusalRequest, context: grpc.ServicerContext) -> ours.GetRefusalReply:
        """Return why reports of a trial were refused."""
        with self._answered(context):
            trial = _trial_name(request)
            if self._guard is None:
                return ours.GetRefusalReply()
            self._guard.check_control(LogCaller.of(context), trial)
            return ours.GetRefusalReply(reason=self._guard.refusal_of(trial))

    # --- health -------------------------------------------------------------------------------------------------------

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Return SERVING, or fail with UNKNOWN as Katib's probes expect."""
        if request.service not in HEALTH_SERVICES:
            context.abort(grpc.StatusCode.UNKNOWN, f"unknown service {request.service!r}")
        try:
            self._log.count("")
        except KatibError as error:
            self._notify(error)
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        self._notify(None)
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    # --- what the calls have in common --------------------------------------------------------------------------------

    @contextmanager
    def _answered(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Convert every error into the status for the caller."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - converted into a status
            self._notify(error)
            status = status_of(error)
            context.set_trailing_metadata(status.metadata)
            context.abort(status.code, status.details)
        else:
            self._notify(None)

    def _notify(self, error: Exception | None) -> None:
        if self._on_call is not None:
            self._on_call(error)

    def _reportable(self, request: Any, context: grpc.ServicerContext) -> str:
        """Return the trial of a request if the caller may report its readings."""
        trial = _trial_name(request)
        if self._guard is not None:
            self._guard.check_report(LogCaller.of(context), trial)
        return trial

    def _readable(self, request: Any, context: grpc.ServicerContext) -> str:
        """Return the trial of a request if the caller may read it."""
        trial = _trial_name(request)
        if self._guard is not None:
            self._guard.check_read(LogCaller.of(context), trial)
        return trial

    def _check_reads(self, trials: Collection[str], context: grpc.ServicerContext) -> None:
        if self._guard is not None:
            self._guard.check_reads(LogCaller.of(context), trials)

    def _read(self, request: Any, context: grpc.ServicerContext) -> Sequence[MetricLog]:
        return self._log.read(
            self._readable(request, context),
            metric_name=request.metric_name,
            start=_bound("start_time", request.start_time),
            end=_bound("end_time", request.end_time),
        )


class DbManagerServer:
    """A running server; `address` and `plain_address` contain the actual ports."""

    def __init__(self, server: grpc.Server, address: str, plain_address: str = "") -> None:
        self.address = address
        self.plain_address = plain_address
        self._server = server

    def stop(self, grace_seconds: float = 1.0) -> None:
        """Refuse new calls, let those in progress end, and return when the port is free."""
        self._server.stop(grace_seconds).wait()


def serve_db_manager(
    log: ObservationLog,
    address: str = f"127.0.0.1:{DEFAULT_PORT}",
    *,
    guard: LogGuard | None = None,
    credentials: grpc.ServerCredentials | None = None,
    plain_address: str = "",
    on_call: OnCall | None = None,
    on_report: OnReport = ignore_report,
) -> DbManagerServer:
    """Serve a log; messages may be of any size.

    Args:
        log: The log; closed by its owner.
        address: `host:port`; port 0 for a free one. Or `unix:/path`, which only this account can open.
        guard: Authenticates callers; None to allow everything to everyone.
        credentials: Certificates to serve with; None for plain text.
        plain_address: Additional plain-text address, for callers with a forwarded port.
        on_call: Called after each call, on the thread that served it.
        on_report: Called with the name of a trial after its readings were stored, on the thread that stored them.

    Raises:
        UnavailableError: The address cannot be listened on.
    """
    server = grpc.server(ThreadPoolExecutor(_WORKERS, thread_name_prefix="db-manager"), options=SERVER_OPTIONS)
    add_servicer(server, DbManagerServicer(log, guard, on_call, on_report), pb, ours, health_pb2)
    bound = _listen(server, address, credentials)
    plain = _listen(server, plain_address, None) if plain_address else ""
    server.start()
    return DbManagerServer(server, bound, plain)


def _listen(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Start to listen; return the address with the actual port."""
    try:
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except RuntimeError as error:
        raise UnavailableError(f"{address}: cannot listen there; end what uses the port or take another") from error
    if address.startswith("unix:"):
        Path(address.removeprefix("unix:")).chmod(0o600)
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _trial_name(request: Any) -> str:
    if not request.trial_name:
        raise invalid("trial_name", "empty", "name the trial", "trial-name-required")
    return str(request.trial_name)


def _readings(log: pb.ObservationLog) -> list[MetricLog]:
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


def _our_readings(messages: Iterable[ours.Reading]) -> list[MetricLog]:
    readings: list[MetricLog] = []
    errors: list[FieldError] = []
    for index, entry in enumerate(messages):
        time = parse_time(entry.time_stamp)
        step = entry.step if entry.HasField("step") else None
        if time is None:
            errors.append(time_error(f"readings[{index}].time_stamp", entry.time_stamp))
        elif not entry.name:
            errors.append(FieldError(f"readings[{index}].name", "empty", "name the metric", "metric-name-required"))
        elif step is not None and step < 0:
            errors.append(FieldError(f"readings[{index}].step", f"{step} is below 0", "count from 0", "step-negative"))
        else:
            readings.append(MetricLog(time, entry.name, entry.value, step))
    if errors:
        raise InvalidError(errors)
    return readings


def _batch_id(request: ours.ReportRequest) -> BatchId | None:
    """Return the batch id of a report; None if its readings are not numbered."""
    if request.first < 0:
        raise invalid("first", f"{request.first} is below 0", "count from 0", "batch-number-negative")
    if len(request.reporter) > REPORTER_LENGTH:
        raise invalid("reporter", "too long", f"use at most {REPORTER_LENGTH} characters", "reporter-too-long")
    return BatchId(request.reporter, request.first) if request.reporter else None


def _bound(path: str, text: str) -> datetime | None:
    time = parse_time(text) if text else None
    if text and time is None:
        raise InvalidError([time_error(path, text)])
    return time
