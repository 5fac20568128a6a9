"""A store that fails when told to: crashes between any two writes, conflicts, lost connections.

It wraps a real store, so everything but the fault is real. A fault strikes before a call (nothing happened) or after it
(it happened and the caller never learned).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from katib.engine.runtime.objects import Key, Kind, NotifyingWatch, Object, ObjectList, ObjectStore, Watch, WatchEvent

R = TypeVar("R")

WRITES = frozenset({"create", "update", "patch", "update_status", "delete"})


class Crash(BaseException):
    """The process dies here. No handler of ours catches it, as none would catch a kill."""


@dataclass(frozen=True, slots=True)
class Call:
    """A moment at which a fault may strike.

    Attributes:
        verb: `get`, `list`, `create`, `update`, `patch`, `update_status`, `delete`, `watch`, or `next` (of a watch).
        kind: Which kind.
        key: Which object; None for calls about many.
        write_number: How many writes were begun, this one included; 0 before the first.
        before: True before the call takes effect, False after.
    """

    verb: str
    kind: Kind
    key: Key | None
    write_number: int
    before: bool


FailOn = Callable[[Call], BaseException | None]
"""Returns what to raise at a moment, or None to let it pass. Called from any thread."""


def crash_around_write(number: int, *, before: bool) -> FailOn:
    """Return a fault that strikes right before or right after the n-th write, counted from 1."""

    def fail_on(call: Call) -> BaseException | None:
        hit = call.verb in WRITES and call.write_number == number and call.before == before
        return Crash(f"{'before' if before else 'after'} write {number}: {call.verb} {call.key}") if hit else None

    return fail_on


class FaultyStore:
    """A store around a store. `fail_on` may be replaced at any time."""

    def __init__(self, inner: ObjectStore, fail_on: FailOn = lambda _call: None) -> None:
        self.fail_on = fail_on
        self.write_count = 0
        self._inner = inner
        self._writes = itertools.count(1)

    def get(self, kind: Kind, key: Key) -> Object:
        return self._call("get", kind, key, lambda: self._inner.get(kind, key))

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        owner_uid: str | None = None,
    ) -> ObjectList:
        return self._call(
            "list", kind, None, lambda: self._inner.list(kind, namespace, labels=labels, owner_uid=owner_uid)
        )

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        self.strike("list", kind, None, before=True)
        for page in self._inner.pages(kind, namespace, labels=labels):
            yield page
            del page
            self.strike("list", kind, None, before=False)

    def create(self, obj: Object) -> Object:
        return self._call("create", *_named(obj), lambda: self._inner.create(obj))

    def update(self, obj: Object) -> Object:
        return self._call("update", *_named(obj), lambda: self._inner.update(obj))

    def patch(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        return self._call("patch", *_named(obj), lambda: self._inner.patch(obj, changes))

    def update_status(self, obj: Object) -> Object:
        return self._call("update_status", *_named(obj), lambda: self._inner.update_status(obj))

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        self._call("delete", kind, key, lambda: self._inner.delete(kind, key, uid=uid))

    def watch(self, kind: Kind, since: str) -> Watch:
        return self._call("watch", kind, None, lambda: _FaultyWatch(self, kind, self._inner.watch(kind, since)))

    def strike(self, verb: str, kind: Kind, key: Key | None, *, before: bool) -> None:
        """Raise if a fault is due."""
        error = self.fail_on(Call(verb, kind, key, self.write_count, before))
        if error is not None:
            raise error

    def _call(self, verb: str, kind: Kind, key: Key | None, action: Callable[[], R]) -> R:
        if verb in WRITES:
            self.write_count = next(self._writes)
        self.strike(verb, kind, key, before=True)
        result = action()
        self.strike(verb, kind, key, before=False)
        return result


def _named(obj: Object) -> tuple[Kind, Key | None]:
    """Return what an object says it is; what is not an object is for the real store to refuse."""
    try:
        return Kind.of(obj), Key.of(obj)
    except AttributeError:
        return Kind("", ""), None


class _FaultyWatch:
    def __init__(self, store: FaultyStore, kind: Kind, inner: Watch) -> None:
        self._store = store
        self._kind = kind
        self._inner = inner

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        self._store.strike("next", self._kind, None, before=True)
        event = self._inner.next(timeout_seconds)
        self._store.strike("next", self._kind, Key.of(event.object) if event else None, before=False)
        return event

    def tell(self, on_change: Callable[[], None]) -> None:
        assert isinstance(self._inner, NotifyingWatch)
        self._inner.tell(on_change)

    def take(self) -> Iterator[WatchEvent]:
        while (event := self.next(0.0)) is not None:
            yield event

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
