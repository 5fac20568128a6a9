"""Messages of readings."""

from __future__ import annotations

from katib.errors import FieldError, InvalidError
from katib.model.metrics import MetricLog, format_timestamp, parse_time
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import observations_pb2 as ours


def message_of(log: MetricLog) -> pb.MetricLog:
    """Return Katib's message of a reading, which has no step."""
    return pb.MetricLog(time_stamp=format_timestamp(log.time), metric=pb.Metric(name=log.name, value=log.value))


def reading_of(time_stamp: str, metric: pb.Metric | ours.Reading) -> MetricLog:
    """Return the reading of a message.

    Raises:
        InvalidError: Its time stamp is unreadable.
    """
    time = parse_time(time_stamp)
    if time is None:
        raise InvalidError([time_error("time_stamp", time_stamp)])
    step = metric.step if isinstance(metric, ours.Reading) and metric.HasField("step") else None
    return MetricLog(time, metric.name, metric.value, step)


def our_message_of(log: MetricLog) -> ours.Reading:
    return ours.Reading(time_stamp=format_timestamp(log.time), name=log.name, value=log.value, step=log.step)


def time_error(path: str, text: str) -> FieldError:
    cause = f"{text!r} is not an RFC 3339 time stamp"
    return FieldError(path, cause, "write it as 2024-03-04T17:55:08Z", "time-format")
