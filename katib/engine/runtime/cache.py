"""Cache of an informer: decoded objects by key, and in groups at a cost proportional to the result.

Of objects that can be packed, the newest are kept decoded and all others packed: a cache of 30,000 objects that are
rarely read must fit into memory, and unpacking one costs less than a call of the store.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Generic, Protocol, TypeVar, overload, runtime_checkable

from msgspec import Struct, field

from katib.engine.runtime.objects import Key, Object

T = TypeVar("T")

GroupOf = Callable[[T], Hashable]
"""Returns the group of an object, such as its owner; None for no group. Pure."""

Pack = Callable[[Object, T], Callable[[], T] | None]
"""Returns a compact loader of the decoded object, callable on any thread; None to keep it decoded."""


@runtime_checkable
class PackingDecoder(Protocol[T]):
    """A decoder that can pack decoded objects."""

    def __call__(self, obj: Object, /) -> T:
        """Return the decoded object."""

    def adopt(self, struct: T, /) -> T:
        """Return the object that a store has decoded, in the form of this decoder; the argument is not changed."""

    def pack(self, obj: Object, value: T, /) -> Callable[[], T] | None:
        """Return a loader of the decoded object; see `Pack`."""


KEPT_UNPACKED = 2_000
"""Number of packable objects kept decoded, the newest: most repeated reads are of recent objects."""


class CacheEntry(Struct, Generic[T], eq=False, gc=False):
    """One cached object. Small, as there may be a hundred thousand.

    Attributes:
        value: The decoded object; None while only its packed form is kept.
        recall: Loads it from the packed form; None if there is none.
        group: Its group; None for no group.
        order: Its position, assigned by `GroupedCache.put`.
    """

    key: Key
    uid: str
    resource_version: str
    value: T | None
    recall: Callable[[], T] | None
    group: Hashable = None
    order: int = 0

    def load(self) -> T:
        value = self.value
        if value is not None or self.recall is None:
            return value  # type: ignore[return-value] # it is only dropped if it can be recalled
        return self.recall()

    def pack(self) -> None:
        """Keep only the packed form, if there is one."""
        if self.recall is not None:
            self.value = None


class CacheSnapshot(Sequence[T]):
    """Snapshot of objects of a cache; a packed one is unpacked on each access, and not kept."""

    def __init__(self, entries: tuple[CacheEntry[T], ...] = ()) -> None:
        self._entries = entries

    def followed_by(self, others: Iterable[T]) -> CacheSnapshot[T]:
        """Return these objects followed by others, which have neither uid nor revision."""
        return CacheSnapshot((*self._entries, *(CacheEntry(Key("", ""), "", "", other, None) for other in others)))

    def versions(self) -> Iterator[tuple[str, str, Callable[[], T]]]:
        """Yield uid, revision and loader of each object."""
        return ((entry.uid, entry.resource_version, entry.load) for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        return (entry.load() for entry in self._entries)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> CacheSnapshot[T]: ...

    def __getitem__(self, index: int | slice) -> T | CacheSnapshot[T]:
        return CacheSnapshot(self._entries[index]) if isinstance(index, slice) else self._entries[index].load()


class _Group(Struct, Generic[T]):
    """Entries of one group; sorted by creation on read if they arrived in another order."""

    entries: dict[Key, CacheEntry[T]] = field(default_factory=dict)
    in_order: bool = True
    last: int = -1

    def values(self) -> CacheSnapshot[T]:
        if not self.in_order:
            self.entries = {entry.key: entry for entry in sorted(self.entries.values(), key=attrgetter("order"))}
            self.in_order = True
        return CacheSnapshot(tuple(self.entries.values()))


class GroupedCache(Generic[T]):
    """Decoded objects by key and in groups, in order of creation. Not thread-safe: its informer holds a lock.

    Attributes:
        entries: All entries by key, for reading; `put` and `remove` change them.
    """

    def __init__(self) -> None:
        self.entries: dict[Key, CacheEntry[T]] = {}
        self._groups: dict[Hashable, _Group[T]] = {}
        self._created = 0
        self._unpacked: deque[CacheEntry[T]] = deque()
        self._last: Hashable = None  # neighbours mostly share a group, which is then stored once

    def __iter__(self) -> Iterator[CacheEntry[T]]:
        return iter(tuple(self.entries.values()))

    def all(self) -> CacheSnapshot[T]:
        return CacheSnapshot(tuple(self.entries.values()))

    def group(self, name: Hashable) -> CacheSnapshot[T]:
        group = self._groups.get(name)
        return group.values() if group else CacheSnapshot()

    def count(self, name: Hashable) -> int:
        """Return the size of a group, without loading its objects."""
        group = self._groups.get(name)
        return len(group.entries) if group else 0

    def put(self, entry: CacheEntry[T]) -> None:
        """Store an object in place of the one with its key; a new one is last in order."""
        old = self.entries.get(entry.key)
        if old is None:
            self._created += 1
            entry.order, entry.key = self._created, Key(sys.intern(entry.key.namespace), entry.key.name)
        else:  # equal strings of each revision would be duplicated
            entry.order, entry.key = old.order, old.key
            entry.uid = old.uid if old.uid == entry.uid else entry.uid
        if entry.group == self._last:
            entry.group = self._last
        self._last = entry.group
        self.entries[entry.key] = entry
        if entry.recall is not None:
            self._unpacked.append(entry)
            if len(self._unpacked) > KEPT_UNPACKED:
                self._unpacked.popleft().pack()
        if old is not None and old.group != entry.group:
            self._leave(old)
        if entry.group is None:
            return
        if (group := self._groups.get(entry.group)) is None:
            group = self._groups[entry.group] = _Group()
        if entry.key not in group.entries:
            group.in_order = group.in_order and entry.order > group.last
            group.last = max(group.last, entry.order)
        group.entries[entry.key] = entry

    def remove(self, key: Key) -> None:
        self._leave(self.entries.pop(key))

    def _leave(self, entry: CacheEntry[T]) -> None:
        if (group := self._groups.get(entry.group)) is not None:
            del group.entries[entry.key]
            if not group.entries:
                del self._groups[entry.group]
