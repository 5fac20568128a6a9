"""Leases of trials that callers evaluate, and the outcomes that callers report.

Theory of operation. An Experiment without `trialTemplate` creates trials without a job. Such a trial is leased to one
caller at a time: its annotations name the caller, the request, and the time at which the lease expires. The caller ends
the trial by writing an outcome there, once; the trial controller turns it into the final state. Both are written by
compare and set, so that one of two writers wins, and the next reconcile completes anything that a crash between two
writes left open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from katib.model.metrics import format_timestamp, parse_time
from katib.model.names import (
    ASK_AGAIN,
    FAIL,
    LEASE_ANNOTATION,
    LOST_LEASES_ANNOTATION,
    OUTCOME_ANNOTATION,
)

if TYPE_CHECKING:
    from katib.model.types import Trial

LOST_LEASES = (ASK_AGAIN, FAIL)
"""Effects of an expired lease: the trial is leased to another caller, or fails."""

ENDLESS_SECONDS = 10 * 365 * 86_400.0
"""Length of a lease without a time limit."""

LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Lease:
    """A caller's claim on a trial.

    Attributes:
        client: The caller's name for itself, for display.
        ask_id: The request that was given the trial.
        seconds: Length of the lease after each renewal.
    """

    client: str
    ask_id: str
    seconds: float
    until: datetime

    def renewed(self, now: datetime) -> Lease:
        """Return the lease, renewed from now on for its full length."""
        return replace(self, until=now + timedelta(seconds=self.seconds))

    def __str__(self) -> str:
        """Return the text of the annotation."""
        until = format_timestamp(self.until)
        return json.dumps({"client": self.client, "askId": self.ask_id, "seconds": self.seconds, "until": until})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a trial as its caller reported it.

    Attributes:
        values: Last readings, as text by name.
        failure: Reason for the missing value; None if the trial did not fail.
        began: Start time of a trial that was evaluated elsewhere; None if the trial's own counts.
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


def fails_when_lost(trial: Trial) -> bool:
    """Return whether a trial fails when its lease expires; otherwise it is leased to another caller."""
    return trial.metadata.annotations.get(LOST_LEASES_ANNOTATION) == FAIL


def lease_of(trial: Trial) -> Lease | None:
    """Return the last lease of a trial; None if there never was one."""
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
    """Return the outcome of a trial; None until its caller reports it."""
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
    """Return an annotation; broken text counts as an empty one, so that the trial does not hang."""
    text = trial.metadata.annotations.get(annotation)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
