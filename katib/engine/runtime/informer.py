"""Cached reader of one kind: a list, then a watch, decoded once per change and indexed by key and group.

Laws:

1. The cache shows a state that the store had, and catches up with the newest; it never goes back.
2. Views change together with the cache: under its lock they are consistent.
3. Handlers observe every object being added, changed and deleted, in this order, each with the cached value before and
after. Changes during an outage of the store may be merged into one.
4. An object that cannot be decoded is reported and blocks no other. If it could be decoded before, the cache keeps the
last valid value; a write based on it is a conflict, so no decision is based on stale data.
5. A list is read a page at a time: only one page and the cache are in memory. Pages in order of creation fill an empty
cache directly; others are sorted first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from katib.engine.runtime.cache import CacheEntry, CacheSnapshot, GroupedCache, GroupOf, Pack, PackingDecoder
from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.objects import (
    EventType,
    Key,
    Kind,
    NotifyingWatch,
    Object,
    ObjectList,
    ObjectStore,
    Watch,
    WatchEvent,
)
from katib.engine.runtime.shared_thread import SharedThread
from katib.errors import Backoff, ExpiredError, ForbiddenError, InternalError, UnavailableError

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

RECONNECT = Backoff(0.01, 5.0)
"""Longest pause: a cache that is more than a few seconds old is useless to a controller, and one call in 5 s is
cheap."""

PAGED_TRIES = 2
"""How often a list may expire between two pages before it is requested as a whole, which cannot expire."""

_STOPPED = "the informer is being stopped"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InformerEvent(Generic[T]):
    """One change of the cache.

    Attributes:
        type: ADDED has only `new`, DELETED only `old`, MODIFIED both.
    """

    type: EventType
    key: Key
    old: T | None
    new: T | None


class CacheAggregate(Protocol[T_contra]):
    """An aggregate that is updated together with the cache, such as counts by state."""

    def apply(self, old: T_contra | None, new: T_contra | None) -> None:
        """Apply one change: added if `old` is None, deleted if `new` is None. Must be fast and must not fail."""


class _Listed(NamedTuple, Generic[T]):
    """The relevant part of a listed object; no entry if the cache has it already, or it cannot be decoded."""

    key: Key
    uid: str
    created: str
    entry: CacheEntry[T] | None


Handler = Callable[[InformerEvent[T]], None]
OnDecodeError = Callable[[Object, Exception], None]


def _wait_for_one(watch: Watch) -> tuple[WatchEvent] | None:
    event = watch.next()
    return None if event is None else (event,)


def _log_decode_error(obj: Object, error: Exception) -> None:
    extra = {"kind": obj.get("kind", ""), "key": str(Key.of(obj))}
    _log.error("Object cannot be decoded: %s", error, extra=extra)


class Informer(Generic[T]):
    """Cache of the decoded objects of a kind. Readers may call from any thread; results are shared and frozen.

    Attributes:
        lock: Freezes the cache and the views, for consistent reads. Hold it briefly.
        is_following: Whether the cache is in touch with the store, so that a missing object does not exist.

    Args:
        decode: Decodes an object. Called on the informer's thread only. If it is a `PackingDecoder`, rarely read
            objects are packed, and unpacked on each read.
        group_of: Returns the group of an object; None for no groups.
        namespace: Restricts the objects to this namespace; None for any.
        on_decode_error: Called with each object that `decode` or `group_of` refuses; logs by default.
        clock: Measures pauses during an outage of the store.
        thread: Shared thread on which to follow the store. The store's watches must be `NotifyingWatch`es, and its
            other calls must not need a network. None for an own thread.
    """

    def __init__(
        self,
        store: ObjectStore,
        kind: Kind,
        decode: Callable[[Object], T] | PackingDecoder[T],
        group_of: GroupOf[T] | None = None,
        namespace: str | None = None,
        *,
        on_decode_error: OnDecodeError = _log_decode_error,
        clock: Clock | None = None,
        thread: SharedThread | None = None,
    ) -> None:
        self.kind = kind
        self._store = store
        self._decode = decode
        self._pack: Pack[T] | None = decode.pack if isinstance(decode, PackingDecoder) else None
        self._adopt: Callable[[T], T] | None = decode.adopt if isinstance(decode, PackingDecoder) else None
        self._namespace = namespace
        self._on_decode_error = on_decode_error
        self._clock = clock or SystemClock()
        self.lock = threading.RLock()
        self._group_of = group_of
        self._cache: GroupedCache[T] = GroupedCache()
        self._views: list[CacheAggregate[T]] = []
        self._handlers: list[Handler[T]] = []
        self._synced = threading.Event()
        self._pages_read = 0
        self._revision: str | None = None  # of the last change that was taken; None: list first
        self.is_following = False
        self._started = False
        self._state = threading.Condition()  # guards what follows
        self._stopping = False
        self._watch: Watch | None = None
        steps = self._following_steps()
        self._participant = None if thread is None else thread.participant(partial(next, steps, None), first=True)
        self._thread = threading.Thread(target=self._run, name=f"informer-{kind.kind}", daemon=True)

    # --- set-up -------------------------------------------------------------------------------------------------------

    def add_handler(self, handler: Handler[T]) -> None:
        """Register a handler of all changes, called on the informer's thread without its lock. Call before `start`."""
        self._refuse_when_started("handler")
        self._handlers.append(handler)

    def add_view(self, view: CacheAggregate[T]) -> None:
        """Register an aggregate that follows the cache, under its lock. Call before `start`."""
        self._refuse_when_started("view")
        self._views.append(view)

    def start(self) -> None:
        self._started = True
        if self._participant is None:
            self._thread.start()
        else:
            self._participant.wake()

    def stop(self) -> None:
        """Stop following, and wait for the thread to end. The cache remains readable. Idempotent."""
        with self._state:
            self._stopping = True
            if self._watch is not None:
                self._watch.close()
            self._state.notify_all()
        if self._participant is not None:
            self._participant.leave()
        if self._thread.ident is not None:
            self._thread.join()

    def has_synced(self) -> bool:
        """Return whether the first list is in the cache and delivered to all handlers."""
        return self._synced.is_set()

    def wait_for_sync(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the first list; return False after this time without progress."""
        pages = -1
        while not self._synced.is_set() and pages != self._pages_read:
            pages = self._pages_read
            self._synced.wait(timeout_seconds)
        return self._synced.is_set()

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> T | None:
        with self.lock:
            entry = self._cache.entries.get(key)
            if entry is None or entry.value is not None:
                return None if entry is None else entry.value
            return entry.load()

    def has(self, key: Key) -> bool:
        """Return whether an object exists, without loading it."""
        with self.lock:
            return key in self._cache.entries

    def all(self) -> CacheSnapshot[T]:
        """Return all objects in order of creation."""
        with self.lock:
            return self._cache.all()

    def group(self, name: Hashable) -> CacheSnapshot[T]:
        """Return the objects of a group, in order of creation, at a cost proportional to their number."""
        with self.lock:
            return self._cache.group(name)

    def count(self, name: Hashable) -> int:
        """Return the size of a group, at constant cost."""
        with self.lock:
            return self._cache.count(name)

    # --- following ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        for pause in self._following_steps():
            if pause is not None:
                self._pause(pause)

    def _following_steps(self) -> Iterator[float | None]:
        """Follow the store; yield pauses. None on a shared thread: until the watch has changes."""
        failures = 0
        complaint = ""
        may_list_at_once = True
        while not self._stopping:
            started = self._clock.monotonic()
            expired = False
            try:
                if self._revision is None:
                    self._revision = self._relist()
                    self._synced.set()
                    started = self._clock.monotonic()  # a list may take long; only the watch's duration matters
                with self._store.watch(self.kind, self._revision) as watch:
                    changes = self._begin(watch)
                    while (events := changes()) is not None and not self._stopping:
                        for event in events:
                            self._take(event)
                        yield None
                continue
            except ExpiredError:
                self.is_following = False
                self._revision, expired = None, True
            except (UnavailableError, ForbiddenError) as error:
                self.is_following = False
                level = logging.DEBUG if str(error) in (complaint, _STOPPED) else logging.WARNING
                complaint = str(error)
                _log.log(level, "Watch interrupted: %s", error, extra={"kind": self.kind.kind})
            except Exception:  # noqa: BLE001 - the cache must recover from any error of the store
                _log.exception("Watch failed", extra={"kind": self.kind.kind})
                self.is_following = False
                self._revision = None
            if self._clock.monotonic() - started > RECONNECT.longest_seconds:
                failures, may_list_at_once = 0, True  # the watch lasted for a while: this is a new outage
            if expired and may_list_at_once:
                may_list_at_once = False  # a server that repeats this at once is asked with growing pauses
                continue
            failures += 1
            yield RECONNECT.pause_seconds(failures)

    def _begin(self, watch: Watch) -> Callable[[], Iterable[WatchEvent] | None]:
        """Adopt an open watch, to be closed by `stop`."""
        changes: Callable[[], Iterable[WatchEvent] | None] = partial(_wait_for_one, watch)
        if self._participant is not None:
            if not isinstance(watch, NotifyingWatch):
                raise InternalError(f"watch of {self.kind.kind}: cannot be followed on a shared thread")
            changes = watch.take
            watch.tell(self._participant.wake)
        with self._state:
            self._watch = watch
            if self._stopping:
                watch.close()
        self.is_following = True
        return changes

    def _pause(self, seconds: float) -> None:
        with self._state:
            deadline = self._clock.monotonic() + seconds
            while not self._stopping and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._state, left)

    def _relist(self) -> str:
        """Make the cache equal to a list, as if the changes since had been watched; return the list's revision."""
        was_there = tuple(self._cache)
        found, revision = self._list()
        present = {listed.key: listed.uid for listed in found} if was_there else {}
        for entry in was_there:
            if present.get(entry.key) != entry.uid:
                self._change(entry.key, entry, None)
        for listed in sorted(found, key=lambda listed: listed.created):
            if self._stopping:
                raise UnavailableError(_STOPPED)
            if listed.entry is not None:
                self._change(listed.key, self._cache.entries.get(listed.key), listed.entry)
        return revision

    def _list(self) -> tuple[list[_Listed[T]], str]:
        for _ in range(PAGED_TRIES):
            try:
                return self._read(self._store.pages(self.kind, self._namespace))
            except ExpiredError as error:
                _log.info("List expired between two pages: %s", error, extra={"kind": self.kind.kind})
        return self._read(iter([self._store.list(self.kind, self._namespace)]))

    def _read(self, pages: Iterable[ObjectList]) -> tuple[list[_Listed[T]], str]:
        found: list[_Listed[T]] = []
        revision = ""
        was_empty = not self._cache.entries
        for page in pages:
            if self._stopping:
                raise UnavailableError(_STOPPED)
            revision = page.resource_version
            if was_empty and page.in_order:
                self._fill(page)
            else:
                found += map(self._listed, page.items)
            del page  # before the next one is fetched
            self._pages_read += 1
        return found, revision

    def _fill(self, page: ObjectList) -> None:
        for obj in page.items:
            key = Key.of(obj)
            if (entry := self._decoded(key, obj)) is not None:
                self._change(entry.key, None, entry)

    def _listed(self, obj: Object) -> _Listed[T]:
        key, metadata = Key.of(obj), obj["metadata"]
        old = self._cache.entries.get(key)  # only this thread writes, so it reads without the lock
        is_known = old is not None and (old.uid, old.resource_version) == (metadata["uid"], metadata["resourceVersion"])
        entry = None if is_known else self._decoded(key, obj)
        if entry is not None:
            entry.pack()  # or a long list would be held unpacked as a whole
        return _Listed(key, metadata["uid"], metadata.get("creationTimestamp") or "", entry)

    def _take(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        if self._namespace is None or key.namespace == self._namespace:
            old = self._cache.entries.get(key)
            if old is not None and (event.type is EventType.DELETED or old.uid != metadata["uid"]):
                self._change(key, old, None)
                old = None
            is_there = old is not None and old.resource_version == metadata["resourceVersion"]
            if event.type is not EventType.DELETED and not is_there:
                entry = self._decoded(key, event.object, event.struct)
                if entry is not None:
                    self._change(entry.key, old, entry)
        self._revision = metadata["resourceVersion"]

    def _decoded(self, key: Key, obj: Object, struct: Any = None) -> CacheEntry[T] | None:
        metadata = obj["metadata"]
        try:
            value = self._decode(obj) if struct is None or self._adopt is None else self._adopt(struct)
            recall = None if self._pack is None else self._pack(obj, value)
            group = None if self._group_of is None else self._group_of(value)
            return CacheEntry(key, metadata["uid"], metadata["resourceVersion"], value, recall, group)
        except Exception as error:  # noqa: BLE001 - a foreign object must not stop the others
            try:
                self._on_decode_error(obj, error)
            except Exception:  # noqa: BLE001 - their bug, not ours
                self._complain(self._on_decode_error)
            return None

    def _change(self, key: Key, before: CacheEntry[T] | None, after: CacheEntry[T] | None) -> None:
        """Replace an entry by another, either of which may be missing, and notify views and handlers.

        Their errors are logged and do not stop the informer.
        """
        old = None if before is None else before.value or before.load()
        new = None if after is None else after.value or after.load()
        with self.lock:
            if after is None:
                self._cache.remove(key)
            else:
                self._cache.put(after)
            for view in self._views:
                try:
                    view.apply(old, new)
                except Exception:  # noqa: BLE001 - their bug, not ours
                    self._complain(view.apply)
        kind = EventType.DELETED if after is None else EventType.ADDED if before is None else EventType.MODIFIED
        event = InformerEvent(kind, key, old, new)
        for handler in self._handlers:
            try:
                handler(event)
            except Exception:  # noqa: BLE001 - their bug, not ours
                self._complain(handler)

    def _complain(self, callback: Callable[..., None]) -> None:
        _log.exception("Callback failed", extra={"kind": self.kind.kind, "callback": repr(callback)})

    def _refuse_when_started(self, what: str) -> None:
        if self._started:
            raise InternalError(f"informer of {self.kind.kind}: {what} added after start; add it before")
