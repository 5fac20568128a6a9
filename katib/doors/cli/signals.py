"""Effect of SIGINT and SIGTERM on a serving process: the first asks it to stop, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def stop_on_signal(stop: Callable[[int], None], exit_code: Callable[[int], int] = lambda _number: 1) -> None:
    """Call `stop` at the first signal; a second one ends the process immediately.

    Args:
        stop: Requests an orderly end and returns at once. Gets the signal number.
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


def survive_hangup(gone: Callable[[], None]) -> None:
    """Let the process survive its terminal; later output to it is lost.

    If SIGHUP is already ignored, as by nohup, nothing changes.

    Args:
        gone: Called after the hangup, on a thread of its own.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    terminals = [descriptor for descriptor in (0, 1, 2) if os.isatty(descriptor)]

    def handle(_number: int, _frame: FrameType | None) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in terminals:
            os.dup2(nothing, descriptor)
        os.close(nothing)
        threading.Thread(target=gone, name="hangup", daemon=True).start()

    signal.signal(signal.SIGHUP, handle)
