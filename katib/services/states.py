"""What can be said of a service: its phase, how it is doing, how long it may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from katib.services.plan import ServiceId

User = tuple[str, str]
"""Namespace and name of an experiment."""


class Phase(Enum):
    """Where a service is in its life."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may take, in seconds.

    Attributes:
        call: Deadline of each call: Katib's value.
        start: Until a new process must serve. Cold imports of the largest libraries take tens of seconds.
        stop: Between the polite and the firm end.
        idle: Until a service without users is stopped. Longer than the pause between two experiments in a notebook.
        first_pause: Before the first restart; doubles with every life that answered nothing.
        longest_pause: Bound of that.
        settled: A process that lived longer than this does not count as dying again and again.
        max_failures: How many lives in a row may answer nothing.
    """

    call: float = 60.0
    start: float = 60.0
    stop: float = 2.0
    idle: float = 60.0
    first_pause: float = 0.1
    longest_pause: float = 10.0
    settled: float = 60.0
    max_failures: int = 3


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service as `katib why` tells of it.

    Attributes:
        service: Which.
        state: `starting`, `ready`, or `failing` while it dies again and again and after it was given up.
        attempts: Lives in a row without an answer, the present one included.
        last_error: How the last of them ended; empty when there was none.
        address: Where it listens when somebody else runs it, otherwise the command that starts it.
    """

    service: ServiceId
    state: str
    attempts: int = 1
    last_error: str = ""
    address: str = ""
