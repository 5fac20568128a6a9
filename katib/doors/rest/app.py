"""The web application: routes, error bodies, request security."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NotRequired

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.routing import APIRoute
from msgspec.json import schema_components
from starlette.exceptions import HTTPException
from starlette.routing import Match, compile_path
from typing_extensions import TypedDict  # pydantic wants this one below Python 3.12

from katib.doors.rest.description import Description
from katib.doors.rest.docs_page import HEADERS, render_page
from katib.doors.rest.documents import NEW_EXPERIMENT, NEW_EXPERIMENT_SCHEMA
from katib.doors.rest.guard import LOOPBACK_HOSTS, OPEN_PATHS, App, Guard, Message, Receive, Scope, Send
from katib.doors.rest.problems import PROBLEM, SCHEMAS, Problem, problem, problem_of, render
from katib.doors.rest.routing import answer_with, let_in_by, name_of
from katib.doors.rest.sessions import Sessions
from katib.doors.rest.streams import Closing
from katib.doors.rest.turns import Turns
from katib.doors.rest.verb_routes import verb_routes
from katib.doors.rest.visits import UI_PREFIX, Headers, PageRouter, ShowProblem, wants_page
from katib.engine.controllers.metrics import Page
from katib.errors import FieldError, KatibError, NotFoundError
from katib.model.types import Experiment, Suggestion, Trial, structural
from katib.model.version import __version__
from katib.service.tuning.service import TuningService
from katib.service.tuning.users import Gateway

_LEAST_BYTES = 1_024
_THREAD_BYTES = 32_768
"""Longer answers are compressed on a thread, so that others do not wait."""
_LEVEL = 5
_TYPES = ("text/html", "application/json", "application/problem+json")


class Compression:
    """ASGI middleware that compresses answers that are complete. Streams pass as they are, each part at once.

    Args:
        app: Whose answers they are.
        prefix: Of the paths that it does so for. Programs on this machine gain nothing.
    """

    def __init__(self, app: App, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        if not is_page or "gzip" not in Headers(scope["headers"]).get("accept-encoding"):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Answer(send))


class _Answer:
    """Sends an answer once its first part is there, which shows whether it is complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(message.get("headers", ()))
            if headers.get("content-type").partition(";")[0].strip() in _TYPES and not headers.get("content-encoding"):
                self._start = message
                return
        start, self._start = self._start, None
        if start is not None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                start, message = await _compressed(start, message)
            await self._send(start)
        await self._send(message)


async def _compressed(start: Message, message: Message) -> tuple[Message, Message]:
    body = message.get("body", b"")
    headers = [*start.get("headers", ()), (b"vary", b"accept-encoding")]
    if len(body) >= _LEAST_BYTES:
        if len(body) < _THREAD_BYTES:
            body = gzip.compress(body, _LEVEL)
        else:
            body = await asyncio.to_thread(gzip.compress, body, _LEVEL)
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        headers += [(b"content-encoding", b"gzip"), (b"content-length", str(len(body)).encode())]
    return {**start, "headers": headers}, {**message, "body": body}


_LONGEST_QUOTE = 100
"""Characters of a wrong value that an error quotes."""

_SERVERS = [
    {
        "url": "http://{host}:{port}",
        "description": "A server on this machine, or one that KATIB_SERVER names.",
        "variables": {"host": {"default": "127.0.0.1"}, "port": {"default": "8765"}},
    },
    {"url": ".", "description": "The server that this description comes from, also below a path of a gateway."},
]
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The server's token: the file `token` of its data."},
    "basic": {"type": "http", "scheme": "basic", "description": "Any name, and the token as password."},
}
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

MakePages = Callable[[Closing], PageRouter]
"""Returns the pages for people, whose streams end when the server is about to stop."""


def create_app(
    service: TuningService | Gateway,
    *,
    sessions: Sessions | None = None,
    allowed_hosts: Collection[str] | None = LOOPBACK_HOSTS,
    closing: Closing | None = None,
    pages: Mapping[str, Page] = MappingProxyType({}),
    ui: MakePages | None = None,
    doors: Sequence[APIRouter] = (),
) -> FastAPI:
    """Return the web application of a tuning service.

    Args:
        service: One service for all requests, or behind a gateway one for each user.
        sessions: The token that requests must carry, and how browsers get in without it; None only on loopback.
        allowed_hosts: Names under which the server may be addressed; None: any.
        closing: Ends all streams when the server is about to stop.
        pages: Pages for monitoring: `/readyz` and `/metrics`. Without the first the server is ready when it answers,
            without the second there is nothing to count.
        ui: Returns the routes of the page for people, below `UI_PREFIX`; without it `/` leads to `/docs`.
        doors: Routes that answer in the protocols of other libraries, which are described there.
    """
    closing = closing or Closing()
    app = _App(
        title="Katib",
        version=__version__,
        description="Hyperparameter tuning: submit experiments, follow their trials, read the best.",
        docs_url=None,
        redirect_slashes=False,  # a gateway may show us under a path that we do not know
        redoc_url=None,
        generate_unique_id_function=name_of,
        responses=dict(PROBLEM),
    )
    answer_with(app, service)
    app.state.pages = pages
    let_in_by(app, sessions)
    people = None if ui is None else ui(closing)
    turns = Turns()
    for prefix in ("",) if people is None else ("", UI_PREFIX):
        app.router.routes.extend(verb_routes(closing, turns, prefix))
    if people is not None:
        app.router.routes.extend(_below(UI_PREFIX, people))
    for door in doors:
        app.include_router(door, include_in_schema=False)
    _add_service_routes(app, pages)
    _add_documents(app, has_pages=people is not None)
    show_problem = None if people is None else people.show_problem
    _add_error_handlers(app, show_problem)
    if people is not None:
        app.add_middleware(Compression, prefix=f"{UI_PREFIX}/")
    app.add_middleware(
        Guard,
        sessions=sessions,
        allowed_hosts=allowed_hosts,
        user_headers=service.headers if isinstance(service, Gateway) else None,
        show_problem=show_problem,
    )
    return app


def _below(prefix: str, router: APIRouter) -> Iterator[APIRoute]:
    """Yield the routes of a router as they answer below a prefix, without a description.

    The framework would build each of them again, which takes a millisecond: as long as all else that a server does
    before its first answer.
    """
    for route in router.routes:
        assert isinstance(route, APIRoute)
        found = copy(route)
        found.path = prefix + route.path
        found.path_regex, found.path_format, found.param_convertors = compile_path(found.path)
        found.include_in_schema = False
        yield found


class Health(TypedDict):
    """The answer of a server that is up."""

    status: str
    version: NotRequired[str]


class _App(FastAPI):
    """The framework's application with a description of the verbs."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI description."""
        if self.openapi_schema is None:
            self.openapi_schema = _described(super().openapi())
        return self.openapi_schema


def _add_service_routes(app: FastAPI, pages: Mapping[str, Page]) -> None:
    @app.get("/healthz", tags=["service"])
    def check_health() -> Health:
        """Answer that the server is up. Needs no token and no user."""
        return {"status": "ok", "version": __version__}

    @app.get("/readyz", tags=["service"], response_model=dict[str, bool], responses={503: {"description": "Not yet."}})
    def check_readiness() -> Response:
        """Return whether experiments continue: the checks and their results. Needs no token and no user."""
        return _page(pages, "/readyz") or JSONResponse({})

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    def read_counts() -> Response:
        """Return metrics for Prometheus: experiments and trials by state, under the names of Katib's controller."""
        page = _page(pages, "/metrics")
        if page is None:
            raise NotFoundError("this server counts nothing; in a cluster the controller does")
        return page


def _add_documents(app: FastAPI, *, has_pages: bool) -> None:
    """Add the description of the API, also below the pages, and the redirection to the first page."""
    home = f"{UI_PREFIX[1:]}/" if has_pages else "docs"

    @app.get("/", include_in_schema=False)
    def root() -> RedirectResponse:
        return RedirectResponse(home)

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(render_page(app.openapi()), headers=HEADERS)

    if has_pages:
        app.get(UI_PREFIX, include_in_schema=False)(root)
        app.get(f"{UI_PREFIX}/docs", include_in_schema=False)(docs)
        app.get(f"{UI_PREFIX}/openapi.json", include_in_schema=False)(app.openapi)


def _page(pages: Mapping[str, Page], path: str) -> Response | None:
    if path not in pages:
        return None
    status, content_type, body = pages[path]()
    return Response(body, status, {"content-type": content_type, "cache-control": "no-store"})


def _add_error_handlers(app: FastAPI, show_problem: ShowProblem | None) -> None:
    def respond(request: Request, body: Problem, extra: dict[str, str] | None = None) -> Response:
        if show_problem is not None and wants_page(request.method, request.url.path, Headers(request.scope["headers"])):
            return show_problem(request, body)
        status, content, headers = render(body)
        return Response(content, status, {**headers, **(extra or {})})

    @app.exception_handler(KatibError)
    async def on_katib_error(request: Request, error: KatibError) -> Response:
        return respond(request, problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def on_bad_request(request: Request, error: RequestValidationError) -> Response:
        errors = tuple(map(_field_error, error.errors()))
        return respond(request, problem(422, "Invalid", "\n".join(map(str, errors)), errors))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase
        detail = error.detail if error.detail != phrase else f"{request.method} {request.url.path}: see /docs"
        reason = "NoSuchRoute" if error.status_code == HTTPStatus.NOT_FOUND else phrase.title().replace(" ", "")
        body = problem(error.status_code, reason, detail, title=phrase)
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["allow"] = ", ".join(_methods_at(request))
        return respond(request, body, headers)

    @app.exception_handler(Exception)
    async def on_bug(request: Request, error: Exception) -> Response:
        return respond(request, problem_of(error))


def _methods_at(request: Request) -> list[str]:
    """Return the methods of all routes to a path; the framework names those of the first one."""

    def is_known(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in _METHODS if is_known(method)]


def _field_error(error: dict[str, Any]) -> FieldError:
    """Return a broken rule of a route's parameters in the form of all field errors."""
    path = ".".join(map(str, error["loc"]))
    if isinstance(error.get("input"), bytes):  # JSON that the framework does not read as such
        return FieldError(path, "it is not sent as JSON", "add the header Content-Type: application/json", "media-type")
    message = str(error["msg"])
    given = repr(error.get("input"))
    shown = given if len(given) <= _LONGEST_QUOTE else f"{given[:_LONGEST_QUOTE]}..."
    cause = f"{shown}: {message[:1].lower()}{message[1:]}"
    return FieldError(path, cause, "see /docs for what it may be", str(error["type"]).replace("_", "-"))


def _described(openapi: dict[str, Any]) -> dict[str, Any]:
    """Add the verbs, their schemas and the access, and drop the framework's error form."""
    verbs = Description()
    openapi |= {"servers": _SERVERS, "security": [{scheme: []} for scheme in _SECURITY]}
    health = openapi["components"]["schemas"]["Health"]
    openapi["components"] = {"securitySchemes": _SECURITY}
    (_,), problem = schema_components([Problem], ref_template=f"{SCHEMAS}{{name}}")
    kinds = (Experiment, Trial, Suggestion)
    openapi["components"]["schemas"] = {
        "Health": health,
        **verbs.schemas,
        **problem,
        **structural.schemas(*kinds, reference=f"{SCHEMAS}{{name}}"),
        NEW_EXPERIMENT: NEW_EXPERIMENT_SCHEMA,
    }
    openapi["paths"] |= verbs.paths
    for path in OPEN_PATHS:
        openapi["paths"][path]["get"]["security"] = []
    return openapi
