"""One pod as a job of Slurm. Lives on the loop.

It is followed by files that every node sees: the state that its script keeps, and the two streams of each main
container. They are looked at several times a second, apart from requests to Slurm, whose answers add why it waits, and
how it ended if its script could not write that: a limit, a node, `scancel`.

The log of a container is made here of the lines of its two streams, so that these are never mixed. An engine that goes
on with a pod makes it anew: its monitor reads the streams from their beginning, too.

It ends in the order of `katib.places.machine.pods.pod`: its job has ended, all of its log is read, every monitor
has stored its readings; then its record says Succeeded or Failed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from typing_extensions import override

from katib.engine.runtime.clock import Clock, SteadyTime
from katib.errors import KatibError
from katib.model.checkpoints import DIRECTORY_VARIABLE
from katib.model.failure_text import OUT_OF_MEMORY, last_line
from katib.model.files.directories import has_room
from katib.places.machine.pods.log_file import TAIL_BYTES, LogFile, LogLimits, names_address_in_use, read_end
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.output import Monitor
from katib.places.machine.pods.place import AnyPod, PodListener
from katib.places.machine.pods.plans import ContainerRole, PodPlan, note_processes
from katib.places.machine.pods.records import (
    ALLOCATION_ENDED,
    PREEMPTED,
    ContainerExit,
    ContainerState,
    EarlierEnd,
    PodPhase,
)
from katib.places.machine.pods.requests import card_words
from katib.places.machine.processes.peek import end_of_lines
from katib.places.machine.slurm.commands import JobState
from katib.places.machine.slurm.scheduler import Scheduler, SlurmSubmission
from katib.places.machine.slurm.script import WITHIN, ScriptProgress, environment_of, parse_progress, stream_files
from katib.places.machine.slurm.steps import StepScheduler

_CHUNK_BYTES: Final = 1 << 16
_CHUNKS_PER_TURN: Final = 4
_SIGNAL_BASE: Final = 128
_LATE_SECONDS: Final = 2.0
"""How long a file may need to be seen here that was written on a node before its job ended."""

_LATEST_SECONDS: Final = 30.0
"""The same where the script of a job came to its end, and so has written how; or if Slurm forgot a job that had
begun, which runs until Slurm asks its node about it, and ends it."""

_LOOK_SHARE: Final = 0.05
_LOOK_SECONDS: Final = (0.05, 0.5)
"""Its files are looked at after this share of the time that it has waited or run, within these limits: a shared file
system is spared if trials are long."""

_BY_SIGNAL: Final = frozenset({_SIGNAL_BASE + signal.SIGTERM, _SIGNAL_BASE + signal.SIGKILL})
"""Exit codes of a program that Slurm may have ended."""

_CLOCK_SECONDS: Final = 1
"""By how much the clocks of a node and of the controller may differ, and times are rounded."""

_RESUMED: Final = frozenset({"TIMEOUT", "DEADLINE", "NODE_FAIL", "BOOT_FAIL"})
"""After these ends a trial that keeps a checkpoint continues."""

_NO_SPACE: Final = os.strerror(errno.ENOSPC).encode()
_LEAST_BYTES: Final = 1 << 16
"""A disk with less room is full."""

_LAUNCHES: Final = 6
_NOT_LAUNCHED: Final = frozenset({"CANCELLED", "FAILED", "NODE_FAIL", "BOOT_FAIL"})

_OF_SLURM: Final = (b"slurmstepd", b"srun: ")
_MEMORY_LIMIT: Final = re.compile(rb"^slurmstepd\S* .*(?:memory limit|oom-kill|out-of-memory)", re.MULTILINE)
"""Messages of the daemon of a node in the output of a job; the state of the job does not say it everywhere."""

_ENDS: Final = {
    "OUT_OF_MEMORY": OUT_OF_MEMORY,
    "TIMEOUT": "reached its time limit in Slurm; raise it with --slurm-option time=HH:MM:SS",
    "DEADLINE": "reached its deadline in Slurm",
    "NODE_FAIL": "ended because its node failed",
    "BOOT_FAIL": "ended because its node did not boot",
    "PREEMPTED": "was preempted by another job of Slurm",
    "CANCELLED": "was cancelled in Slurm by another program or user",
    "REVOKED": "was revoked by Slurm",
}
"""How a job ended otherwise than by itself, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class SlurmTools:
    """The tools of every pod of a place."""

    loop: Loop
    scheduler: Scheduler | StepScheduler
    clock: Clock
    steady: SteadyTime


class SlurmPod(AnyPod):
    """Runs one pod as a job of Slurm.

    Args:
        state_file: The file in which its script keeps its progress.
    """

    def __init__(self, plan: PodPlan, listener: PodListener, tools: SlurmTools, state_file: Path) -> None:
        super().__init__(plan, listener, tools.loop, tools.steady)
        self.state_file = state_file
        self.look_at = 0.0
        self._tools = tools
        self._submission: SlurmSubmission | None = None
        self._gang: Sequence[SlurmPod] = (self,)
        self._is_signalled = False
        self._progress: ScriptProgress | None = None
        self._logs: list[_Log] = []
        self._seen: dict[int, tuple[float, float | None]] = {}  # when a container was seen to begin and to end
        self._over_since: float | None = None
        self._looks_wanted: int | None = None
        self._since = 0.0  # when it was submitted, or seen to begin
        self._ran_out_of_memory = self._lacked_room = False
        self._main = next((c.command.name for c in plan.containers if c.role is ContainerRole.MAIN), "")

    # --- commands -----------------------------------------------------------------------------------------------------

    def follow(self, submission: SlurmSubmission, gang: Sequence[SlurmPod]) -> None:
        """Go on with a job that is being submitted or runs, from its beginning."""
        self._submission, self._gang = submission, gang
        self._since = self._tools.clock.monotonic()
        try:
            self._open_monitors()
        except (KatibError, OSError) as error:  # their files need room on the disk
            self.refuse(f"pod {self.plan.name}: {error}")
            self._tools.scheduler.end(submission)
            return
        if self.plan.role:
            note_processes(self.plan)
        self.look()

    @override
    def _end_programs(self, grace_seconds: float) -> None:
        if self._submission is None:
            self._finish(PodPhase.FAILED, "")
            return
        self._read_progress()  # `srun` would not pass SIGTERM on to what has begun since the last look
        may_be_job = not (self._is_step and self.is_started)
        if may_be_job and all(pod.record.stopping or pod.record.is_finished for pod in self._gang):
            self._tools.scheduler.end(self._submission)
            self._kill_timer = self._loop.call_later(grace_seconds, self._kill)
        else:
            self._kill_timer = self._loop.call_later(grace_seconds, partial(self._signal_step, "KILL"))
            self._end_step()

    def _kill(self) -> None:
        if self._submission is not None:
            self._tools.scheduler.kill(self._submission)
            self._signal_step("KILL")

    def _end_step(self) -> None:
        """End its step of a job whose other pods continue, once it has one."""
        progress = self._progress
        is_there = progress is not None and bool(progress.pid if self.plan.role else progress.step)
        if is_there and not self._is_signalled:
            self._is_signalled = True
            self._signal_step("TERM")

    def _signal_step(self, signal: str) -> None:
        submission, progress, scheduler = self._submission, self._progress, self._tools.scheduler
        if submission is None or progress is None or not progress.step:
            return
        if isinstance(scheduler, StepScheduler) and progress.pid:
            scheduler.signal_process(progress.node, progress.pid, signal)
        elif isinstance(scheduler, StepScheduler):
            scheduler.signal(f"{submission.job}.{progress.step}", signal, has_steps=WITHIN in submission.script)
        else:
            scheduler.signal(f"{submission.job}.{progress.step}", signal)

    # --- following ----------------------------------------------------------------------------------------------------

    @property
    def is_started(self) -> bool:
        """Whether its script has begun, as far as is known here."""
        return self._progress is not None

    @property
    def _is_step(self) -> bool:
        return isinstance(self._tools.scheduler, StepScheduler)

    def look(self) -> None:
        """Look at its files and at the state of its job, and take the next step."""
        if self.is_storing or self.record.is_finished or self._submission is None:
            return
        if self._submission.refusal is not None:
            self.refuse("; ".join(map(str, self._submission.refusal.errors)))
            return
        had_begun, now = self.is_started, self._tools.clock.monotonic()
        self._read_progress()
        self._since = self._since if had_begun == self.is_started else now
        self.look_at = now + min(max((now - self._since) * _LOOK_SHARE, _LOOK_SECONDS[0]), _LOOK_SECONDS[1])
        if self.record.stopping:
            self._end_step()
        if self._progress is not None:
            for log in self._logs:
                log.read()
            for monitor in self._monitors:
                monitor.poll()
        self._judge()
        if self._is_over():
            self._close()
        else:
            self._update_record()

    def _read_progress(self) -> None:
        try:
            self._progress = parse_progress(self.state_file.read_text())
            if self._submission is not None:
                self._submission.host = self._progress.job
        except OSError:  # a shared file system may continue to say so, until its directory is read
            with contextlib.suppress(OSError):
                any(self.state_file.parent.iterdir())

    def _is_over(self) -> bool:
        """Return whether it has ended for good: one that an ending allocation cuts off is for the next engine."""
        if not self._has_ended():
            return False
        submission, scheduler, progress = self._submission, self._tools.scheduler, self._progress
        ended_well = self._exit_code() == 0 and progress is not None and progress.is_over and not progress.was_asked
        if self.record.stopping or ended_well or submission is None or not isinstance(scheduler, StepScheduler):
            return True
        if submission.is_cut_off is None:
            scheduler.ask(submission)
        return submission.is_cut_off is False

    def _has_ended(self) -> bool:
        """Return whether its job has ended, and all is known of how it did.

        An exit code other than 0 may be due to a limit of Slurm, so Slurm is asked once more then; also if a
        program ended well that was asked to end, as one does that keeps a checkpoint.
        """
        submission, progress = self._submission, self._progress
        assert submission is not None
        if progress is not None and progress.is_over:
            shares_step = self._is_step and len(self._gang) > 1  # which continues with the others
            ended_well = self._exit_code() == 0 and not progress.was_asked
            if self.record.stopping or submission.is_over or shares_step or ended_well:
                return True
            if self._looks_wanted is None:
                self._looks_wanted = submission.looks + 1
                self._tools.scheduler.look_soon()
            goes_on = len(self._gang) > 1 or submission.state is None
            return goes_on and submission.looks >= self._looks_wanted
        if not submission.is_over:
            return False
        if submission.is_unknown and self._submit_again():
            return False
        now = self._tools.clock.monotonic()
        self._over_since = self._over_since if self._over_since is not None else now
        may_go_on = self._state().state == "COMPLETED" or (
            submission.is_unknown and progress is not None and not (self._is_step or progress.in_allocation)
        )
        late = _LATEST_SECONDS if may_go_on and not self.record.stopping else _LATE_SECONDS
        is_over = (progress is None and submission.is_unknown) or now - self._over_since >= late
        was_refused = submission.problem or self._state().nodes
        if is_over and was_refused and self._state().state in _NOT_LAUNCHED and self._submit_again():
            return False
        return is_over

    def _submit_again(self) -> bool:
        """Submit its job again if nothing of it was executed, a few times; return whether this was done.

        A controller that was killed forgets jobs, or gives their numbers to others, which nodes then refuse. A job that
        was cancelled before it had nodes was not wanted.
        """
        submission, began = self._submission, any(pod.is_started for pod in self._gang)
        if submission is None or began or self.record.stopping or submission.launches >= _LAUNCHES:
            return False
        self._over_since = None
        if not has_room(self.plan.directory, _LEAST_BYTES):
            submission.problem = f"the disk of {self.plan.directory} is full"
            return True
        self._tools.scheduler.submit_again(submission)
        return True

    # --- the end ------------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Read the rest, and have all of it stored."""
        if [log for log in self._logs if not log.read()]:
            return  # there is more; the next look continues
        for log in self._logs:
            log.close()
        self.is_storing = True
        if self._exit_code() != 0 and not self.record.stopping:
            end = self._end_of_log(self._main)
            self._ran_out_of_memory = _MEMORY_LIMIT.search(end) is not None
            self._lacked_room = _NO_SPACE in end
        self._update_record()
        for monitor in self._monitors:
            monitor.poll()
        self._store(self._conclude)

    def _conclude(self, explanation: str) -> None:
        is_through = self._exit_code() == 0 and self._progress is not None and self._progress.is_over
        succeeded = is_through and not self._was_cut_off()
        reason = _REASONS.get(self._state().state, "")
        if self._is_lost():
            reason = ALLOCATION_ENDED if self._progress and self._progress.in_allocation else "JobLost"
        elif self._found_no_room:
            reason = "DiskFull"
        self._finish(
            PodPhase.SUCCEEDED if succeeded else PodPhase.FAILED,
            self._message(),
            last_output="" if succeeded else self._last_output(),
            address_in_use=not succeeded and names_address_in_use(self._end_of_log(self._main)),
            reason="" if succeeded or self.record.stopping else reason,
            explanation=explanation,
        )

    @override
    def _release(self) -> None:
        if self._submission is not None and all(pod is self or pod.record.is_finished for pod in self._gang):
            self._tools.scheduler.forget(self._submission)

    # --- what is known ------------------------------------------------------------------------------------------------

    def _state(self) -> JobState:
        found = (self._submission and self._submission.state) or JobState("UNKNOWN")
        return found._replace(state="OUT_OF_MEMORY") if self._ran_out_of_memory else found

    def _exit_code(self) -> int | None:
        """Return the first exit code other than 0 with which a container ended for good; None while none has ended."""
        exits = {} if self._progress is None else self._progress.exits
        last = [codes[-1] for codes in exits.values()]
        if not last and self._progress is not None and self._progress.step_code:
            return self._progress.step_code
        return next((code for code in last if code), 0 if last else None)

    def _was_cut_off(self) -> bool:
        """Return whether it is to begin again, or to continue from its checkpoint, as its program was not at fault."""
        if self.record.stopping:
            return False
        asked = self._progress is not None and (self._progress.was_asked or not self._progress.is_over)
        state, keeps_checkpoint = self._state().state, DIRECTORY_VARIABLE in environment_of(self.plan)
        is_made_to_end = state == "PREEMPTED" or (keeps_checkpoint and state in _RESUMED)
        return (asked and is_made_to_end) or self._is_lost() or self._found_no_room

    @property
    def _found_no_room(self) -> bool:
        return self._lacked_room or (self._progress is not None and self._progress.was_full)

    def _is_lost(self) -> bool:
        """Return whether Slurm ended its job because its controller had forgotten that it ran.

        A controller that was killed does not remember the jobs of its last seconds. It ends them if it finds them,
        gives their numbers to others, or starts a second copy, at which the first one is ended or the second finds that
        it is not needed.
        """
        submission, progress, code = self._submission, self._progress, self._exit_code()
        if submission is None or progress is None or self.record.stopping:
            return False
        if code not in _BY_SIGNAL and not progress.was_asked and (code is not None or progress.is_over):
            return False
        if isinstance(self._tools.scheduler, StepScheduler):
            return progress.job != self._tools.scheduler.allocation
        state = submission.state
        if submission.is_unknown or state is None:
            return submission.is_unknown
        began_again = state.started is not None and 0 < progress.began < state.started - _CLOCK_SECONDS
        return began_again and state.state in {"COMPLETED", *_NOT_LAUNCHED}

    def _message(self) -> str:
        """Return which container failed and how, or the action of Slurm on the job."""
        if self.record.stopping:
            return ""
        if self._progress is not None and self._is_lost():
            how = "was forgotten by Slurm when its controller was started again"
            how = "ended with the allocation in which it ran" if self._progress.in_allocation else how
            return f"pod {self.record.title} {how} (Slurm job {self._progress.job})"
        state = self._state().state
        words = f"ended while the disk of {self.plan.directory} was full" if self._found_no_room else _ENDS.get(state)
        job = f"Slurm job {self._submission.job}" if self._submission is not None and self._submission.job else ""
        if words is not None:
            place = f" on {self._state().nodes}" if state in {"NODE_FAIL", "BOOT_FAIL"} and self._state().nodes else ""
            return f'container "{self._main}" of pod {self.record.title} {words}{place} ({job})'
        failures = [
            f'container "{exit_.container}" of pod {self.record.title} {exit_.text}'
            for exit_ in self._exits()
            if exit_.code
        ]
        if failures or (self._progress is not None and self._progress.is_over):
            return "; ".join(failures)
        if self._submission is not None and self._submission.is_unknown:  # and nothing of it has begun
            return f"pod {self.record.title}: Slurm does not know its job any more, and it left no exit code"
        reason = self._state().reason
        return f"pod {self.record.title}: {job} ended as {state} without an exit code" + (
            f" ({reason})" if reason not in {"", "None"} else ""
        )

    def _last_output(self) -> str:
        failed = next((exit_.container for exit_ in self._exits() if exit_.code), self._main)
        lines = [line for line in self._end_of_log(failed).split(b"\n") if not line.startswith(_OF_SLURM)]
        return last_line(b"\n".join(lines))

    def _end_of_log(self, container: str) -> bytes:
        return read_end(self.plan.directory / f"{container}.log", TAIL_BYTES)

    def _exits(self) -> tuple[ContainerExit, ...]:
        exits = {} if self._progress is None else self._progress.exits
        state = self._state().state
        found = []
        if self.is_storing and self._was_cut_off():
            return (ContainerExit(self._main, _SIGNAL_BASE + signal.SIGKILL, "was ended by Slurm", lost=True),)
        if not exits and self._progress is not None and (code := self._progress.step_code):  # killed with its script
            return (ContainerExit(self._main, code, exit_text(code)),)
        for i, container in enumerate(self.plan.containers):
            if i in exits:
                code, name = exits[i][-1], container.command.name
                out_of_memory = bool(code) and state == "OUT_OF_MEMORY"
                text = OUT_OF_MEMORY if out_of_memory else exit_text(code)
                found.append(ContainerExit(name, code, text, out_of_memory=out_of_memory))
        return tuple(found)

    def _update_record(self) -> None:
        submission, progress = self._submission, self._progress
        assert submission is not None
        if progress is None:
            self._note(waiting=_STEP_WAITS if self._is_step else _waiting(submission))
            return
        restarts = {i: len(codes) - 1 for i, codes in progress.exits.items()}
        due = any(
            c.restart_on_failure and progress.exits.get(i, [0])[-1] and not progress.is_over
            for i, c in enumerate(self.plan.containers)
        )
        self._note(
            phase=PodPhase.RUNNING,
            waiting="",
            place=card_words(progress.cards if self.plan.request.gpus else (), progress.node),
            restarts=sum(restarts.values()),
            restart_due=due,
            failures=max((sum(map(bool, codes)) for codes in progress.exits.values()), default=0),
            exits=self._exits(),
            message=self._message() if due else "",
            last_output=self._last_output() if due and not self.record.restart_due else self.record.last_output,
            containers=tuple(self._container_states(progress)),
            started_at=self.record.started_at or self._tools.steady.now(),
        )

    def _container_states(self, progress: ScriptProgress) -> list[ContainerState]:
        now, found = self._tools.clock.monotonic(), []
        exits = {exit_.container: exit_ for exit_ in self._exits()}
        first_has_ended = True  # that of all init containers before
        for i, container in enumerate(self.plan.containers):
            codes = progress.exits.get(i, [])
            will_restart = container.restart_on_failure and bool(codes) and codes[-1] != 0
            is_over = progress.is_over or (bool(codes) and not will_restart)
            began, ended = self._seen.get(i, (now if first_has_ended else None, None))
            if is_over and ended is None and began is not None:
                ended = now
            if began is not None:
                self._seen[i] = began, ended
            exit_ = exits.get(container.command.name)
            earlier = EarlierEnd(exit_, began or now, None, "") if exit_ and will_restart and not is_over else None
            name, is_main = container.command.name, container.role is ContainerRole.MAIN
            found.append(
                ContainerState(name, is_main, 0, max(0, len(codes) - 1), began, ended, exit_, is_over, earlier)
            )
            if container.role is ContainerRole.INIT:
                first_has_ended = first_has_ended and bool(codes) and codes[-1] == 0
        return found

    def _open_monitors(self) -> None:
        for i, container in enumerate(self.plan.containers):
            if container.role is not ContainerRole.MAIN:
                continue
            name = container.command.name
            monitor = self._open_monitor(name)
            log, streams = self.plan.directory / f"{name}.log", [*stream_files(self.state_file, i)]
            if log.exists() and not streams[0].exists():  # a job of an earlier version, which writes it itself
                log, streams = Path(os.devnull), [log]
            self._logs.append(_Log(log, streams, monitor))


class _Log:
    """The log of a container, made of the lines of its two streams as they grow, and read by its monitor.

    Args:
        streams: Of standard output and standard error.
        monitor: Reads the log, too; None: it is not read.
    """

    def __init__(self, path: Path, streams: Sequence[Path], monitor: Monitor | None) -> None:
        self._streams = [_StreamFile(stream) for stream in streams]
        self._monitor = monitor
        self._log = LogFile(path, LogLimits(sys.maxsize), has_times=False)
        self._last: _StreamFile | None = None
        self._is_open = False

    def read(self) -> bool:
        """Take the lines that are new, and return whether that is all for now. Standard output comes first."""
        behind = [stream for stream in self._streams if not self._read(stream)]
        return not behind

    def _read(self, stream: _StreamFile) -> bool:
        for _ in range(_CHUNKS_PER_TURN):
            if self._monitor is not None and self._monitor.backlogged:
                return False
            data = stream.read()
            if not data:
                return True
            data = stream.rest + data
            end = end_of_lines(data)
            stream.rest = data[end:]
            self._take(stream, data[:end])
        return False

    def _take(self, stream: _StreamFile, data: bytes) -> None:
        if not data:
            return
        if not self._is_open:
            self._is_open = True
            with contextlib.suppress(OSError):
                os.truncate(self._log.path, 0)
            self._log.open()
        if self._log.mid_line and self._last is not stream:
            data = b"\n" + data
        self._last = stream
        self._log.write(data)
        if self._monitor is not None:
            self._monitor.feed(data)

    def close(self) -> None:
        """Take the last line without an end, and close the files."""
        for stream in self._streams:
            self._take(stream, stream.rest)
            stream.close()
        self._log.close()


class _StreamFile:
    """A file that a program writes, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self.rest = b""

    def read(self) -> bytes:
        """Return the next data; empty at the end for now, or if it cannot be read."""
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.read(self._fd, _CHUNK_BYTES)
        return b""

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def exit_text(code: int) -> str:
    """Return in words how a process ended, from its exit code in a shell."""
    if code > _SIGNAL_BASE:
        return f"was killed by signal {code - _SIGNAL_BASE}"
    return f"exited with {code}"


_REASONS: Final = {
    "OUT_OF_MEMORY": "OOMKilled",
    "TIMEOUT": "DeadlineExceeded",
    "DEADLINE": "DeadlineExceeded",
    "NODE_FAIL": "NodeLost",
    "BOOT_FAIL": "NodeLost",
    "PREEMPTED": PREEMPTED,
    "CANCELLED": "Cancelled",
}


_STEP_WAITS: Final = "its step waits for room in the allocation"


def _waiting(submission: SlurmSubmission) -> str:
    """Return the reason why a pod waits whose job has not begun."""
    state, job = submission.state, f"Slurm job {submission.job}"
    if submission.problem:
        return submission.problem
    if not submission.job:
        return "its job is submitted to Slurm"
    if state is None or state.state != "PENDING":
        return f"{job} starts"
    return f"{job} is pending" + (f" ({state.reason})" if state.reason not in {"", "None"} else "")
