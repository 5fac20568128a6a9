"""The event files below a directory, and one growing event file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from katib.model.metrics import MetricLog
from metrics_collector.parsers.records import HEADER_BYTES, begins_with_record
from metrics_collector.parsers.tf_events import EventParser
from metrics_collector.sources.file_tail import CHUNK_BYTES

NAME_PART = "tfevents"
"""Part of the name of every event file."""

MAX_OTHER_FILES = 10_000
"""Files with other names that are checked by content."""

_VERSION_MARK = b"brain.Event:"
_MARK_BYTES = 64
"""Bytes in which the first record of an event file names its version."""


class FileIdentity(NamedTuple):
    """Identity of a file, independent of its name."""

    device: int
    inode: int


class FoundEventFile(NamedTuple):
    """An event file found by a search."""

    path: str
    size: int


class EventFileSearch:
    """Repeated search for event files below a directory.

    A file counts if its name contains `tfevents`, or if it starts like an event file. Links to files are followed if
    their names contain it; links to directories below the first one are not, which avoids loops.

    Attributes:
        problem: The reason why the directory cannot be read, as an unfinished sentence; empty if it can, or is missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self.problem = ""
        self._decided: dict[int, bool] = {}  # by inode: whether a file with another name is an event file

    @property
    def other_files(self) -> int:
        """Number of checked files without events."""
        return sum(not is_event_file for is_event_file in self._decided.values())

    def run(self) -> dict[FileIdentity, FoundEventFile]:
        """Return the present event files, in order of their paths, those behind links last."""
        entries = list(self._entries())
        found: dict[FileIdentity, FoundEventFile] = {}
        for entry in sorted(entries, key=os.DirEntry.is_symlink):
            if NAME_PART not in entry.name and not self._is_event_file(entry):
                continue
            try:
                status = entry.stat()
            except OSError:  # it was deleted, or is a broken link
                continue
            if stat.S_ISREG(status.st_mode):
                identity = FileIdentity(status.st_dev, status.st_ino)
                found.setdefault(identity, FoundEventFile(entry.path, status.st_size))
        return found

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield all entries except directories."""
        self.problem = ""
        waiting = [self._root]
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(directory) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.problem = f"the directory {directory} cannot be read ({error.strerror})"
                continue
            directories = []
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                else:
                    yield entry
            waiting += reversed(directories)

    def _is_event_file(self, entry: os.DirEntry[str]) -> bool:
        """Whether a file without the usual name starts like an event file; it is opened until that is known."""
        decided = self._decided.get(entry.inode())
        if decided is not None or len(self._decided) >= MAX_OTHER_FILES or not entry.is_file(follow_symlinks=False):
            return bool(decided)
        try:
            with os.fdopen(open_regular(entry.path), "rb") as file:
                data = file.read(_MARK_BYTES)
        except OSError:
            return False
        is_event_file = begins_with_record(data) and _VERSION_MARK in data
        if len(data) == _MARK_BYTES or (len(data) >= HEADER_BYTES and not begins_with_record(data)):
            self._decided[entry.inode()] = is_event_file
        return is_event_file


class EventFile:
    """An event file, read as it grows. A truncated file is read from its beginning again.

    Attributes:
        path: Its last known path.
        size: Bytes read.
        beginnings: How often reading started at its beginning.
        problem: The reason why it cannot be read, as an unfinished sentence; empty if it can.
    """

    def __init__(self, path: str, make_parser: Callable[[], EventParser]) -> None:
        self.path = path
        self.size = 0
        self.beginnings = 1
        self.problem = ""
        self._make_parser = make_parser
        self.parser = make_parser()
        self._file: BinaryIO | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be read even if it was deleted."""
        return self._file is not None

    def length(self) -> int:
        """Return the present length of an open file."""
        return 0 if self._file is None else os.fstat(self._file.fileno()).st_size

    def read(self, length: int) -> Iterator[list[MetricLog]]:
        """Yield the readings of the new part of the file; a caller that stops early gets the rest next time."""
        if length == self.size or not self._open():
            return
        assert self._file is not None
        if length < self.size:
            yield self.parser.finish()
            self.parser = self._make_parser()
            self.size = 0
            self.beginnings += 1
        try:
            while data := os.pread(self._file.fileno(), CHUNK_BYTES, self.size):
                self.size += len(data)
                yield self.parser.feed(data)
        except OSError as error:
            self.problem = f"{self.path} cannot be read ({error.strerror})"

    def close(self) -> None:
        """Release the file; it is opened again when it grows."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        self.problem = ""
        if self._file is None:
            try:
                self._file = os.fdopen(open_regular(self.path), "rb", buffering=0)
            except FileNotFoundError:  # it was deleted
                return False
            except OSError as error:
                self.problem = f"{self.path} cannot be opened ({error.strerror})"
        return self._file is not None


def open_regular(path: str) -> int:
    """Open a file for reading, without blocking on a named pipe or acquiring a terminal.

    Raises:
        OSError: The file cannot be opened.
    """
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
