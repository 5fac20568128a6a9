"""Files of services: sockets with short paths, and logs with access to their last lines."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from katib.engine.algorithm_services.plan import ServiceId
from katib.model.failure_text import readable
from katib.places.machine.processes.proc import is_running

_PREFIX = "katib-"
_MAX_DIRECTORY = 80
"""A Unix socket's path must stay under 108 bytes, 104 on macOS; this leaves room for the file name."""

_MAX_LOG_BYTES = 1 << 20
_TAIL_BYTES = 4096
_TAIL_LINES = 3


class SocketDirectory:
    """A private directory for sockets and tokens, with a short path. Also removes those of dead owners."""

    def __init__(self) -> None:
        given = (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir())
        fits = (d for d in given if d and len(os.fsencode(d)) <= _MAX_DIRECTORY and os.access(d, os.W_OK | os.X_OK))
        bases = [*fits, "/tmp"]  # noqa: S108 - mkdtemp makes a private directory in it
        for base in dict.fromkeys(bases):
            _remove_abandoned(Path(base))
        self._path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=bases[0]))
        self._count = 0

    def new_path(self) -> Path:
        """Return a path that was never used, so that no earlier process listens there."""
        self._count += 1
        return self._path / f"{self._count}.sock"

    def path(self, name: str) -> Path:
        """Return the path of a file with a name of the caller's: not a number with `.sock`."""
        return self._path / name

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _remove_abandoned(base: Path) -> None:
    for name in os.listdir(base):  # noqa: PTH208 - of the thousands of names in a shared /tmp few are ours
        owner, hyphen, _ = name.removeprefix(_PREFIX).partition("-")
        if not (hyphen and name.startswith(_PREFIX) and owner.isdecimal()) or is_running(int(owner)):
            continue
        directory = base / name
        with contextlib.suppress(FileNotFoundError):  # another engine removes it concurrently
            if directory.stat().st_uid == os.getuid():
                shutil.rmtree(directory, ignore_errors=True)


class ServiceLog:
    """The log of a service across all its restarts."""

    def __init__(self, directory: Path, service: ServiceId) -> None:
        self.path = directory / f"{service.file_name}.log"
        self._start = 0

    def open(self) -> int:
        """Return a descriptor for the output of a new process; the caller closes it."""
        self.path.parent.mkdir(exist_ok=True, mode=0o700)
        if self.path.exists() and self.path.stat().st_size > _MAX_LOG_BYTES:
            self.path.replace(self.path.with_suffix(".log.1"))
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._start = os.fstat(descriptor).st_size
        return descriptor

    def last_lines(self) -> str:
        """Return the last lines of the newest process's output, on one line; empty if it printed nothing."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, end - _TAIL_BYTES))
                text = readable(file.read())
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_TAIL_LINES:])
