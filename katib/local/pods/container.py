"""One container of a pod: a process that may be started again in place. Lives on the loop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from katib.errors import KatibError, UnavailableError
from katib.local.pods.environment import ContainerCommand
from katib.local.pods.image_process import ImageProcess
from katib.local.pods.images import ImageRun, ImageRuntime
from katib.local.pods.log_file import LogFile
from katib.local.pods.loop import Loop, Timer
from katib.local.pods.monitor import Monitor
from katib.local.pods.output import Output
from katib.local.pods.pulls import ImagePulls, PullNews
from katib.local.pods.records import ContainerExit, ContainerState, Delays, EarlierEnd
from katib.local.processes.client import ANSWER_SECONDS, Processes, Start, no_answer
from katib.local.processes.handle import Exit, ProcessHandle
from katib.runtime.clock import Clock


class Role(Enum):
    """What a container is to its pod."""

    INIT = auto()
    SIDECAR = auto()
    MAIN = auto()


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What a container is to do.

    Attributes:
        role: What it is to its pod.
        command: What to execute.
        directory: Where.
        restart_on_failure: Whether it is started again when it failed.
        restart_always: Whether it is started again whenever it ends.
        volumes: Directories outside of the pod's own that must exist.
        image: What is run by a runtime in place of the command; None: the command is a process of this machine.
    """

    role: Role
    command: ContainerCommand
    directory: Path
    restart_on_failure: bool
    restart_always: bool
    volumes: tuple[Path, ...] = ()
    image: ImageRun | None = None

    @property
    def is_main(self) -> bool:
        """Whether it is one of the pod's main containers, and no init container or sidecar."""
        return self.role is Role.MAIN


class Container:
    """Runs one container. Starting a process takes as long as its file systems need; the loop does not wait for it.

    Args:
        plan: What to run.
        log: Where its output is kept.
        monitor: Who reads its output; restarts continue the same stream.
        started: Called when a process runs; with a handle whose number is new to the pod.
        changed: Called after each start and end of a process and when nothing more comes.
        images: Runs images; for a plan that has one.
        pulls: Fetches them before.
        on_pull: Called when the image has to be fetched, and when that has ended.
    """

    def __init__(
        self,
        plan: ContainerPlan,
        *,
        loop: Loop,
        processes: Processes,
        clock: Clock,
        delays: Delays,
        log: LogFile,
        monitor: Monitor | None,
        started: Callable[[ProcessHandle], None],
        changed: Callable[[], None],
        after_feed: Callable[[], None],
        images: ImageRuntime | None = None,
        pulls: ImagePulls | None = None,
        on_pull: Callable[[PullNews], None] = lambda _news: None,
    ) -> None:
        self.plan = plan
        self.monitor = monitor
        self.log = log
        self.restarts = 0
        self.failures = 0
        self.exit: ContainerExit | None = None
        self.last_output = ""
        self.address_in_use = False
        self.failure: KatibError | None = None
        self.is_started = False
        self.has_run = False
        self.is_over = False
        self.pulling = ""
        self._loop = loop
        self._processes = processes
        self._clock = clock
        self._delays = delays
        self._started = started
        self._changed = changed
        self._after_feed = after_feed
        self._pulls = pulls
        self._on_pull = on_pull
        self._give_up_image: Callable[[], None] | None = None
        self._image: ImageProcess | None = None
        if plan.image is not None and images is not None:
            self._image = ImageProcess(plan.image, images, processes=processes, loop=loop)
        self._log_start = 0
        self._handle: ProcessHandle | None = None
        self._remains: list[ProcessHandle] = []
        self._start: Start | None = None
        self._output: Output | None = None
        self._timer: Timer | None = None
        self._running_since = 0.0
        self._pid = 0
        self._ended: float | None = None
        self._earlier: EarlierEnd | None = None
        self._stopping = False
        self._forgiven = 0  # restarts before a long good run; they do not lengthen the delay any more

    @property
    def name(self) -> str:
        """Name in the template."""
        return self.plan.command.name

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
        began, ended = self._running_since or None, self._ended
        is_main, pid = self.plan.is_main, self._pid
        return ContainerState(
            self.name, is_main, pid, self.restarts, began, ended, self.exit, self.is_over, self._earlier
        )

    def start(self) -> None:
        """Start the process; when that is impossible the container is over, with `failure` set."""
        self.is_started = True
        self.log.open()
        self._run()

    def signal(self, sig: signal.Signals) -> None:
        """Ask the process to end and start none again; a container without one is over at once."""
        self._stopping = True
        if self._handle is not None:
            self._processes.signal(self._handle, sig)
        elif self._start is not None:
            self._processes.withdraw(self._start)
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
            handle = self._handle
            self._image.kill(lambda: self._kill_tree(handle))
            return
        self.signal(signal.SIGKILL)
        if self._handle is not None:
            self._processes.kill_tree(self._handle)

    def _kill_tree(self, handle: ProcessHandle) -> None:
        self._processes.kill_tree(handle)

    def kill_remains(self) -> list[Future[None]]:
        """Kill what ended processes of this container left running; the futures are done when it is gone."""
        remains, self._remains = self._remains, []
        return [self._processes.kill_tree(handle) for handle in remains]

    def _run(self) -> None:
        """Start the process as soon as its image is here."""
        self._timer = None
        image = self.plan.image
        if image is None or self._pulls is None or self._pulls.is_ready(image):
            self._launch()
        else:
            self._give_up_image = self._pulls.fetch(image, self._image_news, self._image_here)

    def _image_news(self, news: PullNews) -> None:
        self.pulling = news.image if news.seconds is None else ""
        self._changed()
        self._on_pull(news)

    def _image_here(self, error: KatibError | None) -> None:
        self._give_up_image = None
        if error is not None:
            self._fail(error)
            return
        self._launch()
        self._changed()

    def _launch(self) -> None:
        plan = self.plan
        command, directory, made = plan.command, plan.directory, plan.volumes
        if self._image is not None:
            command = self._image.next_command()
            directory = Path(command.working_directory or self.log.directory)
            made = (*plan.volumes, directory)
        self._log_start = self.log.size
        try:
            output = Output(self._loop, self.log, self.monitor, self._after_feed)
        except OSError as error:
            self._fail(UnavailableError(f"no pipe for its output: {error.strerror}; raise the limit of open files"))
            return
        self._output = output
        try:
            self._start = start = self._processes.launch(
                command.argv,
                command.env,
                directory,
                output.write_fd,
                directories=made,
                on_exit=lambda _handle, exit_: self._loop.call_soon(lambda: self._exited(exit_)),
            )
        except KatibError as error:
            self._fail(error)
            return
        finally:
            output.handed_over()
        self._timer = self._loop.call_later(ANSWER_SECONDS, lambda: self._give_up(start))
        start.answer.add_done_callback(lambda _: self._loop.call_soon(lambda: self._answered(start)))

    def _give_up(self, start: Start) -> None:
        if start.answer.cancel():
            self._fail(no_answer())

    def _answered(self, start: Start) -> None:
        """Go on with the process that runs, or with the error that keeps it from running."""
        if start is not self._start:
            return
        self._cancel_timer()
        if error := start.answer.exception():
            self._fail(error)
            return
        self._start = None
        self._handle = handle = start.answer.result()
        self.has_run = True
        self._running_since = self._clock.monotonic()
        self._pid, self._ended = handle.pid, None
        if self._stopping:  # too late to withdraw it
            self.kill()
        if self._output is not None:
            self._output.start()
        self._started(handle)
        self._changed()

    def _fail(self, error: BaseException) -> None:
        """End without a process. One that was to be stopped anyway has not failed."""
        self._start = None
        if self._output is not None:
            self._output.abandon()
            self._output = None
        if not self._stopping:
            self.failure = error if isinstance(error, KatibError) else UnavailableError(str(error))
        self._end()

    def _exited(self, exit_: Exit) -> None:
        if self._start is not None:  # the end of a short process was reported before its start
            self._answered(self._start)
        if exit_.remains and self._handle is not None:
            self._remains.append(self._handle)
        self._handle = None
        self._ended = self._clock.monotonic()
        text, out_of_memory = str(exit_), False
        if self._image is not None and not self._stopping:
            text, out_of_memory = self._image.exit_text(exit_), self._image.ran_out_of_memory(exit_)
        self.exit = ContainerExit(self.name, exit_.code, text, exit_.lost, out_of_memory)
        if self._output is not None:
            self._output.finish(lambda: self._drained(exit_))

    def _drained(self, exit_: Exit) -> None:
        self._output = None
        if self._image is None:
            self._conclude()
            return
        if not self._stopping:
            self.failure = self._image.failure(exit_.code, self.log.text_from(self._log_start))
        self._image.clear(exit_, self._conclude)

    def _conclude(self) -> None:
        self.last_output = self.log.last_line() if self._has_failed() else ""
        self.address_in_use = self._has_failed() and self.log.names_address_in_use()
        if self._is_final():
            self._end()
            return
        if self._clock.monotonic() - self._running_since >= self._delays.restart_reset_seconds:
            self._forgiven = self.restarts
            self.failures = 0
        self.failures += self._has_failed()
        if self.exit is not None:
            self._earlier = EarlierEnd(self.exit, self._running_since, self._ended, self.last_output)
        delay = self._delays.restart.pause_seconds(self.restarts - self._forgiven)
        self._timer = self._loop.call_later(delay, self._restart)
        self._changed()

    def _is_final(self) -> bool:
        if self._stopping or self.failure is not None:
            return True
        return not (self.plan.restart_always or (self.plan.restart_on_failure and self._has_failed()))

    def _has_failed(self) -> bool:
        return self.exit is not None and self.exit.code != 0

    def _restart(self) -> None:
        self.restarts += 1
        self._run()
        self._changed()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._cancel_timer()
        self.is_over = True
        self.log.close()
        self._changed()
