"""A store that takes writes only while we lead: a frozen controller must not act on what it knew before."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from katib.errors import UnavailableError
from katib.runtime.objects import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


def check_leading(may_write: Callable[[], bool]) -> None:
    """Raise UnavailableError while we may not write."""
    if not may_write():
        raise UnavailableError("this controller does not lead any more; another one goes on")


def _fenced(call: Callable[P, R], may_write: Callable[[], bool]) -> Callable[P, R]:
    """Return a call that raises UnavailableError while we may not write."""

    @wraps(call)
    def fenced(*args: P.args, **kwargs: P.kwargs) -> R:
        check_leading(may_write)
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
