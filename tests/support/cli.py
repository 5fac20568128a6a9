"""The product as a user has it: `katib` in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KATIB = [str(Path(sys.executable).parent / "katib")]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which `python` is the one that runs the tests and no katib option is set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KATIB_")}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}


def katib(*arguments: str | Path, cwd: Path, timeout: float = 60.0, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [*KATIB, *map(str, arguments)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def katib_json(*arguments: str | Path, cwd: Path, **env: str) -> Any:
    """Run one command with `-o json` and return what it printed."""
    done = katib(*arguments, "-o", "json", cwd=cwd, **env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on now."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


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

    def start(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*KATIB, "serve", "--port", str(self.port), *self.options],
                cwd=self.directory,
                env=environment(TEST_MARKER=self.marker),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self, within_seconds: float = 30.0) -> None:
        deadline = time.monotonic() + within_seconds
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, (self.directory / "server.log").read_text()
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError((self.directory / "server.log").read_text())

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)

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
