"""The application: dispatch from paths to verbs, and responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from katib.doors.kube_api import discovery
from katib.doors.kube_api.bodies import flag, media_type_of, options_of, read_body
from katib.doors.kube_api.columns import value_at
from katib.doors.kube_api.list_options import list_options_of
from katib.doors.kube_api.logs import log_chunks
from katib.doors.kube_api.objects import ObjectService, RequestTarget, WriteOptions, WriteResult
from katib.doors.kube_api.openapi import Descriptions
from katib.doors.kube_api.patches import APPLY_PATCH, PATCHES
from katib.doors.kube_api.representations import WHOLE, Representation, form_of
from katib.doors.kube_api.resources import RESOURCES, REVIEWS, ServedResource, by_path
from katib.doors.kube_api.selectors import Selector, selector_of
from katib.doors.kube_api.statuses import StatusError, bad_request, status_of
from katib.doors.kube_api.watching import watch_lines
from katib.doors.rest.guard import TOKEN_PROTOCOL, App, Receive, Scope, Send
from katib.doors.rest.streams import Closing, byte_stream
from katib.engine.controllers.metrics import Page
from katib.engine.runtime.objects import Object
from katib.engine.stores.semantics import encode
from katib.errors import KatibError
from katib.service.tuning.object_home import ObjectHome


async def send_lines(socket: WebSocket, chunks: AsyncIterator[bytes]) -> None:
    """Accept a WebSocket, send each line as a message, and close it after the last one or when its client is gone.

    The first offered subprotocol is accepted, whatever its name, except the one that carries a token.

    Args:
        socket: A WebSocket that is not accepted yet.
        chunks: Whole lines, one or several in each.
    """
    offered = [name for name in socket.scope.get("subprotocols", ()) if not name.startswith(TOKEN_PROTOCOL)]
    await socket.accept(subprotocol=offered[0] if offered else None)
    sending = asyncio.create_task(_send(socket, chunks))
    leaving = asyncio.create_task(_wait_for_end(socket))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        sending.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect):
            await sending
            await socket.close()


async def _send(socket: WebSocket, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        for line in chunk.splitlines():
            await socket.send_text(line.decode())


async def _wait_for_end(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass  # an API server reads and ignores its clients' messages


Json = dict[str, Any]

_SLASHED = ("/api/", "/apis/", "/version/")
_METHODS = ["DELETE", "GET", "PATCH", "POST", "PUT"]
_CHUNK_OF_KUBECTL, _ROWS = 500, 10_000
"""kubectl requests pages of 500, and after ten of them throttles itself to five a second. Rows are small, so a page of
rows may have more."""

_REVIEWS = by_path(REVIEWS)
_VERBS: Mapping[tuple[str, bool], str] = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}
"""Verbs by method, and whether the path names one object."""


def create_app(
    home: ObjectHome, closing: Closing, pages: Mapping[str, Page], resources: Sequence[ServedResource] = RESOURCES
) -> Starlette:
    api, described = _Api(ObjectService(home), closing, by_path(resources)), Descriptions(home.structures)
    routes = [
        Route("/", _answering(lambda _request: discovery.paths(resources))),
        Route("/version", _answering(lambda _request: discovery.version())),
        Route("/api", _answering(partial(_groups, resources, core=True))),
        Route("/apis", _answering(partial(_groups, resources, core=False))),
        Route("/api/v1", _answering(lambda _request: discovery.resource_list(resources, "v1"))),
        Route("/apis/{group}", _answering(lambda request: discovery.group(resources, request.path_params["group"]))),
        Route("/apis/{group}/{version}", _answering(partial(_resource_list, resources))),
        Route("/openapi/v3", partial(_openapi_index, described)),
        Route("/openapi/v3/{path:path}", partial(_openapi, described)),
        Route("/api/v1/{path:path}", api.answer, methods=_METHODS),
        Route("/apis/{group}/{version}/{path:path}", api.answer, methods=_METHODS),
        WebSocketRoute("/api/v1/{path:path}", api.watch_by_socket),
        WebSocketRoute("/apis/{group}/{version}/{path:path}", api.watch_by_socket),
        *(Route(path, _health(pages)) for path in ("/healthz", "/livez", "/readyz")),
    ]
    handlers: Any = {KatibError: _on_error, HTTPException: _on_http_error, Exception: _on_error}
    return Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(_WithoutLastSlash)])


class _WithoutLastSlash:
    """Strips a trailing slash from a path, as an API server does."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.startswith(_SLASHED) and path.endswith("/"):
            scope = {**scope, "path": path[:-1], "raw_path": path[:-1].encode()}
        await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Api:
    objects: ObjectService
    closing: Closing
    resources: Mapping[tuple[str, str], ServedResource]

    async def answer(self, request: Request) -> Response:
        api_version, path = _place(request)
        asked = _REVIEWS.get((api_version, "/".join(path)))
        if request.method == "POST" and asked is not None:
            spec = {}
            with suppress(StatusError):  # clients in Go send protobuf, and the result is the same
                media_type = media_type_of(request.headers.get("content-type", ""))
                spec = value_at(read_body(await request.body(), media_type), "spec")
            return respond(discovery.review(asked, spec), HTTPStatus.CREATED)
        target = target_of(self.resources, api_version, path)
        try:
            return await self._answer(request, target)
        except Exception as error:
            if not isinstance(error, KatibError):
                raise
            return _refusal(error, target.resource, target.name or getattr(request.state, "name", ""))

    async def _answer(self, request: Request, target: RequestTarget) -> Response:
        verb = _VERBS.get((request.method, bool(target.name)), "")
        if verb == "list" and flag(request.query_params, "watch"):
            verb = "watch"
        _require_verb(target, verb, request.method)
        if target.subresource == "log":
            return await self._log(request, target)
        if verb in ("create", "update", "patch"):
            return await self._write(request, target, verb)
        handlers: Mapping[str, Callable[[Request, RequestTarget], Awaitable[Response]]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "delete": self._delete,
            "deletecollection": self._delete_all,
        }
        return await handlers[verb](request, target)

    async def _get(self, request: Request, target: RequestTarget) -> Response:
        since = {name: text for name, text in request.query_params.items() if name == "resourceVersion"}
        options = list_options_of(since, is_watch=False)

        def read() -> Object:
            options.require_known(self.objects.revision(target) if options.since else "")
            return self.objects.get(target)

        obj = await run_in_threadpool(read)
        return _respond_with(request, target, obj)

    async def _list(self, request: Request, target: RequestTarget) -> Response:
        options = list_options_of(request.query_params, is_watch=False)
        selector, form, limit = _selector(request, target), _form(request), options.limit
        if form.name == "Table" and limit >= _CHUNK_OF_KUBECTL:
            limit = max(limit, _ROWS)

        def read() -> str:
            shape = form.shape(target.resource, datetime.now(UTC))
            options.require_known(self.objects.revision(target) if options.since else "")
            texts, metadata = self.objects.texts(target, selector, shape, limit=limit, token=options.token)
            return form.many(target.resource, texts, metadata)

        return Response(await run_in_threadpool(read), media_type="application/json")

    async def _watch(self, request: Request, target: RequestTarget) -> Response:
        return StreamingResponse(await self._changes(request, target), media_type="application/json")

    async def _changes(self, request: HTTPConnection, target: RequestTarget) -> AsyncIterator[bytes]:
        options, selector = list_options_of(request.query_params, is_watch=True), _selector(request, target)
        if options.initial:
            options.require_known(await run_in_threadpool(self.objects.revision, target))
        return watch_lines(self.objects, target, selector, _form(request), options, self.closing)

    async def watch_by_socket(self, socket: WebSocket) -> None:
        """Send the changes of a watch as messages of a WebSocket, one each."""
        try:
            target = target_of(self.resources, *_place(socket))
            is_watch = not target.name and flag(socket.query_params, "watch")
            if not is_watch:
                raise bad_request("only a watch can be had by a WebSocket; add watch=true, or send a plain request")
            _require_verb(target, "watch", "watch")
            chunks = await self._changes(socket, target)
        except KatibError as error:
            await socket.receive()
            await socket.send_denial_response(_refusal(error))
            return
        await send_lines(socket, chunks)

    async def _write(self, request: Request, target: RequestTarget, verb: str) -> Response:
        options, media_type = options_of(request.query_params), media_type_of(request.headers.get("content-type", ""))
        if verb == "patch" and media_type not in PATCHES:
            raise StatusError(415, f"{media_type} is not the type of a patch; send {', '.join(PATCHES)}")
        body = read_body(await request.body(), media_type, is_custom=target.resource.is_custom)
        if media_type != APPLY_PATCH and not options.manager:  # the default manager is the client's program
            program = request.headers.get("user-agent", "").partition("/")[0].strip()
            options = replace(options, manager=program or "unknown")
        writes: Mapping[str, Callable[[RequestTarget, Any, WriteOptions], WriteResult]] = {
            "create": self.objects.create,
            "update": self.objects.update,
            "patch": self.objects.apply if media_type == APPLY_PATCH else partial(self.objects.patch, media_type),
        }
        request.state.name = value_at(body, "metadata", "name") or ""  # for errors
        answer = await run_in_threadpool(writes[verb], target, body, options)
        status = HTTPStatus.CREATED if answer.is_new else HTTPStatus.OK
        return _respond_with(request, target, answer.body, status, answer)

    async def _delete(self, request: Request, target: RequestTarget) -> Response:
        delete_options = await _delete_options(request)
        options = options_of(request.query_params, delete_options)
        answer = await run_in_threadpool(self.objects.delete, target, delete_options, options)
        return respond(answer.body)

    async def _delete_all(self, request: Request, target: RequestTarget) -> Response:
        delete_options, selector = await _delete_options(request), _selector(request, target)
        list_options_of(request.query_params, is_watch=False)
        options = options_of(request.query_params, delete_options)
        found = await run_in_threadpool(self.objects.delete_all, target, selector, delete_options, options)
        text = WHOLE.many(target.resource, map(encode, found), {"resourceVersion": ""})
        return Response(text, media_type="application/json")

    async def _log(self, request: Request, target: RequestTarget) -> Response:
        chunks = await run_in_threadpool(log_chunks, self.objects, target, request.query_params)
        return StreamingResponse(byte_stream(lambda: chunks, self.closing), media_type="text/plain")


def target_of(resources: Mapping[tuple[str, str], ServedResource], api_version: str, path: list[str]) -> RequestTarget:
    """Return the target of a path.

    Raises:
        StatusError: The path does not exist.
    """
    namespace = ""
    if path[:1] == ["namespaces"] and len(path) > 2:  # noqa: PLR2004 - before the name of a kind in it
        namespace, path = path[1], path[2:]
    plural, name, subresource = (*path, "", "", "")[:3]
    resource = resources.get((api_version, plural))
    if resource is None or len(path) > 3 or (namespace and not resource.is_namespaced):  # noqa: PLR2004 - those three
        raise StatusError(404, _not_served(api_version, plural))
    if subresource and subresource not in resource.subresources:
        raise StatusError(404, f"{resource.title} has no subresource {subresource}")
    if name and resource.is_namespaced and not namespace:
        raise StatusError(404, f"{resource.title} are in namespaces; name one in the path")
    return RequestTarget(resource, namespace, name, subresource)


def _not_served(api_version: str, plural: str) -> str:
    reason = "this is one machine and not a cluster; /apis lists what there is"
    return f"the server could not find the requested resource: {plural} of {api_version} is not served here, {reason}"


def _require_verb(target: RequestTarget, verb: str, method: str) -> None:
    resource = target.resource
    allowed = discovery.verbs_of(resource, target.subresource) if target.subresource else list(resource.verbs)
    if verb not in allowed or (verb == "create" and resource.is_namespaced and not target.namespace):
        what = f"{resource.title}/{target.subresource}" if target.subresource else resource.title
        raise StatusError(405, f"{method} of {what} is not possible here; possible are {', '.join(allowed)}")


def _place(request: HTTPConnection) -> tuple[str, list[str]]:
    """Return the apiVersion in a path, and the remaining parts."""
    parts = request.path_params
    api_version = f"{parts['group']}/{parts['version']}" if "group" in parts else "v1"
    return api_version, [part for part in parts["path"].split("/") if part]


def _selector(request: HTTPConnection, target: RequestTarget) -> Selector:
    query = request.query_params
    return selector_of(target.resource.kind.kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))


def _form(request: HTTPConnection) -> Representation:
    return form_of(request.headers.get("accept", ""), request.query_params.get("includeObject", ""))


async def _delete_options(request: Request) -> Json:
    """Return the DeleteOptions of a request, from its body and its parameters."""
    raw = await request.body()
    found = read_body(raw, media_type_of(request.headers.get("content-type", ""))) if raw.strip() else {}
    if not isinstance(found, dict):
        raise bad_request("the body is not DeleteOptions")
    named = {name: request.query_params[name] for name in ("propagationPolicy",) if name in request.query_params}
    return {**found, **named}


def _respond_with(
    request: Request, target: RequestTarget, obj: Object, status: int = HTTPStatus.OK, answer: WriteResult | None = None
) -> Response:
    shown = obj if obj.get("kind") == "Status" else _form(request).one(target.resource, obj, datetime.now(UTC))
    return respond(shown, status, answer.warnings if answer is not None else ())


def respond(body: Object, status: int = HTTPStatus.OK, warnings: tuple[str, ...] = ()) -> Response:
    """Return a JSON response, with warnings in Kubernetes' form."""
    response = Response(encode(body), status, media_type="application/json")
    for text in warnings:
        plain = " ".join(text.split()).encode("ascii", "replace").decode().replace("\\", "\\\\").replace('"', '\\"')
        response.headers.append("warning", f'299 - "{plain}"')
    return response


def _answering(read: Callable[[Request], Json | None]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        body = read(request)
        if body is None:
            raise StatusError(404, "the server could not find the requested resource")
        if body.get("kind") == discovery.AGGREGATED:
            return Response(encode(body), headers={"content-type": discovery.AGGREGATED_MEDIA_TYPE, "vary": "Accept"})
        return respond(body)

    return answer


def _groups(resources: Sequence[ServedResource], request: Request, *, core: bool) -> Json:
    for choice in request.headers.get("accept", "").split(","):
        given = dict(part.strip().partition("=")[::2] for part in choice.split(";")[1:])
        if given.get("as") == discovery.AGGREGATED and given.get("v") == "v2":
            return discovery.aggregated(resources, core=core)
    return discovery.api_versions() if core else discovery.group_list(resources)


def _resource_list(resources: Sequence[ServedResource], request: Request) -> Json | None:
    return discovery.resource_list(resources, f"{request.path_params['group']}/{request.path_params['version']}")


async def _openapi_index(described: Descriptions, _request: Request) -> Response:
    return Response(await run_in_threadpool(lambda: described.index), media_type="application/json")


async def _openapi(described: Descriptions, request: Request) -> Response:
    root, _, api_version = request.path_params["path"].partition("/")
    documents = await run_in_threadpool(lambda: described.documents)
    if root not in ("api", "apis") or api_version not in documents:
        raise StatusError(404, "the server could not find the requested resource")
    return Response(documents[api_version], media_type="application/json")


def _health(pages: Mapping[str, Page]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        page = pages.get(request.url.path)
        status = HTTPStatus.OK if page is None else (await run_in_threadpool(page))[0]
        return PlainTextResponse("ok" if status == HTTPStatus.OK else "not ready", status)

    return answer


def _refusal(error: BaseException, resource: ServedResource | None = None, name: str = "") -> Response:
    status = status_of(error, resource, name)
    response = respond(status, status["code"])
    if seconds := status.get("details", {}).get("retryAfterSeconds"):
        response.headers["retry-after"] = str(seconds)
    return response


async def _on_error(_request: Request, error: Exception) -> Response:
    return _refusal(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    return _refusal(StatusError(code, f"{request.method} {request.url.path}: {HTTPStatus(code).phrase.lower()}"))
