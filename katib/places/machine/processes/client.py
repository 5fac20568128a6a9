"""Engine's client of the guard: starts and signals processes, reports their exits, survives the guard's death.

On Linux no process outlives the engine, however either of the two ends (see `guard`), except programs that the guard
keeps: these run for a grace period, and the next engine in the directory takes them over with their guard. Elsewhere
nothing is kept, and the same code uses process groups only: a daemon that leaves its group can escape.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from katib.engine.runtime.clock import Clock, SystemClock
from katib.errors import Backoff, KatibError, UnavailableError
from katib.places.machine.processes import proc, wire
from katib.places.machine.processes.connection import GuardConnection, KeptProcess, KeptState, listening_socket
from katib.places.machine.processes.handle import Command, ProcessExit, ProcessHandle, spawn_error
from katib.places.machine.processes.remains import (
    RECORD_FILE,
    EngineRecord,
    boot_id,
    clean_up_after,
    living_guard,
    reap,
    sweep,
)

START_SECONDS = 60.0
"""Timeout of a program's start. Only a file system that does not answer delays it by a second."""

ANSWER_SECONDS = START_SECONDS + 15.0
"""Timeout of the guard's response to a start; longer than its own."""

_HOLD = wire.pack(("hold",))
"""Sent with a descriptor, which the guard keeps open until it ends."""

_NO_LAST: wire.Message = ("last", [], {})
"""Tells a guard that no last command remains."""

_ATTEMPTS = 3
"""Attempts of a start if the guard dies during it."""

_QUICK_DEATH_SECONDS = 1.0
_BACKOFF = Backoff(0.01, 5.0)

_log = logging.getLogger(__name__)

ExitCallback = Callable[[ProcessHandle, ProcessExit], None]


class KeepSettings(NamedTuple):
    """How a program outlives this engine, or its output does.

    Attributes:
        group: The program is kept while this group has a note; otherwise it ends with the engine, and its output is
            saved.
        name: Its name for the next engine; names may be reused.
        log: File to which its output is appended without an engine.
        limit_bytes: Maximum size of that file; the program then blocks.
        outputs: Read ends of the pipes of its output and errors, new ones for each start. The caller may close them.
    """

    group: str
    name: tuple[str, ...]
    log: Path
    limit_bytes: int
    outputs: tuple[int, ...] = ()


class PendingStart(NamedTuple):
    """A requested program. If the answer is cancelled, the program is killed should it still start."""

    key: int
    answer: Future[ProcessHandle]


@dataclass(slots=True)
class _RequestedProcess:
    """A process from its request to its end. The descriptors are copies, closed with the answer."""

    message: bytes
    fds: tuple[int, ...]
    command: Command
    answer: Future[ProcessHandle]
    on_exit: ExitCallback
    attempts: int = 0

    def fail(self, error: KatibError) -> None:
        _close(self.fds)
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(error)


class Processes:
    """Starts processes that end with this one, unless they are kept for the next engine. Thread-safe.

    Attributes:
        engine_id: Mark of all processes; the previous engine's if its guard was taken over.
        inherited: The previous engine's kept programs and notes; None for nothing.

    Exit callbacks run on one thread of this object, in the order of the exits, after the answer to the start; they must
    return at once.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        adopt_orphans: bool = True,
        start_seconds: float = START_SECONDS,
        grace_seconds: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; `start` does the work.

        Args:
            directory: Directory of the engine's record, with which the next engine there can clean up after a crash of
                engine and guard together. None for no record.
            adopt_orphans: Whether this process becomes a subreaper, to keep track of processes when the guard is
                killed.
            start_seconds: Timeout of a program's start.
            grace_seconds: How long kept programs wait for the next engine of the directory; 0 to keep nothing.
        """
        self.engine_id = secrets.token_hex(8)
        self.inherited: KeptState | None = None
        self._directory = directory
        self._adopt_orphans = adopt_orphans
        self._start_seconds = start_seconds
        self._grace_seconds = grace_seconds if directory is not None and proc.IS_LINUX else 0.0
        self._clock = clock or SystemClock()
        self._keys = itertools.count(1)
        self._lock = threading.Lock()  # never held while talking to the guard
        self._changed = threading.Condition(self._lock)
        self._connection: GuardConnection | None = None
        self._connected_at = 0.0
        self._starting: dict[int, _RequestedProcess] = {}
        self._running: dict[int, tuple[ProcessHandle, ExitCallback]] = {}
        self._dying: dict[int, Future[None]] = {}
        self._stopping = False
        self._deaths_in_a_row = 0
        self._last = wire.pack(_NO_LAST)
        self._held: list[int] = []
        self._noted: set[str] = set()
        self._launched: set[str] = set()  # groups with programs known to the guard
        self._lost: set[str] = set()  # groups with programs known to a guard that died
        self._handed_over: dict[int, ProcessExit | None] = {}  # by key, those not attached yet, with their exits
        self._reader: threading.Thread | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> int:
        """Take over the previous engine's kept programs, or clean up after it; start the guard.

        Returns:
            The number of remaining processes that were killed.

        Raises:
            TerminalError: Another engine runs in the directory.
        """
        self.inherited, remains = self._inherit(), 0
        if self._adopt_orphans:
            proc.adopt_orphans()
        if self.inherited is None:
            remains = self._clean_up()
            self._connect()
        self._reader = threading.Thread(target=self._read, name="processes", daemon=True)
        self._reader.start()
        return remains

    def stop(self, *, leaves: bool = False) -> None:
        """End the guard and with it, by force, all running processes. Exit callbacks are no longer called.

        Args:
            leaves: Whether to leave the guard with the kept programs to the next engine.
        """
        with self._changed:
            self._stopping = True
            connection, self._connection = self._connection, None
            self._changed.notify_all()
        leaves = leaves and (self.keeps or self.inherited is not None)
        if connection is not None:
            if not leaves and (self.keeps or self.inherited is not None):
                connection.send(wire.pack(("grace", 0.0)))
            connection.close()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()
        if connection is not None and leaves:
            self._note_down(connection, ended=True)  # this process may outlive the engine
            connection.leave()
        elif connection is not None:
            connection.wait()
        with self._lock:
            starting, self._starting = list(self._starting.values()), {}
        for process in starting:
            process.fail(_stopping_error())
        unread = self.inherited.programs if self.inherited is not None else ()
        left = [program for program in unread if self._handed_over.pop(program.key, ...) is not ...]
        _close(output for program in left for output in program.outputs)
        if leaves:
            return
        reap(sweep(self.engine_id, self._clock), self._clock)  # nothing, unless the guard was killed just now
        if self._directory is not None:
            record = EngineRecord.read(self._directory / RECORD_FILE)
            if record is not None and record.engine_id == self.engine_id:  # the directory may be another one by now
                (self._directory / RECORD_FILE).unlink(missing_ok=True)

    def _inherit(self) -> KeptState | None:
        """Take over the guard of the previous engine, with its engine id; None if it keeps nothing."""
        record = None if self._directory is None else EngineRecord.read(self._directory / RECORD_FILE)
        if record is None or self._directory is None or not living_guard(record):
            return None
        found = GuardConnection.take_over(self._directory, record.guard_pid)
        if found is None:
            return None
        connection, handed_over = found
        self.engine_id = handed_over.engine_id
        self._keys = itertools.count(handed_over.last_key + 1)
        self._held += handed_over.held
        self._noted.update(handed_over.notes)
        for program in handed_over.programs:
            ended = None if program.status is None else ProcessExit.of_status(program.status, remains=program.remains)
            self._handed_over[program.key] = ended
        self._note_down(connection)
        self._connected_at = self._clock.monotonic()
        connection.send(self._last)
        self._connection = connection
        return handed_over

    def _clean_up(self) -> int:
        if self._directory is None:
            return 0
        self._directory.mkdir(exist_ok=True, mode=0o700)
        record = EngineRecord.read(self._directory / RECORD_FILE)
        return clean_up_after(record, self._clock) if record is not None else 0

    def _connect(self) -> None:
        """Start a guard and repeat the requests that an earlier one did not fulfil."""
        connection = GuardConnection.open(self.engine_id, self._start_seconds)
        self._open_door(connection)
        connection.send(self._last)
        self._note_down(connection)
        self._connected_at = self._clock.monotonic()
        with self._changed:
            stopping, waiting, last = self._stopping, list(self._starting.items()), self._last
            held = list(self._held)
            if not stopping:
                self._connection = connection
        if stopping:  # concurrently
            connection.close()
            connection.wait()
            return
        connection.send(last)  # it may have changed concurrently
        for fd in held:
            connection.send(_HOLD, (fd,))
        for key, process in waiting:
            self._send_start(connection, key, process)

    def _open_door(self, connection: GuardConnection) -> None:
        """Make the guard wait for the next engine after this one has ended."""
        if self._directory is None or not self._grace_seconds:
            return
        door = listening_socket(self._directory)
        if door is None:
            _log.warning("Programs end with this engine: no socket in its directory", extra={"path": self._directory})
            return
        with door:
            connection.send(wire.pack(("listen",)), (door.fileno(),))
        connection.send(wire.pack(("grace", self._grace_seconds)))

    def _note_down(self, connection: GuardConnection, *, ended: bool = False) -> None:
        if self._directory is None:
            return
        me = None if ended else proc.read_stat(os.getpid())
        record = EngineRecord(
            engine_id=self.engine_id,
            boot_id=boot_id(),
            pid=0 if ended else os.getpid(),
            start_time=me.start_time if me else 0,
            guard_pid=connection.pid,
            guard_start_time=connection.start_time,
        )
        try:
            record.write(self._directory / RECORD_FILE)
        except OSError as error:  # it is only needed for cleanup after a crash of engine and guard together
            _log.warning("The record of what runs cannot be written", extra={"cause": error.strerror})

    # --- calls --------------------------------------------------------------------------------------------------------

    def launch(
        self,
        command: Command,
        output_fd: int,
        *,
        errors_fd: int | None = None,
        keep: KeepSettings | None = None,
        on_exit: ExitCallback,
    ) -> PendingStart:
        """Request a program in a session of its own, and return at once. The caller may close its descriptors.

        The answer is the handle of the running process, or one of these errors:

        - SpawnError: It cannot be started, with cause and remedy.
        - UnavailableError: The machine lacks a resource, a file system does not answer, the guard cannot be reached, or
          the start was withdrawn.

        Args:
            command: The program; two marks are added to its environment.
            output_fd: Its standard output; its input is empty.
            errors_fd: Its standard error; None for `output_fd`.
            keep: How it outlives this engine, or its output does; None for neither.
            on_exit: Called once when the running process ended, or was lost together with the guard.

        Raises:
            UnavailableError: This process has no descriptors left, or the engine is stopping.
        """
        key, cwd = next(self._keys), str(command.directory)
        marked = {**command.env, proc.ENGINE_ID: self.engine_id, proc.PROCESS_ID: f"{self.engine_id}.{key}"}
        encoded = {os.fsencode(name): os.fsencode(value) for name, value in marked.items()}
        kept, fds = None, []
        try:
            fds += [os.dup(output_fd), os.dup(output_fd if errors_fd is None else errors_fd)]
            if keep is not None and proc.IS_LINUX:
                kept = (keep.group, keep.name, str(keep.log), keep.limit_bytes)
                fds += [os.dup(output) for output in keep.outputs]
        except OSError as error:
            _close(fds)
            raise spawn_error("dup", error.errno or errno.EMFILE, "", command) from error
        argv, makes = list(command.argv), tuple(map(str, command.makes))
        message = wire.pack(("spawn", key, argv, encoded, cwd, makes, kept))
        process = _RequestedProcess(message, tuple(fds), command, Future(), on_exit)
        with self._lock:
            stopping, connection = self._stopping, self._connection
            if not stopping:
                self._starting[key] = process
                if keep is not None:
                    self._launched.add(keep.group)
        if stopping:
            _close(process.fds)
            raise _stopping_error()
        if connection is not None:  # else the next guard gets it
            self._send_start(connection, key, process)
        return PendingStart(key, process.answer)

    def spawn(self, command: Command, output_fd: int, *, on_exit: ExitCallback) -> ProcessHandle:
        """Start a program as `launch` does, and return when it runs.

        Raises:
            SpawnError: It cannot be started, with cause and remedy.
            UnavailableError: It cannot be started now.
        """
        start = self.launch(command, output_fd, on_exit=on_exit)
        try:
            return start.answer.result(ANSWER_SECONDS)
        except TimeoutError:
            if not start.answer.cancel():
                return start.answer.result()
            raise no_answer() from None

    def withdraw(self, start: PendingStart) -> None:
        """Cancel a pending start; its answer is set at once, unless it has started nevertheless."""
        self._tell("withdraw", start.key)

    def signal(self, handle: ProcessHandle, sig: int) -> None:
        """Send a signal to the process, its group and all its descendants; no effect on one that ended."""
        self._tell("signal", handle.key, int(sig))

    def kill_tree(self, handle: ProcessHandle) -> Future[None]:
        """Kill the process, its group and all its descendants, daemons included.

        The future is done when none is left; at once if there was none.
        """
        with self._lock:
            gone = self._dying.setdefault(handle.key, Future())
        if not self._tell("kill", handle.key):
            self._conclude_kill(handle.key)
        return gone

    # --- what outlives us ---------------------------------------------------------------------------------------------

    @property
    def keeps(self) -> bool:
        """Whether programs can outlive this engine."""
        return self._grace_seconds > 0

    def renew_grace(self) -> None:
        """Apply this engine's grace period to programs kept by the previous one, too."""
        self._tell("grace", self._grace_seconds)

    def keep_nothing(self) -> None:
        """Let all programs end with this engine from now on."""
        with self._lock:
            self._grace_seconds = 0.0
        self.renew_grace()

    def is_kept(self, group: str) -> bool:
        """Return whether the programs of a group outlive this engine."""
        with self._lock:
            return self.keeps and group in self._noted

    def note(self, group: str, data: bytes) -> None:
        """Leave a note about a group of programs to the next engine; they are kept from now on.

        If the guard that knew its programs dies, the group is lost and no longer kept.
        """
        with self._lock:
            lost = group in self._lost or not self.keeps
            if not lost:
                self._noted.add(group)
        if not lost:
            self._tell("note", group, data)

    def forget(self, group: str) -> None:
        """Stop keeping a group; its running programs end with this engine."""
        with self._lock:
            known = group in self._noted or group in self._launched
            self._noted.discard(group)
            self._launched.discard(group)
            self._lost.discard(group)
        if known:
            self._tell("forget", group)

    def attach(self, program: KeptProcess, on_exit: ExitCallback) -> ProcessHandle:
        """Take over a program that the previous engine started.

        Args:
            program: The program, as handed over.
            on_exit: As for `launch`; called at once if it has ended.
        """
        handle = ProcessHandle(program.key, program.pid, program.start_time, program.path)
        with self._lock:
            exit_ = self._handed_over.pop(program.key)
            if exit_ is None:
                self._running[program.key] = (handle, on_exit)
        if exit_ is not None:
            on_exit(handle, exit_)
        return handle

    @contextmanager
    def executing_last(self, argv: Sequence[str], env: Mapping[str, str]) -> Iterator[None]:
        """Let the guard execute a command after it has ended all processes because this one was killed.

        Args:
            argv: Full path of the program, and its arguments. It must end by itself, and do no harm to a later engine.
            env: Its environment; the marks of processes are not added.
        """
        encoded = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        self._leave_last(("last", list(argv), encoded))
        try:
            yield
        finally:
            self._leave_last(_NO_LAST)

    def hold(self, fd: int) -> None:
        """Keep a descriptor open, and the lock on its file with it, until the last process has ended.

        The caller must close its own only after `stop`.
        """
        with self._lock:
            self._held.append(fd)
            connection = self._connection
        if connection is not None:
            connection.send(_HOLD, (fd,))

    def _leave_last(self, message: wire.Message) -> None:
        with self._lock:
            self._last = wire.pack(message)
        self._tell(*message)

    def _tell(self, *message: object) -> bool:
        with self._lock:
            connection = self._connection
        if connection is not None:
            connection.send(wire.pack(message))
        return connection is not None

    def _send_start(self, connection: GuardConnection, key: int, process: _RequestedProcess) -> None:
        process.attempts += 1
        if len(process.message) > wire.LARGEST_BYTES:
            error: KatibError = spawn_error("exec", errno.E2BIG, "", process.command)
        elif process.attempts > _ATTEMPTS:
            error = UnavailableError("the guard process ended three times while starting a program")
        else:
            connection.send(process.message, process.fds)
            return
        with self._lock:
            self._starting.pop(key, None)
        process.fail(error)

    # --- the reader thread --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            with self._lock:
                connection = self._connection
            if connection is None:
                return
            self._serve(connection)
            if self._stopping:
                return
            self._replace_guard(connection)

    def _serve(self, connection: GuardConnection) -> None:
        """Handle the guard's messages until it is gone or sends malformed data."""
        try:
            for messages in iter(connection.receive, None):
                for message in messages:
                    self._handle(message)
        except wire.BrokenStreamError:
            _log.exception("Guard process sends what is not a message, and is replaced")
            connection.kill()

    def _handle(self, message: wire.Message) -> None:
        """Handle a message. An error in it, or in the callback of one process, must not end this thread."""
        try:
            match message:
                case ("started", key, pid, start_time, path):
                    with self._lock:
                        process = self._starting.pop(key)
                    _close(process.fds)
                    if process.answer.set_running_or_notify_cancel():
                        program = os.path.join(process.command.directory, path)  # noqa: PTH118 - "." stays
                        started = ProcessHandle(key, pid, start_time, program)
                        with self._lock:
                            self._running[key] = (started, process.on_exit)
                        process.answer.set_result(started)
                    else:
                        self._tell("kill", key)
                case ("failed", key, step, number, path):
                    with self._lock:
                        process = self._starting.pop(key)
                    process.fail(spawn_error(step, number, path, process.command))
                case ("exited", key, status, remains):
                    exit_ = ProcessExit.of_status(status, remains=remains)
                    with self._lock:
                        handle, on_exit = self._running.pop(key, (None, None))
                        if key in self._handed_over:
                            self._handed_over[key] = exit_
                    if handle is not None and on_exit is not None:  # else its start was cancelled
                        on_exit(handle, exit_)
                case ("gone", key):
                    self._conclude_kill(key)
                case _:
                    _log.error("Guard process sends an unknown message", extra={"content": repr(message)})
        except Exception:  # noqa: BLE001 - logged; other processes must not be affected
            _log.exception("Message of the guard process not handled", extra={"content": repr(message)})

    def _conclude_kill(self, key: int) -> None:
        with self._lock:
            gone = self._dying.pop(key, None)
        if gone is not None:
            gone.set_result(None)

    def _replace_guard(self, lost: GuardConnection) -> None:
        """Kill the dead guard's remaining processes, start another guard, and report the lost processes."""
        with self._lock:
            self._connection = None
            running, self._running = list(self._running.values()), {}
            dying = list(self._dying)
            self._lost |= self._noted
            self._noted.clear()
            for key, ended in self._handed_over.items():
                self._handed_over[key] = ended or ProcessExit.by_signal(signal.SIGKILL, lost=True)
        lost.close()
        lost.wait()
        reap(sweep(self.engine_id, self._clock) | {handle.pid for handle, _ in running}, self._clock)
        self._connect_again()
        for handle, on_exit in running:
            try:
                on_exit(handle, ProcessExit.by_signal(signal.SIGKILL, lost=True))
            except Exception:  # noqa: BLE001 - as in `_handle`
                _log.exception("End of a process not handled", extra={"pid": handle.pid})
        for key in dying:
            self._conclude_kill(key)

    def _connect_again(self) -> None:
        """Start another guard, with growing pauses if guards die at once or cannot be started."""
        quick = self._clock.monotonic() - self._connected_at < _QUICK_DEATH_SECONDS
        self._deaths_in_a_row = self._deaths_in_a_row + 1 if quick else 0
        while not self._stopping:
            if self._deaths_in_a_row > 1:
                delay = _BACKOFF.pause_seconds(self._deaths_in_a_row)
                with self._changed:
                    self._clock.wait(self._changed, delay)
            try:
                self._connect()
            except OSError as error:
                self._deaths_in_a_row += 1
                _log.warning("Guard process cannot be started", extra={"cause": error.strerror})
            else:
                return


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def no_answer() -> UnavailableError:
    """Return the error for a guard that does not respond to a start."""
    return UnavailableError(f"the guard process did not say within {ANSWER_SECONDS:g} s whether the program started")


def _stopping_error() -> UnavailableError:
    return UnavailableError("no program can be started: this engine is stopping")
