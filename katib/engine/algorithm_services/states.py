"""What can be said of a service: its phase, how it is doing, how long it may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan
from katib.errors import Backoff

User = tuple[str, str]
"""Namespace and name of an experiment."""

Listener = Callable[[str, str], None]
"""Takes namespace and name of an experiment to look at again. Called from any thread; must return at once."""


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
        restart: Before a restart, by the processes in a row that answered nothing.
        settled: A process that lived longer than this does not count as dying again and again.
        max_failures: After how many processes in a row that answered nothing a service is given up, or, where the
            cause may pass, its users are notified.
    """

    call: float = 60.0
    start: float = 60.0
    stop: float = 2.0
    idle: float = 60.0
    restart: Backoff = Backoff(0.1, 10.0)
    settled: float = 60.0
    max_failures: int = 3

    def of(self, plan: ServicePlan) -> Timing:
        """Return the times of one service, which may set its own."""
        return replace(
            self,
            call=self.call if plan.call_seconds is None else plan.call_seconds,
            start=self.start if plan.start_seconds is None else plan.start_seconds,
        )


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service as `katib why` shows it.

    Attributes:
        service: Which.
        state: `starting`, `ready`, or `failing` while it dies again and again and after it was given up.
        attempts: Processes in a row without an answer, the present one included.
        last_error: How the last of them ended; empty when there was none.
        address: Where it listens when Katib does not start it, otherwise the command that starts it.
    """

    service: ServiceId
    state: str
    attempts: int = 1
    last_error: str = ""
    address: str = ""
