"""Watches as streams of JSON lines, without a thread for each.

The store's watch queues changes, whose objects are shared by all readers, and wakes the event loop. A slow reader
delays only its own stream; one that falls too far behind gets 410 and lists again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from starlette.concurrency import run_in_threadpool

from katib.doors.kube_api.derived import DERIVED, events_after
from katib.doors.kube_api.list_options import ListOptions
from katib.doors.kube_api.objects import ObjectService, RecentLines, RequestTarget
from katib.doors.kube_api.representations import Representation
from katib.doors.kube_api.resources import EVENT
from katib.doors.kube_api.selectors import Selector
from katib.doors.kube_api.statuses import status_of
from katib.doors.rest.streams import Closing
from katib.engine.runtime.objects import EventType, NotifyingWatch, Object, WatchEvent
from katib.engine.stores.semantics import encode
from katib.errors import ExpiredError, InternalError, KatibError

BOOKMARK_SECONDS = 60.0
SHORTEST_DEFAULT_SECONDS = 1_800
_LOOK_SECONDS = 1.0
"""How soon an idle stream ends when the server stops, and the polling interval of events."""

_PAUSE_SECONDS = 0.025
"""Pause between two chunks, so that several changes within a moment share one: each is encrypted and sent."""

_CHUNK_BYTES = 64 << 10
_RECENT_LINES = 64
"""Number of changes in transit from the store to all streams at once."""

_LAST_VERSION = 10**17
"""Later than any event: the year 5138 in microseconds."""

_INITIAL_END = {"k8s.io/initial-events-end": "true"}


async def watch_lines(
    objects: ObjectService,
    target: RequestTarget,
    selector: Selector,
    form: Representation,
    options: ListOptions,
    closing: Closing,
) -> AsyncIterator[bytes]:
    """Yield the changes of the selected objects, one JSON object on each line."""
    lines = _Lines(target, form, objects.recent_lines)
    try:
        changes = _polled_changes if target.resource.kind in DERIVED else _changes
        async for chunk in changes(objects, target, selector, options, lines, closing):
            yield chunk
    except KatibError as error:
        yield lines.line("ERROR", status_of(error))


class _Lines:
    """Changes as text; the headings of a table are sent once."""

    def __init__(self, target: RequestTarget, form: Representation, recent: RecentLines) -> None:
        self._recent = recent
        self._resource = target.resource
        self._form = form
        self._is_first = True

    def of(self, change: str, obj: Object) -> bytes:
        known = self._recent.get((id(obj), change))
        if known is not None and known[0] is obj and not self._form.name:
            return known[1]
        shown = self._form.one(self._resource, obj, datetime.now(UTC), headings=self._is_first)
        self._is_first = False
        line = self.line(change, shown)
        if shown is obj and len(line) <= _CHUNK_BYTES:
            self._recent[id(obj), change] = obj, line
            if len(self._recent) > _RECENT_LINES:
                del self._recent[next(iter(self._recent))]
        return line

    def bookmark(self, revision: str, annotations: dict[str, str] | None = None) -> bytes:
        kind = self._resource.kind
        metadata: dict[str, Any] = {"resourceVersion": revision, "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        if self._form.name:
            kind = kind._replace(api_version="meta.k8s.io/v1", kind=self._form.name)
        obj: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if self._form.name == "Table":
            obj |= {"columnDefinitions": None, "rows": []}
        return self.line("BOOKMARK", obj)

    @staticmethod
    def line(change: str, obj: Object) -> bytes:
        return f'{{"type":"{change}","object":{encode(obj)}}}\n'.encode()


class _SelectedChanges:
    """Changes from a selector's point of view: an object that begins to match is added, one that ceases is deleted."""

    def __init__(self, target: RequestTarget, selector: Selector, since: int) -> None:
        self._namespace = target.namespace
        self._selector = selector
        self._since = since
        self._seen: set[str] = set()
        self._newer: dict[str, int] = {}

    def note(self, found: Iterable[Object]) -> None:
        """Record the matching objects at the beginning of the watch, as they are sent."""
        for obj in found:
            metadata = obj["metadata"]
            if self._selector.may_change:
                self._seen.add(metadata["uid"])
            if (revision := int(metadata["resourceVersion"])) > self._since:
                self._newer[metadata["uid"]] = revision  # it changed during the read: that change will follow, too

    def of(self, event: WatchEvent) -> str:
        """Return the type of a change in this view; empty if it is not visible, or was sent already."""
        metadata = event.object["metadata"]
        if self._namespace and metadata.get("namespace") != self._namespace:
            return ""
        if self._newer and int(event.resource_version) <= self._newer.get(metadata["uid"], 0):
            return ""
        fits = self._selector.fits(event.object)
        if not self._selector.may_change:
            return event.type.value if fits else ""
        uid, was_seen = metadata["uid"], metadata["uid"] in self._seen
        if event.type is EventType.DELETED or not fits:
            self._seen.discard(uid)
            return "DELETED" if was_seen or (fits and event.type is EventType.DELETED) else ""
        self._seen.add(uid)
        return "MODIFIED" if was_seen else "ADDED"


class _Wakeup:
    """Wakes a coroutine from other threads; several calls before it runs are merged."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._is_set = False

    def notify(self) -> None:
        """Wake it. Never blocks; callable from any thread."""
        if not self._is_set:
            self._is_set = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Return after a notification or the timeout."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()
        self._is_set = False


def _end_of(options: ListOptions) -> float:
    default = SHORTEST_DEFAULT_SECONDS * random.uniform(1, 2)
    return time.monotonic() + (default if options.seconds is None else options.seconds)


def _start(objects: ObjectService, target: RequestTarget, options: ListOptions) -> str:
    """Return the revision after which changes are sent."""
    now = objects.revision(target)
    if options.begins_with_all or options.since in ("", "0"):
        return now
    if int(options.since) > int(now):
        raise ExpiredError(f"revision {options.since} is unknown to this server, which is at {now}; list again")
    return options.since


async def _changes(
    objects: ObjectService,
    target: RequestTarget,
    selector: Selector,
    options: ListOptions,
    lines: _Lines,
    closing: Closing,
) -> AsyncIterator[bytes]:
    since = mark = await run_in_threadpool(_start, objects, target, options)
    with objects.home.objects.watch(target.resource.kind, since) as watch:  # opened before the list, so without a gap
        if not isinstance(watch, NotifyingWatch):
            raise InternalError("this store has no watches that an event loop can wait for")
        view, sends = _SelectedChanges(target, selector, int(since)), options.begins_with_all
        pages = objects.pages(target, selector) if sends or selector.may_change else iter(())
        while (page := await run_in_threadpool(next, pages, None)) is not None:
            view.note(page)
            for chunk in _chunks(lines.of("ADDED", obj) for obj in page if sends):
                yield chunk
        if options.initial and options.bookmarks:
            yield lines.bookmark(since, _INITIAL_END)
        wakeup, end, marked_at = _Wakeup(), _end_of(options), time.monotonic()
        watch.tell(wakeup.notify)
        while not closing.begun and (left := end - time.monotonic()) > 0:
            events = list(watch.take())
            for chunk in _chunks(_seen(view, lines, events)):
                yield chunk
            since = events[-1].resource_version if events else since
            if options.bookmarks and time.monotonic() - marked_at > BOOKMARK_SECONDS:
                yield lines.bookmark(max(since, mark, key=int))  # writes before the last mark have been sent
                marked_at, mark = time.monotonic(), await run_in_threadpool(objects.revision, target)
            if events:
                await asyncio.sleep(_PAUSE_SECONDS)
            await wakeup.wait(min(left, _LOOK_SECONDS))


def _seen(view: _SelectedChanges, lines: _Lines, events: Sequence[WatchEvent]) -> Iterable[bytes]:
    for event in events:
        if change := view.of(event):
            yield lines.of(change, event.object)


def _chunks(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Yield lines joined up to the size of a chunk."""
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= _CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


async def _polled_changes(
    objects: ObjectService,
    target: RequestTarget,
    selector: Selector,
    options: ListOptions,
    lines: _Lines,
    closing: Closing,
) -> AsyncIterator[bytes]:
    """Yield the changes of a kind that is polled every second, because it has no notification of changes.

    Of events, only new or repeated ones are read; of other kinds all objects, for comparison.
    """
    is_event, begins = target.resource.kind == EVENT, options.begins_with_all
    version = 0
    if is_event and not begins:
        version = min(int(options.since.lstrip("0") or objects.revision(target)), _LAST_VERSION)
    known: dict[str, Object] | None = {} if begins or is_event else None
    end, marks = _end_of(options), options.initial and options.bookmarks
    changed: Iterable[bytes]
    while not closing.begun and (left := end - time.monotonic()) > 0:
        if is_event:
            found = await run_in_threadpool(_events_after, objects, target.namespace or None, version)
            version = max([version, *(int(obj["metadata"]["resourceVersion"]) for obj in found)])
            wanted = filter(selector.fits, found)
            changed = (lines.of("MODIFIED" if _is_repeated(obj) else "ADDED", obj) for obj in wanted)
        else:
            items = [obj for page in await run_in_threadpool(list, objects.pages(target, selector)) for obj in page]
            seen = {obj["metadata"]["uid"]: obj for obj in items}
            changed, known = _differences(seen if known is None else known, items, lines), seen
        for chunk in _chunks(changed):
            yield chunk
        if marks:
            mark = str(version) if is_event else await run_in_threadpool(objects.revision, target)
            yield lines.bookmark(mark, _INITIAL_END)
            marks = False
        await asyncio.sleep(min(left, _LOOK_SECONDS))


def _events_after(objects: ObjectService, namespace: str | None, version: int) -> list[Object]:
    return [*events_after(objects.home, namespace, version), *objects.events.list(namespace, version)]


def _is_repeated(event: Object) -> bool:
    return int(event.get("count") or 1) > 1 or event["metadata"].get("generation", 1) > 1


def _differences(known: Mapping[str, Object], items: Sequence[Object], lines: _Lines) -> Iterable[bytes]:
    left = dict(known)
    for obj in items:
        before = left.pop(obj["metadata"]["uid"], None)
        if before is None:
            yield lines.of("ADDED", obj)
        elif before["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            yield lines.of("MODIFIED", obj)
    for obj in left.values():
        yield lines.of("DELETED", obj)
