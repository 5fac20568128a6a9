"""The route of Kubeflow Trainer's status: a program posts its progress and its metrics, as it would to a TrainJob.

A program finds the route in three variables: its address in `KUBEFLOW_TRAINER_SERVER_URL`, the file with its token in
`KUBEFLOW_TRAINER_SERVER_TOKEN`, and the certificates to trust in `KUBEFLOW_TRAINER_SERVER_CA_CERT`. Transformers and
the Kubeflow SDK post there by themselves. A status repeats the metrics that have not changed, so a value that is the
last one stored is passed over. The only step in it is what Transformers calls `current_step`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote, unquote

from katib.api.metrics import MetricLog, ObservationLog, parse_value
from katib.errors import KatibError, code_of, invalid, one_line
from katib.rpc.log_guard import Caller, LogGuard

URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
TOKEN_FILE_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable, not a token
AUTHORITIES_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"

PROGRESS = "progressPercentage"
"""The metric that the progress is stored as."""

_STEP = "current_step"
_MOST_METRICS = 256
_MOST_BYTES = 1 << 18
_PATIENCE_SECONDS = 10.0
_PATH, _END = "/trials/", "/status"
_WHOLE = 100

NamesOf = Callable[[str], Collection[str]]
"""Takes the name of a trial; returns the metrics to store of it."""


def readings_of(body: bytes, names: Collection[str], now: datetime) -> list[MetricLog]:
    """Return the readings of a status: the metrics of these names, and the progress.

    Args:
        body: The JSON text that was posted.
        names: Metrics to store; a value of theirs that is not a number is passed over.
        now: Stamps them.

    Raises:
        InvalidError: It is not a status.
    """
    try:
        status = json.loads(body)["trainerStatus"]
        progress = status.get(PROGRESS)
        metrics = {str(one["name"]): str(one["value"]) for one in (status.get("metrics") or ())}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cause, remedy = "it is not a status of Kubeflow Trainer", 'post {"trainerStatus": {"metrics": [...]}}'
        raise invalid("body", cause, remedy, "trainer-status") from error
    if len(metrics) > _MOST_METRICS:
        cause = f"there are {len(metrics)}"
        raise invalid("trainerStatus.metrics", cause, f"post at most {_MOST_METRICS}", "trainer-status")
    text = metrics.get(_STEP, "")
    step = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - digits of 64 bits
    found = [
        MetricLog(now, name, value, step)
        for name, value in metrics.items()
        if name in names and parse_value(value) is not None
    ]
    if isinstance(progress, int) and not isinstance(progress, bool) and 0 <= progress <= _WHOLE:
        found.append(MetricLog(now, PROGRESS, str(progress), step))
    return found


class StatusServer:
    """Takes the status of trials over HTTP, on a port of the loopback interface. Thread-safe.

    Args:
        log: Gets the readings.
        guard: Authenticates callers.
        names_of: Returns the metrics to store of a trial.
        clock: Returns the time.
        on_report: Called with the name of a trial of which readings were stored.
    """

    def __init__(
        self,
        log: ObservationLog,
        guard: LogGuard,
        names_of: NamesOf,
        clock: Callable[[], datetime],
        on_report: Callable[[str], None],
    ) -> None:
        self._log = log
        self._guard = guard
        self._names_of = names_of
        self._clock = clock
        self._on_report = on_report
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self.take))
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, name="trainer-status", daemon=True)
        self._thread.start()

    def url_of(self, trial_name: str) -> str:
        """Return where a trial posts its status."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{_PATH}{quote(trial_name)}{_END}"

    def take(self, path: str, token: str | None, body: bytes) -> None:
        """Store what a trial posted.

        Raises:
            InvalidError: There is no such route, or it is not a status.
            ForbiddenError: The token is not that of the trial, or the trial has ended.
        """
        if not (path.startswith(_PATH) and path.endswith(_END)):
            raise invalid("path", "there is no such route", f"use that of {URL_VARIABLE}", "trainer-status")
        trial = unquote(path.removeprefix(_PATH).removesuffix(_END))
        self._guard.check_report(Caller(token, is_local=True), trial)
        readings = list(self._new(trial, readings_of(body, self._names_of(trial), self._clock())))
        if readings:
            self._log.report(trial, readings)
            self._on_report(trial)

    def _new(self, trial: str, readings: Collection[MetricLog]) -> Iterator[MetricLog]:
        """Yield the readings that differ from the last ones stored."""
        for reading in readings:
            last = next(iter(self._log.newest(trial, limit=1, metric_name=reading.name)), None)
            if last is None or last.value != reading.value:
                yield reading

    def close(self) -> None:
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    timeout = _PATIENCE_SECONDS

    def __init__(self, take: Callable[[str, str | None, bytes], None], *arguments: Any) -> None:
        self._take = take
        super().__init__(*arguments)

    def do_POST(self) -> None:
        try:
            scheme, _, token = self.headers.get("Authorization", "").partition(" ")
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > _MOST_BYTES:
                raise invalid("body", "it is too large", f"post at most {_MOST_BYTES} bytes", "trainer-status")
            body = self.rfile.read(int(length))
            self._take(self.path, token.strip() if scheme.lower() == "bearer" else None, body)
        except KatibError as error:
            self._answer(code_of(error).http_status, {"message": one_line(error)})
            return
        self._answer(200, {})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the signature is the base's
        """Print nothing: refusals are remembered by the guard."""
