"""What SIGINT and SIGTERM do to a process that serves: the first asks it to stop, the second ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType


def stop_on_signal(stop: Callable[[int], None], exit_code: Callable[[int], int] = lambda _number: 1) -> None:
    """Call `stop` at the first signal; a second one ends the process immediately.

    Args:
        stop: Asks for an orderly end and returns at once. Gets the number of the signal.
        exit_code: Returns what the process ends with when a signal comes again.
    """
    stopping = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            os._exit(exit_code(number))
        stopping = True
        stop(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
