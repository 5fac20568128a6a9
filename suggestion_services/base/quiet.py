"""Silence for libraries that warn their programmer about what is no news to ours.

`warnings.catch_warnings` saves and restores a list that all threads share, so two threads that overlap can leave it
wrong. Here the first to enter saves it and the last to leave restores it.
"""

from __future__ import annotations

import threading
import warnings
from types import TracebackType


class _Quiet:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._saved = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._saved = warnings.catch_warnings()
                self._saved.__enter__()
                warnings.simplefilter("ignore")
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._saved.__exit__(kind, error, traceback)


quiet = _Quiet()
"""`with quiet:` ignores all warnings, of all threads, until the last block has ended."""
