"""The guard: a small process that starts all others, keeps some for the next engine and outlives none of them.

Laws:

- Everything the engine starts is a child of the guard. The guard is a subreaper: a process that loses its parent, by a
  double fork or otherwise, becomes the guard's child and not init's.
- When the engine ends, for any reason, its end of the socket closes (and its pidfd becomes readable, should a forked
  copy hold the socket open). The guard then ends every program that is not kept, with all its descendants.
- Kept programs run until another engine connects to the socket in the engine's directory, or the grace period ends.
  With a grace period of 0, which is the default, nothing is kept.
- No byte that a kept program prints is lost or duplicated: without an engine the guard moves it from its pipe to the
  end of the log (`keeping`), with one the engine does. Lines of its two pipes stay whole.
- The output of a program whose group is not kept is in its log when the guard ends, if it was started with one.
- The next engine receives everything that is kept: the last engine's notes, each program with the read ends of its
  pipes, and the exits of ended programs. An exit is remembered until an engine forgets the group of the program, so it
  is seen by an engine that has stored its consequences.
- The guard serves one engine at a time. Only its own account may connect; an engine of an incompatible version ends it.
- When the grace period ends without an engine, or nothing is kept, the guard kills every descendant until none is left,
  and exits.
- A service shared by containers, such as their name server, is left alone: others use it.
- It keeps descriptors of the engine open, such as a lock, until everything has ended.
- Work that runs elsewhere for the engine, such as the containers of a service, is ended by a command of the engine; it
  is executed last, and only if the engine has not withdrawn it.
- When the guard itself is killed, the kernel kills its direct children (parent death signal), kept ones included; the
  engine, or the next one, finds the others by their environment.

An orphan belongs to the process whose mark (`KATIB_PROCESS_ID`) is in its environment, else to the one that leads its
session. An orphan that hid both has no owner, and is killed when the last started process has ended.

Runs by `python -I -S` without site-packages: it uses the standard library and the three modules that it imports only.
On systems other than Linux there are no subreapers, death signals and pidfds: process groups are killed, a daemon that
left its group escapes, and nothing is kept.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from katib.places.machine.processes import proc, wire
from katib.places.machine.processes.keeping import VERSION, KeptProgram, KeptPrograms, peer

TYPE_CHECKING = False  # as in `wire`
if TYPE_CHECKING:
    from typing import NoReturn

_RETRY_SECONDS = 0.003
"""Pause between two rounds of killing: a killed process needs a moment to end."""

_MOMENT_MILLISECONDS = 20
"""How long one start is waited for first. A hanging one delays the others by no more than this."""

_GIVE_UP_SECONDS = 10.0
"""A process in uninterruptible sleep cannot be killed; the guard does not wait for it forever."""

_HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""A Ctrl-C or a SIGTERM is the engine's to handle. These get a handler that does nothing: unlike an ignored signal, a
handled one is reset to its default in started programs, at no cost."""

_LAST_SECONDS = 60.0
"""Timeout of the last command."""

_LAST_PAUSE_SECONDS = 0.02

_BUFFER = 1 << 16

_STREAMS = 2
"""Standard output and standard error, with one descriptor each."""

_RESERVED_FDS = 24
"""Descriptors beside one for each starting process: the guard's own, those of one message, /proc."""


class _StartedProcess:
    """A process requested by the engine. No dataclass: importing those doubles the guard's memory and start-up time.

    It is starting while `report` is open: the read end of a pipe with its progress. The other end closes on its exec.
    """

    __slots__ = ("deadline", "dying", "ended", "key", "pid", "report", "said", "start_time", "targets_seen")

    def __init__(self, key: int, pid: int, report: int, deadline: float) -> None:
        self.key = key
        self.pid = pid
        self.report: int | None = report
        self.said = b"setup\0\0"
        self.deadline = deadline
        stat = proc.read_stat(pid)
        self.start_time = stat.start_time if stat else 0
        self.ended = False
        self.dying = False
        self.targets_seen: set[int] = set()

    def progress(self) -> tuple[str, int, str]:
        """Return the step that a starting process reached, the errno of its failure or 0, and the path of that step."""
        *_, step, path, number = self.said.split(b"\0")
        return step.decode(), int(number or 0), os.fsdecode(path)


class ProcessGuard:
    """Serves one engine after the other until everything has ended."""

    def __init__(self, engine: socket.socket, engine_pid: int, start_seconds: float) -> None:
        self._start_seconds = start_seconds
        self._mark = f"{os.environ.get(proc.ENGINE_ID, '')}."
        self._room = max(1, os.sysconf("SC_OPEN_MAX") - _RESERVED_FDS)
        self._starting: dict[int, _StartedProcess] = {}  # by the descriptor of its report
        self._started: dict[int, _StartedProcess] = {}  # by key
        self._by_pid: dict[int, _StartedProcess] = {}  # those not reaped yet
        self._last: tuple[list[str], dict[bytes, bytes]] | None = None
        self._held: list[int] = []
        self._wakeup = _child_signal_pipe()
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._keeping = KeptPrograms(self._poll)
        self._last_key = 0
        self._serve(engine, engine_pid)

    def _serve(self, engine: socket.socket, pid: int) -> None:
        """Serve an engine from now on."""
        self._engine: socket.socket | None = engine
        self._receiver = wire.MessageReceiver(engine)
        self._poll.register(engine, select.POLLIN)
        self._engine_fd = _open_pidfd(pid)
        if self._engine_fd is not None:
            self._poll.register(self._engine_fd, select.POLLIN)

    def run(self) -> None:
        """Serve one engine after the other, then leave nothing behind."""
        while True:
            while self._engine is not None:
                self._turn()
            if not self._await_engine():
                break
        self._keeping.close()
        self._kill_everything()
        self._keeping.save()
        self._execute_last()

    def _turn(self, until: float | None = None) -> set[int]:
        """Wait for an event and handle it; return the descriptors that were ready."""
        dying = [process for process in self._started.values() if process.dying]
        ready = {fd for fd, _ in self._poll.poll(self._patience(dying, until))}
        if self._engine_fd in ready:
            self._part()
        if self._wakeup in ready:
            os.read(self._wakeup, _BUFFER)
            self._reap()
        if self._engine is not None and self._engine.fileno() in ready:
            messages = self._receiver.receive()
            for message in messages or ():
                self._handle(message)
            if messages is None:
                self._part()
        for process in [self._starting[fd] for fd in ready if fd in self._starting]:
            self._read_report(process)
        now = time.monotonic()
        for process in [process for process in self._starting.values() if process.deadline <= now]:
            self._give_up(process, errno.ETIMEDOUT)
        for process in dying:
            self._kill_remains(process)
        return ready

    def _patience(self, dying: list[_StartedProcess], until: float | None) -> float | None:
        """Return the milliseconds until the guard has to act by itself; None for never."""
        if dying:
            return 1000 * _RETRY_SECONDS
        moments = [process.deadline for process in self._starting.values()]
        moments += [moment for moment in (until, self._keeping.look_at) if moment is not None]
        return max(0.0, 1000 * (min(moments) - time.monotonic())) + 1 if moments else None

    def _handle(self, message: wire.Message) -> None:
        match message:
            case ("spawn", key, argv, env, cwd, directories, keep):
                self._last_key = max(self._last_key, key)
                self._spawn(key, argv, env, cwd, directories, keep)
            case ("withdraw", key):
                if process := next((p for p in self._starting.values() if p.key == key), None):
                    self._give_up(process, errno.ECANCELED)
            case ("signal", key, sig):
                if process := self._started.get(key):
                    self._signal(process, sig)
            case ("kill", key):
                if process := self._started.get(key):
                    process.dying = True
                    self._kill_remains(process)
                else:
                    self._tell("gone", key)
            case ("hold",):
                self._held += self._receiver.take_fds()
            case ("last", argv, env):
                self._last = (argv, env) if argv else None
            case _:
                self._keeping.handle(message, self._receiver)

    def _tell(self, *message: object) -> None:
        """Send a message to the engine; without one, the next engine learns it from the hand-over."""
        if self._engine is not None:
            try:
                wire.send(self._engine, wire.pack(message))
            except OSError:  # it ended just now; what it had sent before can still be read
                return

    # --- without an engine --------------------------------------------------------------------------------------------

    def _part(self) -> None:
        """Detach an engine that has ended, after processing its pending requests except new programs."""
        engine, self._engine = self._engine, None
        assert engine is not None
        engine.setblocking(False)
        try:
            while (messages := self._receiver.receive()) is not None:
                for message in messages:
                    if message[0] == "spawn":
                        for descriptor in self._receiver.take_fds():
                            os.close(descriptor)
                    else:
                        self._handle(message)
        except (OSError, wire.BrokenStreamError):  # a forked copy of it may keep the stream open
            pass
        self._poll.unregister(engine)
        engine.close()
        if self._engine_fd is not None:
            self._poll.unregister(self._engine_fd)
            os.close(self._engine_fd)
            self._engine_fd = None

    def _await_engine(self) -> bool:
        """Keep programs until another engine connects; False if none did in time or nothing is kept."""
        keeping = self._keeping
        if not keeping.is_needed:
            return False
        for process in list(self._starting.values()):
            if not keeping.keeps(process.key):
                self._give_up(process, errno.ECANCELED)
        for process in self._started.values():
            process.dying = process.dying or not keeping.keeps(process.key)
        keeping.begin()
        deadline = time.monotonic() + keeping.grace_seconds
        engine = None
        while engine is None and time.monotonic() < deadline:
            ready = self._turn(deadline)
            keeping.turn(ready)
            engine = keeping.accept(ready)
        keeping.end()
        if engine is not None:
            for process in list(self._starting.values()):  # the engine starts it again
                self._give_up(process, errno.ECANCELED)
            self._serve(engine, peer(engine)[0])
            self._hand_over(engine)
        return engine is not None

    def _hand_over(self, engine: socket.socket) -> None:
        """Send everything that an engine has to know."""
        left = [process for process in self._started.values() if process.ended and self._targets(process)]
        try:
            wire.send(engine, wire.pack(("hello", VERSION, self._mark[:-1], self._last_key)))
            self._keeping.hand_over(engine, frozenset(process.key for process in left))
            for descriptor in self._held:
                wire.send(engine, wire.pack(("held",)), (descriptor,))
            wire.send(engine, wire.pack(("handed-over",)))
        except OSError:  # it is gone again, as the next turn will detect
            return

    # --- starting -----------------------------------------------------------------------------------------------------

    def _spawn(
        self,
        key: int,
        argv: list[str],
        env: dict[bytes, bytes],
        cwd: str,
        directories: list[str],
        keep: tuple[str, object, str, int] | None,
    ) -> None:
        fds = self._receiver.take_fds()
        if keep is not None and len(fds) > _STREAMS:
            self._keeping.add(key, KeptProgram(*keep, fds[_STREAMS:]))
            del fds[_STREAMS:]
        try:
            pid, report = self._fork(argv, env, cwd, directories, fds)
        except OSError as error:
            self._keeping.drop(key)
            self._tell("failed", key, "fork", error.errno, "")
            return
        finally:
            for fd in fds:
                os.close(fd)
        # Most start in a moment. Any work of the guard before that costs a copy of each page that it touches.
        moment = select.poll()
        moment.register(report, 0)
        moment.poll(_MOMENT_MILLISECONDS)
        process = _StartedProcess(key, pid, report, time.monotonic() + self._start_seconds)
        self._starting[report] = self._by_pid[pid] = process
        self._poll.register(report, 0)  # its end is enough; its content is only needed then
        self._read_report(process)

    def _fork(
        self, argv: list[str], env: dict[bytes, bytes], cwd: str, directories: list[str], fds: list[int]
    ) -> tuple[int, int]:
        """Return a new process and its report. The process itself does everything that may wait for a file system."""
        if len(fds) < _STREAMS or len(self._starting) + self._keeping.count >= self._room:
            raise OSError(errno.EMFILE, "")
        report, tell = os.pipe()  # closed by a successful exec
        os.set_blocking(report, False)
        fds.append(tell)
        try:
            pid = os.fork()
        except OSError:
            os.close(report)
            raise
        if pid == 0:
            if self._engine is not None:
                self._engine.close()  # a hanging process must not hide the guard's end from the engine
            _become(argv, env, cwd, directories, fds)
        return pid, report

    def _read_report(self, process: _StartedProcess) -> None:
        """Read a process's progress; at the end of the report it has started, or failed to."""
        try:
            while process.report is not None and (data := os.read(process.report, _BUFFER)):
                process.said += data
        except BlockingIOError:
            return
        if process.report is None:
            return  # the same turn has handled it
        step, number, path = process.progress()
        self._close_report(process)
        if number:
            self._keeping.drop(process.key)
            self._tell("failed", process.key, step, number, path)
        else:
            self._started[process.key] = process
            self._keeping.started(process.key, process.pid, process.start_time, path)
            self._tell("started", process.key, process.pid, process.start_time, path)

    def _close_report(self, process: _StartedProcess) -> None:
        if process.report is not None:
            self._poll.unregister(process.report)
            os.close(process.report)
            del self._starting[process.report]
            process.report = None

    def _give_up(self, process: _StartedProcess, number: int) -> None:
        """End a start, unless it finished concurrently. A process that hangs in the kernel is reaped later."""
        self._read_report(process)
        if process.report is None:
            return
        step, _, path = process.progress()
        self._close_report(process)
        proc.kill(process.pid)
        self._keeping.drop(process.key)
        self._tell("failed", process.key, step, number, path)

    # --- ending -------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._by_pid.pop(pid, None)
            if process is not None:
                self._read_report(process)  # it is complete
            if process is None or self._started.get(process.key) is not process:
                continue  # an adopted orphan, or one that could not be started
            process.ended = True
            self._keeping.ended(process.key, status)
            remains = self._leaves_some(process)
            if not remains and not process.dying:
                del self._started[process.key]
            self._tell("exited", process.key, status, remains)
            self._kill_unowned()

    def _signal(self, process: _StartedProcess, sig: int) -> None:
        targets = self._targets(process)
        if _has_group(process, targets):
            proc.kill_group(process.pid, sig)
        for pid in targets:
            stat = proc.read_stat(pid)
            if stat is not None and stat.group != process.pid:
                proc.kill(pid, sig)

    def _kill_remains(self, process: _StartedProcess) -> None:
        if self._started.get(process.key) is not process:
            return  # the same turn has handled it
        process.targets_seen.update(self._targets(process))
        self._signal(process, signal.SIGKILL)
        self._reap()
        # A dying process has no environment any more, so it is recognized only as an earlier target.
        if process.ended and not self._targets(process) and not any(map(proc.is_running, process.targets_seen)):
            self._started.pop(process.key, None)
            self._tell("gone", process.key)
            self._kill_unowned()

    def _targets(self, process: _StartedProcess) -> list[int]:
        """Return the remains of a process: itself, its descendants, its group and its adopted orphans."""
        roots = [] if process.ended else [process.pid]
        roots += [pid for pid in self._orphans() if self._owner(pid) is process]
        found = [pid for root in roots for pid in (root, *proc.descendants(root)) if not proc.is_shared_service(pid)]
        if not proc.IS_LINUX and proc.kill_group(process.pid, 0):
            found.append(process.pid)
        return found

    def _orphans(self) -> list[int]:
        orphans = [pid for pid in proc.children(os.getpid()) if pid not in self._by_pid]
        return [pid for pid in orphans if not proc.is_shared_service(pid)]

    def _owner(self, pid: int) -> _StartedProcess | None:
        mark = proc.environment_value(pid, proc.PROCESS_ID)
        if mark is not None:  # of another engine, if one of this engine's programs runs one
            key = mark.removeprefix(self._mark)
            return self._started.get(int(key)) if key != mark and key.isdecimal() else None
        stat = proc.read_stat(pid)
        return next((m for m in self._started.values() if stat and m.pid in {stat.session, stat.group}), None)

    def _leaves_some(self, process: _StartedProcess) -> bool:
        """Return whether a process that has ended left an orphan, or one without owner exists."""
        owners = [self._owner(pid) for pid in self._orphans()]
        if process in owners or None in owners:
            return True
        return not proc.IS_LINUX and proc.kill_group(process.pid, 0)

    def _kill_unowned(self) -> None:
        if not self._started:
            for pid in self._orphans():
                for target in (pid, *proc.descendants(pid)):
                    proc.kill(target)

    def _kill_everything(self) -> None:
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            for process in self._by_pid.values():
                proc.kill_group(process.pid)
            left = [pid for pid in proc.descendants(os.getpid()) if not proc.is_shared_service(pid)]
            for pid in left:
                proc.kill(pid)
            if self._reap_silently() or (proc.IS_LINUX and not left):
                return
            time.sleep(_RETRY_SECONDS)

    def _execute_last(self) -> None:
        """Run the engine's last command, and wait for its end. It survives a kill of the guard."""
        if self._last is None:
            return
        argv, env = self._last
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for stream in range(3):
                    os.dup2(null, stream, inheritable=True)
                os.execve(argv[0], argv, env)  # noqa: S606 - it is the engine's own
            finally:
                os._exit(127)
        deadline = time.monotonic() + _LAST_SECONDS
        while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(_LAST_PAUSE_SECONDS)

    def _reap_silently(self) -> bool:
        """Reap ended processes; True if no child is left."""
        try:
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return False
                self._by_pid.pop(pid, None)
        except ChildProcessError:
            return True


def _has_group(process: _StartedProcess, targets: list[int]) -> bool:
    """Return whether the group id is still valid.

    After the leader is reaped, only members keep it from being reused.
    """
    if not process.ended or not proc.IS_LINUX:
        return True
    stats = map(proc.read_stat, targets)
    return any(stat is not None and stat.group == process.pid for stat in stats)


def _child_signal_pipe() -> int:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _become(argv: list[str], env: dict[bytes, bytes], cwd: str, directories: list[str], fds: list[int]) -> NoReturn:
    """Turn the forked child into the requested program."""
    output, errors, report = fds

    def begin(step: bytes, path: bytes) -> None:
        os.write(report, b"%b\0%b\0" % (step, path))

    try:
        guard = os.getppid()
        proc.die_with_parent()
        if os.getppid() != guard:
            os._exit(1)  # the guard died before the death signal was set
        os.setsid()
        for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
            os.dup2(source, target, inheritable=True)  # all sources are above 2: the guard's own three are open
        for directory in directories:
            begin(b"volume", os.fsencode(directory))
            if not os.path.exists(directory):  # noqa: PTH110 - pathlib costs the guard 5 ms of start-up
                os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - as above
        begin(b"cwd", os.fsencode(cwd))
        os.chdir(cwd)
        _execute(argv, env, begin)
    except OSError as error:
        os.write(report, b"%d" % (error.errno or errno.EINVAL))
    except MemoryError:
        os.write(report, b"%d" % errno.ENOMEM)
    except BaseException:  # noqa: BLE001 - the child must not return into the guard's loop
        os.write(report, b"%d" % errno.EINVAL)
    os._exit(127)


def _execute(argv: list[str], env: dict[bytes, bytes], begin: Callable[[bytes, bytes], None]) -> None:
    """Execute a program, looked up in the PATH of its own environment as a shell does.

    Not by os.execvpe: that imports modules at its first call, which here is the first call of every child.
    """
    program, broken = os.fsencode(argv[0]), b""
    failure = OSError(errno.ENOENT, "")
    for directory in [b""] if b"/" in program else env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = program if b"/" in program else os.path.join(directory or b".", program)  # noqa: PTH118 - bytes
        begin(b"exec", path)
        try:
            os.execve(path, argv, env)  # noqa: S606 - starting the user's command is what the guard is for
        except (FileNotFoundError, NotADirectoryError):
            broken = path if os.access(path, os.F_OK) else broken
        except OSError as error:  # a file that may not be executed: another directory may have one that may
            failure = error
    if broken:
        begin(b"interpreter", broken)
    raise failure


def main() -> None:
    """Serve an engine; the arguments are its socket, its process id, and the timeout of a start in seconds."""
    for sig in _HANDLED_SIGNALS:
        signal.signal(sig, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    proc.adopt_orphans()
    engine = socket.socket(fileno=int(sys.argv[1]))
    engine.set_inheritable(False)
    ProcessGuard(engine, int(sys.argv[2]), float(sys.argv[3])).run()
