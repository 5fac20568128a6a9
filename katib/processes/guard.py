"""The guard: a small process that starts all others and outlives none of them.

Laws:

- Everything the engine starts is a child of the guard. The guard is a subreaper: a process that loses its parent, by
  a double fork or otherwise, becomes the guard's child and not init's.
- When the engine ends, by whatever, its end of the socket closes (and its pidfd becomes readable, should a forked copy
  hold the socket open). The guard then kills every descendant until none is left, and exits.
- When the guard itself is killed, the kernel kills its direct children (parent death signal); the engine finds the
  others by their environment.

An orphan belongs to the process whose mark (`KATIB_PROCESS_ID`) is in its environment, else to the one that leads its
session. An orphan that hid both belongs to nobody, and is killed when the last started process has ended.

Runs by `python -I -S` without site-packages: standard library only, and of ours only the two modules named below.
Elsewhere than on Linux there are no subreapers, death signals and pidfds: process groups are killed, and a daemon
that left its group escapes.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time

from katib.processes import proc, wire

_RETRY_SECONDS = 0.003
"""Pause between two rounds of killing: a killed process needs a moment to go."""

_GIVE_UP_SECONDS = 10.0
"""A process in uninterruptible sleep cannot be killed; the guard does not wait for it for ever."""

_UNHEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""A Ctrl-C or a polite end is the engine's to answer. These get a handler that does nothing: unlike an ignored signal,
a handled one is back to its default in the programs we start, at no cost."""

_FD_LIMIT = 1 << 16


class _Main:
    """A process that the engine asked for. No dataclass: importing those doubles the guard's memory and start-up."""

    __slots__ = ("doomed", "ended", "key", "pid", "victims")

    def __init__(self, key: int, pid: int) -> None:
        self.key = key
        self.pid = pid
        self.ended = False
        self.doomed = False
        self.victims: set[int] = set()


class Guard:
    """Serves one engine until it ends."""

    def __init__(self, engine: socket.socket, engine_pid: int) -> None:
        self._engine = engine
        self._receiver = wire.Receiver(engine)
        self._mains: dict[int, _Main] = {}  # by key
        self._by_pid: dict[int, _Main] = {}  # those not reaped yet
        self._wakeup = _child_signal_pipe()
        self._poll = select.poll()
        self._poll.register(engine, select.POLLIN)
        self._poll.register(self._wakeup, select.POLLIN)
        self._engine_fd = _open_pidfd(engine_pid)
        if self._engine_fd is not None:
            self._poll.register(self._engine_fd, select.POLLIN)

    def run(self) -> None:
        """Serve, then leave nothing behind."""
        try:
            while self._turn():
                pass
        except ConnectionError:  # the engine went while we answered
            pass
        self._kill_everything()

    def _turn(self) -> bool:
        doomed = [main for main in self._mains.values() if main.doomed]
        ready = {fd for fd, _ in self._poll.poll(1000 * _RETRY_SECONDS if doomed else None)}
        if self._engine_fd in ready:
            return False
        if self._wakeup in ready:
            os.read(self._wakeup, _FD_LIMIT)
            self._reap()
        if self._engine.fileno() in ready:
            messages = self._receiver.receive()
            if messages is None:
                return False
            for message in messages:
                self._handle(message)
        for main in doomed:
            self._kill_remains(main)
        return True

    def _handle(self, message: wire.Message) -> None:
        match message:
            case ("spawn", key, argv, env, cwd, n_fds):
                self._spawn(key, argv, env, cwd, self._receiver.take_fds(n_fds))
            case ("signal", key, sig):
                if main := self._mains.get(key):
                    self._signal(main, sig)
            case ("kill", key):
                if main := self._mains.get(key):
                    main.doomed = True
                    self._kill_remains(main)
                else:
                    self._tell("gone", key)

    def _tell(self, *message: object) -> None:
        wire.send(self._engine, message)

    # --- starting -----------------------------------------------------------------------------------------------------

    def _spawn(self, key: int, argv: list[str], env: dict[bytes, bytes], cwd: str, fds: list[int]) -> None:
        failure_read, failure_write = os.pipe()  # closed by a successful exec
        try:
            pid = os.fork()
        except OSError as error:
            os.close(failure_write)
            self._tell("failed", key, "fork", error.errno)
        else:
            if pid == 0:
                _become(argv, env, cwd, fds, failure_write)
            os.close(failure_write)
            self._conclude_spawn(key, pid, os.read(failure_read, 64))
        finally:
            for fd in (*fds, failure_read):
                os.close(fd)

    def _conclude_spawn(self, key: int, pid: int, failure: bytes) -> None:
        if failure:
            os.waitpid(pid, 0)
            stage, number = failure.decode().split()
            self._tell("failed", key, stage, int(number))
            return
        stat = proc.read_stat(pid)
        self._mains[key] = self._by_pid[pid] = _Main(key, pid)
        self._tell("started", key, pid, stat.start_time if stat else 0)

    # --- ending -------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            main = self._by_pid.pop(pid, None)
            if main is None:
                continue  # an adopted orphan
            main.ended = True
            remains = bool(self._targets(main) or self._unowned())
            if not remains and not main.doomed:
                del self._mains[main.key]
            self._tell("exited", main.key, status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, remains)
            self._kill_unowned()

    def _signal(self, main: _Main, sig: int) -> None:
        targets = self._targets(main)
        if _has_group(main, targets):
            proc.kill_group(main.pid, sig)
        for pid in targets:
            stat = proc.read_stat(pid)
            if stat is not None and stat.group != main.pid:
                proc.kill(pid, sig)

    def _kill_remains(self, main: _Main) -> None:
        if self._mains.get(main.key) is not main:
            return  # the same turn has finished it
        main.victims.update(self._targets(main))
        self._signal(main, signal.SIGKILL)
        self._reap()
        # A dying process has no environment any more, so it is known only by having been a target before.
        if main.ended and not self._targets(main) and not any(map(proc.is_running, main.victims)):
            self._mains.pop(main.key, None)
            self._tell("gone", main.key)
            self._kill_unowned()

    def _targets(self, main: _Main) -> list[int]:
        """Return what is left of a process: itself, its descendants, its group and its adopted orphans."""
        roots = [] if main.ended else [main.pid]
        roots += [pid for pid in self._orphans() if self._owner(pid) is main]
        found = [pid for root in roots for pid in (root, *proc.descendants(root))]
        if not proc.IS_LINUX and proc.kill_group(main.pid, 0):
            found.append(main.pid)
        return found

    def _orphans(self) -> list[int]:
        return [pid for pid in proc.children(os.getpid()) if pid not in self._by_pid]

    def _owner(self, pid: int) -> _Main | None:
        mark = proc.environment_value(pid, proc.PROCESS_ID)
        if mark is not None:
            key = mark.rpartition(".")[2]
            return self._mains.get(int(key)) if key.isdigit() else None
        stat = proc.read_stat(pid)
        return next((m for m in self._mains.values() if stat and m.pid in {stat.session, stat.group}), None)

    def _unowned(self) -> list[int]:
        return [pid for pid in self._orphans() if self._owner(pid) is None]

    def _kill_unowned(self) -> None:
        if not self._mains:
            for pid in self._orphans():
                for target in (pid, *proc.descendants(pid)):
                    proc.kill(target)

    def _kill_everything(self) -> None:
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            for main in self._by_pid.values():
                proc.kill_group(main.pid)
            for pid in proc.descendants(os.getpid()):
                proc.kill(pid)
            if self._reap_silently():
                return
            time.sleep(_RETRY_SECONDS)

    def _reap_silently(self) -> bool:
        """Reap what ended; True when no child is left."""
        try:
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return False
                self._by_pid.pop(pid, None)
        except ChildProcessError:
            return True


def _has_group(main: _Main, targets: list[int]) -> bool:
    """Tell whether the group id is still ours: after the leader is reaped, only members keep it from being reused."""
    if not main.ended or not proc.IS_LINUX:
        return True
    stats = map(proc.read_stat, targets)
    return any(stat is not None and stat.group == main.pid for stat in stats)


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


def _become(argv: list[str], env: dict[bytes, bytes], cwd: str, fds: list[int], failure: int) -> None:
    """Turn the forked child into the wanted program. Never returns."""
    stage = "setup"
    try:
        guard = os.getppid()
        proc.die_with_parent()
        if os.getppid() != guard:
            os._exit(1)  # the guard died before the kernel knew our wish
        os.setsid()
        _place_standard_streams(fds)
        stage = "cwd"
        os.chdir(cwd)
        stage = "exec"
        _execute(argv, env)
    except OSError as error:
        os.write(failure, f"{stage} {error.errno}".encode())
    except BaseException:  # noqa: BLE001 - the child must not return into the guard's loop
        os.write(failure, f"{stage} {errno.EINVAL}".encode())
    os._exit(127)


def _execute(argv: list[str], env: dict[bytes, bytes]) -> None:
    """Execute a program, looked up in the PATH of its own environment as a shell does.

    Not by os.execvpe: that imports modules at its first call, which here is the first call of every child.
    """
    program = os.fsencode(argv[0])
    if b"/" in program:
        os.execve(program, argv, env)  # noqa: S606 - starting the user's command is what the guard is for
    failure: OSError = FileNotFoundError(errno.ENOENT, "")
    for directory in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        try:
            os.execve(os.path.join(directory or b".", program), argv, env)  # noqa: S606, PTH118 - as above; bytes
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # a file that may not be executed: another directory may have a better one
            failure = error
    raise failure


def _place_standard_streams(fds: list[int]) -> None:
    stdout, stderr, *stdin = fds
    sources = (stdin[0] if stdin else os.open(os.devnull, os.O_RDONLY), stdout, stderr)
    for target, source in enumerate(sources):  # all above 2: the guard's own three are open
        os.dup2(source, target, inheritable=True)


def main() -> None:
    """Serve the engine whose socket and process id are the arguments."""
    for sig in _UNHEARD:
        signal.signal(sig, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    proc.adopt_orphans()
    engine = socket.socket(fileno=int(sys.argv[1]))
    engine.set_inheritable(False)
    Guard(engine, int(sys.argv[2])).run()
