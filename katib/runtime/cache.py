"""What an informer remembers: decoded objects by key, found by index at a cost proportional to the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from katib.runtime.objects import Key

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""Returns the index values under which an object is found. Must be pure."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One remembered object."""

    key: Key
    uid: str
    resource_version: str
    order: int
    value: T
    index_values: Mapping[str, tuple[str, ...]]


class _Bucket(Generic[T]):
    """The entries that share an index value; sorted by creation only when somebody looks after disorder."""

    __slots__ = ("_in_order", "_last", "entries")

    def __init__(self) -> None:
        self.entries: dict[Key, Entry[T]] = {}
        self._in_order = True
        self._last = -1

    def put(self, entry: Entry[T]) -> None:
        if entry.key not in self.entries:
            self._in_order = self._in_order and entry.order > self._last
            self._last = max(self._last, entry.order)
        self.entries[entry.key] = entry

    def values(self) -> tuple[T, ...]:
        if not self._in_order:
            self.entries = {entry.key: entry for entry in sorted(self.entries.values(), key=lambda entry: entry.order)}
            self._in_order = True
        return tuple([entry.value for entry in self.entries.values()])


class IndexedCache(Generic[T]):
    """Decoded objects with indexes, in order of creation. Not thread-safe: its informer guards it."""

    def __init__(self, indexes: Mapping[str, IndexFunction[T]]) -> None:
        self._index_functions = dict(indexes)
        self._entries: dict[Key, Entry[T]] = {}
        self._buckets: dict[str, dict[str, _Bucket[T]]] = {name: {} for name in indexes}
        self._created = 0

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(tuple(self._entries.values()))

    def find(self, key: Key) -> Entry[T] | None:
        """Return the entry of a key."""
        return self._entries.get(key)

    def all(self) -> tuple[T, ...]:
        """Return all objects."""
        return tuple([entry.value for entry in self._entries.values()])

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """Return the objects with an index value."""
        bucket = self._buckets[name].get(value)
        return bucket.values() if bucket else ()

    def count_by_index(self, name: str, value: str) -> int:
        """Return how many objects have an index value, without touching them."""
        bucket = self._buckets[name].get(value)
        return len(bucket.entries) if bucket else 0

    def entry(self, key: Key, uid: str, resource_version: str, value: T) -> Entry[T]:
        """Return the entry that `put` would take; an index function that fails does so here, before any change."""
        old = self._entries.get(key)
        if old is None:
            self._created += 1
        return Entry(
            key,
            uid,
            resource_version,
            old.order if old else self._created,
            value,
            {name: tuple(function(value)) for name, function in self._index_functions.items()},
        )

    def put(self, entry: Entry[T]) -> None:
        """Remember an object in place of what the key had."""
        old = self._entries.get(entry.key)
        self._entries[entry.key] = entry
        for name, values in entry.index_values.items():
            buckets = self._buckets[name]
            for value in values:
                buckets.setdefault(value, _Bucket()).put(entry)
            if old and old.index_values[name] != values:
                self._leave(name, entry.key, set(old.index_values[name]).difference(values))

    def remove(self, key: Key) -> None:
        """Forget an object."""
        old = self._entries.pop(key)
        for name, values in old.index_values.items():
            self._leave(name, key, values)

    def _leave(self, name: str, key: Key, values: Iterable[str]) -> None:
        buckets = self._buckets[name]
        for value in set(values):
            bucket = buckets[value]
            del bucket.entries[key]
            if not bucket.entries:
                del buckets[value]
