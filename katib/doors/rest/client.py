"""The tuning service at the other end of HTTP."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import TypeAdapter

from katib.doors.rest.guard import LOOPBACK_HOSTS
from katib.doors.rest.notes import account_directory, note_of
from katib.doors.rest.problems import error_of
from katib.errors import ForbiddenError, InternalError, InvalidError, KatibError, NotFoundError, UnavailableError
from katib.model.algorithms import AlgorithmInfo
from katib.model.marks import MarkChanges
from katib.model.metrics import MetricLog
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import (
    BOOKMARK,
    DEFAULT_LEASE_SECONDS,
    LONGEST_COMMAND,
    NO_CHOICE,
    CallerAnswer,
    Change,
    Choice,
    Diagnosis,
    Document,
    EndedTrial,
    GivenTrial,
    Json,
    NewReadings,
    Page,
    PausedExperiment,
    Preview,
    R,
    RecordedEvent,
    RunOutcome,
    StoredRuntime,
    Submission,
    TrialOrder,
    WaysOn,
)

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
_NO_LIMIT = httpx.Timeout(None, connect=_CONNECT_SECONDS)
"""For a deletion: the server answers when all is gone, or nothing goes any more."""
_CLOCK_SLACK_SECONDS = 0.5
_LOGIN_STATUSES = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN))
_GATEWAY_STATUSES = frozenset((HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT))
_KIND_PATHS = {"Experiment": "experiments", "Trial": "trials", "Suggestion": "suggestions"}

T = TypeVar("T")
Query = Mapping[str, str | int | bool | Sequence[str]]


class HttpTuningService:
    """A TuningService behind a URL. Thread-safe; `close` it when done.

    Args:
        url: Where the server listens, such as `http://127.0.0.1:8765`.
        token: Bearer token, where the server or a gateway before it asks for one. None: the one that a server of this
            account keeps, if one listens there (`katib.doors.rest.notes`).
        socket: Path of a Unix socket where it listens in place of the host and port of the URL; empty: there.
    """

    def __init__(self, url: str, token: str | None = None, *, socket: str = "") -> None:
        note = note_of(url, account_directory()) if token is None and not socket else None
        url, token = (url, token) if note is None else (note.url, note.token)
        self._url = url.rstrip("/")
        self._local = urlsplit(url).hostname in LOOPBACK_HOSTS
        # The certificates of this machine count, or of $SSL_CERT_FILE. Reading them takes a moment.
        self._http = httpx.Client(
            base_url=f"{self._url}/api/v1/",
            headers={b"authorization": f"Bearer {token}".encode()} if token else {},
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,  # a proxy of the environment has no business between us and loopback
            verify=ssl.create_default_context() if urlsplit(url).scheme == "https" else False,
            transport=httpx.HTTPTransport(uds=socket) if socket else None,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, document: Document, *, source: str, namespace: str | None = None) -> Submission:
        """Create an experiment, or resume or update the one of that name."""
        body = self._post("experiments", document, source, namespace)
        return Submission(Experiment.read(body["experiment"]), body["outcome"], tuple(body["notices"]))

    def validate(self, document: Document, *, source: str, namespace: str | None = None) -> Sequence[str]:
        """Check a document and store nothing."""
        return tuple(self._post("validate", document, source, namespace)["notices"])

    def preview(self, document: Document, *, source: str, namespace: str | None = None) -> Preview:
        """Return what the first trial of a document would run."""
        return _read(Preview, self._post("preview", document, source, namespace))

    def run(
        self,
        document: Document,
        *,
        source: str,
        namespace: str | None = None,
        choice: Choice = NO_CHOICE,
        command: str = "",
    ) -> RunOutcome:
        """Submit an experiment; one that has ended runs once more where that is wanted."""
        query: Query = {
            "restart": "true" if choice.restart else "",
            "retryFailed": "true" if choice.retry_failed else "",
            "more": choice.more or "",
            "command": command if len(command) <= LONGEST_COMMAND else "",
        }
        body = self._post("run", document, source, namespace, query)
        shown = partial(_renamed, self._source(source), source)
        ways = _read(WaysOn, body["ways"]) if body["ways"] is not None else None
        if ways is not None:
            ways = replace(ways, changes=tuple(map(shown, ways.changes)))
        submission = Submission(Experiment.read(body["experiment"]), body["outcome"], tuple(body["notices"]))
        return RunOutcome(submission, tuple(map(shown, body["notes"])), ways)

    def store_runtimes(
        self, document: Document, *, source: str, namespace: str | None = None
    ) -> Sequence[StoredRuntime]:
        """Store training runtimes."""
        return _read_items(StoredRuntime, self._post("runtimes", document, source, namespace))

    def get(self, kind: type[R], namespace: str, name: str) -> R:
        """Return an object."""
        return kind.read(self._get(_path(namespace, _KIND_PATHS[kind.__name__], name)))

    def experiments(self, namespace: str | None = None) -> Sequence[Experiment]:
        """Return all experiments, oldest first."""
        path = "experiments" if namespace is None else _path(namespace, "experiments")
        return tuple(map(Experiment.read, self._get(path)["items"]))

    def trials(
        self,
        namespace: str,
        experiment: str,
        *,
        states: Sequence[str] = (),
        order: TrialOrder = "age",
        limit: int = 500,
        cursor: str = "",
    ) -> Page:
        """Return trials of an experiment."""
        query: Query = {"state": list(states), "order": order, "limit": limit, "cursor": cursor}
        body = self._get(_path(namespace, "experiments", experiment, "trials"), query)
        return Page(tuple(body["items"]), body["cursor"], body["total"])

    def best(self, namespace: str, experiment: str) -> Trial | None:
        """Return the best Trial so far."""
        best = self._get(_path(namespace, "experiments", experiment, "best"))
        return None if best is None else Trial.read(best)

    def metrics(self, namespace: str, trial: str, *, metric: str = "", limit: int = 100_000) -> Sequence[MetricLog]:
        """Return readings of a trial."""
        query: Query = {"metric": metric, "limit": limit}
        return _read_items(MetricLog, self._get(_path(namespace, "trials", trial, "metrics"), query))

    def curve(self, namespace: str, trial: str, *, points: int, metric: str = "") -> Sequence[MetricLog]:
        """Return the curve of a metric."""
        query: Query = {"metric": metric, "points": points}
        return _read_items(MetricLog, self._get(_path(namespace, "trials", trial, "metrics"), query))

    def readings(self, namespace: str, trial: str, *, since: str = "") -> NewReadings:
        """Return what arrived behind a cursor."""
        return _read(NewReadings, self._get(_path(namespace, "trials", trial, "readings"), {"since": since}))

    def pods(self, kind: str, namespace: str, name: str) -> Sequence[Json]:
        """Return the pods of a Trial or an Experiment."""
        return tuple(self._get(_path(namespace, _KIND_PATHS[kind], name, "pods"))["items"])

    def logs(
        self,
        namespace: str,
        trial: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        replica: str = "",
        container: str = "",
    ) -> Iterator[bytes]:
        """Yield the output of a trial."""
        named = _drop_empty({"replica": replica, "container": container})
        query: dict[str, str | int | bool | Sequence[str]] = {"follow": str(follow).lower(), **named}
        if tail_lines is not None:
            query["tail"] = tail_lines
        with self._stream(_path(namespace, "trials", trial, "logs"), query) as response:
            yield from response.iter_bytes()

    def events(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return the notable moments of an object."""
        return _read_items(RecordedEvent, self._get(_path(namespace, _KIND_PATHS[kind], name, "events")))

    def changes(
        self, namespace: str, experiment: str, *, timeout_seconds: float | None = None, since: str = ""
    ) -> Iterator[Change]:
        """Yield the experiment and its trials as they are, then every change; a lost connection is an error."""
        query: Query = {} if timeout_seconds is None else {"timeoutSeconds": str(timeout_seconds)}
        headers = {"last-event-id": since} if since else {}
        path = _path(namespace, "experiments", experiment, "changes")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._stream(path, query, headers) as response:
            for name, data, cursor in _server_sent_events(response.iter_lines()):
                if name == "problem":
                    raise error_of(data, int(data.get("status", 0)))
                if name == "end":
                    return
                yield Change(data["type"], data["object"], cursor) if data else Change(BOOKMARK, {}, cursor)
        if deadline is None or time.monotonic() < deadline - _CLOCK_SLACK_SECONDS:
            raise UnavailableError(f"the server at {self._url} ended the stream; it was probably stopped")

    def why(self, namespace: str, name: str) -> Diagnosis:
        """Explain an experiment, or a trial of that name."""
        return _read(Diagnosis, self._get(_path(namespace, "why", name)))

    def add_trial(self, namespace: str, experiment: str, assignments: Mapping[str, str]) -> int:
        """Run a trial next; return how many by hand come before it."""
        body = {"parameterAssignments": [{"name": name, "value": value} for name, value in assignments.items()]}
        answer = self._call("POST", f"{_path(namespace, 'experiments', experiment)}/trials", json=body)
        return int(answer["before"])

    def edit(
        self,
        namespace: str,
        experiment: str,
        *,
        counts: Mapping[str, int | None],
        stopped: bool | None = None,
        marks: MarkChanges | None = None,
    ) -> Experiment:
        """Change the counts of an experiment, stop it, let it go on, or mark it."""
        body: dict[str, Any] = {**counts, **({} if stopped is None else {"stopped": stopped})}
        if marks is not None:
            body |= _given(marks)
        return Experiment.read(self._call("PATCH", _path(namespace, "experiments", experiment), json=body))

    def pause(self, namespace: str, experiment: str, *, paused: bool) -> PausedExperiment:
        """Stop an experiment and pause its trials, or let all continue."""
        path = f"{_path(namespace, 'experiments', experiment)}/pause"
        answer = self._call("POST", path, json={"paused": paused})
        return PausedExperiment(Experiment.read(answer["experiment"]), tuple(answer["trials"]))

    def mark(self, namespace: str, trial: str, marks: MarkChanges) -> Trial:
        """Mark a trial."""
        return Trial.read(self._call("PATCH", _path(namespace, "trials", trial), json=_given(marks)))

    def suspend(self, namespace: str, trial: str, *, suspended: bool) -> Trial:
        """Suspend the job of a trial, or let it start again."""
        return Trial.read(self._call("PATCH", _path(namespace, "trials", trial), json={"suspended": suspended}))

    def ask(
        self,
        namespace: str,
        experiment: str,
        *,
        request_id: str,
        client: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
    ) -> GivenTrial:
        """Get a trial to evaluate."""
        body = {"requestId": request_id, "client": client, "leaseSeconds": lease_seconds, "waitSeconds": wait_seconds}
        answer = self._call(
            "POST",
            f"{_path(namespace, 'experiments', experiment)}/ask",
            json=body,
            timeout=httpx.Timeout(_ANSWER_SECONDS + wait_seconds, connect=_CONNECT_SECONDS),
        )
        return GivenTrial(answer["trial"] or {}, answer["isOver"], answer["reason"])

    def report(
        self,
        namespace: str,
        trial: str,
        values: Mapping[str, float | str],
        *,
        step: int | None = None,
        request_id: str = "",
        ask_id: str = "",
    ) -> CallerAnswer:
        """Store readings of a trial that this caller evaluates."""
        body = {"values": _texts(values), "step": step, "requestId": request_id, "askId": ask_id}
        return self._say(namespace, trial, "report", body)

    def tell(
        self,
        namespace: str,
        trial: str,
        values: Mapping[str, float | str],
        *,
        failure: str | None = None,
        stopped: bool = False,
        request_id: str = "",
        ask_id: str = "",
    ) -> CallerAnswer:
        """End a trial that this caller evaluates."""
        body = {
            "values": _texts(values),
            "failure": failure,
            "stopped": stopped,
            "requestId": request_id,
            "askId": ask_id,
        }
        return self._say(namespace, trial, "tell", body)

    def renew(self, namespace: str, trial: str, *, ask_id: str = "") -> CallerAnswer:
        """Give a sign of life of this caller."""
        return self._say(namespace, trial, "renew", {"askId": ask_id})

    def add_ended_trials(self, namespace: str, experiment: str, trials: Sequence[EndedTrial]) -> int:
        """Send trials that were evaluated elsewhere; return how many are new."""
        body = {"trials": [_ended(trial) for trial in trials]}
        answer = self._call("POST", f"{_path(namespace, 'experiments', experiment)}/ended-trials", json=body)
        return int(answer["added"])

    def _say(self, namespace: str, trial: str, verb: str, body: Mapping[str, Any]) -> CallerAnswer:
        answer = self._call("POST", f"{_path(namespace, 'trials', trial)}/{verb}", json=body)
        return CallerAnswer(answer["state"], answer["stop"])

    def delete(self, namespace: str, experiment: str) -> None:
        """Delete an experiment; returns when it is gone."""
        self._call("DELETE", _path(namespace, "experiments", experiment), timeout=_NO_LIMIT)

    def algorithms(self) -> Sequence[AlgorithmInfo]:
        """Return the algorithms offered."""
        return _read_items(AlgorithmInfo, self._get("algorithms"))

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _get(self, path: str, query: Query | None = None) -> Any:
        return self._call("GET", path, params=_drop_empty(query or {}))

    def _post(
        self, path: str, document: Document, source: str, namespace: str | None, query: Query | None = None
    ) -> Any:
        shared = self._source(source)
        try:
            return self._call(
                "POST",
                path,
                params=_drop_empty({"namespace": namespace or "", "source": shared, **(query or {})}),
                content=str(document).encode(),
                headers={"content-type": "application/yaml"},
            )
        except InvalidError as error:
            raise InvalidError(replace(e, path=source) if e.path == shared else e for e in error.errors) from error

    def exchange(self, path: str, message: bytes) -> bytes:
        """Return the answer to a message in the protocol of another library (`create_app`, `doors`)."""
        try:
            response = self._http.post(path, content=message)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            self._decode(response)
        return response.content

    def _source(self, source: str) -> str:
        """Return how to name a file to the server: to one on this machine its whole path, to others its name only."""
        path = Path(source)
        return str(path.resolve()) if self._local and path.is_file() else path.name

    def _call(self, method: str, path: str, **request: Any) -> Any:
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code == HTTPStatus.NO_CONTENT:
            return None
        return self._decode(response)

    def _decode(self, response: httpx.Response) -> Any:
        try:
            body = response.json()
        except ValueError as error:
            raise self._foreign(response) from error
        if response.is_success:
            return body
        if "Basic" in response.headers.get("www-authenticate", "") and "reason" in body:
            raise ForbiddenError(
                f"{self._url} asks for a token; give it with --token or in KATIB_TOKEN. A server that runs experiments "
                "itself keeps it in the file `token` of its data directory"
            )
        if not isinstance(body, dict) or "reason" not in body:
            raise self._foreign(response)
        raise error_of(body, response.status_code)

    @contextmanager
    def _stream(self, path: str, query: Query, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        try:
            with self._http.stream("GET", path, params=query, headers=headers, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    self._decode(response)
                yield response
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.HTTPError) -> UnavailableError:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return UnavailableError(
                f"the certificate of {self._url} is not trusted ({error}); name the file of its authority in "
                "SSL_CERT_FILE"
            )
        if isinstance(error, httpx.ConnectError):
            remedy = "start it with `katib serve`, or check --server"
            return UnavailableError(f"no server answers at {self._url}; {remedy}")
        if isinstance(error, httpx.TimeoutException):
            return UnavailableError(f"the server at {self._url} did not answer in time; try again")
        return UnavailableError(f"the connection to {self._url} was lost ({error}); try again")

    def _foreign(self, response: httpx.Response) -> KatibError:
        """Return the error for an answer that no server of ours gives: a gateway's, or another server's."""
        status = response.status_code
        if status in _LOGIN_STATUSES or response.has_redirect_location:
            return ForbiddenError(
                f"{self._url} answers {status}: a gateway wants a login; give a token that it accepts with --token or "
                "in KATIB_TOKEN"
            )
        if status in _GATEWAY_STATUSES:
            return UnavailableError(f"{self._url} answers {status}: a gateway does not reach the server; try again")
        if status == HTTPStatus.NOT_FOUND:
            return NotFoundError(f"what listens at {self._url} is no katib server; check --server")
        return InternalError(f"{self._url} answered {status} with something else than JSON")


def _renamed(shared: str, source: str, text: str) -> str:
    """Return a text in which a file has the name that the user knows."""
    return text.replace(f" in {shared}", f" in {source}")


def _read(kind: type[T], body: Any) -> T:
    """Return the value of the tuning service that a body holds."""
    return TypeAdapter(kind).validate_python(body)


def _read_items(kind: type[T], body: Any) -> tuple[T, ...]:
    return TypeAdapter(tuple[kind, ...]).validate_python(body["items"])  # type: ignore[valid-type]  # a type at run time


def _texts(values: Mapping[str, float | str]) -> dict[str, str]:
    """Return readings as text: JSON has neither NaN nor infinities."""
    return {name: value if isinstance(value, str) else repr(float(value)) for name, value in values.items()}


def _ended(trial: EndedTrial) -> dict[str, Any]:
    """Return a trial that was evaluated elsewhere as it is sent."""
    sent = {**asdict(trial), "began": trial.began.isoformat(), "ended": trial.ended.isoformat()}
    return sent | {"readings": [{**one._asdict(), "time": one.time.isoformat()} for one in trial.readings]}


def _given(marks: MarkChanges) -> dict[str, Any]:
    return {name: value for name, value in asdict(marks).items() if value is not None}


def _path(namespace: str, *parts: str) -> str:
    return "/".join(("namespaces", *map(_quoted, (namespace, *parts))))


def _quoted(part: str) -> str:
    """Return one part of a path; `.` and `..` are names here like any other."""
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")


def _drop_empty(query: Query) -> dict[str, Any]:
    return {key: value for key, value in query.items() if value not in ("", [])}


def _server_sent_events(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield name, data and id of each event that has data or an id; comments and other fields are skipped."""
    name, cursor = "", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data or cursor:
                yield name, json.loads("\n".join(data) or "{}"), cursor
            name, data, cursor = "", [], ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            cursor = value
