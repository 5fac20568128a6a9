"""Waiting at the start for an API server that is away.

A process that ends instead is started again by the kubelet, with pauses that grow to minutes. It needs no client
library.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeVar

from katib.backoff import Backoff
from katib.errors import KatibError, UnavailableError

T = TypeVar("T")

BACKOFF = Backoff(0.5, 5.0, jitter=0.5)

_log = logging.getLogger(__name__)


def await_answer(
    ask: Callable[[], T],
    pause: Callable[[float], bool],
    outages: tuple[type[KatibError], ...] = (UnavailableError,),
) -> T | None:
    """Return the first answer; None when a pause was ended before there was one.

    Args:
        ask: Asks once.
        pause: Waits for so many seconds; returns whether to give up, as `threading.Event.wait` does.
        outages: What it raises while there is no answer.
    """
    failures, reported = 0, ""
    while True:
        try:
            answer = ask()
        except outages as error:
            failures += 1
            if str(error) != reported:
                reported = str(error)
                _log.warning("Waiting for the API server: %s", reported)
        else:
            if failures:
                _log.info("The API server answers")
            return answer
        if pause(BACKOFF.pause_seconds(failures, random.random())):
            return None
