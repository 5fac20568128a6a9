"""The progress of a collector, kept for its successor in the same pod.

A restarted collector reads the file from its beginning, which rebuilds the early stopping rules and the explanation,
and reports only readings that are not stored yet. The resume point holds the number of settled readings of the file. It
is written before and after each report. A report with an unknown outcome is repeated: its readings are numbered, and
stored once. A DB manager without support for numbers is queried for its first reading instead: reports are atomic.

The record has a fixed size and is overwritten by one call, so that a killed collector leaves the old record or the new
one, even on a full disk.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from metrics_collector.sources import ReadPosition

_RECORD_BYTES = 4096
"""One page: the end of the process does not split a write of it."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UncertainReport:
    """A report with an unknown outcome.

    Attributes:
        time: Time of its first reading, as on the wire.
        name: Metric of its first reading.
        digest: Digest of the value of its first reading, which may be long.
        earlier: Number of earlier stored readings equal to that one.
    """

    count: int
    time: str
    name: str
    digest: str
    earlier: int


@dataclass(frozen=True, slots=True)
class CollectorProgress:
    """Progress of a collector.

    Attributes:
        inode: Inode of the metrics file; together with the device its identity.
        size: Bytes read of the file.
        settled: Readings of the file that are stored or refused permanently; negative while some of an earlier file are
            neither.
        refused: Readings refused permanently, of all files.
        doubt: The report in progress.
        is_ordered: Whether reading again gives the same readings in the same order, so that a number identifies the
            settled ones.
        reporter: Name under which the readings are numbered.
        origin: Number of the first reading of the file.
    """

    device: int = 0
    inode: int = 0
    size: int = 0
    settled: int = 0
    refused: int = 0
    doubt: UncertainReport | None = None
    is_ordered: bool = True
    reporter: str = ""
    origin: int = 0

    def continues(self, position: ReadPosition) -> bool:
        """Whether the file is the one that was read and has only grown since."""
        return (position.device, position.inode) == (self.device, self.inode) and position.length >= self.size


class ResumePoint:
    """The file of one collector. A write error is logged once, and the progress is not kept.

    Args:
        path: The file; None: nothing is kept, since a restarted collector would not find it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._is_broken = False

    def load(self) -> CollectorProgress | None:
        """Return the stored progress; None if there is none, or it is unreadable."""
        if self._path is None:
            return None
        try:
            found = json.loads(self._path.read_bytes())
            doubt = found.pop("doubt")
            found.pop("stops", None)  # written by an earlier version
            return CollectorProgress(**found, doubt=UncertainReport(**doubt) if doubt else None)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _logger.warning("earlier progress is unknown, %s cannot be read: %s", self._path, error)
            return None

    def save(self, progress: CollectorProgress) -> None:
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
