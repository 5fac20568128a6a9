"""The web application: routes, error bodies, request security."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from katib import __version__
from katib.errors import FieldError, KatibError
from katib.rest.bodies import AlgorithmBody, AlgorithmsBody, ChangeBody, ProblemBody
from katib.rest.docs_page import HEADERS, render_page
from katib.rest.experiment_routes import experiment_routes
from katib.rest.guard import LOOPBACK_HOSTS, Guard
from katib.rest.problems import MEDIA_TYPE, problem, problem_of, render
from katib.rest.streams import Closing
from katib.rest.trial_routes import trial_routes
from katib.tuning.service import TuningService

_PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error, as RFC 9457 describes it.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
    }
}


def create_app(
    service: TuningService,
    *,
    token: str | None = None,
    allowed_hosts: Collection[str] | None = LOOPBACK_HOSTS,
    closing: Closing | None = None,
) -> FastAPI:
    """Return the web application of a tuning service.

    Args:
        service: What answers.
        token: Bearer token that requests must carry; None only on loopback.
        allowed_hosts: Names under which the server may be addressed; None: any.
        closing: Ends all streams when the server is about to stop.
    """
    closing = closing or Closing()
    app = _App(
        title="Katib",
        version=__version__,
        description="Hyperparameter tuning: submit experiments, follow their trials, read the best.",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        responses=_PROBLEM,
    )
    app.include_router(experiment_routes(service, closing))
    app.include_router(trial_routes(service, closing))
    _add_service_routes(app, service)
    _add_error_handlers(app)
    app.add_middleware(Guard, token=token, allowed_hosts=allowed_hosts)
    return app


class _App(FastAPI):
    """The framework's application with our error form in its description."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI description."""
        if self.openapi_schema is None:
            self.openapi_schema = _with_shared_models(super().openapi())
        return self.openapi_schema


def _add_service_routes(app: FastAPI, service: TuningService) -> None:
    @app.get("/api/v1/algorithms", tags=["algorithms"])
    def list_algorithms() -> AlgorithmsBody:
        """List the algorithms offered, suggestion algorithms first."""
        return AlgorithmsBody(items=tuple(map(AlgorithmBody.model_validate, service.algorithms())))

    @app.get("/healthz", tags=["service"])
    def check_health() -> dict[str, str]:
        """Tell that the server is up. Needs no token."""
        return {"status": "ok", "version": __version__}

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(render_page(app.openapi()), headers=HEADERS)

    @app.get("/", include_in_schema=False)
    def root() -> RedirectResponse:
        return RedirectResponse("/docs")


def _add_error_handlers(app: FastAPI) -> None:
    def respond(body: dict[str, Any], extra: dict[str, str] | None = None) -> Response:
        status, content, headers = render(body)
        return Response(content, status, {**headers, **(extra or {})})

    @app.exception_handler(KatibError)
    async def on_katib_error(_request: Request, error: KatibError) -> Response:
        return respond(problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def on_bad_request(_request: Request, error: RequestValidationError) -> Response:
        errors = tuple(map(_field_error, error.errors()))
        return respond(problem(422, "Invalid", "\n".join(map(str, errors)), errors))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase
        detail = error.detail if error.detail != phrase else f"{request.method} {request.url.path}: see /docs"
        reason = "NoSuchRoute" if error.status_code == HTTPStatus.NOT_FOUND else phrase.title().replace(" ", "")
        body = problem(error.status_code, reason, detail, title=phrase)
        return respond(body, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, error: Exception) -> Response:
        return respond(problem_of(error))


def _field_error(error: dict[str, Any]) -> FieldError:
    """Return a broken rule of a route's parameters in the form of all field errors."""
    path = ".".join(map(str, error["loc"]))
    message = str(error["msg"])
    cause = f"{error.get('input')!r}: {message[:1].lower()}{message[1:]}"
    return FieldError(path, cause, "see /docs for what it may be", str(error["type"]).replace("_", "-"))


def _with_shared_models(openapi: dict[str, Any]) -> dict[str, Any]:
    """Add the models that no route names as its plain answer, and drop the framework's own error form."""
    schemas = openapi.setdefault("components", {}).setdefault("schemas", {})
    for model in (ProblemBody, ChangeBody):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for methods in openapi["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    return openapi
