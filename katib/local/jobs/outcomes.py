"""How a job ends, as far as that is the same for every kind. Pure.

The plans of a Job, of a training job and of a JobSet share it. They differ in what counts as success and failure, in
which pods are tried again, and in the words of their status.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeVar

from katib.api.failure_text import with_last_output
from katib.local.jobs.conditions import Reason, end_of, parse_time
from katib.local.jobs.kind import Observed, Plan
from katib.local.pods.records import Phase, PodRecord

_Time = TypeVar("_Time", float, datetime)

DOUBT_SECONDS: Final = 1.0
"""How long a failure is held back while another pod of a gang runs: that one may be about to end without its port."""

FORGIVEN_LOSSES: Final = 6
"""How many pods a job may lose, or a gang how often; more, and its own program may be what ends the guard."""


class Outcome(NamedTuple):
    """How a job ends.

    Attributes:
        success: Whether it succeeds.
        reason: Of its last condition.
        message: Of its last condition.
        until: Until when pods may go on by themselves, in steady time; None: no longer.
    """

    success: bool
    reason: str
    message: str
    until: datetime | None = None

    def leaves_time(self, now: datetime) -> bool:
        """Return whether pods may go on at this moment, in steady time."""
        return self.until is not None and now < self.until


class _Ending(Protocol):
    """What a spec says about who acts on the job, and about its removal."""

    @property
    def managed_elsewhere(self) -> bool: ...

    @property
    def ttl_seconds_after_finished(self) -> int | None: ...


def settled(observed: Observed, spec: _Ending) -> Plan | None:
    """Return what follows for a job that another controller manages, or that is over; None for all others.

    One that is over is removed once it has outlived its time.
    """
    status, ttl = dict(observed.job.get("status") or {}), spec.ttl_seconds_after_finished
    end = end_of(status)
    if not spec.managed_elsewhere and end is None:
        return None
    if spec.managed_elsewhere or end is None or ttl is None:
        return Plan(status)
    due, moment = parse_time(end["lastTransitionTime"]) + timedelta(seconds=ttl), observed.moment
    return Plan(status, delete=True) if moment.wall >= due else Plan(status, wake_at=moment.steady_of(due))


def going(pods: Iterable[PodRecord]) -> tuple[PodRecord, ...]:
    """Return the pods that wait or run and may go on."""
    return tuple(p for p in pods if not p.is_finished and not p.stopping)


def without_port(pods: Iterable[PodRecord]) -> PodRecord | None:
    """Return a pod of a gang that failed because another program listens on its port; None when there is none."""
    return next((p for p in pods if p.address_in_use and (p.failures or p.phase is Phase.FAILED)), None)


def may_yet_fail(pods: Iterable[PodRecord]) -> bool:
    """Return whether a pod goes on that may be about to end because its port is taken."""
    return any(not p.failures for p in going(pods))


def held_until(failed_at: Iterable[datetime | None]) -> datetime | None:
    """Return until when the failures of some moments are held back; None when there are none."""
    last = max(filter(None, failed_at), default=None)
    return None if last is None else last + timedelta(seconds=DOUBT_SECONDS)


def early_outcome(pods: Iterable[PodRecord]) -> Outcome | None:
    """Return the end that no further pod could change: the trial was stopped early, or a pod can never run here."""
    pods = tuple(pods)
    for pod in pods:
        if pod.verdict:
            return Outcome(success=True, reason=Reason.EARLY_STOPPED, message=pod.verdict)
    for pod in pods:
        if pod.cannot_start:
            return Outcome(success=False, reason=Reason.POD_CANNOT_START, message=pod.cannot_start)
        if pod.evicted:
            return Outcome(success=False, reason=Reason.POD_EVICTED, message=pod.evicted)
    return None


def earliest(*moments: _Time | None) -> _Time | None:
    """Return the first of some moments, of which each may be missing."""
    first: _Time | None = None
    for moment in moments:
        if moment is not None and (first is None or moment < first):
            first = moment
    return first


def deadline_of(seconds: int | None, started_at: datetime | None) -> datetime | None:
    """Return when a job that started then was active for too long; None for never."""
    return None if seconds is None or started_at is None else started_at + timedelta(seconds=seconds)


def overdue(
    seconds: int | None, started_at: datetime | None, now: datetime, reason: str = Reason.DEADLINE_EXCEEDED
) -> Outcome | None:
    """Return the failure of a job whose deadline has passed; None while it has not."""
    deadline = deadline_of(seconds, started_at)
    if deadline is None or now < deadline:
        return None
    return failure(reason, f"the job was active for longer than its deadline of {seconds} s")


def failure(reason: str, message: str, pod: PodRecord | None = None, until: datetime | None = None) -> Outcome:
    """Return the failure of a job; of the pod that explains it, the last line closes the message."""
    last_output = pod.last_output if pod is not None else ""
    return Outcome(success=False, reason=reason, message=with_last_output(message, last_output), until=until)


def success(reason: str, message: str, pods: Iterable[PodRecord], until: datetime | None = None) -> Outcome:
    """Return the success of a job, with the remarks of its pods, such as a log that was cut short by a full disk."""
    text = "; ".join([message, *[p.message for p in pods if p.message]])
    return Outcome(success=True, reason=reason, message=text, until=until)
