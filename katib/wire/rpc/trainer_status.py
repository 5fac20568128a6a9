"""The route of Kubeflow Trainer's status: a program posts its progress and its metrics, as for a TrainJob.

A program finds the route in three variables: its address in `KUBEFLOW_TRAINER_SERVER_URL`, the file with its token in
`KUBEFLOW_TRAINER_SERVER_TOKEN`, and the authorities to trust in `KUBEFLOW_TRAINER_SERVER_CA_CERT`. Transformers and the
Kubeflow SDK post there by default. The address names the metrics to store. A status repeats unchanged metrics, so a
value equal to the last stored one is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qsl, unquote

from katib.errors import invalid
from katib.model.metrics import PROGRESS, MetricLog, ObservationLog, parse_time, trainer_readings
from katib.wire.rpc.log_guard import LogCaller, LogGuard
from katib.wire.rpc.tokens import END, METRIC, PATH, URL_VARIABLE

_MOST_METRICS = 256


def readings_of(body: bytes, names: Collection[str], now: datetime) -> list[MetricLog]:
    """Return the readings of a status: the metrics of these names, and the progress.

    Args:
        body: The posted JSON text.
        names: Metrics to store; values that are not numbers are skipped.

    Raises:
        InvalidError: It is not a status.
    """
    try:
        status = json.loads(body)["trainerStatus"]
        progress, updated = status.get(PROGRESS), status.get("lastUpdatedTime")
        metrics = {str(one["name"]): str(one["value"]) for one in (status.get("metrics") or ())}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cause, remedy = "it is not a status of Kubeflow Trainer", 'post {"trainerStatus": {"metrics": [...]}}'
        raise invalid("body", cause, remedy, "trainer-status") from error
    if not isinstance(updated, str) or parse_time(updated) is None:
        cause = "it is missing, or not a time, and Kubeflow Trainer refuses such a status"
        remedy = "post the time of the status, such as 2026-08-01T12:00:00Z"
        raise invalid("trainerStatus.lastUpdatedTime", cause, remedy, "trainer-status")
    if len(metrics) > _MOST_METRICS:
        cause = f"there are {len(metrics)}"
        raise invalid("trainerStatus.metrics", cause, f"post at most {_MOST_METRICS}", "trainer-status")
    return trainer_readings(metrics, progress, names, now)


class StatusReceiver:
    """Receives the status of trials. Thread-safe.

    Args:
        guard: Authenticates callers; None to allow everyone to report.
        on_report: Called with the name of a trial after its readings were stored.
    """

    def __init__(
        self,
        log: ObservationLog,
        guard: LogGuard | None,
        on_report: Callable[[str], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = log
        self._guard = guard
        self._clock = clock
        self._on_report = on_report

    def take(self, path: str, query: str, token: str | None, body: bytes) -> None:
        """Store a status that was posted to an address of `path_of`, given its path and query.

        Raises:
            InvalidError: There is no such route, or it is not a status.
            ForbiddenError: The token is not that of the trial, or the trial has ended.
        """
        if not (path.startswith(PATH) and path.endswith(END)):
            raise invalid("path", "there is no such route", f"use that of {URL_VARIABLE}", "trainer-status")
        trial = unquote(path.removeprefix(PATH).removesuffix(END))
        if self._guard is not None:
            self._guard.check_report(LogCaller(token, is_local=False), trial)
        names = {value for name, value in parse_qsl(query) if name == METRIC}
        readings = list(self._new(trial, readings_of(body, names, self._clock())))
        if readings:
            self._log.report(trial, readings)
            self._on_report(trial)

    def _new(self, trial: str, readings: Collection[MetricLog]) -> Iterator[MetricLog]:
        """Yield the readings that differ from the last stored ones."""
        for reading in readings:
            last = next(iter(self._log.newest(trial, limit=1, metric_name=reading.name)), None)
            if last is None or last.value != reading.value:
                yield reading
