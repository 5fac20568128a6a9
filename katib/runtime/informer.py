"""A cached reader of one kind: one list, then a watch, decoded once per change and found by index.

Laws:

1. The cache shows a state that the store had, and catches up with the newest; it never goes back.
2. Views change together with the cache: under `reading()` both tell the same story.
3. Handlers see every object appear, change and go, in this order, each with what the cache held before and after.
   Changes that happen while the store cannot be reached may be seen as one.
4. An object that cannot be decoded is reported and stops nobody. If it could be decoded before, the cache keeps the
   last good value; a write based on it is a conflict, so nothing is decided on stale grounds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from katib.errors import ExpiredError, ForbiddenError, InternalError, UnavailableError
from katib.runtime.cache import Entry, IndexedCache, IndexFunction
from katib.runtime.clock import Clock, SystemClock
from katib.runtime.objects import EventType, Key, Kind, Object, ObjectStore, Watch, WatchEvent

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

FIRST_RECONNECT_SECONDS = 0.01
LONGEST_RECONNECT_SECONDS = 5.0
"""A cache that is more than a few seconds old is of no use to a controller; one call in 5 s costs nothing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InformerEvent(Generic[T]):
    """One change of the cache.

    Attributes:
        type: ADDED has only `new`, DELETED only `old`, MODIFIED both.
        key: Which object.
        old: The cached object before.
        new: The cached object after.
    """

    type: EventType
    key: Key
    old: T | None
    new: T | None


class View(Protocol[T_contra]):
    """An aggregate that is kept up to date with the cache, such as counts by state."""

    def apply(self, old: T_contra | None, new: T_contra | None) -> None:
        """Take one change: added when `old` is None, deleted when `new` is None. Must be fast and must not fail."""


Handler = Callable[[InformerEvent[T]], None]
OnDecodeError = Callable[[Object, Exception], None]


def _log_decode_error(obj: Object, error: Exception) -> None:
    extra = {"kind": obj.get("kind", ""), "key": str(Key.of(obj))}
    _log.error("Object cannot be decoded: %s", error, extra=extra)


class Informer(Generic[T]):
    """Keeps decoded objects of a kind at hand. Readers may call from any thread; what they get is shared and frozen.

    Args:
        store: Where the objects are.
        kind: Which objects.
        decode: Turns an object into what readers want. Called on the informer's thread only.
        indexes: Functions by index name; each returns the values under which an object is found.
        namespace: Only objects of this namespace; None: of any.
        on_decode_error: Told of each object that `decode` or an index function refuses; logs by default.
        clock: Where waiting for a lost store is measured.
    """

    def __init__(
        self,
        store: ObjectStore,
        kind: Kind,
        decode: Callable[[Object], T],
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        namespace: str | None = None,
        *,
        on_decode_error: OnDecodeError = _log_decode_error,
        clock: Clock | None = None,
    ) -> None:
        self.kind = kind
        self._store = store
        self._decode = decode
        self._namespace = namespace
        self._on_decode_error = on_decode_error
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._cache: IndexedCache[T] = IndexedCache(indexes or {})
        self._views: list[View[T]] = []
        self._handlers: list[Handler[T]] = []
        self._synced = threading.Event()
        self._state = threading.Condition()  # guards what follows
        self._stopping = False
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"informer-{kind.kind}", daemon=True)

    # --- set-up -------------------------------------------------------------------------------------------------------

    def add_handler(self, handler: Handler[T]) -> None:
        """Have every change told to a function, on the informer's thread and without its lock. Before `start`."""
        self._refuse_when_started("handler")
        self._handlers.append(handler)

    def add_view(self, view: View[T]) -> None:
        """Have an aggregate follow the cache, under its lock. Before `start`."""
        self._refuse_when_started("view")
        self._views.append(view)

    def start(self) -> None:
        """Start to follow the store."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following, and wait for the thread to end. The cache stays as it is. Calling it twice is fine."""
        with self._state:
            self._stopping = True
            if self._watch is not None:
                self._watch.close()
            self._state.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def has_synced(self) -> bool:
        """Return whether the first list is in the cache and told to all handlers."""
        return self._synced.is_set()

    def wait_for_sync(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the first list; return whether it came in time."""
        return self._synced.wait(timeout_seconds)

    # --- reading ------------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the cache and the views still, to read several things that belong together. Keep it short."""
        with self._lock:
            yield

    def get(self, key: Key) -> T | None:
        """Return an object, or None when there is none."""
        with self._lock:
            entry = self._cache.find(key)
            return entry.value if entry else None

    def all(self) -> tuple[T, ...]:
        """Return all objects in order of creation."""
        with self._lock:
            return self._cache.all()

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """Return the objects with an index value, in order of creation. Costs what the answer is long."""
        with self._lock:
            return self._cache.by_index(name, value)

    def count_by_index(self, name: str, value: str) -> int:
        """Return how many objects have an index value, at the same cost for any number."""
        with self._lock:
            return self._cache.count_by_index(name, value)

    # --- following ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        revision = None
        delay = FIRST_RECONNECT_SECONDS
        complaint = ""
        while not self._stopping:
            started = self._clock.monotonic()
            try:
                if revision is None:
                    revision = self._relist()
                    self._synced.set()
                for event in self._changes(revision):
                    self._take(event)
                    revision = event.resource_version
                continue
            except ExpiredError:
                revision = None
                continue
            except (UnavailableError, ForbiddenError) as error:
                level = logging.DEBUG if str(error) == complaint else logging.WARNING
                complaint = str(error)
                _log.log(level, "Watch interrupted: %s", error, extra={"kind": self.kind.kind})
            except Exception:  # noqa: BLE001 - the cache must come back, whatever the store does
                _log.exception("Watch failed", extra={"kind": self.kind.kind})
                revision = None
            if self._clock.monotonic() - started > LONGEST_RECONNECT_SECONDS:
                delay = FIRST_RECONNECT_SECONDS  # it held for a while: this is a new outage
            self._pause(delay)
            delay = min(delay * 2, LONGEST_RECONNECT_SECONDS)

    def _changes(self, revision: str) -> Iterator[WatchEvent]:
        """Yield the changes after a revision until the watch ends."""
        with self._store.watch(self.kind, revision) as watch:
            with self._state:
                if self._stopping:
                    return
                self._watch = watch
            while not self._stopping:
                event = watch.next()
                if event is None:
                    return
                yield event

    def _pause(self, seconds: float) -> None:
        with self._state:
            deadline = self._clock.monotonic() + seconds
            while not self._stopping and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._state, left)

    def _relist(self) -> str:
        """Make the cache equal to a list, as if the changes since had been watched; return the list's revision."""
        listed = self._store.list(self.kind, self._namespace)
        present = {Key.of(obj): obj["metadata"]["uid"] for obj in listed.items}
        for entry in self._cache:
            if present.get(entry.key) != entry.uid:
                self._drop(entry)
        for obj in listed.items:
            self._keep(obj)
        return listed.resource_version

    def _take(self, event: WatchEvent) -> None:
        key = Key.of(event.object)
        if self._namespace is not None and key.namespace != self._namespace:
            return
        entry = self._cache.find(key)
        if event.type is not EventType.DELETED:
            self._keep(event.object)
        elif entry is not None:
            self._drop(entry)

    def _keep(self, obj: Object) -> None:
        """Put an object into the cache, unless it is there already."""
        key, metadata = Key.of(obj), obj["metadata"]
        old = self._cache.find(key)  # only this thread writes, so it reads without the lock
        if old is not None and old.uid != metadata["uid"]:
            self._drop(old)
            old = None
        if old is not None and old.resource_version == metadata["resourceVersion"]:
            return
        try:
            entry = self._cache.entry(key, metadata["uid"], metadata["resourceVersion"], self._decode(obj))
        except Exception as error:  # noqa: BLE001 - whatever a foreign object provokes must not stop the others
            self._guarded(self._on_decode_error, obj, error)
            return
        with self._lock:
            self._cache.put(entry)
            self._apply_views(old, entry)
        self._tell(old, entry)

    def _drop(self, old: Entry[T]) -> None:
        with self._lock:
            self._cache.remove(old.key)
            self._apply_views(old, None)
        self._tell(old, None)

    def _apply_views(self, old: Entry[T] | None, new: Entry[T] | None) -> None:
        for view in self._views:
            self._guarded(view.apply, old.value if old else None, new.value if new else None)

    def _tell(self, old: Entry[T] | None, new: Entry[T] | None) -> None:
        entry = new or old
        if entry is None:
            return
        kind = EventType.DELETED if new is None else EventType.ADDED if old is None else EventType.MODIFIED
        event = InformerEvent(kind, entry.key, old.value if old else None, new.value if new else None)
        for handler in self._handlers:
            self._guarded(handler, event)

    def _guarded(self, function: Callable[..., None], *arguments: object) -> None:
        """Call what others gave us; their bug is logged and the informer goes on."""
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001 - their bug, not ours
            _log.exception("Callback failed", extra={"kind": self.kind.kind, "callback": repr(function)})

    def _refuse_when_started(self, what: str) -> None:
        if self._thread.ident is not None:
            raise InternalError(f"informer of {self.kind.kind}: {what} added after start; add it before")
