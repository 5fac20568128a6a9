"""What an informer remembers: decoded objects by key, and in groups at a cost proportional to the answer.

Of what can be packed, the newest are kept as they are and all others packed: a cache of 30,000 that are no longer
read has to fit into memory, and unpacking one costs less than a call of the store.
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
"""Returns what an object is found by, such as its owner, with those that have the same; None: not by that. Pure."""

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
        group: What it is found by with others; None: only by its key.
        order: Its place among the others, given to it by `GroupedCache.put`.
    """

    key: Key
    uid: str
    resource_version: str
    value: T | None
    recall: Callable[[], T] | None
    group: Hashable = None
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
        return Values((*self._entries, *(Entry(Key("", ""), "", "", other, None) for other in others)))

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


class _Group(Struct, Generic[T]):
    """The entries of one group; sorted by creation when they are read, if they came in another order."""

    entries: dict[Key, Entry[T]] = field(default_factory=dict)
    in_order: bool = True
    last: int = -1

    def values(self) -> Values[T]:
        if not self.in_order:
            self.entries = {entry.key: entry for entry in sorted(self.entries.values(), key=attrgetter("order"))}
            self.in_order = True
        return Values(tuple(self.entries.values()))


class GroupedCache(Generic[T]):
    """Decoded objects by key and in groups, in order of creation. Not thread-safe: its informer guards it.

    Attributes:
        entries: All of them by key, for reading; `put` and `remove` change them.
    """

    def __init__(self) -> None:
        self.entries: dict[Key, Entry[T]] = {}
        self._groups: dict[Hashable, _Group[T]] = {}
        self._created = 0
        self._unpacked: deque[Entry[T]] = deque()
        self._last: Hashable = None  # groups of neighbours are mostly the same, and kept once

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(tuple(self.entries.values()))

    def all(self) -> Values[T]:
        """Return all objects."""
        return Values(tuple(self.entries.values()))

    def group(self, name: Hashable) -> Values[T]:
        """Return the objects of a group."""
        group = self._groups.get(name)
        return group.values() if group else Values()

    def count(self, name: Hashable) -> int:
        """Return how many objects a group has, without touching them."""
        group = self._groups.get(name)
        return len(group.entries) if group else 0

    def put(self, entry: Entry[T]) -> None:
        """Remember an object in place of what the key had; what is new comes after all others."""
        old = self.entries.get(entry.key)
        if old is None:
            self._created += 1
            entry.order, entry.key = self._created, Key(sys.intern(entry.key.namespace), entry.key.name)
        else:  # equal texts of each revision would be kept beside each other
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
        """Forget an object."""
        self._leave(self.entries.pop(key))

    def _leave(self, entry: Entry[T]) -> None:
        if (group := self._groups.get(entry.group)) is not None:
            del group.entries[entry.key]
            if not group.entries:
                del self._groups[entry.group]
