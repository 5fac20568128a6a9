"""What an informer remembers: decoded objects by key, found by index at a cost proportional to the answer.

Of what can be packed, the newest are kept as they are and all others packed: a cache of 30,000 that are no longer
read has to fit into memory, and unpacking one costs less than a call of the store.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar, overload, runtime_checkable

from msgspec import Struct

from katib.runtime.objects import Key, Object

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[Hashable]]
"""Returns the index values under which an object is found. Must be pure."""

Pack = Callable[[Object, T], Callable[[], T] | None]
"""Returns a function that restores the decoded object, from little memory and on any thread; None: kept as it is."""


@runtime_checkable
class Packer(Protocol[T]):
    """A decoder that can make decoded objects small."""

    def __call__(self, obj: Object, /) -> T:
        """Return the decoded object."""

    def pack(self, obj: Object, value: T, /) -> Callable[[], T] | None:
        """Return a function that restores a decoded object, as `Pack` says."""


KEPT_UNPACKED = 2_000
"""How many of what can be packed are kept as they are, the newest: what is read again and again is mostly young."""


class Entry(Struct, Generic[T], eq=False, gc=False):
    """One remembered object. There is one for each of a hundred thousand, so they are small.

    Attributes:
        value: The decoded object; None while only its packed form is kept.
        recall: Restores it from the packed form; None where there is none.
        order: Its place among the others, given to it by `IndexedCache.put`.
    """

    key: Key
    uid: str
    resource_version: str
    value: T | None
    recall: Callable[[], T] | None
    index_values: Mapping[str, tuple[Hashable, ...]]
    order: int = 0

    def load(self) -> T:
        """Return the decoded object."""
        value = self.value
        if value is not None or self.recall is None:
            return value  # type: ignore[return-value] # it is only taken away where it can be recalled
        return self.recall()

    def pack(self) -> None:
        """Keep the packed form only, where there is one."""
        if self.recall is not None:
            self.value = None


class Values(Sequence[T]):
    """Objects of a cache as they are now; what is packed is unpacked when it is looked at, and not kept."""

    def __init__(self, entries: tuple[Entry[T], ...] = ()) -> None:
        self._entries = entries

    def followed_by(self, others: Iterable[T]) -> Values[T]:
        """Return these objects and then others, which have neither uid nor revision."""
        return Values((*self._entries, *(Entry(Key("", ""), "", "", other, None, {}) for other in others)))

    def versions(self) -> Iterator[tuple[str, str, Callable[[], T]]]:
        """Yield uid and revision of each object, and what returns it."""
        return ((entry.uid, entry.resource_version, entry.load) for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        return (entry.load() for entry in self._entries)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Values[T]: ...

    def __getitem__(self, index: int | slice) -> T | Values[T]:
        return Values(self._entries[index]) if isinstance(index, slice) else self._entries[index].load()


class _Bucket(Generic[T]):
    """The entries that share an index value; sorted by creation when they are read, if they came in another order."""

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

    def values(self) -> Values[T]:
        if not self._in_order:
            self.entries = {entry.key: entry for entry in sorted(self.entries.values(), key=lambda entry: entry.order)}
            self._in_order = True
        return Values(tuple(self.entries.values()))


class IndexedCache(Generic[T]):
    """Decoded objects with indexes, in order of creation. Not thread-safe: its informer guards it.

    Attributes:
        entries: All of them by key, for reading; `put` and `remove` change them.
    """

    def __init__(self, indexes: Mapping[str, IndexFunction[T]]) -> None:
        self._index_functions = dict(indexes)
        self.entries: dict[Key, Entry[T]] = {}
        self._buckets: dict[str, dict[Hashable, _Bucket[T]]] = {name: {} for name in indexes}
        self._created = 0
        self._unpacked: deque[Entry[T]] = deque()
        self._last_index_values: Mapping[str, tuple[Hashable, ...]] = {}

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(tuple(self.entries.values()))

    def all(self) -> Values[T]:
        """Return all objects."""
        return Values(tuple(self.entries.values()))

    def by_index(self, name: str, value: Hashable) -> Values[T]:
        """Return the objects with an index value."""
        bucket = self._buckets[name].get(value)
        return bucket.values() if bucket else Values()

    def count_by_index(self, name: str, value: Hashable) -> int:
        """Return how many objects have an index value, without touching them."""
        bucket = self._buckets[name].get(value)
        return len(bucket.entries) if bucket else 0

    def entry(
        self, key: Key, uid: str, resource_version: str, value: T, recall: Callable[[], T] | None = None
    ) -> Entry[T]:
        """Return an entry for `put`; an index function that fails does so here, before any change."""
        index_values = self._last_index_values
        if self._index_functions:
            index_values = {name: tuple(function(value)) for name, function in self._index_functions.items()}
        if index_values != self._last_index_values:  # those of neighbours are mostly the same, and kept once
            self._last_index_values = index_values
        old = self.entries.get(key)
        if old is not None and old.uid == uid:
            key, uid = old.key, old.uid  # equal texts of each revision would be kept beside each other
        else:
            key = Key(sys.intern(key.namespace), key.name)
        return Entry(key, uid, resource_version, value, recall, self._last_index_values)

    def put(self, entry: Entry[T]) -> None:
        """Remember an object in place of what the key had; what is new comes after all others."""
        old = self.entries.get(entry.key)
        if old is None:
            self._created += 1
        entry.order = old.order if old else self._created
        self.entries[entry.key] = entry
        if entry.recall is not None:
            self._unpacked.append(entry)
            if len(self._unpacked) > KEPT_UNPACKED:
                self._unpacked.popleft().pack()
        for name, values in entry.index_values.items():
            buckets = self._buckets[name]
            for value in values:
                if (bucket := buckets.get(value)) is None:
                    bucket = buckets[value] = _Bucket()
                bucket.put(entry)
            if old and old.index_values[name] != values:
                self._leave(name, entry.key, set(old.index_values[name]).difference(values))

    def remove(self, key: Key) -> None:
        """Forget an object."""
        old = self.entries.pop(key)
        for name, values in old.index_values.items():
            self._leave(name, key, values)

    def _leave(self, name: str, key: Key, values: Iterable[Hashable]) -> None:
        buckets = self._buckets[name]
        for value in set(values):
            bucket = buckets[value]
            del bucket.entries[key]
            if not bucket.entries:
                del buckets[value]
