"""The life cycle of a service whose process is kept running. Pure: a state and what happened in, a state out.

    STARTING --serves--> READY --exits--> STARTING (after a pause that grows)
    STARTING, READY --unused--> STOPPED        STARTING, READY --exits again and again--> FAILED

A process that answered at least one call wipes out the failures before it: a service that crashes on one in a hundred
requests goes on, one that crashes on every request ends as FAILED with its last words. One that is ended from outside,
by the kernel for want of memory for example, or cannot be started for now, never fails for that: the cause may pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from katib.algorithm_services.plan import ServicePlan
from katib.algorithm_services.states import Phase, ServiceState, Timing, User


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Where a service is in its life; times are monotonic.

    Attributes:
        plan: How it is started.
        timing: How long things may take.
        idle_since: When it was used last.
        users: The experiments that use it.
        phase: Where it is.
        stopping: Whether it is to end; then it takes no user any more.
        failures: Processes in a row that answered nothing.
        faults: The newest of them that ended for a cause of their own.
        last_error: How the last of them ended; in the phase FAILED, why the service did.
        waiting_for: What keeps it from answering that may pass, once that has lasted; the same words each time.
    """

    plan: ServicePlan
    timing: Timing
    idle_since: float
    users: frozenset[User] = frozenset()
    phase: Phase = Phase.STARTING
    stopping: bool = False
    failures: int = 0
    faults: int = 0
    last_error: str = ""
    waiting_for: str = ""

    def used(self, user: User | None, now: float) -> Lifecycle | None:
        """Return the state with a user more, None for one that only puts off the idle end.

        Returns:
            None when it can be used no more; one that comes new to a failed service gets a new attempt elsewhere.
        """
        if self.stopping or self.phase is Phase.STOPPED or (self.phase is Phase.FAILED and user not in self.users):
            return None
        return replace(self, idle_since=now, users=self.users if user is None else self.users | {user})

    def released(self, user: User, now: float) -> Lifecycle:
        """Return the state without a user."""
        return replace(self, idle_since=now, users=self.users - {user})

    def at(self, now: float) -> Lifecycle:
        """Return the state at a moment: it stops when it was not used for long."""
        left = self.seconds_until_idle(now)
        return replace(self, stopping=True) if left is not None and left <= 0 else self

    def seconds_until_idle(self, now: float) -> float | None:
        """Return after which time without a user it stops; None while it has one."""
        return None if self.users else max(0.0, self.idle_since + self.timing.idle - now)

    def after_exit(self, ending: str, details: str, *, may_pass: bool, answered: bool, seconds: float) -> Lifecycle:
        """Return the state after its process ended by itself.

        Args:
            ending: How it ended.
            details: What else there is to say.
            may_pass: Whether the cause is not its own, so that the next process may fare better.
            answered: Whether it answered any call.
            seconds: How long it ran.
        """
        failures = 0 if answered or seconds > self.timing.settled else self.failures + 1
        faults = 0 if may_pass or not failures else self.faults + 1
        times = f" ({failures} times in a row)" if failures > 1 else ""
        lasting = failures >= self.timing.max_failures
        return replace(
            self,
            phase=Phase.FAILED if faults >= self.timing.max_failures else Phase.STARTING,
            failures=failures,
            faults=faults,
            last_error=f"{self.plan.id} {ending}{times}{details}",
            waiting_for=f"{self.plan.id} {ending}" if lasting else "",
        )

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next process is started."""
        return self.timing.restart.pause_seconds(max(1, self.failures))

    def state_for(self, user: User) -> ServiceState | None:
        """Return how the service is doing, to one of its users; None to others."""
        if user not in self.users:
            return None
        given_up = self.phase is Phase.FAILED
        state = "ready" if self.phase is Phase.READY else "failing" if given_up or self.failures else "starting"
        attempts = max(1, self.failures) if given_up else self.failures + 1
        return ServiceState(self.plan.id, state, attempts, self.last_error, " ".join(self.plan.command))
