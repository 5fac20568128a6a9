"""The one way in which tests wait: for a condition, with a limit that only a broken program reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""Far more than anything needs on a quiet machine: a test that waits in vain fails anyway, a busy machine must not."""


def eventually(
    check: Callable[[], T],
    what: str = "a condition",
    *,
    seconds: float = PATIENCE_SECONDS,
    every: float = 0.005,
    picture: Callable[[], str] = lambda: "",
) -> T:
    """Return the first answer of a check that is true; fail with its last one when there is none in time.

    Args:
        check: Asked again and again.
        what: What the test waits for, for the failure.
        seconds: The limit. Give one only where being late is the fault that the test looks for.
        every: The pause between two questions at first; later a twentieth of the time waited, up to 0.1 s.
        picture: Called at the failure for a view of the world to add to it.
    """
    started = time.monotonic()
    while not (answer := check()):
        waited = time.monotonic() - started
        if waited > seconds:
            raise AssertionError(f"still {answer!r} after {seconds:g} s of waiting for {what}\n{picture()}")
        time.sleep(max(every, min(waited / 20, 0.1)))
    return answer


def never(check: Callable[[], object], *, seconds: float = 0.2) -> None:
    """Fail when a check comes true within a while; a busy machine can only hide the fault, not invent one."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not (answer := check()), f"came true: {answer!r}"
        time.sleep(0.005)


def end_of(log: Path) -> Callable[[], str]:
    """Return the view of a log to add to a failure: its last lines."""
    return lambda: log.read_text(errors="replace")[-2000:]
