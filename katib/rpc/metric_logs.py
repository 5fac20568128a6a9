"""Readings as messages of the wire, and back."""

from __future__ import annotations

from katib.api.metrics import MetricLog
from katib.api.timestamps import format_timestamp, parse_time
from katib.errors import FieldError, InvalidError
from katib.rpc._generated import api_pb2 as pb


def message_of(log: MetricLog) -> pb.MetricLog:
    """Return the message of a reading."""
    return pb.MetricLog(time_stamp=format_timestamp(log.time), metric=pb.Metric(name=log.name, value=log.value))


def reading_of(entry: pb.MetricLog) -> MetricLog:
    """Return the reading of a message.

    Raises:
        InvalidError: Its time stamp is unreadable.
    """
    time = parse_time(entry.time_stamp)
    if time is None:
        raise InvalidError([time_error("time_stamp", entry.time_stamp)])
    return MetricLog(time, entry.metric.name, entry.metric.value)


def time_error(path: str, text: str) -> FieldError:
    """Return the error of a time stamp that cannot be read."""
    return FieldError(path, f"{text!r} is no RFC 3339 time stamp", "write it as 2024-03-04T17:55:08Z", "time-format")
