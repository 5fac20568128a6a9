"""One service process, kept running for as long as somebody uses it.

Theory of operation: a thread lives with the process. It starts it, asks until it serves, then sleeps until the process
exits, its users have been gone for a while, or it is told to stop.

    STARTING --serves--> READY --exits--> STARTING (after a pause that grows)
    STARTING, READY --nobody needs it--> STOPPED        STARTING, READY --dies again and again--> FAILED

A life in which at least one call was answered wipes out the failures before it: a service that crashes on one in a
hundred requests goes on, one that crashes on every request ends as FAILED with its last words.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from katib.errors import TerminalError, UnavailableError
from katib.services.files import ServiceLog
from katib.services.plan import ServicePlan, resolve_command
from katib.services.states import Phase, ServiceState, Timing, User

if TYPE_CHECKING:
    from katib.processes.client import Processes
    from katib.processes.handle import Exit, ProcessHandle
    from katib.rpc.connection import Connection

_log = logging.getLogger(__name__)


class Sockets(Protocol):
    """Gives paths for sockets."""

    def new_path(self) -> Path:
        """Return a path that was never used."""


@dataclass(slots=True)
class _Life:
    """One process: from its start to its end. `trouble` is what was wrong with it, if not simply its exit."""

    handle: ProcessHandle | None = None
    exit: Exit | None = None
    connection: Connection | None = None
    answered_before: int = 0
    trouble: str = ""

    @property
    def answered(self) -> bool:
        return self.connection is not None and self.connection.answer_count > self.answered_before


class Supervisor:
    """Keeps one service process. Thread-safe; no method waits for the process, except `join`.

    Args:
        plan: What to start.
        processes: Starts it.
        log: Takes its output.
        sockets: Gives it a place to listen.
        timing: How long things may take.
        on_change: Called on the thread of the service, with its users, when it became ready or has failed.
    """

    def __init__(
        self,
        plan: ServicePlan,
        processes: Processes,
        log: ServiceLog,
        sockets: Sockets,
        timing: Timing,
        on_change: Callable[[frozenset[User]], None],
    ) -> None:
        self._plan = plan
        self._processes = processes
        self._log = log
        self._sockets = sockets
        self._timing = timing
        self._on_change = on_change
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._phase = Phase.STARTING
        self._users: set[User] = set()
        self._idle_since = time.monotonic()
        self._stopping = False
        self._connection: Connection | None = None
        self._failure = ""
        self._failures = 0
        self._last_error = ""
        self._thread = threading.Thread(target=self._run, name=plan.id.file_name, daemon=True)

    def start(self) -> None:
        """Begin; returns before the process is there."""
        self._thread.start()

    def use(self, user: User | None = None) -> bool:
        """Keep the service for a user, None to put off its idle end; False when it is too late for that."""
        with self._lock:
            if self._stopping or self._phase is Phase.STOPPED:
                return False
            if self._phase is Phase.FAILED and user not in self._users:
                return False  # whoever comes new to a failed service gets a new attempt
            self._idle_since = time.monotonic()
            if user is not None:
                self._users.add(user)
            return True

    def release(self, user: User) -> None:
        """Forget a user."""
        with self._lock:
            self._users.discard(user)
            self._idle_since = time.monotonic()
        self._wake.set()

    def connection(self) -> Connection | None:
        """Return the connection when the service is ready, None while it starts.

        Raises:
            TerminalError: It failed for good, with the cause.
        """
        with self._lock:
            if self._failure:
                raise TerminalError(self._failure)
            return self._connection

    def state_for(self, user: User) -> ServiceState | None:
        """Return how the service is doing, to one of its users; None to others."""
        with self._lock:
            if user not in self._users:
                return None
            given_up = self._phase is Phase.FAILED
            state = "failing" if given_up or self._failures else "starting"
            return ServiceState(
                self._plan.id,
                "ready" if self._phase is Phase.READY else state,
                max(1, self._failures) if given_up else self._failures + 1,
                self._last_error,
                " ".join(self._plan.command),
            )

    @property
    def phase(self) -> Phase:
        """Where it is in its life."""
        with self._lock:
            return self._phase

    def stop(self) -> None:
        """Say that the service is not needed any more."""
        with self._lock:
            self._stopping = True
        self._wake.set()

    def join(self) -> None:
        """Wait until the process is gone."""
        self._thread.join()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            for pause in self._lives():
                self._sleep(pause)
        except TerminalError as error:
            self._set(Phase.FAILED, failure=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits for the service has to be told
            _log.exception("Service is given up", extra={"service": str(self._plan.id)})
            self._set(Phase.FAILED, failure=f"{self._plan.id} cannot be kept up: {error}")
        else:
            self._set(Phase.STOPPED)

    def _lives(self) -> Iterator[float]:
        """Live through one process after the other; yield the pause before the next."""
        while not self._is_over():
            began = time.monotonic()
            life = self._live()
            if self._is_over():
                return
            settled = life.answered or time.monotonic() - began > self._timing.settled
            failures = 0 if settled else self._failures + 1
            obituary = self._obituary(life, failures)
            with self._lock:
                self._failures, self._last_error = failures, obituary
            if failures >= self._timing.max_failures:
                raise TerminalError(obituary)
            yield min(self._timing.first_pause * 2 ** max(0, failures - 1), self._timing.longest_pause)

    def _live(self) -> _Life:
        """Start a process and stay with it to its end."""
        life = _Life()
        socket_path = self._sockets.new_path()
        try:
            command, address = resolve_command(self._plan, socket_path)
            life.handle = self._spawn(life, command)
            if self._await_ready(life, address):
                self._set(Phase.READY, life.connection)
                self._stay(life)
        except (UnavailableError, OSError) as error:
            life.trouble = f"cannot be started: {error}"
        finally:
            self._set(Phase.STARTING)
            self._bury(life)
            socket_path.unlink(missing_ok=True)
        return life

    def _spawn(self, life: _Life, command: list[str]) -> ProcessHandle:
        def exited(_: ProcessHandle, exit_: Exit) -> None:
            life.exit = exit_
            self._wake.set()

        output = self._log.open()
        try:
            return self._processes.spawn(
                command,
                {**os.environ, **self._plan.environment},
                self._plan.directory or self._log.path.parent,
                output,
                output,
                on_exit=exited,
            )
        except TerminalError as error:
            raise TerminalError(f"{self._plan.id} cannot be started: {error}") from error
        finally:
            os.close(output)

    def _await_ready(self, life: _Life, address: str) -> bool:
        # Late: the process starts while we import what it takes to talk to it.
        from katib.rpc.connection import Connection
        from katib.services.readiness import accepts_connections, is_serving

        deadline = time.monotonic() + self._timing.start
        for pause in _probe_pauses():
            if life.exit is not None or self._is_over():
                return False
            if accepts_connections(address):
                if life.connection is None:
                    life.connection = Connection(address, peer=str(self._plan.id), timeout_seconds=self._timing.call)
                if is_serving(life.connection, self._plan.health_service):
                    break
            if time.monotonic() > deadline:
                life.trouble = f"did not serve within {self._timing.start:g} s"
                return False
            self._sleep(pause)
        assert life.connection is not None
        life.answered_before = life.connection.answer_count
        return True

    def _stay(self, life: _Life) -> None:
        while life.exit is None and not self._is_over():
            self._sleep(self._idle_left())

    def _bury(self, life: _Life) -> None:
        """End what is left of a process, politely first, and fail the calls in flight."""
        if life.connection is not None:
            life.connection.close()
        if life.handle is None:
            return
        if life.exit is None:
            self._processes.signal(life.handle, signal.SIGTERM)
            self._await_exit(life, self._timing.stop)
        wait([self._processes.kill_tree(life.handle)], self._timing.stop)

    def _await_exit(self, life: _Life, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while life.exit is None and time.monotonic() < deadline:
            self._sleep(deadline - time.monotonic())

    # --- state --------------------------------------------------------------------------------------------------------

    def _set(self, phase: Phase, connection: Connection | None = None, failure: str = "") -> None:
        with self._lock:
            self._phase, self._connection, self._failure = phase, connection, failure
            self._last_error = failure or self._last_error
            users = frozenset(self._users)
        if phase in (Phase.READY, Phase.FAILED):
            self._on_change(users)

    def _is_over(self) -> bool:
        """Tell whether it is time to stop; once it is, no user can come any more."""
        with self._lock:
            if not self._users and time.monotonic() - self._idle_since >= self._timing.idle:
                self._stopping = True
            return self._stopping

    def _idle_left(self) -> float | None:
        with self._lock:
            return None if self._users else max(0.0, self._idle_since + self._timing.idle - time.monotonic())

    def _sleep(self, seconds: float | None) -> None:
        """Wait, but not past an exit, a stop or a release. Whoever waits looks at the world again afterwards."""
        self._wake.wait(seconds)
        self._wake.clear()

    def _obituary(self, life: _Life, failures: int) -> str:
        words = self._log.last_lines()
        said = f": {words}" if words else ""
        times = f" ({failures} times in a row)" if failures > 1 else ""
        return f"{self._plan.id} {life.trouble or life.exit}{times}{said}; its output is in {self._log.path}"


def _probe_pauses() -> Iterator[float]:
    """Yield 5 ms, growing to 100 ms: quick services are found quickly, slow ones not woken all the time."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 1.1, 0.1)
