"""How the interpreter is set up for a process that runs controllers."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long a thread may keep others waiting for the interpreter. A change passes through half a dozen threads between
the end of one trial and the start of the next; with the default of 5 ms, a busy thread would cost each of them that."""

GC_THRESHOLDS = (20_000, 20, 50)
"""Cached objects are frozen values without cycles; visiting all of ten thousand trials finds nothing and takes a third
of a second, in the way of everything else. With these numbers it is rare."""


def tune_interpreter() -> None:
    """Fit the interpreter to many short steps of many threads over caches that only grow."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.freeze()  # what was imported stays: the garbage collector need not visit it again
    gc.set_threshold(*GC_THRESHOLDS)
