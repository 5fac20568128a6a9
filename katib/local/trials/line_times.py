"""The output of a container with the time at which each of its lines came."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from katib.local.pods.log_file import RUN_BEGINS, TIME_RECORD, times_of


class Piece(NamedTuple):
    """Some bytes of a log, the open file that they were read from, and where they stand in it."""

    file: BinaryIO
    place: int
    chunk: bytes


class _Times:
    """When the bytes of one file of a log came, as far as that is known.

    Args:
        path: Of the log.
        file: The file, open.

    Attributes:
        begins: Where in it a run of the container begins.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = times_of(path, os.fstat(file.fileno()))
        self._places: list[int] = []
        self._moments: list[int] = []
        self.begins: list[int] = []

    def refresh(self) -> None:
        """Read the records that were written meanwhile."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(len(self._places) * TIME_RECORD.size)
            data = file.read()
            for place, moment in TIME_RECORD.iter_unpack(data[: len(data) - len(data) % TIME_RECORD.size]):
                self._places.append(place)
                self._moments.append(moment & ~RUN_BEGINS)
                if moment & RUN_BEGINS:
                    self.begins.append(place)

    def at(self, place: int) -> int:
        """Return the microsecond since 1970 at which a byte came; 0 where nothing is known."""
        return self._moments[max(0, bisect_right(self._places, place) - 1)] if self._moments else 0


def timed_lines(
    pieces: Iterable[Piece], path: Path, *, since: datetime | None = None, shows: bool = False
) -> Iterator[bytes]:
    """Yield the lines of a log that came at a moment or later.

    Args:
        pieces: What is read of it, in order.
        path: Of the log.
        since: The moment; None: all lines are wanted.
        shows: Whether the time stands before each, in the form of Kubernetes.
    """
    earliest = 0 if since is None else int(since.timestamp() * 1e6)
    current: BinaryIO | None = None
    times: _Times | None = None
    begins, keeps = True, True
    for file, place, chunk in pieces:
        if times is None or file is not current:
            current, times = file, _Times(path, file)
        times.refresh()
        found, start = [], 0
        while start < len(chunk):
            if begins:
                moment = times.at(place + start)
                keeps = moment >= earliest
                if keeps and shows:
                    seconds, fraction = divmod(moment, 1_000_000)
                    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:06}Z "
                    found.append(stamp.encode())
            end = chunk.find(b"\n", start) + 1 or len(chunk)
            found += [chunk[start:end]] if keeps else []
            begins, start = chunk[end - 1 : end] == b"\n", end
        yield b"".join(found)


def previous_run(files: Sequence[BinaryIO], path: Path) -> Iterator[Piece]:
    """Yield what a container printed in the run before its last one, as far as it is kept.

    Args:
        files: Those of its log, open, the oldest first.
        path: Of the log.
    """
    begins: list[tuple[int, int]] = []
    for number, file in enumerate(files):
        times = _Times(path, file)
        times.refresh()
        begins += [(number, place) for place in times.begins]
    first, last = ([(0, 0), *begins] if len(begins) == 1 else begins)[-2:] if begins else ((0, 0), (0, 0))
    for number, file in enumerate(files[: last[0] + 1]):
        start = first[1] if number == first[0] else 0
        if number >= first[0]:
            file.seek(start)
            yield Piece(file, start, file.read(last[1] - start if number == last[0] else -1))
