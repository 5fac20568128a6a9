"""What routes are made of: the service that answers, the names in their paths, and the forms of answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NotRequired, cast

from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.routing import APIRoute
from pydantic import AwareDatetime, ConfigDict, Field, WithJsonSchema, with_config
from typing_extensions import TypedDict  # pydantic wants this one below Python 3.12

from katib.doors.rest.guard import user_of
from katib.doors.rest.problems import MEDIA_TYPE
from katib.doors.rest.sessions import Sessions
from katib.errors import InternalError
from katib.model.algorithms import AlgorithmInfo
from katib.model.marks import LONGEST_NOTES, LONGEST_TAG, MOST_TAGS, MarkChanges
from katib.model.types import Experiment, Suggestion, Trial
from katib.model.types.structural import schemas
from katib.service.tuning.asking import (
    LONGEST_LEASE_SECONDS,
    LONGEST_METRIC,
    MOST_VALUES,
    REQUEST_ID,
    SHORTEST_LEASE_SECONDS,
)
from katib.service.tuning.service import RecordedEvent, StoredRuntime, TuningService
from katib.service.tuning.users import Gateway

OBJECT_NAME = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
"""What the name of any object looks like."""
LONGEST_VALUE = 65_536
MAX_INT = 2**31 - 1
MAX_STEP = 2**63 - 1024
"""The last number of 64 bits that JSON carries everywhere."""
LONGEST_NAME = 253
SCHEMAS = "#/components/schemas/"
KIND_MARK = "x-kind"
"""Stands for the schema of an object until all schemas are in one place."""

PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error, as RFC 9457 describes it.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{SCHEMAS}Problem"}}},
    }
}
"""What every route may answer."""

Namespace = Annotated[str, Path(description="Namespace of the object.", pattern=OBJECT_NAME, max_length=LONGEST_NAME)]
Name = Annotated[str, Path(description="Name of the object.", pattern=OBJECT_NAME, max_length=LONGEST_NAME)]

ExperimentObject = Annotated[dict[str, Any], WithJsonSchema({KIND_MARK: "Experiment"})]
TrialObject = Annotated[dict[str, Any], WithJsonSchema({KIND_MARK: "Trial"})]
SuggestionObject = Annotated[dict[str, Any], WithJsonSchema({KIND_MARK: "Suggestion"})]
ParetoSetObject = Annotated[dict[str, Any], WithJsonSchema({KIND_MARK: "ParetoSet"})]
"""Objects travel as they are stored; the description shows their models."""


def _rule(**schema: Any) -> Any:
    """Return a description of what the service checks, whose messages are better than those of the framework."""
    return Field(json_schema_extra=schema)


_CONTROLS = r"\x00-\x1f\x7f-\x9f"
_NUMBER = (
    r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|"
    r"[iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])$"
)
_TAG = rf"^[^{_CONTROLS},]*[^{_CONTROLS},\s][^{_CONTROLS},]*$"
_METRIC_NAME = {
    "minLength": 1,
    "maxLength": LONGEST_METRIC,
    "pattern": rf"^[^{_CONTROLS}\s]([^{_CONTROLS}]*[^{_CONTROLS}\s])?$",
}


class ExperimentList(TypedDict):
    """Experiments, oldest first."""

    items: list[ExperimentObject]


class AlgorithmList(TypedDict):
    """The algorithms offered."""

    items: list[AlgorithmInfo]


class EventList(TypedDict):
    """Notable moments, oldest first."""

    items: list[RecordedEvent]


class RuntimeList(TypedDict):
    """Training runtimes."""

    items: list[StoredRuntime]


class PodList(TypedDict):
    """Pods, oldest first."""

    items: Annotated[list[dict[str, Any]], Field(description="Each as Kubernetes has it.")]


class Reading(TypedDict):
    """One reading of a metric."""

    time: Annotated[datetime, Field(description="`0001-01-01T00:00:00Z` when the reading carried none.")]
    name: str
    value: Annotated[str, Field(description="The text that was printed; NaN and infinities are kept.")]
    step: NotRequired[Annotated[int, Field(description="Of the training, from 0; absent where it is not known.")]]


class ReadingList(TypedDict):
    """Readings of a trial."""

    items: list[Reading]


class ArrivedReadings(TypedDict):
    """Readings in the order in which they arrived."""

    items: list[Reading]
    cursor: Annotated[str, Field(description="Give it back as `since` for what arrives later.")]


class Notices(TypedDict):
    """What would be done otherwise than on Kubernetes."""

    notices: list[str]


class SubmittedExperiment(TypedDict):
    """What became of a submitted experiment."""

    experiment: ExperimentObject
    outcome: Annotated[str, Field(description="`created`, `resumed`, `updated` or `unchanged`.")]
    notices: list[str]


class SubmittedExperiments(TypedDict):
    """What became of the experiments of a document that holds several."""

    items: list[SubmittedExperiment]


class WaysOnward(TypedDict):
    """What may be chosen for an experiment that has ended and was left as it is."""

    changes: Annotated[list[str], Field(description="What changed since: files of its program, fields of it.")]
    lost: Annotated[int, Field(description="How many of its trials ended without a value.")]
    canRetry: Annotated[bool, Field(description="Whether `retryFailed` is possible.")]
    mayHaveMore: Annotated[bool, Field(description="Whether `more` is possible.")]


class RunExperiment(SubmittedExperiment):
    """What became of an experiment that was to run."""

    notes: Annotated[list[str], Field(description="Sentences about an experiment that runs once more.")]
    ways: Annotated[WaysOnward | None, Field(description="Where it has ended and was left as it is; null otherwise.")]


class ChosenValue(TypedDict):
    """A parameter and the value chosen for it."""

    name: Annotated[str, Field(max_length=LONGEST_VALUE)]
    value: Annotated[str, Field(max_length=LONGEST_VALUE)]


class ChosenTrial(TypedDict):
    """A trial that is chosen by hand."""

    parameterAssignments: Annotated[
        list[ChosenValue], Field(description="One for each parameter.", max_length=10_000), _rule(minItems=1)
    ]


class Marking(TypedDict):
    """What to note; what is left out stays, and an empty text or list takes a mark away."""

    tags: NotRequired[
        Annotated[
            list[Annotated[str, _rule(maxLength=LONGEST_TAG, pattern=_TAG)]],
            Field(description="Words to find it by."),
            _rule(maxItems=MOST_TAGS),
        ]
    ]
    notes: NotRequired[Annotated[str, Field(description="What to remember of it."), _rule(maxLength=LONGEST_NOTES)]]


def marks_in(edit: Marking) -> MarkChanges:
    """Return the marks of an edit."""
    tags = edit.get("tags")
    return MarkChanges(None if tags is None else tuple(tags), edit.get("notes"))


@with_config(ConfigDict(extra="forbid"))
class ExperimentEdit(Marking):
    """What to change of an experiment; what is left out stays. null takes a limit away, an empty text a mark."""

    maxTrialCount: NotRequired[Annotated[int | None, Field(ge=1, le=MAX_INT)]]
    parallelTrialCount: NotRequired[Annotated[int | None, Field(ge=1, le=MAX_INT)]]
    maxFailedTrialCount: NotRequired[Annotated[int | None, Field(ge=0, le=MAX_INT)]]
    stopped: NotRequired[Annotated[bool, Field(description="Whether no further trial starts; those that run go on.")]]


class Pause(TypedDict):
    """Whether an experiment is paused."""

    paused: Annotated[bool, Field(description="Whether it is paused; false: it continues.")]


class PausedExperiment(TypedDict):
    """An experiment that was paused or resumed."""

    experiment: ExperimentObject
    trials: Annotated[list[str], Field(description="Names of the trials that were paused or resumed with it.")]


@with_config(ConfigDict(extra="forbid"))
class TrialEdit(Marking):
    """What to change of a trial; what is left out stays."""

    suspended: NotRequired[
        Annotated[bool, Field(description="Whether its job is suspended: its pods end, and restart later.")]
    ]


class AddedTrial(TypedDict):
    """What became of a trial that was added by hand."""

    before: Annotated[int, Field(description="How many trials that were added by hand run before it.")]


RequestId = Annotated[
    str,
    Field(max_length=63, description="Of this request; sent again, it has the same answer."),
    _rule(pattern=f"^{REQUEST_ID.pattern}$"),
]
AskId = Annotated[
    str, Field(max_length=63, description="The `requestId` that got the trial; absent: whichever request did.")
]
Readings = Annotated[
    dict[str, float | Annotated[str, _rule(pattern=_NUMBER)]],
    Field(
        max_length=MOST_VALUES, description="Numbers by name of the metric, or their text: NaN and infinities need it."
    ),
    _rule(propertyNames=_METRIC_NAME),
]


class TrialRequest(TypedDict):
    """A request for a trial to evaluate."""

    requestId: RequestId
    client: NotRequired[Annotated[str, Field(max_length=LONGEST_NAME, description="What the caller calls itself.")]]
    leaseSeconds: NotRequired[
        Annotated[
            float,
            Field(description="How long it is waited for after each sign of life; 60 if absent."),
            _rule(minimum=SHORTEST_LEASE_SECONDS, maximum=LONGEST_LEASE_SECONDS),
        ]
    ]
    waitSeconds: NotRequired[
        Annotated[float, Field(ge=0, le=60, description="How long to wait for a trial where none is free.")]
    ]


class TrialForCaller(TypedDict):
    """The answer to a request for a trial."""

    trial: Annotated[TrialObject | None, Field(description="null when none is free.")]
    isOver: Annotated[bool, Field(description="Whether the experiment has ended, so that none will be.")]
    reason: Annotated[str, Field(description="Why there is none; empty when there is one.")]


class ReportedReadings(TypedDict):
    """Readings of a trial that a caller evaluates."""

    values: Annotated[Readings, _rule(minProperties=1)]
    step: NotRequired[Annotated[int | None, Field(ge=0, le=MAX_STEP, description="Of the training, from 0.")]]
    requestId: NotRequired[RequestId]
    askId: NotRequired[AskId]


class TrialEnd(TypedDict):
    """How a caller ends a trial."""

    values: NotRequired[Readings]
    failure: NotRequired[
        Annotated[str | None, Field(max_length=LONGEST_VALUE, description="Why it has no value; absent: it has one.")]
    ]
    stopped: NotRequired[Annotated[bool, Field(description="Whether it was stopped before its end.")]]
    requestId: NotRequired[RequestId]
    askId: NotRequired[AskId]


class EndedTrialReading(TypedDict):
    """A reading of a trial that was evaluated elsewhere."""

    time: AwareDatetime
    name: Annotated[str, Field(max_length=LONGEST_NAME), _rule(minLength=1)]
    value: Annotated[str, Field(max_length=LONGEST_NAME, description="A number as text."), _rule(pattern=_NUMBER)]
    step: NotRequired[Annotated[int | None, Field(ge=0, le=MAX_STEP, description="Of the training, from 0.")]]


class EndedTrialData(TypedDict):
    """A trial that was evaluated elsewhere."""

    id: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, description="What no other trial of it has.")]
    assignments: Annotated[dict[str, str], Field(description="Text by name of parameter.")]
    values: NotRequired[
        Annotated[
            dict[str, Annotated[str, _rule(pattern=_NUMBER)]],
            Field(max_length=1_000, description="Last readings, by name."),
            _rule(propertyNames={"minLength": 1}),
        ]
    ]
    began: AwareDatetime
    ended: AwareDatetime
    failure: NotRequired[
        Annotated[str | None, Field(max_length=LONGEST_VALUE, description="Why it has no value; absent: it has one.")]
    ]
    stopped: NotRequired[Annotated[bool, Field(description="Whether it was stopped before its end.")]]
    readings: NotRequired[Annotated[list[EndedTrialReading], Field(description="What it reported before.")]]


class EndedTrials(TypedDict):
    """Trials that were evaluated elsewhere."""

    trials: Annotated[list[EndedTrialData], Field(max_length=1_000)]


class AddedEndedTrials(TypedDict):
    """What became of trials that were evaluated elsewhere."""

    added: Annotated[int, Field(description="How many of them are new.")]


class SignOfLife(TypedDict):
    """That a caller still evaluates a trial."""

    askId: NotRequired[AskId]


class CallersTrial(TypedDict):
    """What a caller is to know of its trial."""

    state: Annotated[str, Field(description="Of the trial, such as `Running`.")]
    stop: Annotated[str, Field(description="Why to stop; empty while the trial goes on.")]


class TrialPage(TypedDict):
    """Part of a listing, oldest first."""

    items: list[TrialObject]
    cursor: Annotated[str, Field(description="Give it back as `cursor` for the next page; empty on the last one.")]
    total: Annotated[int, Field(description="How many match on all pages.")]


class Health(TypedDict):
    """That the server is up."""

    status: str
    version: NotRequired[str]


def described_router(tag: str, prefix: str) -> APIRouter:
    """Return a router whose routes are described under a tag, by the names of their functions."""
    return APIRouter(prefix=prefix, tags=[tag], responses=PROBLEM, generate_unique_id_function=name_of)


def name_of(route: APIRoute) -> str:
    """Return the name of a route in the description."""
    return route.name


def object_schemas() -> dict[str, Any]:
    """Return the schemas of the objects that travel, by name."""
    return schemas(Experiment, Trial, Suggestion, reference=SCHEMAS + "{name}")


def answer_with(app: FastAPI, service: TuningService | Gateway) -> None:
    """Set the service that answers the routes of an application, or the services of a gateway's users."""
    app.state.service = service


def let_in_by(app: FastAPI, sessions: Sessions | None) -> None:
    """Set the sessions by which an application lets browsers in; None: signing in is not required."""
    app.state.sessions = sessions


def sessions_of(request: Request) -> Sessions | None:
    """Return what lets browsers in; None where signing in is not required."""
    return cast("Sessions | None", request.app.state.sessions)


async def _service_of(request: Request) -> TuningService:
    service = request.app.state.service
    if not isinstance(service, Gateway):
        return cast("TuningService", service)
    user = user_of(request.scope)
    if user is None:
        raise InternalError(f"{request.url.path} was to be answered without a user")
    return service.service_of(user)


Service = Annotated[TuningService, Depends(_service_of)]
"""As the type of a route's parameter: what answers this request. There is no other way to one."""
