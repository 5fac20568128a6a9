"""One container of a pod: a process that may be started again in place. Lives on the loop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from katib.errors import KatibError, UnavailableError
from katib.processes.client import Processes
from katib.processes.handle import Exit, ProcessHandle
from katib.runtime.clock import Clock
from katib.workloads.local.delays import Delays
from katib.workloads.local.environment import ContainerCommand
from katib.workloads.local.loop import Loop, Timer
from katib.workloads.local.output import LogFile, Output
from katib.workloads.local.records import ContainerExit
from katib.workloads.ports import Monitor


class Role(Enum):
    """What a container is to its pod."""

    INIT = auto()
    SIDECAR = auto()
    MAIN = auto()


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What a container is to do: its role, its command and whether it is started again after a failure or any end."""

    role: Role
    command: ContainerCommand
    directory: Path
    restart_on_failure: bool
    restart_always: bool


class Container:
    """Runs one container.

    Args:
        plan: What to run.
        log_path: Where its output is kept.
        monitor: Who reads its output; restarts continue the same stream.
        started: Called when a process runs; with a handle whose number is new to the pod.
        changed: Called after each end of a process and when nothing more comes.
    """

    def __init__(
        self,
        plan: ContainerPlan,
        *,
        loop: Loop,
        processes: Processes,
        clock: Clock,
        delays: Delays,
        log_path: Path,
        monitor: Monitor | None,
        started: Callable[[ProcessHandle], None],
        changed: Callable[[], None],
        after_feed: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.monitor = monitor
        self.log = LogFile(log_path)
        self.restarts = 0
        self.exit: ContainerExit | None = None
        self.failure: KatibError | None = None
        self.is_started = False
        self.is_over = False
        self._loop = loop
        self._processes = processes
        self._clock = clock
        self._delays = delays
        self._started = started
        self._changed = changed
        self._after_feed = after_feed
        self._handle: ProcessHandle | None = None
        self._leavings: list[ProcessHandle] = []
        self._output: Output | None = None
        self._timer: Timer | None = None
        self._running_since = 0.0
        self._stopping = False
        self._forgiven = 0  # restarts before a long good run; they do not lengthen the delay any more

    @property
    def name(self) -> str:
        """Name in the template."""
        return self.plan.command.name

    @property
    def is_running(self) -> bool:
        """Whether it has a process now."""
        return self._handle is not None

    def start(self) -> None:
        """Start the process; when that is impossible the container is over, with `failure` set."""
        self.is_started = True
        self.log.open()
        self._run()

    def signal(self, sig: signal.Signals) -> None:
        """Ask the process to end and start none again; a container that waits for its restart is over at once."""
        self._stopping = True
        if self._handle is not None:
            self._processes.signal(self._handle, sig)
        elif self._timer is not None:
            self._timer.cancel()
            self._end()

    def kill(self) -> None:
        """End the process and all it started, by force."""
        self.signal(signal.SIGKILL)
        if self._handle is not None:
            self._processes.kill_tree(self._handle)

    def kill_leavings(self) -> list[Future[None]]:
        """Kill what ended processes of this container left running; the futures are done when it is gone."""
        leavings, self._leavings = self._leavings, []
        return [self._processes.kill_tree(handle) for handle in leavings]

    def _run(self) -> None:
        self._timer = None
        plan = self.plan
        try:
            output = Output(self._loop, self.log, self.monitor, self._after_feed)
        except OSError as error:
            self.failure = UnavailableError(f"no pipe for its output: {error.strerror}; raise the limit of open files")
            self._end()
            return
        try:
            self._handle = self._processes.spawn(
                plan.command.argv,
                plan.command.env,
                plan.directory,
                output.write_fd,
                output.write_fd,
                on_exit=lambda _handle, exit_: self._loop.call_soon(lambda: self._exited(exit_)),
            )
        except KatibError as error:
            output.abandon()
            self.failure = error
            self._end()
            return
        output.start()
        self._output = output
        self._running_since = self._clock.monotonic()
        self._started(self._handle)

    def _exited(self, exit_: Exit) -> None:
        if exit_.remains and self._handle is not None:
            self._leavings.append(self._handle)
        self._handle = None
        self.exit = ContainerExit(self.name, exit_.code, str(exit_))
        if self._output is not None:
            self._output.finish(self._drained)

    def _drained(self) -> None:
        self._output = None
        if self._is_final():
            self._end()
            return
        if self._clock.monotonic() - self._running_since >= self._delays.restart_reset_seconds:
            self._forgiven = self.restarts
        delay = self._delays.before_restart(self.restarts - self._forgiven)
        self._timer = self._loop.call_later(delay, self._restart)
        self._changed()

    def _is_final(self) -> bool:
        if self._stopping:
            return True
        failed = self.exit is not None and self.exit.code != 0
        return not (self.plan.restart_always or (self.plan.restart_on_failure and failed))

    def _restart(self) -> None:
        self.restarts += 1
        self._run()
        self._changed()

    def _end(self) -> None:
        self._timer = None
        self.is_over = True
        self.log.close()
        self._changed()
