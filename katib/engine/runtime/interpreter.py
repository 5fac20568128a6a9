"""Interpreter settings for a process that runs controllers."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long a thread may block others from the interpreter. A change passes through half a dozen threads between the end
of one trial and the start of the next; with the default of 5 ms, a busy thread would delay each of them by that."""

GC_THRESHOLDS = (20_000, 20, 50)
"""Cached objects are frozen values without cycles; visiting all of ten thousand trials finds nothing and takes a third
of a second, during which everything else waits. With these numbers it is rare."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt(3)."""
_LARGE_BYTES = 131_072
"""Larger blocks (columns, responses) are returned to the system when freed. By default this bound grows with the
largest freed block, up to 32 MB, and each of 16 heaps keeps what its threads once needed: twenty open pages and one
client that read 100,000 trials as JSON left a server 80 MB larger than with these settings."""


def tune_interpreter() -> None:
    """Tune the interpreter for many short steps of many threads over caches that only grow."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    with suppress(OSError, AttributeError):  # C libraries other than glibc lack it
        set_parameter = ctypes.CDLL(None).mallopt
        for name, value in ((_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _LARGE_BYTES), (_ARENA_MAX, 1)):
            set_parameter(name, value)
    gc.freeze()  # imported objects stay: the garbage collector need not visit them again
    gc.set_threshold(*GC_THRESHOLDS)
