"""The engine's side of the guard: start processes, signal them, hear of their end, survive the guard's death.

On Linux nothing that is started here outlives the engine, however either of the two ends (see `guard`). Elsewhere the
same code works with process groups only: a daemon that leaves its group can escape.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from katib.errors import UnavailableError
from katib.processes import proc, wire
from katib.processes.connection import GuardConnection
from katib.processes.handle import Exit, ProcessHandle, exit_by_signal
from katib.processes.remains import EngineRecord, boot_id, clean_up_after, sweep
from katib.processes.spawn_errors import spawn_error

RECORD_FILE = "engine.json"
_ATTEMPTS = 3
"""How often a start is tried when the guard dies under it."""

_QUICK_DEATH_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 5.0

_log = logging.getLogger(__name__)

ExitCallback = Callable[[ProcessHandle, Exit], None]


class _Request(NamedTuple):
    """A start whose answer is not here yet."""

    answer: Future[ProcessHandle]
    on_exit: ExitCallback
    describe_failure: Callable[[str, int], Exception]


@dataclass(slots=True)
class _Running:
    handle: ProcessHandle
    on_exit: ExitCallback


class Processes:
    """Starts processes that never outlive this one. Thread-safe.

    Exit callbacks run on one thread of this object, in the order of the exits, after `spawn` has its handle ready;
    they must return at once.
    """

    def __init__(self, directory: Path | None = None, *, adopt_orphans: bool = True) -> None:
        """Prepare; `start` does the work.

        Args:
            directory: Where to note who we are, so that the next engine there can clean up after a crash of engine and
                guard together. None: leave no note.
            adopt_orphans: Whether this process becomes a subreaper, to keep hold of processes when the guard is killed.
        """
        self.engine_id = secrets.token_hex(8)
        self._directory = directory
        self._adopt_orphans = adopt_orphans
        self._keys = itertools.count(1)
        self._lock = threading.Lock()  # never held while talking to the guard
        self._changed = threading.Condition(self._lock)
        self._connection: GuardConnection | None = None
        self._requests: dict[int, _Request] = {}
        self._running: dict[int, _Running] = {}
        self._dying: dict[int, Future[None]] = {}
        self._stopping = False
        self._deaths_in_a_row = 0
        self._reader: threading.Thread | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> int:
        """Clean up after the previous engine of the directory, start the guard; return how many remains were killed.

        Raises:
            TerminalError: Another engine is at work in the directory.
        """
        remains = self._clean_up()
        if self._adopt_orphans:
            proc.adopt_orphans()
        self._connect()
        self._reader = threading.Thread(target=self._read, name="processes", daemon=True)
        self._reader.start()
        return remains

    def stop(self) -> None:
        """End the guard and with it, by force, everything that still runs. Exit callbacks are not called any more."""
        with self._changed:
            self._stopping = True
            connection, self._connection = self._connection, None
            self._changed.notify_all()
        if connection is not None:
            connection.close()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()
        if connection is not None:
            connection.wait()
        _reap(sweep(self.engine_id))  # nothing, unless the guard was killed this moment
        self._fail_requests()
        if self._directory is not None:
            (self._directory / RECORD_FILE).unlink(missing_ok=True)

    def _clean_up(self) -> int:
        if self._directory is None:
            return 0
        self._directory.mkdir(parents=True, exist_ok=True)
        record = EngineRecord.read(self._directory / RECORD_FILE)
        return clean_up_after(record) if record is not None else 0

    def _connect(self) -> None:
        connection = GuardConnection.open(self.engine_id)
        self._note_down(connection)
        with self._changed:
            if not self._stopping:
                self._connection = connection
                self._changed.notify_all()
                return
        connection.close()  # stopped meanwhile
        connection.wait()

    def _note_down(self, connection: GuardConnection) -> None:
        if self._directory is None:
            return
        me = proc.read_stat(os.getpid())
        record = EngineRecord(
            engine_id=self.engine_id,
            boot_id=boot_id(),
            pid=os.getpid(),
            start_time=me.start_time if me else 0,
            guard_pid=connection.pid,
            guard_start_time=connection.start_time,
        )
        try:
            record.write(self._directory / RECORD_FILE)
        except OSError as error:  # only the cleaning up after a crash of engine and guard together needs it
            _log.warning("Note for the next engine cannot be written", extra={"cause": error.strerror})

    # --- calls --------------------------------------------------------------------------------------------------------

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        stdout_fd: int,
        stderr_fd: int,
        stdin_fd: int | None = None,
        *,
        on_exit: ExitCallback,
    ) -> ProcessHandle:
        """Start a program in a session of its own and return when it runs.

        Args:
            argv: Program, looked up in the PATH of `env`, and its arguments.
            env: Its whole environment; two marks are added.
            cwd: Its working directory.
            stdout_fd: Becomes its standard output; the caller keeps and closes its own copy.
            stderr_fd: Becomes its standard error.
            stdin_fd: Becomes its standard input; /dev/null when None.
            on_exit: Called once when the process ended, or was lost together with the guard.

        Raises:
            SpawnError: It cannot be started, with cause and remedy.
            UnavailableError: The machine is short of memory or processes, or the guard cannot be reached.
        """
        command = list(argv)
        fds = (stdout_fd, stderr_fd) if stdin_fd is None else (stdout_fd, stderr_fd, stdin_fd)

        def describe_failure(stage: str, number: int) -> Exception:
            return spawn_error(stage, number, command, env, str(cwd))

        for attempt in range(1, _ATTEMPTS + 1):
            key = next(self._keys)
            request = _Request(Future(), on_exit, describe_failure)
            marked = {**env, proc.ENGINE_ID: self.engine_id, proc.PROCESS_ID: f"{self.engine_id}.{key}"}
            encoded = {os.fsencode(name): os.fsencode(value) for name, value in marked.items()}
            connection = self._request(key, request)
            # When the guard is gone, the reader finds out too and fails the request.
            connection.send(("spawn", key, command, encoded, str(cwd), len(fds)), fds)
            try:
                return request.answer.result()
            except _GuardLostError as error:
                if attempt == _ATTEMPTS:
                    raise UnavailableError("the guard process ended three times while starting a program") from error
        raise AssertionError("the loop returns or raises")

    def signal(self, handle: ProcessHandle, sig: int) -> None:
        """Send a signal to the process, its group and whatever else descends from it; one that ended is left alone."""
        self._tell("signal", handle.key, int(sig))

    def kill_tree(self, handle: ProcessHandle) -> Future[None]:
        """Kill the process, its group and whatever else descends from it, daemons included.

        The future is done when nothing is left; at once when nothing was.
        """
        with self._lock:
            gone = self._dying.setdefault(handle.key, Future())
        if not self._tell("kill", handle.key):
            self._conclude_kill(handle.key)
        return gone

    def _request(self, key: int, request: _Request) -> GuardConnection:
        """Note a request with the present guard, or with the next one while the old is being replaced."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._connection is not None)
            if self._connection is None:
                raise UnavailableError("no program can be started: this engine is stopping")
            self._requests[key] = request
            return self._connection

    def _tell(self, *message: object) -> bool:
        with self._lock:
            connection = self._connection
        return connection is not None and connection.send(message)

    # --- the reader thread --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            with self._lock:
                connection = self._connection
            if connection is None:
                return
            for messages in iter(connection.receive, None):
                for message in messages:
                    self._handle(message)
            if self._stopping:
                return
            self._replace_guard(connection)

    def _handle(self, message: wire.Message) -> None:
        match message:
            case ("started", key, pid, start_time):
                self._conclude_start(ProcessHandle(key, pid, start_time))
            case ("failed", key, stage, number):
                with self._lock:
                    request = self._requests.pop(key)
                request.answer.set_exception(request.describe_failure(stage, number))
            case ("exited", key, status, user, system, peak, remains):
                self._conclude_exit(key, _exit_of(status, user + system, peak, remains=remains))
            case ("gone", key):
                self._conclude_kill(key)

    def _conclude_start(self, handle: ProcessHandle) -> None:
        with self._lock:
            request = self._requests.pop(handle.key)
            self._running[handle.key] = _Running(handle, request.on_exit)
        request.answer.set_result(handle)

    def _conclude_exit(self, key: int, exit_: Exit) -> None:
        with self._lock:
            running = self._running.pop(key)
        running.on_exit(running.handle, exit_)

    def _conclude_kill(self, key: int) -> None:
        with self._lock:
            gone = self._dying.pop(key, None)
        if gone is not None:
            gone.set_result(None)

    def _replace_guard(self, lost: GuardConnection) -> None:
        """Kill what the dead guard left, start another, and report the processes that went with it."""
        with self._lock:
            self._connection = None
            running, self._running = list(self._running.values()), {}
            dying = list(self._dying)
        lost.close()
        lost.wait()
        _reap(sweep(self.engine_id) | {process.handle.pid for process in running})
        self._fail_requests()
        self._connect_again(lost)
        for process in running:
            process.on_exit(process.handle, exit_by_signal(signal.SIGKILL, lost=True))
        for key in dying:
            self._conclude_kill(key)

    def _connect_again(self, lost: GuardConnection) -> None:
        """Start another guard; ever more slowly when they die at once or the machine cannot start any."""
        quick = time.monotonic() - lost.opened_at < _QUICK_DEATH_SECONDS
        self._deaths_in_a_row = self._deaths_in_a_row + 1 if quick else 0
        while not self._stopping:
            if self._deaths_in_a_row > 1:
                delay = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self._deaths_in_a_row, 20))
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, delay)
            try:
                self._connect()
            except OSError as error:
                self._deaths_in_a_row += 1
                _log.warning("Guard process cannot be started", extra={"cause": error.strerror})
            else:
                return

    def _fail_requests(self) -> None:
        with self._lock:
            requests, self._requests = list(self._requests.values()), {}
        for request in requests:
            request.answer.set_exception(_GuardLostError())


class _GuardLostError(Exception):
    """The guard ended before it answered."""


def _exit_of(status: int, cpu_seconds: float, peak: int, *, remains: bool) -> Exit:
    code = os.waitstatus_to_exitcode(status)
    return Exit(
        code=code if code >= 0 else 128 - code,
        signal=max(0, -code),
        remains=remains,
        cpu_seconds=cpu_seconds,
        peak_memory_bytes=peak * (1024 if proc.IS_LINUX else 1),  # macOS counts bytes, Linux kibibytes
    )


def _reap(pids: Iterable[int]) -> None:
    """Bury the killed processes that became our children when the guard died."""
    for pid in pids:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            continue
