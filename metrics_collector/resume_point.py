"""How far a collector has come, kept for the one that is started after it in the same pod.

A restarted collector reads the file from its beginning, which rebuilds the early stopping rules and the explanation,
and hands on only what is not stored yet. The resume point says how many readings of the file are settled. It is written
before each report and after it. A report whose end it does not know is sent again: its readings are numbered, and
stored once. A DB manager that takes no numbers is asked for its first reading instead: reports are all or none.

The record has a fixed size and is written over itself by one call, so that a collector that is killed leaves the old
one or the new one, also on a full disk.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from metrics_collector.sources import Position

_RECORD_BYTES = 4096
"""One page: a write of it is not cut in two by the end of the process."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A report that was under way.

    Attributes:
        count: Its readings.
        time: Of its first reading, as on the wire.
        name: Of its first reading.
        digest: Of the value of its first reading, which may be long.
        earlier: How many readings stored before it are equal to that one.
    """

    count: int
    time: str
    name: str
    digest: str
    earlier: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What a collector has done.

    Attributes:
        device: Of the metrics file.
        inode: Of the metrics file; it and the device identify it.
        size: Bytes read of the file.
        settled: Readings of the file that are stored or refused for good; negative while some of a file before it are
            neither.
        refused: Readings refused for good, of all files.
        doubt: The report under way.
        is_ordered: Whether reading the same once more gives the same readings in the same order, so that a number says
            which of them are settled.
        reporter: Under which name the readings are numbered.
        origin: Number of the first reading of the file.
    """

    device: int = 0
    inode: int = 0
    size: int = 0
    settled: int = 0
    refused: int = 0
    doubt: Doubt | None = None
    is_ordered: bool = True
    reporter: str = ""
    origin: int = 0

    def continues(self, position: Position) -> bool:
        """Return whether a file, as it is now, is the one that was read and has only grown since."""
        return (position.device, position.inode) == (self.device, self.inode) and position.length >= self.size


class ResumePoint:
    """The file of one collector. What cannot be written is not kept; it is said once.

    Args:
        path: The file; None: nothing is kept, where a collector that is started again would not find it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._is_broken = False

    def load(self) -> Progress | None:
        """Return what was kept; None when there is nothing, or nothing that can be read."""
        if self._path is None:
            return None
        try:
            found = json.loads(self._path.read_bytes())
            doubt = found.pop("doubt")
            found.pop("stops", None)  # which an earlier version kept
            return Progress(**found, doubt=Doubt(**doubt) if doubt else None)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _logger.warning("what was stored before is not known, %s cannot be read: %s", self._path, error)
            return None

    def save(self, progress: Progress) -> None:
        """Keep how far the collector is."""
        if self._path is None:
            return
        record = json.dumps(asdict(progress)).encode().ljust(_RECORD_BYTES - 1) + b"\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, descriptor)
                os.pwrite(descriptor, record, 0)
        except OSError as error:
            if not self._is_broken:
                _logger.warning("a restart may store readings twice, %s cannot be written: %s", self._path, error)
            self._is_broken = True
