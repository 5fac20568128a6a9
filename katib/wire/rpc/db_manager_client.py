"""Observation log over a DBManager client.

A report is one call, all or none. If its response is lost (deadline, broken connection), the caller cannot know whether
it was stored. Numbered readings (`BatchId`) are then sent again and stored once; others, and all with Katib's DB
manager, are stored twice.

Katib's DB manager answers UNIMPLEMENTED to the further calls; Katib's calls then do the same, more slowly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from copy import copy
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Self

import grpc

from katib.errors import ForbiddenError, TerminalError, UnavailableError, one_line
from katib.model.metrics import BatchId, BestTrial, Change, MetricLog, format_timestamp
from katib.model.summary import best_of, observation_of, observation_with
from katib.model.thinning import thinned
from katib.model.types import Metric, Observation
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import observations_pb2 as ours
from katib.wire.rpc.connection import DEADLINE_SECONDS
from katib.wire.rpc.credentials import NO_CREDENTIALS, DbManagerCredentials
from katib.wire.rpc.errors import error_of, status_of_call
from katib.wire.rpc.readings import message_of, our_message_of, reading_of
from katib.wire.rpc.services import calls_over

TRANSFER_SECONDS = 600.0
"""Timeout for transferring a whole log if the DB manager cannot summarize it: a million readings over a slow
network."""

Metadata = tuple[tuple[str, str], ...]


class _NotImplementedThereError(TerminalError):
    """The DB manager does not implement the call; it is Katib's."""


class DbManagerConnection:
    """A channel to a DB manager, opened by the first call. Clients may share it. Thread-safe.

    Args:
        connect: Opens a channel; resources to close after it go onto the stack.
        peer: Name of the DB manager in errors.
    """

    def __init__(self, connect: Callable[[ExitStack], grpc.Channel], peer: str = "DB manager") -> None:
        self._connect = connect
        self._peer = peer
        self._lock = threading.Lock()
        self._stub: SimpleNamespace | None = None
        self._way = ExitStack()
        self._is_closed = False

    @classmethod
    def to(cls, target: str | grpc.Channel, credentials: DbManagerCredentials) -> DbManagerConnection:
        """Return a connection to an address, or over a channel, which stays open."""
        if not isinstance(target, str):
            return cls(lambda _way: target)
        return cls(lambda way: way.enter_context(credentials.channel(target)), f"DB manager at {target}")

    def call(self, method: str, request: Any, timeout_seconds: float, metadata: Metadata) -> Any:
        """Return the reply; every error is a KatibError."""
        return self.call_on(self.opened(), method, request, timeout_seconds, metadata)

    def opened(self) -> SimpleNamespace:
        """Return the stub, opening the channel if necessary."""
        with self._lock:
            if self._is_closed:
                raise self._closed()
            if self._stub is None:
                with ExitStack() as way:
                    self._stub = calls_over(self._connect(way), pb, ours)
                    self._way = way.pop_all()
            return self._stub

    def call_on(
        self, stub: SimpleNamespace, method: str, request: Any, timeout_seconds: float, metadata: Metadata
    ) -> Any:
        """Return the reply of a call through a stub from `opened`."""
        try:
            return getattr(stub, method)(request, timeout=timeout_seconds, metadata=metadata)
        except grpc.RpcError as error:
            status = status_of_call(error)
            if status.code is grpc.StatusCode.UNIMPLEMENTED:
                raise _NotImplementedThereError(f"{self._peer} does not know this call") from error
            if status.code is grpc.StatusCode.PERMISSION_DENIED:
                raise ForbiddenError(f"{self._peer}: {one_line(status.details)}") from error
            raise error_of(status, peer=self._peer, path="observation_log") from error
        except ValueError as error:  # the channel was closed concurrently
            raise self._closed() from error

    def drop(self, only: SimpleNamespace | None = None) -> None:
        """Close the channel, optionally only if it is still this one; the next call opens another."""
        with self._lock:
            if only is not None and self._stub is not only:
                return
            self._stub = None
            way, self._way = self._way, ExitStack()
        way.close()

    def close(self) -> None:
        """Close the channel and refuse further calls."""
        self._is_closed = True
        self.drop()

    def _closed(self) -> UnavailableError:
        return UnavailableError(f"{self._peer}: the connection was closed")


class DbManagerClient:
    """Observation log of a DBManager. Implements `katib.model.metrics.ObservationLog`. Thread-safe.

    Args:
        target: `host:port`, a channel (which its owner closes), or a connection.
        timeout_seconds: Deadline of each call.
        token_of: Returns the token for a namespace; empty for the default credentials.
    """

    def __init__(
        self,
        target: str | grpc.Channel | DbManagerConnection,
        *,
        timeout_seconds: float = DEADLINE_SECONDS,
        credentials: DbManagerCredentials = NO_CREDENTIALS,
        token_of: Callable[[str], str] = lambda _namespace: "",
    ) -> None:
        if not isinstance(target, DbManagerConnection):
            target = DbManagerConnection.to(target, credentials)
        self._connection = target
        self._timeout_seconds = timeout_seconds
        self._metadata = credentials.metadata
        self._token_of = token_of

    def speaking_as(self, token: str) -> Self:
        """Return a client on the same connection with another token; it need not be closed."""
        client = copy(self)
        client._metadata = DbManagerCredentials(token).metadata  # noqa: SLF001 - of this class
        return client

    def within(self, namespace: str) -> Self:
        """Return the log with the credentials for a namespace."""
        token = self._token_of(namespace)
        return self.speaking_as(token) if token else self

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        """Append readings; all or none. Katib's DB manager receives them without steps and numbers."""
        if batch is not None or any(log.step is not None for log in logs):
            reporter, first = batch or ("", 0)
            readings = map(our_message_of, logs)
            request = ours.ReportRequest(trial_name=trial_name, readings=readings, reporter=reporter, first=first)
            if self._ours("Report", request) is not None:
                return
        if logs:
            message = pb.ObservationLog(metric_logs=map(message_of, logs))
            self._call(
                "ReportObservationLog", pb.ReportObservationLogRequest(trial_name=trial_name, observation_log=message)
            )

    def knows_batches(self, trial_name: str) -> bool:
        """Return whether a batch that is reported twice is stored once."""
        return self._ours("Report", ours.ReportRequest(trial_name=trial_name)) is not None

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        reply = self._ours("Summarize", ours.SummarizeRequest(trial_name=trial_name, metric_names=metrics))
        if reply is None:
            return self._folded(trial_name, metrics)
        found = (Metric(name=m.name, min=m.min, max=m.max, latest=m.latest) for m in reply.metrics)
        return observation_with(metrics, found)

    def begin(self, trial_name: str, *, reports_without_token: bool = False, reads_without_token: bool = False) -> None:
        """Begin the log of a trial, empty; it belongs to the namespace of the token.

        Raises:
            AlreadyExistsError: A trial of this name in another namespace has it.
        """
        request = ours.BeginRequest(
            trial_name=trial_name,
            reports_without_token=reports_without_token,
            reads_without_token=reads_without_token,
        )
        if self._ours("Begin", request) is None:
            self.delete(trial_name)

    def end(self, trial_name: str) -> None:
        """Close the log of a trial to further readings. Katib's DB manager still accepts them."""
        self._ours("End", ours.EndRequest(trial_name=trial_name))

    def refusal_of(self, trial_name: str) -> str:
        """Return why reports of a trial were refused; empty if none was."""
        reply = self._ours("GetRefusal", ours.GetRefusalRequest(trial_name=trial_name))
        return "" if reply is None else str(reply.reason)

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial; an unknown trial is not an error."""
        self._call("DeleteObservationLog", pb.DeleteObservationLogRequest(trial_name=trial_name))

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> list[MetricLog]:
        """Return readings in the order of their curve."""
        narrowed = {
            "trial_name": trial_name,
            "metric_name": metric_name,
            "start_time": format_timestamp(start) if start else "",
            "end_time": format_timestamp(end) if end else "",
        }
        reply = self._ours("Read", ours.ReadRequest(**narrowed))
        if reply is None:
            reply = self._call("GetObservationLog", pb.GetObservationLogRequest(**narrowed))
            return [reading_of(m.time_stamp, m.metric) for m in reply.observation_log.metric_logs]
        return _readings(reply)

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> list[MetricLog]:
        """Return the last readings of the curve, in its order."""
        request = ours.GetNewestRequest(trial_name=trial_name, metric_name=metric_name, limit=limit)
        reply = self._ours("GetNewest", request)
        return self.read(trial_name, metric_name=metric_name)[-limit:] if reply is None else _readings(reply)

    def curve(self, trial_name: str, metric_name: str, max_points: int) -> list[MetricLog]:
        """Return a curve thinned to a number of readings."""
        request = ours.GetCurveRequest(trial_name=trial_name, metric_name=metric_name, max_points=max_points)
        reply = self._ours("GetCurve", request)
        if reply is None:
            return thinned(self.read(trial_name, metric_name=metric_name), max_points)
        return _readings(reply)

    def best(self, trial_names: Sequence[str], metric_name: str, *, maximize: bool) -> BestTrial | None:
        request = ours.GetBestRequest(trial_names=trial_names, metric_name=metric_name, maximize=maximize)
        reply = self._ours("GetBest", request)
        if reply is None:
            summaries = {name: self._folded(name, [metric_name]) for name in trial_names}
            return best_of({name: found.metrics[0] for name, found in summaries.items() if found}, maximize=maximize)
        return BestTrial(reply.best.trial_name, reply.best.value) if reply.HasField("best") else None

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        reply = self._ours("Count", ours.CountRequest(trial_name=trial_name, metric_name=metric_name))
        return len(self.read(trial_name, metric_name=metric_name)) if reply is None else int(reply.count)

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> list[Change]:
        """Return the readings after these cursors.

        With Katib's DB manager the whole log is read, and the known number of readings is skipped.
        """
        asked = [ours.Cursor(trial_name=trial, cursor=cursor) for trial, cursor in cursors.items()]
        reply = self._ours("GetChanges", ours.GetChangesRequest(cursors=asked, metric_name=metric_name))
        if reply is None:
            numbered = {trial: list(enumerate(self.read(trial, metric_name=metric_name), 1)) for trial in cursors}
            return [
                Change(trial, number, log)
                for trial, cursor in cursors.items()
                for number, log in numbered[trial][cursor:]
            ]
        return [Change(c.trial_name, c.cursor, reading_of(c.reading.time_stamp, c.reading)) for c in reply.changes]

    def close(self) -> None:
        """Close the connection, including for other clients that share it."""
        self._connection.close()

    def _folded(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return the summary of a log that is transferred reading by reading, metric by metric."""
        patience = max(TRANSFER_SECONDS, self._timeout_seconds)
        summaries: list[Metric] = []
        for name in dict.fromkeys(metrics):
            request = pb.GetObservationLogRequest(trial_name=trial_name, metric_name=name)
            reply = self._call("GetObservationLog", request, patience)
            one = observation_of([name], ((m.metric.name, m.metric.value) for m in reply.observation_log.metric_logs))
            summaries += () if one is None else one.metrics
        return observation_with(metrics, summaries)

    def _call(self, method: str, request: Any, timeout_seconds: float | None = None) -> Any:
        return self._connection.call(method, request, timeout_seconds or self._timeout_seconds, self._metadata)

    def _ours(self, method: str, request: Any) -> Any | None:
        """Return the reply to a call that Katib's DB manager does not implement; None if it is Katib's."""
        with suppress(_NotImplementedThereError):
            return self._call(method, request)
        return None


def _readings(reply: Any) -> list[MetricLog]:
    return [reading_of(reading.time_stamp, reading) for reading in reply.readings]
