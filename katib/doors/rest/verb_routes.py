"""The routes of the verbs: a request is read by its declaration, answered by the service, and written."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import chain, count
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec import UNSET, DecodeError, ValidationError, convert, json, structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from katib.doors.rest.documents import check_namespace, read_document
from katib.doors.rest.routing import service_of
from katib.doors.rest.streams import Closing, byte_stream, change_stream
from katib.doors.rest.turns import Turns, asks_later
from katib.errors import FieldError, InvalidError, invalid
from katib.model.loading import FileText
from katib.service.tuning.asking import ASK_PAUSES, AskedTrial
from katib.service.tuning.service import (
    DEFAULT_NAMESPACE,
    VERBS,
    Ask,
    FollowChanges,
    GetObject,
    ReadFile,
    ReadLogs,
    Submit,
    SubmittedExperiment,
    TrialForCaller,
    TrialPage,
    TuningService,
    Validate,
)
from katib.service.tuning.verbs import DOCUMENT, Field, Verb, Way, fields_of, plain

A = TypeVar("A")

API = "/api/v1/"
_LOOK_SECONDS = 1.0
"""How often a request that waits looks whether the server stops."""
_JSON_TYPE = re.compile(r"application/(.+\+)?json")
_LONGEST_QUOTE = 100
"""Characters of a wrong value that an error quotes."""
_TEXT, _IMAGE = "text/plain; charset=utf-8", "image/"
_SHOWN = {
    **dict.fromkeys((".csv", ".json", ".log", ".md", ".tsv", ".txt", ".yaml", ".yml"), _TEXT),
    **{f".{end}": f"{_IMAGE}{end}" for end in ("gif", "jpeg", "png", "webp")},
    ".jpg": f"{_IMAGE}jpeg",
    ".svg": f"{_IMAGE}svg+xml",
}
"""Media types of files that a browser shows."""
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}

Respond = Callable[[TuningService, Any, Way], Awaitable[Response]]


def verb_routes(closing: Closing, turns: Turns, prefix: str = "") -> Iterator[Route]:
    """Yield the routes of all verbs.

    Args:
        closing: Ends streams and waits when the server is about to stop.
        turns: Runs the calls of callers that evaluate trials.
        prefix: Path before that of the API.
    """
    answers: Mapping[type, Respond] = {
        Submit: _submit,
        Validate: _validate,
        Ask: partial(_ask, closing, turns),
        ReadLogs: partial(_logs, closing),
        ReadFile: partial(_file, closing),
        FollowChanges: partial(_changes, closing),
    }
    for verb in VERBS:
        respond = answers.get(verb) or partial(_call, turns)
        for way in verb.rest.ways:
            route = Route(
                f"{prefix}{API}{way.path}", _endpoint(verb, way, respond), methods=[verb.rest.method], name=way.name
            )
            route.methods.discard("HEAD")  # type: ignore[union-attr]  # they were given
            yield route


def _endpoint(verb: type[Verb[Any]], way: Way, respond: Respond) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        service = service_of(request)
        return await respond(service, read_request(verb, way, request, await _body(verb, request)), way)

    return endpoint


# --- requests ---------------------------------------------------------------------------------------------------------


async def _body(verb: type[Verb[Any]], request: Request) -> Mapping[str, Any]:
    """Return the fields that a body holds."""
    if not verb.rest.body:
        return {}
    if verb.rest.body == DOCUMENT:
        return {DOCUMENT: await read_document(request)}
    if not _JSON_TYPE.fullmatch(request.headers.get("content-type", "").partition(";")[0].strip().lower()):
        raise invalid("body", "it is not sent as JSON", "add the header Content-Type: application/json", "media-type")
    try:
        found = json.decode(await request.body())
    except DecodeError as error:
        raise invalid("body", f"it is not JSON: {error}", "send an object", "json-invalid") from error
    if not isinstance(found, dict):
        raise invalid("body", f"{_quoted(found)} is not an object", "send an object", "json-invalid")
    return found


def read_request(verb: type[Verb[A]], way: Way, request: Request, body: Mapping[str, Any]) -> Verb[A]:
    """Return the request that a message holds.

    Raises:
        InvalidError: Anything wrong with its fields, all errors at once.
    """
    values, errors = dict(way.fixed), []
    fields = fields_of(verb, way)
    for field in fields:
        found = _value(field, request, body)
        if found is UNSET:
            if field.required:
                errors.append(FieldError(f"{field.place}.{field.wire}", "it is missing", "add it", "missing"))
            continue
        try:
            values[field.name] = (
                found if field.name == DOCUMENT else convert(found, field.type, strict=field.place == "body")
            )
        except ValidationError as error:
            errors.append(_error(field, found, str(error)))
    if verb.__struct_config__.forbid_unknown_fields:
        known = {field.wire for field in fields if field.place == "body"}
        errors += (
            FieldError(f"body.{name}", f"there is no such field: {_quoted(value)}", "see /docs", "extra-forbidden")
            for name, value in body.items()
            if name not in known
        )
    if errors:
        raise InvalidError(errors)
    return verb(**values)


def _value(field: Field, request: Request, body: Mapping[str, Any]) -> Any:
    """Return a field as it was sent; UNSET if it is absent."""
    if field.place == "path":
        return request.path_params[field.name]
    if field.place == "header":
        return request.headers.get(field.wire, UNSET)
    if field.place == "body":
        return body.get(field.wire, UNSET)
    found = request.query_params.getlist(field.wire)
    if not found:
        return UNSET
    return found if isinstance(field.default, tuple) else found[-1]


def _error(field: Field, value: Any, words: str) -> FieldError:
    message, _, inner = words.partition(" - at `$")
    path = f"{field.place}.{field.wire}{inner.rstrip('`')}"
    cause = f"{_quoted(value)}: {message[:1].lower()}{message[1:]}"
    return FieldError(path, cause, "see /docs for what it may be", "request-value")


def _quoted(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_QUOTE else f"{shown[:_LONGEST_QUOTE]}..."


# --- answers ----------------------------------------------------------------------------------------------------------


async def _call(turns: Turns, service: TuningService, request: Verb[Any], _way: Way) -> Response:
    """Answer as the declaration says."""
    if not request.rest.is_quick:
        return await run_in_threadpool(lambda: _response(request, service.call(request)))
    return _response(request, await turns.run(service, partial(service.call, request)))


def _response(request: Verb[Any], answer: Any) -> Response:
    if answer is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    status = request.rest.status
    if isinstance(answer, SubmittedExperiment) and answer.outcome == "created":
        status = HTTPStatus.CREATED
    return _json(b"".join(_pieces(answer)) if isinstance(answer, TrialPage) else plain(type(request), answer), status)


def _json(body: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    content = body if isinstance(body, bytes) else json.encode(body)
    return Response(content, status, headers, "application/json")


def _pieces(page: TrialPage) -> Iterator[bytes]:
    """Yield a page of trials, encoded one by one: memory that once held them all is not given back."""
    between = b'{"items":['
    for document in page.documents:
        yield between
        yield json.encode(document)
        between = b","
    yield b"" if page.documents else between
    yield b"]," + json.encode({"cursor": page.cursor, "total": page.total})[1:]


async def _submit(service: TuningService, request: Submit, way: Way) -> Response:
    """Submit the experiments of a document; the place of one is right under any path of a gateway."""

    def submitted() -> Response:
        is_inside = "{" in way.path
        if is_inside:
            check_namespace(str(request.document), request.namespace or "")
        made = [service.call(one) for one in _each(request)]
        status = HTTPStatus.CREATED if any(one.outcome == "created" for one in made) else HTTPStatus.OK
        if len(made) > 1:
            return _json({"items": made}, status)
        experiment = made[0].experiment
        place = f"experiments/{experiment.name}"
        place = place if is_inside else f"namespaces/{experiment.namespace}/{place}"
        return _json(made[0], status, {"location": place})

    return await run_in_threadpool(submitted)


async def _validate(service: TuningService, request: Validate, _way: Way) -> Response:
    def validated() -> Response:
        return _json(plain(Validate, list(chain.from_iterable(map(service.call, _each(request))))))

    return await run_in_threadpool(validated)


T = TypeVar("T", Submit, Validate)


def _each(request: T) -> Iterable[T]:
    namespace = request.namespace or DEFAULT_NAMESPACE
    for file in FileText(str(request.document), request.source).experiments():
        yield structs.replace(request, document=file, namespace=namespace)


async def _ask(closing: Closing, turns: Turns, service: TuningService, request: Ask, _way: Way) -> Response:
    """Give a trial to a caller as soon as there is one; no thread waits for it."""
    deadline = time.monotonic() + request.wait_seconds
    now = structs.replace(request, wait_seconds=0.0)
    ask: Callable[[], AskedTrial | TrialForCaller] = partial(
        service.ask_later if asks_later(service) else service.call, now
    )
    for attempt in count(1):
        given = await _given(await turns.run(service, ask), deadline, closing)
        left = deadline - time.monotonic()
        if given.document or given.is_over or left <= 0 or closing.begun:
            break
        await asyncio.sleep(min(left, ASK_PAUSES.pause_seconds(attempt)))
    return _json(given)


async def _given(asked: AskedTrial | TrialForCaller, deadline: float, closing: Closing) -> TrialForCaller:
    """Return the answer to a caller, at the latest when its time is up or the server stops."""
    if isinstance(asked, TrialForCaller):
        return asked
    answer = asked.answer
    while answer is not None and not answer.done() and not closing.begun:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        await asyncio.wait([asyncio.wrap_future(answer)], timeout=min(left, _LOOK_SECONDS))
    if answer is not None and answer.done():
        return answer.result()
    return await run_in_threadpool(asked.leave)


async def _logs(closing: Closing, service: TuningService, request: ReadLogs, _way: Way) -> Response:
    return await _bytes(closing, service, request, {"content-type": "text/plain; charset=utf-8"})


async def _file(closing: Closing, service: TuningService, request: ReadFile, _way: Way) -> Response:
    """Answer with a file of a trial: an image or text as such, another as a download; a page in it cannot run."""
    path = PurePosixPath(request.path)
    kind = _SHOWN.get(path.suffix.lower(), "application/octet-stream")
    way = "inline" if path.suffix.lower() in _SHOWN else "attachment"
    headers = {
        "content-type": kind,
        "content-disposition": f"{way}; filename*=UTF-8''{quote(path.name, safe='')}",
        "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    }
    return await _bytes(closing, service, request, headers)


async def _bytes(
    closing: Closing, service: TuningService, request: ReadLogs | ReadFile, headers: Mapping[str, str]
) -> Response:
    def begun() -> tuple[bytes, Iterator[bytes]]:
        chunks = service.call(request)
        return next(chunks, b""), chunks  # an error can still be the answer; one comes within a second or so

    first, chunks = await run_in_threadpool(begun)
    return StreamingResponse(
        byte_stream(lambda: chain((first,), chunks), closing),
        headers={**headers, **_STREAM_HEADERS, "x-content-type-options": "nosniff"},
    )


async def _changes(closing: Closing, service: TuningService, request: FollowChanges, _way: Way) -> Response:
    await run_in_threadpool(service.call, GetObject(request.namespace, request.name, "Experiment"))
    return StreamingResponse(
        change_stream(service, request, closing), media_type="text/event-stream", headers=_STREAM_HEADERS
    )
