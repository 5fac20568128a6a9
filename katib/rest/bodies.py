"""What travels over HTTP: one model per value of the tuning service, in camel case.

The client decodes with the same models. Kubernetes-shaped objects travel as they are.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from katib.api.algorithms import AlgorithmInfo, SettingSpec
from katib.api.metrics import MetricLog
from katib.tuning.service import Diagnosis, Page, RecordedEvent, Submission


class Body(BaseModel):
    """Base of all bodies."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class SubmissionBody(Body):
    """What became of a submitted experiment."""

    experiment: dict[str, Any]
    outcome: str = Field(description="`created`, `resumed`, `updated` or `unchanged`.")
    notices: tuple[str, ...] = ()

    def value(self) -> Submission:
        """Return the value of the tuning service."""
        return Submission(self.experiment, self.outcome, self.notices)


class NoticesBody(Body):
    """What would be done otherwise than on Kubernetes."""

    notices: tuple[str, ...] = ()


class ObjectsBody(Body):
    """A listing."""

    items: tuple[dict[str, Any], ...]


class PageBody(Body):
    """Part of a listing, oldest first."""

    items: tuple[dict[str, Any], ...]
    cursor: str = Field("", description="Give it back as `cursor` for the next page; empty on the last one.")
    total: int = Field(description="How many match on all pages.")

    def value(self) -> Page:
        """Return the value of the tuning service."""
        return Page(self.items, self.cursor, self.total)


class ReadingBody(Body):
    """One reading of a metric."""

    time: datetime = Field(description="`0001-01-01T00:00:00Z` when the reading carried none.")
    name: str
    value: str = Field(description="The text that was printed; NaN and infinities are kept.")

    def to_log(self) -> MetricLog:
        """Return the value of the tuning service."""
        return MetricLog(self.time, self.name, self.value)


class ReadingsBody(Body):
    """Readings in order of time."""

    items: tuple[ReadingBody, ...]


class EventBody(Body):
    """A notable moment of an object."""

    time: datetime
    kind: str
    name: str
    warning: bool
    reason: str
    message: str
    count: int = 1

    def to_event(self) -> RecordedEvent:
        """Return the value of the tuning service."""
        return RecordedEvent(**self.model_dump())


class EventsBody(Body):
    """Notable moments, oldest first."""

    items: tuple[EventBody, ...]


class DiagnosisBody(Body):
    """Why an experiment or trial does not progress, or how it ended."""

    kind: str
    name: str
    state: str
    verdict: str
    findings: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()

    def to_diagnosis(self) -> Diagnosis:
        """Return the value of the tuning service."""
        return Diagnosis(**self.model_dump())


class SettingBody(Body):
    """One option of an algorithm."""

    name: str
    type: str
    default: str
    description: str
    choices: tuple[str, ...] = ()
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None


class AlgorithmBody(Body):
    """An algorithm that can be asked for."""

    name: str
    summary: str = ""
    settings: tuple[SettingBody, ...] | None = Field(None, description="null: only the service knows its settings.")
    reads_history: bool = True
    early_stopping: bool = False
    extra: str = ""

    def to_info(self) -> AlgorithmInfo:
        """Return the value of the tuning service."""
        fields = self.model_dump()
        if fields["settings"] is not None:
            fields["settings"] = tuple(SettingSpec(**setting) for setting in fields["settings"])
        return AlgorithmInfo(**fields)


class AlgorithmsBody(Body):
    """Algorithms, suggestion algorithms first."""

    items: tuple[AlgorithmBody, ...]


class ChangeBody(Body):
    """The data of one server-sent event."""

    type: str
    object: dict[str, Any]


class FieldErrorBody(Body):
    """One thing wrong with the input."""

    path: str
    cause: str
    remedy: str
    origin: str


class ProblemBody(Body):
    """An error, as RFC 9457 describes it."""

    type: str = Field(description="`urn:katib:problem:` and the reason in lower case.")
    title: str
    status: int
    detail: str
    reason: str = Field(description="Stable word for programs, such as `NotFound`.")
    errors: tuple[FieldErrorBody, ...] = ()
