"""Routes of single trials."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from katib.doors.rest.routing import (
    LONGEST_NAME,
    ArrivedReadings,
    CallersTrial,
    EventList,
    Name,
    Namespace,
    PodList,
    Reading,
    ReadingList,
    ReportedReadings,
    Service,
    SignOfLife,
    TrialEdit,
    TrialEnd,
    TrialObject,
    described_router,
    marks_in,
)
from katib.doors.rest.streams import Closing, byte_stream
from katib.doors.rest.turns import Turns
from katib.model.marks import MarkChanges
from katib.model.metrics import MetricLog
from katib.model.thinning import MIN_POINTS
from katib.model.types import Trial
from katib.service.tuning.service import CallerAnswer, TuningService

MAX_READINGS = 100_000
_POINTS = (
    "Instead of the newest ones: the whole curve of one metric, of the objective when none is named, thinned to at "
    "most so many points. The first and the last one and true extremes in between are kept."
)
_REPLICA = "Of this pod of the job, such as `worker-1`, or by the pod's name; of the primary one when none is named."
_CONTAINER = "Of this container of the pod; of the primary one when none is named."
_SINCE = "Only what arrived behind this cursor of an earlier answer; `now`: nothing yet, only the cursor."
_CURSOR = "^(now|[0-9]{0,18})$"
MAX_LINES = 1_000_000_000


def _reading(log: MetricLog) -> Reading:
    reading: Reading = {"time": log.time, "name": log.name, "value": log.value}
    if log.step is not None:
        reading["step"] = log.step
    return reading


def trial_routes(closing: Closing, turns: Turns) -> APIRouter:
    """Return the routes of trials."""
    router = described_router("trials", "/api/v1/namespaces/{namespace}/trials/{name}")

    @router.get("")
    def get_trial(service: Service, namespace: Namespace, name: Name) -> TrialObject:
        """Return a Trial."""
        return service.get(Trial, namespace, name).encode()

    @router.patch("")
    def edit_trial(service: Service, namespace: Namespace, name: Name, edit: TrialEdit) -> TrialObject:
        """Suspend the job of a trial, let it start again, or mark it with tags and notes."""
        return _edited(service, namespace, name, edit).encode()

    _add_telling(router, turns)

    @router.get("/metrics")
    def list_metrics(
        service: Service,
        namespace: Namespace,
        name: Name,
        metric: Annotated[str, Query(description="Only this metric.")] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_READINGS, description="At most so many, the newest ones.")] = 10_000,
        points: Annotated[int | None, Query(ge=MIN_POINTS, le=MAX_READINGS, description=_POINTS)] = None,
    ) -> ReadingList:
        """List the readings of a trial in order of steps, then of time."""
        if points is None:
            readings = service.metrics(namespace, name, metric=metric, limit=limit)
        else:
            readings = service.curve(namespace, name, metric=metric, points=points)
        return {"items": list(map(_reading, readings))}

    @router.get("/readings")
    def list_new_readings(
        service: Service,
        namespace: Namespace,
        name: Name,
        since: Annotated[
            str,
            Query(max_length=LONGEST_NAME, description=_SINCE, json_schema_extra={"pattern": _CURSOR}),
        ] = "",
    ) -> ArrivedReadings:
        """List the readings of all metrics of a trial in order of arrival; a long log comes in several answers."""
        found = service.readings(namespace, name, since=since)
        return {"items": list(map(_reading, found.items)), "cursor": found.cursor}

    @router.get(
        "/logs",
        response_class=StreamingResponse,
        responses={200: {"description": "The output as it was written.", "content": {"text/plain": {}}}},
    )
    def read_logs(
        service: Service,
        namespace: Namespace,
        name: Name,
        *,
        follow: Annotated[bool, Query(description="Go on until the trial ends.")] = False,
        tail: Annotated[int | None, Query(ge=0, le=MAX_LINES, description="Only the last so many lines.")] = None,
        replica: Annotated[str, Query(max_length=LONGEST_NAME, description=_REPLICA)] = "",
        container: Annotated[str, Query(max_length=LONGEST_NAME, description=_CONTAINER)] = "",
    ) -> StreamingResponse:
        """Return the output of a trial."""
        chunks = service.logs(namespace, name, follow=follow, tail_lines=tail, replica=replica, container=container)
        first = next(chunks, b"")  # while an error can still be the answer; one comes within a second or so
        return StreamingResponse(
            byte_stream(lambda: chain((first,), chunks), closing),
            media_type="text/plain",
            headers={"cache-control": "no-store", "x-content-type-options": "nosniff", "x-accel-buffering": "no"},
        )

    @router.get("/pods")
    def list_trial_pods(service: Service, namespace: Namespace, name: Name) -> PodList:
        """List the pods of a trial, oldest first; of one that has ended, those that are still known."""
        return {"items": list(service.pods("Trial", namespace, name))}

    @router.get("/events")
    def list_trial_events(service: Service, namespace: Namespace, name: Name) -> EventList:
        """List the notable moments of a trial, oldest first."""
        return {"items": list(service.events("Trial", namespace, name))}

    return router


def _edited(service: TuningService, namespace: str, name: str, edit: TrialEdit) -> Trial:
    marks = marks_in(edit)
    if "suspended" in edit:
        trial = service.suspend(namespace, name, suspended=edit["suspended"])
        if marks == MarkChanges():
            return trial
    return service.mark(namespace, name, marks)


def _add_telling(router: APIRouter, turns: Turns) -> None:
    @router.post("/report")
    async def report_readings(
        service: Service, namespace: Namespace, name: Name, sent: ReportedReadings
    ) -> CallersTrial:
        """Store readings of a trial that you evaluate, and learn whether to stop; this is a sign of life."""
        call = partial(
            service.report,
            namespace,
            name,
            sent["values"],
            step=sent.get("step"),
            request_id=sent.get("requestId", ""),
            ask_id=sent.get("askId", ""),
        )
        return _shown(await turns.run(service, call))

    @router.post("/tell")
    async def end_trial(service: Service, namespace: Namespace, name: Name, end: TrialEnd) -> CallersTrial:
        """End a trial that you evaluate: with its values, as failed, or as stopped."""
        call = partial(
            service.tell,
            namespace,
            name,
            end.get("values", {}),
            failure=end.get("failure"),
            stopped=end.get("stopped", False),
            request_id=end.get("requestId", ""),
            ask_id=end.get("askId", ""),
        )
        return _shown(await turns.run(service, call))

    @router.post("/renew")
    async def renew_lease(service: Service, namespace: Namespace, name: Name, sign: SignOfLife) -> CallersTrial:
        """Give a sign of life for a trial that you evaluate, and learn whether to stop."""
        return _shown(await turns.run(service, partial(service.renew, namespace, name, ask_id=sign.get("askId", ""))))


def _shown(answer: CallerAnswer) -> CallersTrial:
    return {"state": answer.state, "stop": answer.stop}
