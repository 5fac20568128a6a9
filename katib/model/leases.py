"""Trials that a caller evaluates: to whom one is given, until when, and how its caller ended it.

Theory of operation. An Experiment without `trialTemplate` makes trials without a job. Such a trial is given to one
caller at a time: what is written into its annotations says to whom, for which request, and until when the caller is
waited for. The caller ends the trial by writing an outcome there, once; the trial controller turns that into the final
state. Both are written by compare and set, so that of two writers one wins, and a crash between two writes leaves
nothing that the next look at the trial would not complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from katib.model.metrics import format_timestamp, parse_time
from katib.model.names import (
    AHEAD_ANNOTATION,
    ASK_AGAIN,
    ASKED_ANNOTATION,
    BY_CALLER,
    CHOSEN_BY_LABEL,
    EVALUATED_BY_LABEL,
    FAIL,
    LEASE_ANNOTATION,
    LOST_LEASES_ANNOTATION,
    OUTCOME_ANNOTATION,
)

if TYPE_CHECKING:
    from katib.model.types import Experiment, Trial

LOST_LEASES = (ASK_AGAIN, FAIL)
"""What may become of a trial whose lease ended: another caller gets it, or it has failed."""

ENDLESS_SECONDS = 10 * 365 * 86_400.0
"""Length of a lease whose caller is waited for without end."""

LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Lease:
    """To whom a trial is given.

    Attributes:
        client: What the caller calls itself, for people.
        ask_id: The request that got it.
        seconds: How long the caller is waited for after each sign of life.
        until: When the lease ends.
    """

    client: str
    ask_id: str
    seconds: float
    until: datetime

    def renewed(self, now: datetime) -> Lease:
        """Return the lease with its whole time from now on."""
        return replace(self, until=now + timedelta(seconds=self.seconds))

    def __str__(self) -> str:
        """Return the text of the annotation."""
        until = format_timestamp(self.until)
        return json.dumps({"client": self.client, "askId": self.ask_id, "seconds": self.seconds, "until": until})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a caller ended a trial.

    Attributes:
        tell_id: The request that did it.
        time: When.
        values: Last readings, as text by name.
        failure: Why the trial has no value; None when it did not fail.
        stopped: Whether the caller stopped before its end.
        began: When it was begun, of a trial that was evaluated elsewhere; None: as the trial says.
    """

    tell_id: str
    time: datetime
    values: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None
    stopped: bool = False
    began: datetime | None = None

    def __str__(self) -> str:
        """Return the text of the annotation."""
        written: dict[str, Any] = {"tellId": self.tell_id, "time": format_timestamp(self.time)}
        written |= {"values": dict(self.values)} if self.values else {}
        written |= {"failure": self.failure} if self.failure is not None else {}
        written |= {"stopped": True} if self.stopped else {}
        written |= {"began": format_timestamp(self.began)} if self.began is not None else {}
        return json.dumps(written)


def is_asked(experiment: Experiment) -> bool:
    """Return whether callers evaluate the trials of an experiment, and no jobs."""
    return experiment.spec.trial_template is None


def is_callers(trial: Trial) -> bool:
    """Return whether a caller evaluates a trial, and no job."""
    return trial.metadata.labels.get(EVALUATED_BY_LABEL) == BY_CALLER


def is_chosen(resource: Experiment | Trial) -> bool:
    """Return whether callers choose the parameters of a trial, or of the trials of an experiment, and no algorithm."""
    return resource.metadata.labels.get(CHOSEN_BY_LABEL) == BY_CALLER


def asked_count(experiment: Experiment) -> int:
    """Return how many trials were asked for since an experiment began."""
    return _count(experiment, ASKED_ANNOTATION)


def ahead_count(experiment: Experiment) -> int:
    """Return how many assignments are kept ready for callers, 0 where each is made when it is asked for."""
    return _count(experiment, AHEAD_ANNOTATION)


def _count(experiment: Experiment, annotation: str) -> int:
    text = experiment.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def fails_when_lost(trial: Trial) -> bool:
    """Return whether a trial has failed once its lease has ended; otherwise another caller gets it."""
    return trial.metadata.annotations.get(LOST_LEASES_ANNOTATION) == FAIL


def lease_of(trial: Trial) -> Lease | None:
    """Return the last lease of a trial; None when it was never given to a caller."""
    found = _read(trial, LEASE_ANNOTATION)
    if found is None:
        return None
    seconds = found.get("seconds")
    return Lease(
        str(found.get("client", "")),
        str(found.get("askId", "")),
        min(max(0.0, float(seconds)), ENDLESS_SECONDS) if isinstance(seconds, int | float) else 0.0,
        parse_time(str(found.get("until", ""))) or LONG_AGO,
    )


def outcome_of(trial: Trial) -> Outcome | None:
    """Return how its caller ended a trial; None while it has not."""
    found = _read(trial, OUTCOME_ANNOTATION)
    if found is None:
        return None
    values, failure = found.get("values"), found.get("failure")
    return Outcome(
        str(found.get("tellId", "")),
        parse_time(str(found.get("time", ""))) or LONG_AGO,
        {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {},
        None if failure is None else str(failure),
        found.get("stopped") is True,
        parse_time(str(found.get("began", ""))),
    )


def _read(trial: Trial, annotation: str) -> dict[str, Any] | None:
    """Return an annotation; text that a user broke counts as an empty one, so that the trial does not hang."""
    text = trial.metadata.annotations.get(annotation)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
