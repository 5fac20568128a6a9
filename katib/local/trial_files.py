"""What trials leave on disk: the output of their containers, by pod."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from katib.checkpoint_folders import remove_checkpoint
from katib.errors import NotFoundError
from katib.local.layout import Layout
from katib.local.pods.pod import RECORD_FILE
from katib.runtime.objects import Key, Object

_CHUNK_BYTES = 64 << 10
_POLL_SECONDS = 0.1
"""How often a followed file is looked at: quick to the eye, nothing to the machine."""


class TrialFiles:
    """Reads and removes the files of trials. Fits `katib.tuning.ports.TrialOutput`. Thread-safe."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def directory(self, trial: Key) -> Path:
        """Return the directory of a trial."""
        return self._layout.trial(trial.namespace, trial.name)

    def log_file(self, trial: Key, container: str) -> Path | None:
        """Return the output of a container in the newest pod of a trial, None when it never ran."""
        found = sorted(self.directory(trial).glob(f"*/{container}.log"), key=lambda path: path.stat().st_mtime)
        return found[-1] if found else None

    def read(
        self,
        trial: Object,
        *,
        follow: Callable[[], bool] | None = None,
        tail_lines: int | None = None,
    ) -> Iterator[bytes]:
        """Yield the output of a trial's primary container in chunks.

        Args:
            trial: The Trial object.
            follow: Tells whether more may come; None: what is there now is all.
            tail_lines: Only so many last lines of what is there now.

        Raises:
            NotFoundError: It never ran here, or its files were removed.
        """
        key, container = Key.of(trial), _primary_container(trial)
        path = self.log_file(key, container)
        if path is not None:
            return self._chunks(path, follow, tail_lines)
        if follow is not None and follow():
            return self._awaited_chunks(key, container, follow, tail_lines)
        raise _no_output(key, container)

    def tail(self, trial: Object, lines: int) -> tuple[str, ...]:
        """Return the last lines of the primary container's output; none when it never ran."""
        path = self.log_file(Key.of(trial), _primary_container(trial))
        if path is None:
            return ()
        data = b"".join(self._chunks(path, None, lines))
        return tuple(data.decode(errors="replace").splitlines())

    def program(self, trial: Object) -> str:
        """Return the full path of the program that the primary container ran last, empty when unknown."""
        container = _primary_container(trial)
        path = self.log_file(Key.of(trial), container)
        if path is None:
            return ""
        try:
            processes = json.loads((path.parent / RECORD_FILE).read_text())["processes"]
            return next((str(p["program"]) for p in reversed(processes) if p["container"] == container), "")
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def remove(self, trial: Key) -> None:
        """Remove the files of a trial that is gone, and with the last one of an experiment its directory."""
        shutil.rmtree(self.directory(trial), ignore_errors=True)
        for folder in self._layout.checkpoints.glob(f"{trial.namespace}/*/"):
            remove_checkpoint(folder / trial.name)
            with contextlib.suppress(OSError):  # others are in it
                folder.rmdir()

    def _awaited_chunks(
        self, trial: Key, container: str, more: Callable[[], bool], tail_lines: int | None
    ) -> Iterator[bytes]:
        """Wait until there is a file. Empty chunks meanwhile let a reader who has gone away be noticed."""
        goes_on = True
        while (path := self.log_file(trial, container)) is None:
            if not goes_on:
                raise _no_output(trial, container)
            yield b""
            time.sleep(_POLL_SECONDS)
            goes_on = more()
        yield from self._chunks(path, more, tail_lines)

    def _chunks(self, path: Path, follow: Callable[[], bool] | None, tail_lines: int | None) -> Iterator[bytes]:
        with path.open("rb") as file:
            if tail_lines is not None:
                file.seek(_start_of_tail(path, tail_lines))
            while True:
                goes_on = follow is not None and follow()  # asked first: what is written before the end is read below
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
                if not goes_on:
                    return
                time.sleep(_POLL_SECONDS)
                yield b""  # lets a reader who has gone away be noticed while nothing is printed


def _no_output(trial: Key, container: str) -> NotFoundError:
    return NotFoundError(f'trial "{trial.name}" has no output: container "{container}" has not run here')


def _primary_container(trial: Object) -> str:
    name: str = trial["spec"].get("primaryContainerName", "")
    return name


def _start_of_tail(path: Path, lines: int) -> int:
    """Return where the last lines begin, reading backwards so that a huge file costs nothing."""
    if lines <= 0:
        return path.stat().st_size
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        found = 0
        while position > 0:
            start = max(position - _CHUNK_BYTES, 0)
            file.seek(start)
            block = file.read(position - start)
            stop = len(block) - 1 if position == end and block.endswith(b"\n") else len(block)
            while (stop := block.rfind(b"\n", 0, stop)) >= 0:
                found += 1
                if found == lines:
                    return start + stop + 1
            position = start
    return 0
