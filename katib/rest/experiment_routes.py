"""Routes of experiments: submit, look, follow, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse

from katib.rest.bodies import (
    DiagnosisBody,
    EventBody,
    EventsBody,
    NoticesBody,
    ObjectsBody,
    PageBody,
    SubmissionBody,
)
from katib.rest.documents import REQUEST_BODY, SOURCE, check_namespace, read_document
from katib.rest.streams import Closing, change_stream
from katib.tuning.service import DEFAULT_NAMESPACE, TuningService

Namespace = Annotated[str, Path(description="Namespace of the object.")]
Name = Annotated[str, Path(description="Name of the object.")]
Document = Annotated[str, Depends(read_document)]
Source = Annotated[
    str,
    Query(
        description="What to call the document in errors. The path of a file on the server's machine also makes the "
        "file's directory the one that relative paths of its commands start from.",
        max_length=4096,
    ),
]
State = Literal["Pending", "Running", "Succeeded", "EarlyStopped", "Failed", "Killed", "MetricsUnavailable"]

MAX_PAGE = 5000


def experiment_routes(service: TuningService, closing: Closing) -> APIRouter:
    """Return the routes of experiments."""
    router = APIRouter(prefix="/api/v1", tags=["experiments"])
    _add_submission(router, service)
    _add_reading(router, service)
    _add_history(router, service, closing)
    return router


def _add_submission(router: APIRouter, service: TuningService) -> None:
    created: dict[int | str, dict[str, Any]] = {201: {"model": SubmissionBody, "description": "It was created."}}

    def submitted(document: str, source: str, namespace: str) -> JSONResponse:
        submission = service.submit(document, source=source, namespace=namespace)
        metadata = submission.experiment["metadata"]
        place = f"/api/v1/namespaces/{metadata['namespace']}/experiments/{metadata['name']}"
        return JSONResponse(
            SubmissionBody.model_validate(submission).model_dump(mode="json", by_alias=True),
            HTTPStatus.CREATED if submission.outcome == "created" else HTTPStatus.OK,
            {"location": place},
        )

    @router.post("/experiments", response_model=SubmissionBody, responses=created, openapi_extra=REQUEST_BODY)
    async def submit_experiment(
        document: Document,
        namespace: Annotated[str, Query(description="Used when the document names none.")] = DEFAULT_NAMESPACE,
        source: Source = SOURCE,
    ) -> JSONResponse:
        """Create an experiment, or resume or update the one of that name."""
        return await run_in_threadpool(submitted, document, source, namespace)

    @router.post(
        "/namespaces/{namespace}/experiments",
        response_model=SubmissionBody,
        responses=created,
        openapi_extra=REQUEST_BODY,
    )
    async def submit_experiment_in_namespace(
        namespace: Namespace, document: Document, source: Source = SOURCE
    ) -> JSONResponse:
        """Create an experiment in this namespace, or resume or update the one of that name."""
        await run_in_threadpool(check_namespace, document, namespace)
        return await run_in_threadpool(submitted, document, source, namespace)

    @router.post("/validate", openapi_extra=REQUEST_BODY)
    async def validate_experiment(
        document: Document,
        namespace: Annotated[str, Query(description="Used when the document names none.")] = DEFAULT_NAMESPACE,
        source: Source = SOURCE,
    ) -> NoticesBody:
        """Check an experiment as submitting it would, and store nothing."""
        notices = await run_in_threadpool(service.validate, document, source=source, namespace=namespace)
        return NoticesBody(notices=tuple(notices))


def _add_reading(router: APIRouter, service: TuningService) -> None:
    @router.get("/experiments")
    def list_experiments() -> ObjectsBody:
        """List the experiments of all namespaces, oldest first."""
        return ObjectsBody(items=tuple(service.experiments()))

    @router.get("/namespaces/{namespace}/experiments")
    def list_experiments_in_namespace(namespace: Namespace) -> ObjectsBody:
        """List the experiments of a namespace, oldest first."""
        return ObjectsBody(items=tuple(service.experiments(namespace)))

    @router.get("/namespaces/{namespace}/experiments/{name}")
    def get_experiment(namespace: Namespace, name: Name) -> dict[str, Any]:
        """Return an Experiment."""
        return service.get("Experiment", namespace, name)

    @router.delete("/namespaces/{namespace}/experiments/{name}", status_code=HTTPStatus.NO_CONTENT)
    def delete_experiment(namespace: Namespace, name: Name) -> None:
        """Delete an experiment with its trials, their processes, metrics and files; answers when they are gone."""
        service.delete(namespace, name)

    @router.get(
        "/namespaces/{namespace}/experiments/{name}/best",
        response_model=dict[str, Any],
        responses={204: {"description": "No trial has a usable objective value yet."}},
    )
    def get_best_trial(namespace: Namespace, name: Name) -> Any:
        """Return the best Trial so far."""
        best = service.best(namespace, name)
        return Response(status_code=HTTPStatus.NO_CONTENT) if best is None else best

    @router.get("/namespaces/{namespace}/experiments/{name}/trials")
    def list_trials(
        namespace: Namespace,
        name: Name,
        state: Annotated[list[State], Query(description="Only trials in one of these states.")] = [],  # noqa: B006 - FastAPI copies it
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Trials per page.")] = 500,
        cursor: Annotated[str, Query(description="From the page before.")] = "",
    ) -> PageBody:
        """List the trials of an experiment, oldest first, in pages."""
        page = service.trials(namespace, name, states=tuple(state), limit=limit, cursor=cursor)
        return PageBody.model_validate(page)

    @router.get("/namespaces/{namespace}/suggestions/{name}", tags=["suggestions"])
    def get_suggestion(namespace: Namespace, name: Name) -> dict[str, Any]:
        """Return the Suggestion of an experiment; it has the experiment's name."""
        return service.get("Suggestion", namespace, name)


def _add_history(router: APIRouter, service: TuningService, closing: Closing) -> None:
    @router.get("/namespaces/{namespace}/experiments/{name}/events")
    def list_experiment_events(namespace: Namespace, name: Name) -> EventsBody:
        """List the notable moments of an experiment and its trials, oldest first."""
        events = service.events("Experiment", namespace, name)
        return EventsBody(items=tuple(map(EventBody.model_validate, events)))

    @router.get(
        "/namespaces/{namespace}/experiments/{name}/changes",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "Events named ADDED, MODIFIED and DELETED; their data is a type and an object. "
                "`problem` and `end` close the stream.",
                "content": {"text/event-stream": {"schema": {"$ref": "#/components/schemas/ChangeBody"}}},
            }
        },
    )
    def follow_changes(
        namespace: Namespace,
        name: Name,
        last_event_id: Annotated[str, Header(description="Go on behind the event of this id.")] = "",
        timeout_seconds: Annotated[
            float | None, Query(alias="timeoutSeconds", gt=0, description="End after so long; never if absent.")
        ] = None,
    ) -> StreamingResponse:
        """Follow an experiment and its trials as server-sent events: first as they are, then every change."""
        service.get("Experiment", namespace, name)
        return StreamingResponse(
            change_stream(service, namespace, name, closing, since=last_event_id, timeout_seconds=timeout_seconds),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    @router.get("/namespaces/{namespace}/why/{name}", tags=["why"])
    def explain(namespace: Namespace, name: Name) -> DiagnosisBody:
        """Explain why an experiment, or a trial of that name, does not progress or how it ended."""
        return DiagnosisBody.model_validate(service.why(namespace, name))
