"""The process beside a training program that sends its readings to the DB manager (`katib.sdk.pushing`).

It reads as fast as the program writes, keeps readings while the DB manager refuses them, and repeats them. It ends with
the program: on its message, or when no process is left that could write.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from katib.errors import UnavailableError, one_line
from katib.model.metrics import MetricLog
from katib.sdk.pushing import give_up_seconds, say
from katib.sdk.reporting import ADDRESS_VARIABLE, TRIAL_VARIABLE
from metrics_collector.reporter import Reporter

MAX_WAITING = 200_000
"""Maximum waiting readings while the DB manager is unavailable, about 60 MB; further ones are dropped and counted."""

_MAX_BATCH = 1_000
"""Readings of a report: Katib's DB manager refuses messages beyond 4 MB."""

_MAX_AGE_SECONDS = 0.1
_FIRST_AGE_SECONDS = 0.01
"""Delay of the first reading after a pause: early stopping gets it at once, and a program that reports continuously
sends no more often."""

_PIPE_BYTES = 1 << 20
"""Bytes that a program may write between two reads without blocking: about 20,000 readings."""

_LOOK_SECONDS = 0.02
_ANSWERS = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Report = Callable[[str, Sequence[MetricLog]], None]
"""Stores readings of a trial, atomically: `katib.model.metrics.ObservationLog.report`."""


class PushedReadings:
    """Parses a program's lines and passes the readings to a log.

    Args:
        trial_name: The trial.
        report: Stores readings.
        answer: Sends an answer to the program.
        say: Prints a sentence to the output of the trial.
        max_waiting: Maximum number of waiting readings.
    """

    def __init__(
        self,
        trial_name: str,
        report: Report,
        answer: Callable[[bytes], None],
        say: Callable[[str], None],
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._trial_name = trial_name
        self._report = report
        self._answer = answer
        self._say = say
        self._problem = ""
        self._refusal = ""
        self._dropped = 0
        self._rest = b""
        self._reporter = Reporter(
            self._store,
            max_batch=_MAX_BATCH,
            max_age_seconds=_MAX_AGE_SECONDS,
            first_age_seconds=_FIRST_AGE_SECONDS,
            max_waiting=max_waiting,
        )

    def take(self, data: bytes) -> bool:
        """Process a chunk of the program's output; return False after its end message."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        readings: list[MetricLog] = []
        for line in lines:
            fields = line.decode(errors="replace").split("\t")
            if fields[0] == "flush":
                self._queue(readings)
                readings = []
                answer = f"{fields[1]}\n".encode()
                self._reporter.flush(self._trial_name, partial(self._answer, answer))
            elif fields[0] == "end":
                self._queue(readings)
                return False
            else:
                readings.append(_reading(*fields))
        self._queue(readings)
        return True

    def finish(self, seconds: float) -> int:
        """Store the waiting readings, within a timeout; report and return the number of readings not stored."""
        stored = threading.Event()
        self._reporter.flush(self._trial_name, stored.set)
        stored.wait(seconds)
        unsettled = self._reporter.close(0.0)
        if unsettled:
            cause = self._problem or "there was no answer in time"
            self._say(f"{_count(unsettled)} not delivered within {seconds:g} s: {cause}")
        if self._reporter.lost:
            self._say(f"{_count(self._reporter.lost)} refused: {self._refusal}")
        if self._dropped:
            self._say(f"{_count(self._dropped)} dropped, because too many waited")
        return unsettled + self._reporter.lost + self._dropped

    def _queue(self, readings: list[MetricLog]) -> None:
        if self._reporter.backlogged:
            if readings and not self._dropped:
                self._say(f"further metrics are dropped until those that wait are stored: {self._problem}")
            self._dropped += len(readings)
        else:
            self._reporter.report(self._trial_name, readings)

    def _store(self, trial_name: str, readings: Sequence[MetricLog]) -> None:
        try:
            self._report(trial_name, readings)
        except UnavailableError as error:
            if not self._problem:
                self._say(f"metrics are kept and sent again: {one_line(error)}")
            self._problem = one_line(error)
            raise
        except Exception as error:
            if not self._refusal:
                self._say(f"metrics are refused: {one_line(error)}")
            self._refusal = one_line(error)
            raise
        if self._problem:
            self._say("metrics are sent again")
        self._problem = ""


def _reading(micros: str, step: str, name: str, value: str) -> MetricLog:
    return MetricLog(_EPOCH + timedelta(microseconds=int(micros)), name, value, int(step) if step else None)


def _count(number: int) -> str:
    return "1 reading was" if number == 1 else f"{number} readings were"


def log_report(environment: Mapping[str, str]) -> Report:
    """Return a function that stores readings in the log of this trial; the first call connects and imports."""
    logs: list[Report] = []

    def report(trial_name: str, readings: Sequence[MetricLog]) -> None:
        if not logs:
            from katib.wire.rpc.credentials import DbManagerCredentials
            from metrics_collector.delivery import DbManagerLog
            from metrics_collector.numbering import NumberedLog

            logs.append(
                NumberedLog(DbManagerLog(environment[ADDRESS_VARIABLE], DbManagerCredentials.of(environment))).report
            )
        logs[0](trial_name, readings)

    return report


def _chunks(descriptor: int) -> Iterator[bytes]:
    """Yield chunks from a pipe, with pauses: each read takes time from the program."""
    with contextlib.suppress(OSError):  # above the limit of an account
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    while data := os.read(descriptor, _PIPE_BYTES):
        yield data
        time.sleep(_LOOK_SECONDS)


def _answer(data: bytes) -> None:
    with contextlib.suppress(OSError):  # the program no longer waits
        os.write(_ANSWERS, data)


def main() -> None:
    """Send until the program ends, then report undelivered readings, and exit at once."""
    logging.disable()  # events are reported in sentences
    pushed = PushedReadings(os.environ[TRIAL_VARIABLE], log_report(os.environ), _answer, say)
    for data in _chunks(0):
        if not pushed.take(data):
            break
    missing = pushed.finish(give_up_seconds())
    _answer(b"end\n")
    os._exit(1 if missing else 0)  # without waiting for a hanging call
