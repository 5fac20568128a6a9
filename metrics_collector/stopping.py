"""Ending a program early: politely, then firmly."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from metrics_collector.markers import Word
from metrics_collector.program import Program


class Stop:
    """An early stop under way. The wrapping shells are left alone: they end, and end well, when the program has.

    Args:
        program: What to stop.
        grace_seconds: Between SIGTERM and SIGKILL.
        monotonic: Reads time.
    """

    def __init__(self, program: Program, grace_seconds: float, monotonic: Callable[[], float]) -> None:
        self._program = program
        self._grace_seconds = grace_seconds
        self._monotonic = monotonic
        self._began = monotonic()

    def begin(self) -> str:
        """Mark the program and ask all its processes to end; return why that is not possible, empty when it is."""
        try:
            for shell in self._program.shells:
                self._program.markers.write(shell.pid, Word.EARLY_STOPPED)
            self._signal(signal.SIGTERM)
        except OSError as error:
            for shell in self._program.shells:
                with contextlib.suppress(OSError):
                    self._program.markers.write(shell.pid, Word.RUNNING)
            return error.strerror or type(error).__name__
        self._began = self._monotonic()
        return ""

    def insist(self) -> None:
        """End what is left by force once the grace period is over."""
        if self._monotonic() - self._began >= self._grace_seconds:
            with contextlib.suppress(OSError):
                self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._program.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
