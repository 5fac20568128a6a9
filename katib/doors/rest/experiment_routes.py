"""Routes of experiments: submit, look, follow, delete."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from msgspec import json
from pydantic import TypeAdapter

from katib.doors.rest.documents import REQUEST_BODY, RUNTIMES_BODY, SOURCE, check_namespace, read_document
from katib.doors.rest.routing import (
    LONGEST_NAME,
    MAX_INT,
    OBJECT_NAME,
    SCHEMAS,
    AddedEndedTrials,
    AddedTrial,
    ChosenTrial,
    EndedTrialData,
    EndedTrials,
    EventList,
    ExperimentEdit,
    ExperimentList,
    ExperimentObject,
    Name,
    Namespace,
    Notices,
    ParetoSetObject,
    Pause,
    PausedExperiment,
    PodList,
    RunExperiment,
    RuntimeList,
    Service,
    SubmittedExperiment,
    SubmittedExperiments,
    SuggestionObject,
    TrialForCaller,
    TrialObject,
    TrialPage,
    TrialRequest,
    described_router,
    marks_in,
)
from katib.doors.rest.streams import Closing, change_stream
from katib.doors.rest.turns import Turns, asks_later
from katib.model.loading import FileText
from katib.model.metrics import MetricLog
from katib.model.types import Experiment, Suggestion
from katib.model.validation.update import COUNTS
from katib.service.tuning.asking import ASK_PAUSES, AskedTrial
from katib.service.tuning.service import (
    DEFAULT_LEASE_SECONDS,
    DEFAULT_NAMESPACE,
    LONGEST_COMMAND,
    Choice,
    Diagnosis,
    EndedTrial,
    GivenTrial,
    Preview,
    TrialOrder,
    TuningService,
    WaysOn,
)

OtherNamespace = Annotated[
    str, Query(description="Used when the document names none.", pattern=OBJECT_NAME, max_length=LONGEST_NAME)
]
Document = Annotated[str, Depends(read_document)]
Source = Annotated[
    str,
    Query(
        description="What to call the document in errors. The path of a file on the server's machine also makes the "
        "file's directory the one that relative paths of its commands start from.",
        max_length=4096,
    ),
]

_LOOK_SECONDS = 1.0
"""How often a request that waits looks whether the server stops."""


class _Sent(NamedTuple):
    document: str
    namespace: str
    source: str


async def read_sent(
    document: Document, namespace: OtherNamespace = DEFAULT_NAMESPACE, source: Source = SOURCE
) -> _Sent:
    """Return a document as it was sent, with its namespace and what to call it."""
    return _Sent(document, namespace, source)


Sent = Annotated[_Sent, Depends(read_sent)]
State = Literal["Pending", "Running", "Succeeded", "EarlyStopped", "Failed", "Killed", "MetricsUnavailable"]

MAX_PAGE = 5000
_WAYS = TypeAdapter(WaysOn)


def experiment_routes(closing: Closing, turns: Turns) -> APIRouter:
    """Return the routes of experiments."""
    router = described_router("experiments", "/api/v1")
    _add_submission(router)
    _add_reading(router)
    _add_changes(router)
    _add_asking(router, closing, turns)
    _add_history(router, closing)
    return router


def _add_submission(router: APIRouter) -> None:
    created: dict[int | str, dict[str, Any]] = {
        201: {"model": SubmittedExperiment | SubmittedExperiments, "description": "It was created."}
    }
    ran: dict[int | str, dict[str, Any]] = {201: {"model": RunExperiment, "description": "It was created."}}

    def submitted(
        service: TuningService, document: str, source: str, namespace: str, *, inside: bool = False
    ) -> JSONResponse:
        """Submit, and answer with a place that is right under whatever path a gateway shows us."""
        files = FileText(document, source).experiments()
        made = [service.submit(file, source=source, namespace=namespace) for file in files]
        created = any(submission.outcome == "created" for submission in made)
        bodies = [
            {"experiment": one.experiment.encode(), "outcome": one.outcome, "notices": one.notices} for one in made
        ]
        experiment = made[0].experiment
        place = f"experiments/{experiment.name}"
        place = place if inside else f"namespaces/{experiment.namespace}/{place}"
        several = len(made) > 1
        return JSONResponse(
            {"items": bodies} if several else bodies[0],
            HTTPStatus.CREATED if created else HTTPStatus.OK,
            None if several else {"location": place},
        )

    @router.post(
        "/experiments",
        response_model=SubmittedExperiment | SubmittedExperiments,
        responses=created,
        openapi_extra=REQUEST_BODY,
    )
    async def submit_experiment(service: Service, sent: Sent) -> JSONResponse:
        """Create an experiment, or resume or update the one of that name."""
        return await run_in_threadpool(submitted, service, sent.document, sent.source, sent.namespace)

    @router.post(
        "/namespaces/{namespace}/experiments",
        response_model=SubmittedExperiment | SubmittedExperiments,
        responses=created,
        openapi_extra=REQUEST_BODY,
    )
    async def submit_experiment_in_namespace(
        service: Service, namespace: Namespace, document: Document, source: Source = SOURCE
    ) -> JSONResponse:
        """Create an experiment in this namespace, or resume or update the one of that name."""
        await run_in_threadpool(check_namespace, document, namespace)
        return await run_in_threadpool(submitted, service, document, source, namespace, inside=True)

    @router.post("/run", response_model=RunExperiment, responses=ran, openapi_extra=REQUEST_BODY)
    async def run_experiment(
        service: Service,
        sent: Sent,
        restart: Annotated[bool, Query(description="Run all of it again; the old one is kept as NAME-1.")] = False,
        retry_failed: Annotated[
            bool, Query(alias="retryFailed", description="Run its failed trials again, with the same values.")
        ] = False,
        more: Annotated[int, Query(ge=0, le=MAX_INT, description="Add so many trials to its budget.")] = 0,
        command: Annotated[
            str, Query(description="What a user types to run it, for later explanations.", max_length=LONGEST_COMMAND)
        ] = "",
    ) -> JSONResponse:
        """Submit an experiment as `katib run` does: one that has ended runs once more where that is wanted."""
        choice = Choice(restart, retry_failed, more)
        outcome = await run_in_threadpool(service.run, **sent._asdict(), choice=choice, command=command)
        submission, ways = outcome.submission, outcome.ways
        body = {
            "experiment": submission.experiment.encode(),
            "outcome": submission.outcome,
            "notices": submission.notices,
            "notes": outcome.notes,
            "ways": None if ways is None else _WAYS.dump_python(ways, by_alias=True),
        }
        return JSONResponse(body, HTTPStatus.CREATED if submission.outcome == "created" else HTTPStatus.OK)

    @router.post("/runtimes", tags=["runtimes"], openapi_extra=RUNTIMES_BODY)
    async def store_runtimes(service: Service, sent: Sent) -> RuntimeList:
        """Store training runtimes, so that TrainJobs can refer to them."""
        stored = await run_in_threadpool(service.store_runtimes, **sent._asdict())
        return {"items": list(stored)}

    @router.post("/validate", openapi_extra=REQUEST_BODY)
    async def validate_experiment(service: Service, sent: Sent) -> Notices:
        """Check an experiment as submitting it would, and store nothing."""

        def notices_of() -> list[str]:
            files = FileText(sent.document, sent.source).experiments()
            found = [service.validate(file, source=sent.source, namespace=sent.namespace) for file in files]
            return [notice for notices in found for notice in notices]

        notices = await run_in_threadpool(notices_of)
        return {"notices": list(notices)}

    @router.post("/preview", openapi_extra=REQUEST_BODY)
    async def preview_trial(service: Service, sent: Sent) -> Preview:
        """Return what the first trial of an experiment would run; nothing is stored, and no algorithm is asked."""
        return await run_in_threadpool(service.preview, **sent._asdict())


def _add_reading(router: APIRouter) -> None:
    @router.get("/experiments")
    def list_experiments(service: Service) -> ExperimentList:
        """List the experiments of all namespaces, oldest first."""
        return {"items": [experiment.encode() for experiment in service.experiments()]}

    @router.get("/namespaces/{namespace}/experiments")
    def list_experiments_in_namespace(service: Service, namespace: Namespace) -> ExperimentList:
        """List the experiments of a namespace, oldest first."""
        return {"items": [experiment.encode() for experiment in service.experiments(namespace)]}

    @router.get("/namespaces/{namespace}/experiments/{name}")
    def get_experiment(service: Service, namespace: Namespace, name: Name) -> ExperimentObject:
        """Return an Experiment."""
        return service.get(Experiment, namespace, name).encode()

    @router.get(
        "/namespaces/{namespace}/experiments/{name}/best",
        response_model=TrialObject,
        responses={204: {"description": "No trial has a usable objective value yet."}},
    )
    def get_best_trial(service: Service, namespace: Namespace, name: Name) -> Any:
        """Return the best Trial so far."""
        best = service.best(namespace, name)
        return Response(status_code=HTTPStatus.NO_CONTENT) if best is None else best.encode()

    @router.get(
        "/namespaces/{namespace}/experiments/{name}/pareto",
        response_model=ParetoSetObject,
        responses={204: {"description": "There is one objective, or no trial has a usable value of each yet."}},
    )
    def get_pareto_set(service: Service, namespace: Namespace, name: Name) -> Any:
        """Return the trials of several objectives that no other one beats in all of them: a few, and their number."""
        found = (service.get(Experiment, namespace, name).encode().get("status") or {}).get("paretoSet")
        return JSONResponse(found) if found else Response(status_code=HTTPStatus.NO_CONTENT)

    @router.get("/namespaces/{namespace}/experiments/{name}/trials", response_model=TrialPage)
    def list_trials(
        service: Service,
        namespace: Namespace,
        name: Name,
        state: Annotated[list[State], Query(description="Only trials in one of these states.")] = [],  # noqa: B006 - FastAPI copies it
        order: Annotated[
            TrialOrder, Query(description="The oldest, the best, the longest, or the first by name on top.")
        ] = "age",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Trials per page.")] = 500,
        cursor: Annotated[str, Query(description="From the page before.")] = "",
    ) -> Response:
        """List the trials of an experiment in pages."""
        page = service.trials(namespace, name, states=tuple(state), order=order, limit=limit, cursor=cursor)
        # The framework would look through and copy every value of up to MAX_PAGE objects. They are written one by one,
        # since memory that once held them all is not given back.
        content = bytearray(b'{"items":[')
        for document in page.documents:
            content += json.encode(document) + b","
        content[-1:] = b"]," if page.documents else b"[],"
        content += json.encode({"cursor": page.cursor, "total": page.total})[1:]
        return Response(bytes(content), media_type="application/json")

    @router.get("/namespaces/{namespace}/suggestions/{name}", tags=["suggestions"])
    def get_suggestion(service: Service, namespace: Namespace, name: Name) -> SuggestionObject:
        """Return the Suggestion of an experiment; it has the experiment's name."""
        return service.get(Suggestion, namespace, name).encode()


def _add_changes(router: APIRouter) -> None:
    @router.patch("/namespaces/{namespace}/experiments/{name}")
    def edit_experiment(service: Service, namespace: Namespace, name: Name, edit: ExperimentEdit) -> ExperimentObject:
        """Change the counts of an experiment, stop it, let it go on, or mark it with tags and notes."""
        counts: dict[str, int | None] = {key: edit[key] for key in COUNTS if key in edit}  # type: ignore[literal-required]  # fields of the edit
        return service.edit(namespace, name, counts=counts, stopped=edit.get("stopped"), marks=marks_in(edit)).encode()

    @router.post("/namespaces/{namespace}/experiments/{name}/pause")
    def pause_experiment(service: Service, namespace: Namespace, name: Name, pause: Pause) -> PausedExperiment:
        """Stop an experiment and pause its trials that run, or let all continue; all or nothing."""
        answer = service.pause(namespace, name, paused=pause["paused"])
        return {"experiment": answer.experiment.encode(), "trials": list(answer.trials)}

    @router.delete("/namespaces/{namespace}/experiments/{name}", status_code=HTTPStatus.NO_CONTENT)
    def delete_experiment(service: Service, namespace: Namespace, name: Name) -> None:
        """Delete an experiment with its trials, their processes, metrics and files; answers when they are gone."""
        service.delete(namespace, name)

    @router.post("/namespaces/{namespace}/experiments/{name}/trials", status_code=HTTPStatus.ACCEPTED)
    def add_trial(service: Service, namespace: Namespace, name: Name, trial: ChosenTrial) -> AddedTrial:
        """Run a trial before those that the algorithm proposes next; it counts against the budget."""
        chosen = {assignment["name"]: assignment["value"] for assignment in trial["parameterAssignments"]}
        return {"before": service.add_trial(namespace, name, chosen)}

    @router.post("/namespaces/{namespace}/experiments/{name}/ended-trials")
    def add_ended_trials(service: Service, namespace: Namespace, name: Name, sent: EndedTrials) -> AddedEndedTrials:
        """Take trials that were evaluated elsewhere into an experiment without trial template; each is taken once."""
        return {"added": service.add_ended_trials(namespace, name, list(map(_ended_trial, sent["trials"])))}


def _ended_trial(sent: EndedTrialData) -> EndedTrial:
    readings = (MetricLog(one["time"], one["name"], one["value"], one.get("step")) for one in sent.get("readings", ()))
    return EndedTrial(
        sent["id"],
        sent["assignments"],
        sent.get("values", {}),
        sent["began"],
        sent["ended"],
        sent.get("failure"),
        sent.get("stopped", False),
        tuple(readings),
    )


def _add_asking(router: APIRouter, closing: Closing, turns: Turns) -> None:
    @router.post("/namespaces/{namespace}/experiments/{name}/ask")
    async def ask_for_trial(
        service: Service, namespace: Namespace, name: Name, request: TrialRequest
    ) -> TrialForCaller:
        """Get a trial of an experiment without trial template, to evaluate it; each is given once."""
        deadline = time.monotonic() + request.get("waitSeconds", 0.0)
        ask = partial(
            service.ask_later if asks_later(service) else service.ask,
            namespace,
            name,
            request_id=request["requestId"],
            client=request.get("client", ""),
            lease_seconds=request.get("leaseSeconds", DEFAULT_LEASE_SECONDS),
        )
        for attempt in count(1):
            given = await _given(await turns.run(service, ask), deadline, closing)
            left = deadline - time.monotonic()
            if given.document or given.is_over or left <= 0 or closing.begun:
                break
            await asyncio.sleep(min(left, ASK_PAUSES.pause_seconds(attempt)))  # without a thread that waits
        return {"trial": given.document or None, "isOver": given.is_over, "reason": given.reason}


async def _given(asked: AskedTrial | GivenTrial, deadline: float, closing: Closing) -> GivenTrial:
    """Return what a caller is given, at the latest when its time is up or the server stops."""
    if isinstance(asked, GivenTrial):
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


def _add_history(router: APIRouter, closing: Closing) -> None:
    @router.get("/namespaces/{namespace}/experiments/{name}/pods")
    def list_experiment_pods(service: Service, namespace: Namespace, name: Name) -> PodList:
        """List the pods of the trials of an experiment, oldest first."""
        return {"items": list(service.pods("Experiment", namespace, name))}

    @router.get("/namespaces/{namespace}/experiments/{name}/events")
    def list_experiment_events(service: Service, namespace: Namespace, name: Name) -> EventList:
        """List the notable moments of an experiment and its trials, oldest first."""
        return {"items": list(service.events("Experiment", namespace, name))}

    @router.get(
        "/namespaces/{namespace}/experiments/{name}/changes",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "Events named ADDED, MODIFIED and DELETED; their data is a type and an object. "
                "`problem` and `end` close the stream.",
                "content": {"text/event-stream": {"schema": {"$ref": f"{SCHEMAS}ChangeData"}}},
            }
        },
    )
    def follow_changes(
        service: Service,
        namespace: Namespace,
        name: Name,
        last_event_id: Annotated[str, Header(description="Go on behind the event of this id.")] = "",
        timeout_seconds: Annotated[
            float | None, Query(alias="timeoutSeconds", gt=0, description="End after so long; never if absent.")
        ] = None,
    ) -> StreamingResponse:
        """Follow an experiment and its trials as server-sent events: first as they are, then every change."""
        service.get(Experiment, namespace, name)
        return StreamingResponse(
            change_stream(service, namespace, name, closing, since=last_event_id, timeout_seconds=timeout_seconds),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    @router.get("/namespaces/{namespace}/why/{name}", tags=["why"])
    def explain(service: Service, namespace: Namespace, name: Name) -> Diagnosis:
        """Explain why an experiment, or a trial of that name, does not progress or how it ended."""
        return service.why(namespace, name)
