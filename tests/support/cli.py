"""The product as a user has it: `katib` in processes of its own."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from katib.doors.rest.notes import account_directory, note_of
from katib.errors import KatibError
from katib.places.machine.pods.leases import DIRECTORY_VARIABLE as LEASES
from tests.support.ports import free_port
from tests.support.refusals import origins_of
from tests.support.waiting import end_of, eventually
from tests.support.warm import KATIB, WarmPopen, popen

__all__ = ["KATIB"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which `python` is the one that runs the tests and no katib option is set.

    What a test leases is kept apart from what else runs on the machine.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KATIB_") or name == LEASES}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}


def katib(
    *arguments: str | Path, cwd: Path, timeout: float = 180.0, cold: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, as a fork of a process that has imported it, or `cold`, as a user starts it."""
    start = subprocess.Popen if cold else WarmPopen
    command = [*KATIB, *map(str, arguments)]
    pipe = subprocess.PIPE
    with start(command, cwd=cwd, env=environment(**env), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Restore what a command in this process sets up for the whole of it: signals and logging."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root = logging.getLogger()
    loggers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        root.handlers[:] = loggers
        root.setLevel(level)  # and no logger remembers the other one


class Ended(subprocess.CompletedProcess[str]):
    """A command that ended in this process, with the origins of the errors that it printed, or their reasons."""

    origins: list[str]


def katib_here(*arguments: str | Path, cwd: Path, **env: str) -> Ended:
    """Run one command in this process, which is many times faster; what it printed last is complete."""
    from katib.doors.cli import failures, main

    words = [str(argument) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    printed: list[KatibError] = []
    lines_of = failures.error_lines

    def error_lines(error: KatibError, source: str = "") -> list[str]:
        printed.append(error)
        return lines_of(error, source)

    with (
        process_state_kept(),
        mock.patch.dict(os.environ, environment(**env), clear=True),
        mock.patch.object(failures, "error_lines", error_lines),
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = main(words)
    ended = Ended(words, code, out.getvalue(), err.getvalue())
    ended.origins = [origin for error in printed for origin in origins_of(error)]
    return ended


def katib_json(*arguments: str | Path, cwd: Path) -> Any:
    """Run one command with `-o json` in this process and return what it printed."""
    done = katib_here(*arguments, "-o", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass
class ServerProcess:
    """A `katib serve`.

    Attributes:
        marker: In the environment of the server and so of everything it starts; finds what outlived it.
    """

    directory: Path
    port: int = field(default_factory=free_port)
    marker: str = field(default_factory=lambda: f"test-{os.urandom(8).hex()}")
    process: subprocess.Popen[bytes] | None = None
    options: Sequence[str] = ()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str | None:
        """The token that it told commands of this account."""
        note = note_of(self.url, account_directory())
        return note and note.token

    def start(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self.process = popen(
                [*KATIB, "serve", "--port", str(self.port), *self.options],
                cwd=self.directory,
                env=environment(TEST_MARKER=self.marker),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Wait until it answers and has told commands of this account its token, which comes a moment later."""
        eventually(self._is_ready, "the server", picture=end_of(self.directory / "server.log"))

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "server.log").read_text()
        return note_of(self.url, account_directory()) is not None  # from now on commands find it with its token

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)

    def descendants(self) -> list[str]:
        """Return the command lines of all processes that the server started and that still run."""
        own = self.process.pid if self.process is not None and self.process.poll() is None else 0
        return [command for pid, command in marked_processes(f"TEST_MARKER={self.marker}") if pid != own]


@contextmanager
def a_server(directory: Path, *options: str) -> Iterator[ServerProcess]:
    """Run a server with further options; it is stopped at the end if it still runs."""
    server = ServerProcess(directory, options=options)
    server.start()
    server.wait_until_ready()
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop()


def marked_processes(marker: str) -> list[tuple[int, str]]:
    """Return pid and command line of the live processes with this entry in their environment."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if marker.encode() in (path / "environ").read_bytes().split(b"\0"):
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command:  # a zombie has none
                    found.append((int(path.name), command))
        except OSError:
            continue  # it ended meanwhile, or is somebody else's
    return found


def rows(data_dir: Path, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Return rows of the database file, read past the product."""
    with closing(sqlite3.connect(f"file:{data_dir / 'katib.db'}?mode=ro", uri=True)) as connection:
        return connection.execute(query, parameters).fetchall()
