"""Cleanup after an engine that has ended.

Every process has its engine's id in its environment, and the engine records that id on disk. The next engine in the
same directory kills the processes with that id. A bare pid is never trusted: the kill uses a pidfd that was opened
before the mark was checked, so a process with a reused pid is never hit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from katib.engine.runtime.clock import Clock
from katib.errors import TerminalError
from katib.model.files.whole_files import write_whole
from katib.places.machine.processes import proc

RECORD_FILE = "engine.json"

_PAUSE_SECONDS = 0.005
_PATIENCE_SECONDS = 10.0
_DEATH_MILLISECONDS = 1000
"""A killed process ends in a moment, unless it sleeps in the kernel."""


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """Record for cleaning up after a crashed engine.

    Attributes:
        engine_id: The mark in the environment of its processes.
        boot_id: Boot of the machine; after another one no process can be left.
        pid: Process id of the engine; 0 if it has ended and left its guard to the next one.
        start_time: Start time of the engine in clock ticks since boot.
        guard_start_time: Start time of the guard in clock ticks since boot.
    """

    engine_id: str
    boot_id: str
    pid: int
    start_time: int
    guard_pid: int
    guard_start_time: int

    def write(self, path: Path) -> None:
        """Replace the file atomically, so that a crash leaves the old or the new one."""
        write_whole(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> EngineRecord | None:
        """Return the last engine's record; None if there is none that is readable."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def boot_id() -> str:
    """Return the identity of this boot, empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_alive(pid: int, start_time: int) -> bool:
    """Return whether that very process still runs; zombies do not count."""
    stat = proc.read_stat(pid)
    return stat is not None and stat.start_time == start_time and proc.is_running(pid)


def clean_up_after(record: EngineRecord, clock: Clock) -> int:
    """Kill an engine's remaining processes and return their number.

    Raises:
        TerminalError: That engine is alive: two engines must not share a directory.
    """
    if record.boot_id != boot_id():
        return 0
    if record.pid != os.getpid() and is_alive(record.pid, record.start_time):
        raise TerminalError(
            f"another engine (process {record.pid}) is at work in this directory; end it or choose another directory"
        )
    # Its guard knows descendants that hid their mark; it is already killing, so let it finish first.
    wait_until(lambda: not is_alive(record.guard_pid, record.guard_start_time), clock, _PATIENCE_SECONDS / 2)
    if is_alive(record.guard_pid, record.guard_start_time):  # it is stopped, or its hand-over is incompatible
        _kill_marked(record.guard_pid, record.engine_id)
    return len(sweep(record.engine_id, clock))


def living_guard(record: EngineRecord) -> bool:
    """Return whether an engine has ended and its guard still runs."""
    if record.boot_id != boot_id() or (record.pid != os.getpid() and is_alive(record.pid, record.start_time)):
        return False
    return is_alive(record.guard_pid, record.guard_start_time)


def is_engine_at_work(path: Path) -> bool:
    """Return whether the engine of this record is alive."""
    record = EngineRecord.read(path)
    return record is not None and record.boot_id == boot_id() and is_alive(record.pid, record.start_time)


def may_have_programs(path: Path) -> bool:
    """Return whether programs of this record's engine may run: it or its guard is alive."""
    record = EngineRecord.read(path)
    return record is not None and (is_engine_at_work(path) or living_guard(record))


def sweep(engine_id: str, clock: Clock) -> set[int]:
    """Kill every process with the mark of an engine, until none is left; return their ids."""
    killed: set[int] = set()

    def none_is_left() -> bool:
        found = [pid for pid in proc.pids_with(proc.ENGINE_ID, engine_id) if _kill_marked(pid, engine_id)]
        killed.update(found)
        return not found

    wait_until(none_is_left, clock, _PATIENCE_SECONDS)
    return killed


def reap(pids: Iterable[int], clock: Clock) -> None:
    """Reap killed processes that became children of this one when their guard died."""
    left = set(pids)

    def all_are_reaped() -> bool:
        left.difference_update([pid for pid in left if _is_reaped(pid)])
        return not left

    wait_until(all_are_reaped, clock, _PATIENCE_SECONDS)


def wait_until(holds: Callable[[], bool], clock: Clock, seconds: float) -> None:
    """Poll until a condition holds or the timeout expires."""
    deadline = clock.monotonic() + seconds
    pause = threading.Condition()
    while not holds() and clock.monotonic() < deadline:
        with pause:
            clock.wait(pause, _PAUSE_SECONDS)


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _kill_marked(pid: int, engine_id: str) -> bool:
    """Kill a process if it has the mark, and wait for its end; True if it did and was alive."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if proc.environment_value(pid, proc.ENGINE_ID) != engine_id:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        end = select.poll()
        end.register(fd, select.POLLIN)
        end.poll(_DEATH_MILLISECONDS)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)
