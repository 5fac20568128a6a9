"""What SIGINT and SIGTERM do to a process that serves: the first asks it to stop, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
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


def survive_hangup(gone: Callable[[], None]) -> None:
    """Let the process go on when its terminal goes: what it prints there afterwards is lost.

    Where SIGHUP is ignored already, as by nohup, nothing changes.

    Args:
        gone: Called when it happened, on a thread of its own.
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
