"""One container of a pod: a process that may be started again in place. Lives on the loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from katib.errors import Backoff, KatibError, ShortageError, UnavailableError, shortage_of
from katib.places.machine.pods.log_file import RUN_BEGINS, LogFile
from katib.places.machine.pods.loop import Timer
from katib.places.machine.pods.output import Monitor, Output
from katib.places.machine.pods.plans import ContainerPlan, ContainerRole, PodPlan, note_processes
from katib.places.machine.pods.records import ContainerExit, ContainerState, EarlierEnd
from katib.places.machine.pods.tools import PodTools
from katib.places.machine.processes.client import ANSWER_SECONDS, KeepSettings, PendingStart, no_answer
from katib.places.machine.processes.connection import KeptProcess
from katib.places.machine.processes.handle import Command, ProcessExit, ProcessHandle

if TYPE_CHECKING:
    from katib.places.machine.pods.images import ImageProcess
    from katib.places.machine.pods.pulls import PullNews

_SHORTAGE = Backoff(0.5, 15.0)
"""Pauses between the starts of a program while the machine is short of something."""


class ContainerListener(Protocol):
    """The pod of a container. Called on the loop."""

    plan: PodPlan

    def advance(self) -> None:
        """Look at the container: a process of it started or ended, or nothing more comes."""

    def output_read(self) -> None:
        """Look at the monitor of the container: it has read something."""

    def pulled(self, news: PullNews) -> None:
        """Take note that the image has to be fetched, or that this has ended."""


@dataclass(slots=True)
class ContainerRuns:
    """The processes of a container so far.

    Attributes:
        restarts: How often it was started again.
        failures: How often in a row it failed, without a long good run between.
        forgiven: Restarts before a long good run; they do not lengthen the pause any more.
        pid: Of its last process; 0 before the first one.
        began: When that started, on the monotonic clock.
        ended: When that ended; None while it runs.
        exit: The last end.
        earlier: The end before the last restart.
        last_output: The last line of a process that failed.
        address_in_use: Whether that process found its port taken.
    """

    restarts: int = 0
    failures: int = 0
    forgiven: int = 0
    pid: int = 0
    began: float = 0.0
    ended: float | None = None
    exit: ContainerExit | None = None
    earlier: EarlierEnd | None = None
    last_output: str = ""
    address_in_use: bool = False


class Container:
    """Runs one container. Starting a process takes as long as its file systems need; the loop does not wait for it.

    Args:
        monitor: Reads its output; restarts continue the same stream.
        pod: Hears when a process of it started or ended, and when its monitor has read something.
        keep: How its processes are kept for the next engine, but for their output; None: they end with this one.

    Attributes:
        remains: Processes that ended and left others running, which end with the pod.
    """

    def __init__(
        self,
        plan: ContainerPlan,
        tools: PodTools,
        log: LogFile,
        monitor: Monitor | None,
        pod: ContainerListener,
        keep: KeepSettings | None = None,
    ) -> None:
        self.plan = plan
        self.name = plan.command.name
        self.monitor = monitor
        self.log = log
        self.runs = ContainerRuns()
        self.failure: KatibError | None = None
        self.is_started = False
        self.has_run = False
        self.is_over = False
        self.pulling = ""
        self.waiting = ""
        self._shortages = 0  # in a row
        self._tools = tools
        self._pod = pod
        self._keep = keep
        self._give_up_image: Callable[[], None] | None = None
        self._image: ImageProcess | None = None
        if plan.image is not None and tools.images is not None:
            from katib.places.machine.pods.images import ImageProcess

            self._image = ImageProcess(plan.image, tools.images.runtime, processes=tools.processes, loop=tools.loop)
        self._log_start = 0
        self._handle: ProcessHandle | None = None
        self.remains: list[ProcessHandle] = []
        self._start: PendingStart | None = None
        self._output: Output | None = None
        self._timer: Timer | None = None
        self._stopping = False
        self._asked = signal.SIGTERM  # which signal it was last asked to end with

    @property
    def has_succeeded(self) -> bool:
        """Whether it is over and its last process ended well."""
        return self.is_over and self.failure is None and self.runs.exit is not None and self.runs.exit.code == 0

    @property
    def is_starting(self) -> bool:
        """Whether it waits for its image or its process."""
        return self._start is not None or self._give_up_image is not None

    @property
    def is_running(self) -> bool:
        """Whether it has a process now."""
        return self._handle is not None

    @property
    def awaits_restart(self) -> bool:
        """Whether it ended and waits for the time to start again."""
        return self._timer is not None and not self.is_starting and not self.is_running

    @property
    def state(self) -> ContainerState:
        """How it is now."""
        runs, is_main = self.runs, self.plan.role is ContainerRole.MAIN
        began = runs.began or None
        return ContainerState(
            self.name, is_main, runs.pid, runs.restarts, began, runs.ended, runs.exit, self.is_over, runs.earlier
        )

    def start(self) -> None:
        """Start the process; when that is impossible the container is over, with `failure` set."""
        self.is_started = True
        self.log.open()
        self._run()

    def take_over(self, processes: Sequence[KeptProcess]) -> None:
        """Go on with processes that an earlier engine started for this container, the oldest first."""
        *earlier, last = processes
        for process in earlier:  # their output was read before the next one was started
            for output in process.outputs:
                os.close(output)
            self._tools.processes.attach(process, lambda *_: None)
        self.is_started = self.has_run = True
        self.runs.restarts = len(earlier)
        self.log.open()
        listener, pipes = self._pod.output_read, last.outputs
        self._output = Output(self._tools, self.log, self.monitor, listener, is_kept=True, pipes=pipes)
        self.runs.began, self.runs.pid = last.began, last.pid
        self._output.start()
        self._handle = self._tools.processes.attach(last, partial(self._process_ended, at=last.ended or None))
        note_processes(self._pod.plan, self.name, self._handle)

    def signal(self, sig: signal.Signals) -> None:
        """Ask the process to end and start none again; a container without one is over at once."""
        self._stopping, self._asked = True, sig
        if self._handle is not None:
            self._tools.processes.signal(self._handle, sig)
        elif self._start is not None:
            self._tools.processes.withdraw(self._start)
        elif self._give_up_image is not None:
            self._give_up_image()
            self._give_up_image, self.pulling = None, ""
            self._end()
        elif self._timer is not None:
            self._end()

    def kill(self) -> None:
        """End the process and all it started, by force."""
        if self._image is not None and self._handle is not None:
            self._stopping = True
            self._image.kill(partial(self._tools.processes.kill_tree, self._handle))
            return
        self.signal(signal.SIGKILL)
        if self._handle is not None:
            self._tools.processes.kill_tree(self._handle)

    def _run(self) -> None:
        """Start the process as soon as its image is here."""
        self._timer = None
        image, images = self.plan.image, self._tools.images
        if image is None or images is None or images.is_ready(image):
            self._launch()
        else:
            self._give_up_image = images.fetch(image, self._image_news, self._image_here)

    def _image_news(self, news: PullNews) -> None:
        self.pulling = news.image if news.seconds is None else ""
        self._pod.advance()
        self._pod.pulled(news)

    def _image_here(self, error: KatibError | None) -> None:
        self._give_up_image = None
        if error is not None:
            self._fail(error)
            return
        self._launch()
        self._pod.advance()

    def _launch(self) -> None:
        plan = self.plan
        program = Command(plan.command.argv, plan.command.env, plan.directory, plan.volumes)
        if self._image is not None:
            command = self._image.next_command()
            directory = Path(command.working_directory or self.log.path.parent)
            program = Command(command.argv, command.env, directory, (*plan.volumes, directory))
            self._log_start = self.log.size
        if self.has_run and self.monitor is not None:
            self.monitor.begin_again()
        self.log.note_time(RUN_BEGINS)
        try:
            listener, is_kept = self._pod.output_read, self._keep is not None
            output = Output(self._tools, self.log, self.monitor, listener, is_kept=is_kept)
        except OSError as error:
            self._fail(shortage_of(error) or UnavailableError(f"no pipe for its output: {error.strerror}"))
            return
        self._output = output
        try:
            self._start = start = self._tools.processes.launch(
                program,
                output.write_fds[0],
                errors_fd=output.write_fds[1],
                keep=self._keep and self._keep._replace(outputs=output.pipes),
                on_exit=self._process_ended,
            )
        except KatibError as error:
            self._fail(error)
            return
        finally:
            for fd in output.write_fds:  # the container has copies
                os.close(fd)
        self._timer = self._tools.loop.call_later(ANSWER_SECONDS, partial(self._give_up, start))
        self._tools.loop.when_all([start.answer], partial(self._answered, start))

    def _process_ended(self, _handle: ProcessHandle, exit_: ProcessExit, at: float | None = None) -> None:
        """Take the end of a process, from any thread; on the monotonic clock when it was, None: now."""
        self._tools.loop.call_soon(partial(self._exited, exit_, at))

    def _give_up(self, start: PendingStart) -> None:
        if start.answer.cancel():
            self._fail(no_answer())

    def _answered(self, start: PendingStart) -> None:
        """Go on with the process that runs, or with the error that keeps it from running."""
        if start is not self._start:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if error := start.answer.exception():
            self._fail(error)
            return
        self._start, self._shortages, self.waiting = None, 0, ""
        self._handle = handle = start.answer.result()
        self.has_run = True
        self.runs.began = self._tools.clock.monotonic()
        self.runs.pid, self.runs.ended = handle.pid, None
        if self._stopping and self._asked is signal.SIGKILL:  # too late to withdraw it
            self.kill()
        elif self._stopping:
            self._tools.processes.signal(handle, self._asked)
        if self._output is not None:
            self._output.start()
        note_processes(self._pod.plan, self.name, handle)
        self._pod.advance()

    def _fail(self, error: BaseException) -> None:
        """End without a process, or wait for the end of a shortage. One that was to be stopped has not failed."""
        self._start = None
        if self._output is not None:
            self._output.close()
            self._output = None
        if isinstance(error, ShortageError) and not self._stopping:
            self._shortages += 1
            self.waiting = str(error)
            self._timer = self._tools.loop.call_later(_SHORTAGE.pause_seconds(self._shortages), self._run)
            self._pod.advance()
            return
        if not self._stopping:
            self.failure = error if isinstance(error, KatibError) else UnavailableError(str(error))
        self._end()

    def _exited(self, exit_: ProcessExit, ended: float | None = None) -> None:
        if self._start is not None:  # the end of a short process was reported before its start
            self._answered(self._start)
        if exit_.remains and self._handle is not None:
            self.remains.append(self._handle)
        self._handle = None
        self.runs.ended = self._tools.clock.monotonic() if ended is None else ended
        text, out_of_memory = str(exit_), False
        if self._image is not None and not self._stopping:
            text, out_of_memory = self._image.exit_text(exit_), self._image.ran_out_of_memory(exit_)
        self.runs.exit = ContainerExit(self.name, exit_.code, text, exit_.lost, out_of_memory)
        if self._output is not None:
            self._output.finish(self._conclude if self._image is None else partial(self._clear, self._image, exit_))

    def _clear(self, image: ImageProcess, exit_: ProcessExit) -> None:
        if not self._stopping:
            self.failure = image.failure(exit_.code, self.log.text_from(self._log_start))
        image.clear(exit_, self._conclude)

    def _conclude(self) -> None:
        self._output = None
        has_failed = self.runs.exit is not None and self.runs.exit.code != 0
        self.runs.last_output = self.log.last_line() if has_failed else ""
        self.runs.address_in_use = has_failed and self.log.names_address_in_use()
        goes_on = self.plan.restart_always or (self.plan.restart_on_failure and has_failed)
        if self._stopping or self.failure is not None or not goes_on:
            self._end()
            return
        if self._tools.clock.monotonic() - self.runs.began >= self._tools.delays.restart_reset_seconds:
            self.runs.forgiven = self.runs.restarts
            self.runs.failures = 0
        self.runs.failures += has_failed
        if self.runs.exit is not None:
            self.runs.earlier = EarlierEnd(self.runs.exit, self.runs.began, self.runs.ended, self.runs.last_output)
        delay = self._tools.delays.restart.pause_seconds(self.runs.restarts - self.runs.forgiven)
        self._timer = self._tools.loop.call_later(delay, self._restart)
        self._pod.advance()

    def _restart(self) -> None:
        self.runs.restarts += 1
        self._run()
        self._pod.advance()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_over = True
        self.log.close()
        self._pod.advance()
