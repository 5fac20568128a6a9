"""A store and logs that take writes only while we lead: a frozen controller must not act on what it knew before."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from katib.controllers.ports import TrialLogs
from katib.errors import UnavailableError
from katib.runtime.objects import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


def _fenced(call: Callable[P, R], may_write: Callable[[], bool]) -> Callable[P, R]:
    """Return a call that raises UnavailableError while we may not write."""

    @wraps(call)
    def fenced(*args: P.args, **kwargs: P.kwargs) -> R:
        if not may_write():
            raise UnavailableError("this controller does not lead any more; another one goes on")
        return call(*args, **kwargs)

    return fenced


class FencedStore:
    """Fits `ObjectStore`. Reads pass; writes raise UnavailableError while `may_write` says no."""

    def __init__(self, store: ObjectStore, may_write: Callable[[], bool]) -> None:
        self.get, self.list, self.pages, self.watch = store.get, store.list, store.pages, store.watch
        self.create = _fenced(store.create, may_write)
        self.update = _fenced(store.update, may_write)
        self.patch = _fenced(store.patch, may_write)
        self.update_status = _fenced(store.update_status, may_write)
        self.delete = _fenced(store.delete, may_write)


class FencedLogs:
    """Fits `katib.controllers.ports.TrialLogs`. Reads pass; the rest raises UnavailableError in the same way.

    No store compares and sets here: one that woke up late would remove readings of a job that another controller
    started.
    """

    def __init__(self, logs: TrialLogs, may_write: Callable[[], bool]) -> None:
        self.summarize = logs.summarize
        self.begin = _fenced(logs.begin, may_write)
        self.end = _fenced(logs.end, may_write)
        self.delete = _fenced(logs.delete, may_write)
