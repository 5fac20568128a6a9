"""Marker files: what the shell around a program and the collector write for each other, in the first line.

`<directory>/<process id>.pid` says how far the program has come, `failed` with its exit code behind it.
`<directory>/<process id>.collected` is made by a shell that waits for the collector, for anyone to write: the collector
may be another user without rights to the directory.
"""

from __future__ import annotations

import contextlib
import os
from enum import StrEnum
from pathlib import Path


class Word(StrEnum):
    """What a marker says. `running` and `failed` are ours, the others are Katib's."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    EARLY_STOPPED = "early-stopped"


COMPLETING = "echo completed > "
"""Of the command line of a shell around a program; the directory of its markers follows."""

ENDED_WORDS = frozenset({Word.COMPLETED, Word.FAILED})
"""Said by a shell whose program has ended, though the shell itself may still wait."""


class CollectedWord(StrEnum):
    """What a shell that waits for the collector reads. Anything but `awaited` ends the wait."""

    AWAITED = "awaited"
    STORED = "stored"
    GIVEN_UP = "given-up"


_MAX_BYTES = 64


class Markers:
    """The markers of one directory, which may be full, gone, or written by another program."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> dict[int, str]:
        """Return the words by process, the one written last at the end."""
        times: list[tuple[int, int]] = []
        with contextlib.suppress(OSError):
            paths = [path for path in self._directory.glob("*.pid") if path.stem.isdigit()]
            times = sorted((path.stat().st_mtime_ns, int(path.stem)) for path in paths)
        return {pid: word for _, pid in times if (word := self.word(pid))}

    def word(self, pid: int) -> str:
        """Return the word of one process; empty when it has none."""
        return self._said(pid)[0]

    def exit_code(self, pid: int) -> int | None:
        """Return how a program ended by the word of its shell; None when that one did not say."""
        word, code = self._said(pid)
        if word == Word.COMPLETED:
            return 0
        return int(code) if word == Word.FAILED and code.isascii() and code.isdigit() else None

    def _said(self, pid: int) -> tuple[str, str]:
        try:
            with self._path(pid).open("rb") as file:
                text = file.read(_MAX_BYTES).partition(b"\n")[0].decode(errors="replace").strip()
        except OSError:
            return "", ""
        word, _, code = text.partition(" ")
        return word, code

    def write(self, pid: int, word: Word) -> None:
        """Write a word in place, which needs no room on a full disk; replace a file that belongs to another user.

        Raises:
            OSError: Neither is possible.
        """
        text = f"{word}\n".encode()
        try:
            descriptor = os.open(self._path(pid), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:
            self._path(pid).unlink()
            descriptor = os.open(self._path(pid), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(descriptor, text)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)

    def release(self, word: CollectedWord) -> None:
        """Notify every waiting shell whose program ended well that the collector is done."""
        for pid in [pid for pid, said in self.read().items() if said == Word.COMPLETED]:
            with contextlib.suppress(OSError):
                descriptor = os.open(self._directory / f"{pid}.collected", os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(descriptor, f"{word}\n".encode())
                finally:
                    os.close(descriptor)

    def _path(self, pid: int) -> Path:
        return self._directory / f"{pid}.pid"
