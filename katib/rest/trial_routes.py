"""Routes of single trials."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from katib.rest.bodies import EventBody, EventsBody, ReadingBody, ReadingsBody
from katib.rest.experiment_routes import Name, Namespace
from katib.rest.streams import Closing, byte_stream
from katib.tuning.service import TuningService

MAX_READINGS = 100_000


def trial_routes(service: TuningService, closing: Closing) -> APIRouter:
    """Return the routes of trials."""
    router = APIRouter(prefix="/api/v1/namespaces/{namespace}/trials/{name}", tags=["trials"])

    @router.get("")
    def get_trial(namespace: Namespace, name: Name) -> dict[str, Any]:
        """Return a Trial."""
        return service.get("Trial", namespace, name)

    @router.get("/metrics")
    def list_metrics(
        namespace: Namespace,
        name: Name,
        metric: Annotated[str, Query(description="Only this metric.")] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_READINGS, description="At most so many, the newest ones.")] = 10_000,
    ) -> ReadingsBody:
        """List the readings of a trial in order of time."""
        readings = service.metrics(namespace, name, metric=metric, limit=limit)
        return ReadingsBody(items=tuple(map(ReadingBody.model_validate, readings)))

    @router.get(
        "/logs",
        response_class=StreamingResponse,
        responses={200: {"description": "The output as it was written.", "content": {"text/plain": {}}}},
    )
    def read_logs(
        namespace: Namespace,
        name: Name,
        *,
        follow: Annotated[bool, Query(description="Go on until the trial ends.")] = False,
        tail: Annotated[int | None, Query(ge=0, description="Only the last so many lines.")] = None,
    ) -> StreamingResponse:
        """Return the output of the trial's primary container."""
        service.get("Trial", namespace, name)
        return StreamingResponse(
            byte_stream(lambda: service.logs(namespace, name, follow=follow, tail_lines=tail), closing),
            media_type="text/plain",
            headers={"cache-control": "no-store", "x-content-type-options": "nosniff", "x-accel-buffering": "no"},
        )

    @router.get("/events")
    def list_trial_events(namespace: Namespace, name: Name) -> EventsBody:
        """List the notable moments of a trial, oldest first."""
        events = service.events("Trial", namespace, name)
        return EventsBody(items=tuple(map(EventBody.model_validate, events)))

    return router
