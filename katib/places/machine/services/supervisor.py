"""Keeps one service process running for as long as it is used: a thread around its life cycle.

The thread starts the process, probes until it serves, then sleeps until the process exits, its users have been gone for
a while, or it is stopped. The life cycle decides about the next step, and is pure: a state and an event in, a state
out.

    STARTING --serves--> READY --exits--> STARTING (after a growing pause)
    STARTING, READY --unused--> STOPPED        STARTING, READY --exits repeatedly--> FAILED

A process that answered at least one call resets the failures before it: a service that crashes on one in a hundred
requests continues, one that crashes on every request ends as FAILED with its last output. A process that is ended from
outside, such as by the kernel for lack of memory, cannot be started for now, or whose last output reports a shortage of
the machine, never fails the service: the cause may pass.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from katib.engine.algorithm_services.plan import ServicePlan, resolve_command
from katib.engine.algorithm_services.readiness import ServicePhase, ServiceState, ServiceTiming, User
from katib.engine.runtime.clock import Clock
from katib.errors import Backoff, ShortageError, TerminalError, UnavailableError, shortage_in, shortage_of
from katib.places.machine.processes.handle import Command
from katib.places.machine.services.files import ServiceLog, SocketDirectory


@dataclass(frozen=True, slots=True)
class ServiceLifecycle:
    """State of a service's life cycle; times are monotonic.

    Attributes:
        idle_since: Time of its last use.
        stopping: Whether it is to end; then it accepts no user any more.
        failures: Consecutive processes without a response.
        faults: The most recent of them that ended for a cause of their own.
        last_error: How the last of them ended; in the phase FAILED, why the service did.
        waiting_for: The passing obstacle to its responses, once it has lasted; always in the same words.
    """

    plan: ServicePlan
    timing: ServiceTiming
    idle_since: float
    users: frozenset[User] = frozenset()
    phase: ServicePhase = ServicePhase.STARTING
    stopping: bool = False
    failures: int = 0
    faults: int = 0
    last_error: str = ""
    waiting_for: str = ""

    def used(self, user: User | None, now: float) -> ServiceLifecycle | None:
        """Return the state with another user; None only delays the idle end.

        Returns:
            None if it can no longer be used; a new user of a failed service gets a new attempt elsewhere.
        """
        if (
            self.stopping
            or self.phase is ServicePhase.STOPPED
            or (self.phase is ServicePhase.FAILED and user not in self.users)
        ):
            return None
        return replace(self, idle_since=now, users=self.users if user is None else self.users | {user})

    def released(self, user: User, now: float) -> ServiceLifecycle:
        """Return the state without a user."""
        return replace(self, idle_since=now, users=self.users - {user})

    def at(self, now: float) -> ServiceLifecycle:
        """Return the state at a time: it stops if unused for too long."""
        left = self.seconds_until_idle(now)
        return replace(self, stopping=True) if left is not None and left <= 0 else self

    def seconds_until_idle(self, now: float) -> float | None:
        """Return the time until it stops for lack of users; None while it has one."""
        return None if self.users else max(0.0, self.idle_since + self.timing.idle - now)

    def after_exit(
        self, ending: str, details: str, *, may_pass: bool, answered: bool, seconds: float
    ) -> ServiceLifecycle:
        """Return the state after its process ended by itself.

        Args:
            may_pass: Whether the cause is not its own, so that the next process may succeed.
            answered: Whether it answered any call.
            seconds: How long it ran.
        """
        failures = 0 if answered or seconds > self.timing.settled else self.failures + 1
        faults = 0 if may_pass or not failures else self.faults + 1
        times = f" ({failures} times in a row)" if failures > 1 else ""
        lasting = failures >= self.timing.max_failures
        return replace(
            self,
            phase=ServicePhase.FAILED if faults >= self.timing.max_failures else ServicePhase.STARTING,
            failures=failures,
            faults=faults,
            last_error=f"{self.plan.id} {ending}{times}{details}",
            waiting_for=f"{self.plan.id} {ending}" if lasting else "",
        )

    @property
    def pause_seconds(self) -> float:
        """Pause before the next process is started."""
        return self.timing.restart.pause_seconds(max(1, self.failures))

    def state_for(self, user: User) -> ServiceState | None:
        """Return the state of the service for one of its users; None for others."""
        if user not in self.users:
            return None
        given_up = self.phase is ServicePhase.FAILED
        state = "ready" if self.phase is ServicePhase.READY else "failing" if given_up or self.failures else "starting"
        attempts = max(1, self.failures) if given_up else self.failures + 1
        return ServiceState(self.plan.id, state, attempts, self.last_error, " ".join(self.plan.command))


if TYPE_CHECKING:
    from katib.places.machine.processes.client import Processes
    from katib.places.machine.processes.handle import ProcessExit, ProcessHandle
    from katib.wire.rpc.connection import LazyChannel

_log = logging.getLogger(__name__)

_PROBE = Backoff(0.005, 0.1, factor=1.1)
"""Fast services are detected quickly, without probing slow ones too often."""


@dataclass(slots=True)
class _ServiceProcess:
    """One process, from its start to its end.

    Attributes:
        trouble: Its problem, if not simply its exit.
        passes: Whether that is a shortage of the machine, or another passing cause.
    """

    handle: ProcessHandle | None = None
    exit: ProcessExit | None = None
    connection: LazyChannel | None = None
    answered_before: int = 0
    trouble: str = ""
    passes: bool = False

    @property
    def may_pass(self) -> bool:
        return self.passes or (not self.trouble and self.exit is not None and self.exit.from_outside)

    @property
    def answered(self) -> bool:
        return self.connection is not None and self.connection.answer_count > self.answered_before


class Supervisor:
    """Keeps one service process. Thread-safe; only `join` waits for the process.

    Args:
        on_change: Called on the thread of the service, with its users, when it became ready, failed, or has a new
            obstacle.
    """

    def __init__(
        self,
        plan: ServicePlan,
        processes: Processes,
        log: ServiceLog,
        sockets: SocketDirectory,
        timing: ServiceTiming,
        clock: Clock,
        on_change: Callable[[frozenset[User]], None],
    ) -> None:
        self._plan = plan
        self._processes = processes
        self._log = log
        self._sockets = sockets
        self._timing = timing
        self._clock = clock
        self._on_change = on_change
        self._changed = threading.Condition()
        self._woken = False
        self._state = ServiceLifecycle(plan, timing, clock.monotonic())
        self._connection: LazyChannel | None = None
        self._shortage: ShortageError | None = None
        self._thread = threading.Thread(target=self._run, name=plan.id.file_name, daemon=True)

    def start(self) -> None:
        """Begin; returns before the process is started."""
        self._thread.start()

    def use(self, user: User | None = None) -> bool:
        """Keep the service for a user, None to delay its idle end; False if it is too late."""
        with self._changed:
            used = self._state.used(user, self._clock.monotonic())
            self._state = used or self._state
            return used is not None

    def release(self, user: User) -> None:
        self._change(lambda state: state.released(user, self._clock.monotonic()), wake=True)

    def connection(self) -> LazyChannel | None:
        """Return the connection if the service is ready, None while it starts.

        Raises:
            TerminalError: It failed permanently, with the cause.
        """
        with self._changed:
            if self._state.phase is ServicePhase.FAILED:
                raise TerminalError(self._state.last_error)
            return self._connection

    def state_for(self, user: User) -> ServiceState | None:
        """Return the state of the service for one of its users; None for others."""
        return self._state.state_for(user)

    def waiting_for(self, user: User) -> str:
        """Return the passing obstacle to the service's responses for one of its users; empty if there is none."""
        state = self._state
        return state.waiting_for if user in state.users and state.phase is ServicePhase.STARTING else ""

    def stop(self) -> None:
        """Request the end of the service."""
        self._change(lambda state: replace(state, stopping=True), wake=True)

    def join(self) -> None:
        """Wait until the process is gone."""
        self._thread.join()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_over():
                began = self._clock.monotonic()
                process = self._run_process()
                if self._is_over():
                    break
                state = self._note_exit(process, self._clock.monotonic() - began)
                if state.phase is ServicePhase.FAILED:
                    return
                self._sleep(state.pause_seconds)
        except TerminalError as error:
            self._set(ServicePhase.FAILED, error=str(error))
        except Exception as error:  # noqa: BLE001 - callers that wait for the service must be notified
            _log.exception("Service is given up", extra={"service": str(self._plan.id)})
            self._set(ServicePhase.FAILED, error=f"{self._plan.id} cannot be kept up: {error}")
        else:
            self._set(ServicePhase.STOPPED)

    def _run_process(self) -> _ServiceProcess:
        """Start a process and supervise it to its end."""
        process = _ServiceProcess()
        socket_path = self._sockets.new_path()
        try:
            command, address = resolve_command(self._plan, socket_path)
            process.handle = self._spawn(process, command)
            if self._await_ready(process, address):
                self._set(ServicePhase.READY, process.connection)
                while process.exit is None and not self._is_over():
                    self._sleep(self._state.seconds_until_idle(self._clock.monotonic()))
        except (UnavailableError, OSError) as error:
            process.trouble, process.passes = f"cannot be started: {error}", True
        except (MemoryError, ImportError, RuntimeError) as error:  # of the modules for talking to it
            if (shortage := shortage_of(error)) is None:
                raise
            process.trouble, process.passes = f"cannot be started: {shortage}", True
        finally:
            self._set(ServicePhase.STARTING)
            self._discard(process)
            socket_path.unlink(missing_ok=True)
        return process

    def _spawn(self, process: _ServiceProcess, command: list[str]) -> ProcessHandle:
        def exited(_: ProcessHandle, exit_: ProcessExit) -> None:
            process.exit = exit_
            self._wake()

        output = self._log.open()
        # The token of the server grants more rights than a service needs.
        inherited = {name: value for name, value in os.environ.items() if name != "KATIB_TOKEN"}
        try:
            return self._processes.spawn(
                Command(
                    command, {**inherited, **self._plan.environment}, self._plan.directory or self._log.path.parent
                ),
                output,
                on_exit=exited,
            )
        except TerminalError as error:
            raise TerminalError(f"{self._plan.id} cannot be started: {error}") from error
        finally:
            os.close(output)

    def _await_ready(self, process: _ServiceProcess, address: str) -> bool:
        # Late: the process starts while the modules for talking to it are imported.
        from katib.engine.algorithm_services.readiness import accepts_connections, is_serving
        from katib.wire.rpc.connection import LazyChannel

        deadline = self._clock.monotonic() + self._timing.start
        attempts = 0
        while process.exit is None and not self._is_over():
            if accepts_connections(address):
                if process.connection is None:
                    process.connection = LazyChannel(
                        address, peer=str(self._plan.id), timeout_seconds=self._timing.call
                    )
                if is_serving(process.connection, self._plan.health_service):
                    process.answered_before = process.connection.answer_count
                    return True
            if self._clock.monotonic() > deadline:
                process.trouble = f"did not serve within {self._timing.start:g} s"
                return False
            attempts += 1
            self._sleep(_PROBE.pause_seconds(attempts))
        return False

    def _discard(self, process: _ServiceProcess) -> None:
        """End the remains of a process, with SIGTERM first, and fail the pending calls."""
        if process.connection is not None:
            process.connection.close()
        if process.handle is None:
            return
        if process.exit is None:
            self._processes.signal(process.handle, signal.SIGTERM)
            deadline = self._clock.monotonic() + self._timing.stop
            while (left := deadline - self._clock.monotonic()) > 0 and process.exit is None:
                self._sleep(left)
        wait([self._processes.kill_tree(process.handle)], self._timing.stop)

    # --- state --------------------------------------------------------------------------------------------------------

    def _change(
        self, changed: Callable[[ServiceLifecycle], ServiceLifecycle], *, wake: bool = False
    ) -> ServiceLifecycle:
        with self._changed:
            self._state = state = changed(self._state)
            if wake:
                self._wake()
        return state

    def _set(self, phase: ServicePhase, connection: LazyChannel | None = None, error: str = "") -> None:
        with self._changed:
            self._connection = connection
            self._state = state = replace(self._state, phase=phase, last_error=error or self._state.last_error)
        if phase in (ServicePhase.READY, ServicePhase.FAILED):
            self._on_change(state.users)

    def _note_exit(self, process: _ServiceProcess, seconds: float) -> ServiceLifecycle:
        words = self._log.last_lines()
        if not process.trouble and (shortage := shortage_in(words.rpartition(" | ")[2]) or shortage_in(words)):
            if self._shortage is None or self._shortage.lack != shortage.lack:
                self._shortage = shortage  # otherwise the former words are kept for users
            process.trouble, process.passes = f"ended: {self._shortage}", True
            words = ""
        details = f"{f': {words}' if words else ''}; its output is in {self._log.path}"
        ending = process.trouble or str(process.exit)
        before = self._state
        state = self._change(
            lambda state: state.after_exit(
                ending, details, may_pass=process.may_pass, answered=process.answered, seconds=seconds
            )
        )
        if state.phase is ServicePhase.FAILED or state.waiting_for != before.waiting_for:
            self._on_change(state.users)
        return state

    def _is_over(self) -> bool:
        """Return whether it is time to stop; once it is, no user can be added."""
        return self._change(lambda state: state.at(self._clock.monotonic())).stopping

    def _wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _sleep(self, seconds: float | None) -> None:
        """Wait until the timeout, an exit, a stop or a release. The caller checks the state again afterwards."""
        with self._changed:
            if not self._woken:
                self._clock.wait(self._changed, seconds)
            self._woken = False
