"""A client of a DBManager that is an observation log.

A report is one call, all or none. When its answer is lost (deadline, broken connection) the caller cannot know whether
it was stored; a repeated report is then stored twice, as the wire has no means to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import grpc

from katib.api.metrics import MetricLog
from katib.api.summary import observation_of
from katib.api.timestamps import format_timestamp, parse_time
from katib.api.types import Observation
from katib.errors import FieldError, InvalidError, UnavailableError
from katib.rpc._generated import api_pb2 as pb
from katib.rpc._generated.api_pb2_grpc import DBManagerStub
from katib.rpc.connection import CHANNEL_OPTIONS, DEADLINE_SECONDS
from katib.rpc.errors import error_of, status_of_call
from katib.rpc.metric_logs import message_of, reading_of


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
            message = pb.ObservationLog(metric_logs=map(message_of, logs))
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
        logs = [reading_of(entry) for entry in reply.observation_log.metric_logs][seen:]
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
            raise error_of(status_of_call(error), peer=self._peer, path="observation_log") from error
        except ValueError as error:  # a call on a closed channel
            raise UnavailableError(f"{self._peer}: the connection was closed") from error


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
