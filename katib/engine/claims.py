"""Which data directories this process works on.

An engine of another process is found by the record it leaves (`katib.processes.remains`). Within one process that
record says nothing, and a second engine, as of a second call of `katib.tune` in another thread, would take the first
one's processes for remains and end them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from katib.errors import TerminalError

_lock = threading.Lock()
_claimed: set[Path] = set()


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Hold a data directory.

    Raises:
        TerminalError: Another engine of this process holds it.
    """
    place = directory.resolve()
    with _lock:
        if place in _claimed:
            raise TerminalError(f"another engine of this process is at work in {directory}; end it or choose another")
        _claimed.add(place)
    try:
        yield
    finally:
        with _lock:
            _claimed.discard(place)
