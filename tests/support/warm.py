"""Processes of the command line that start at once: forks of one that has imported what commands need.

To import it takes half a second of CPU, as often as a test starts `katib`. A fork is a process of its own in all that a
test looks at: its environment, directory, streams, signals, exit code and children.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import importlib
import os
import pickle
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.fake_engine import stand_in

KATIB = [str(Path(sys.executable).parent / "katib")]
FAKE_ENGINE = [sys.executable, "-m", "tests.support.fake_engine"]
"""The command line over a service in memory."""

_LONGEST_REQUEST = 200_000
_COMMANDS = ("explaining", "failures", "get", "run.command", "run.again", "serve", "stopping", "tune", "watch")
_MODULES = (
    *(f"katib.doors.cli.{name}" for name in _COMMANDS),
    "katib.places.machine.engine",
    "katib.engine.databases.sqlite_engine",
    "katib.doors.kube_api.server",
    "katib.doors.optuna_storage.server",
    "katib.doors.optuna_storage.service",
    "katib.wire.serving.prompt_server",
    "katib.doors.rest.server",
    "katib.doors.ui",
    "httpx",
    "prometheus_client",
    "pydantic.v1",
    "uvicorn.lifespan.off",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.h11_impl",
)


class WarmPopen(subprocess.Popen[Any]):
    """`Popen` of a `katib` command, of those options that concern streams, directory, environment and session."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        (_, preexec_fn, _, pass_fds, cwd, env, _, _, _, *pipes, _, _, _, _, _, new_session, _) = rest
        assert preexec_fn is None
        assert not pass_fds
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        request = (list(map(str, args)), os.fspath(cwd or Path.cwd()), dict(os.environ if env is None else env))
        streams = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self._state, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_parent(), [pickle.dumps((*request, new_session))], [theirs.fileno(), *streams])
        self._close_pipe_fds(*pipes)
        self.pid = self._number()
        self._child_created = True

    def _number(self) -> int:
        (number,) = array.array("q", self._state.recv(8, socket.MSG_WAITALL))
        return number

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._state], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._number())
            self._state.close()
        return self.returncode


def popen(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """Start a program as `Popen` does, a command of ours by a fork."""
    is_ours = [str(command[0])] == KATIB or list(command[:3]) == FAKE_ENGINE
    start = WarmPopen if is_ours and "preexec_fn" not in options else subprocess.Popen
    return start(command, **options)


@functools.cache
def _parent() -> socket.socket:
    """Return the connection to the process that forks; it ends with the connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST_REQUEST)
    command = [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))}
    with theirs:
        process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], start_new_session=True)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


_ROOT = Path(__file__).parents[2]


def _fork_on_request(requests: socket.socket) -> None:
    """Return in each child, as the process that a request describes; end with the connection."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is not requests:
                pid, state = running.pop(ready)
                _send(state, os.waitpid(pid, 0)[1])
                state.close()
                os.close(ready)
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 4)
            if not message:
                os._exit(0)
            state = socket.socket(fileno=descriptors[0])
            if not (pid := os.fork()):
                for other, (_, its_state) in running.items():
                    os.close(other)
                    its_state.close()
                requests.close()
                state.close()
                _become(descriptors[1:], *pickle.loads(message))
                return
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            _send(state, pid)
            running[os.pidfd_open(pid)] = (pid, state)


def _send(state: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test that started it is over
        state.sendall(array.array("q", [number]))


def _become(
    streams: list[int], argv: list[str], directory: str, environment: dict[str, str], new_session: bool
) -> None:
    if new_session:
        os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    if argv[:3] == FAKE_ENGINE:
        sys.argv = [*KATIB, *argv[3:]]
        stand_in()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays to the end
    by_line = os.isatty(1) or "PYTHONUNBUFFERED" in environment
    sys.stdout = open(1, "w", buffering=1 if by_line else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    for _name in _MODULES:
        importlib.import_module(_name)
    gc.freeze()
    _fork_on_request(socket.socket(fileno=int(sys.argv[1])))

    from katib.doors.cli import main

    code = main()
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # without taking apart what is shared with the parent, which would copy it first
