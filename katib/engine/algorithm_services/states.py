"""Phases, states and timeouts of services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan
from katib.errors import Backoff

User = tuple[str, str]
"""Namespace and name of an experiment."""

Listener = Callable[[str, str], None]
"""Receives namespace and name of an experiment to reconcile. Called from any thread; must return at once."""


class ServicePhase(Enum):
    """Phase in a service's life."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServiceTiming:
    """Timeouts and intervals, in seconds.

    Attributes:
        call: Deadline of each call: Katib's value.
        start: Timeout of the start of a new process. Cold imports of the largest libraries take tens of seconds.
        stop: Time between SIGTERM and SIGKILL.
        idle: How long a service without users is kept. Longer than the pause between two experiments in a notebook.
        restart: Back-off before a restart, by the number of consecutive processes without a response.
        settled: A process that lived longer than this resets that number.
        max_failures: The number of consecutive processes without a response after which a service is given up, or, if
            the cause may pass, its users are notified.
    """

    call: float = 60.0
    start: float = 60.0
    stop: float = 2.0
    idle: float = 60.0
    restart: Backoff = Backoff(0.1, 10.0)
    settled: float = 60.0
    max_failures: int = 3

    def of(self, plan: ServicePlan) -> ServiceTiming:
        """Return the times of one service, which may override some."""
        return replace(
            self,
            call=self.call if plan.call_seconds is None else plan.call_seconds,
            start=self.start if plan.start_seconds is None else plan.start_seconds,
        )


@dataclass(frozen=True, slots=True)
class ServiceState:
    """State of one service, as shown by `katib why`.

    Attributes:
        state: `starting`, `ready`, or `failing` during a crash loop and after it was given up.
        attempts: Consecutive processes without a response, including the present one.
        last_error: How the last of them ended; empty if there was none.
        address: Its address if Katib does not start it, otherwise the command that starts it.
    """

    service: ServiceId
    state: str
    attempts: int = 1
    last_error: str = ""
    address: str = ""
