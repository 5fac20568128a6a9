"""Process-wide settings that several threads need at the same time.

`warnings.catch_warnings` and limits of thread pools save and restore state that all threads share, so two overlapping
threads can leave it wrong. Here the first thread to enter saves it and the last to leave restores it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any


class SharedContext:
    """Context manager that is entered once, however many threads are inside."""

    def __init__(self, create: Callable[[], AbstractContextManager[Any]]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._depth = 0
        self._inner: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inner is None:
                self._inner = self._create()
                self._inner.__enter__()
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._inner is not None:
                inner, self._inner = self._inner, None
                inner.__exit__(None, None, None)


@contextmanager
def _ignored_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def _thread_pools() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # has no types

    return ThreadpoolController()  # inspects every library of the process, which takes milliseconds


one_thread = SharedContext(lambda: _thread_pools().limit(limits=1))
"""Runs linear algebra on one thread: matrices are small, cores belong to trials, and sums must not depend on cores."""

quiet = SharedContext(_ignored_warnings)
"""Ignores all warnings: a library's advice to programmers does not concern the user of a service."""
