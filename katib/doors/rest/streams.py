"""Blocking iterators as asynchronous streams that end when the client goes or the server stops.

Each stream has a thread of its own: the framework's shared threads are few, and streams live long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec import json, structs

from katib.doors.rest.problems import problem_of
from katib.errors import ExpiredError, KatibError
from katib.service.tuning.service import BOOKMARK, Change, FollowChanges, TuningService

T = TypeVar("T")

SLICE_SECONDS = 15.0
"""How long one blocking wait for changes may last: so long at most does the thread of a client that left live on."""

HEARTBEAT_SECONDS = 15.0
"""A comment after so long a silence keeps proxies from closing the connection."""

_CHECK_SECONDS = 0.25
_BUFFERED_ITEMS = 256


_log = logging.getLogger(__name__)


class CutOffError(Exception):
    """An answer ends before it is complete, which is all that can be said when its status line is long gone."""


class Closing:
    """Tells all streams that the server stops. Thread-safe."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def begin(self) -> None:
        """End all streams soon. Calling twice is fine."""
        self._event.set()

    @property
    def begun(self) -> bool:
        return self._event.is_set()


class _End:
    """Marks the end of the items, with the error that caused it."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


class _Source(Generic[T]):
    """A thread that runs a blocking iterator and hands its items to the event loop, a bounded number ahead."""

    def __init__(self, make: Callable[[Callable[[], bool]], Iterator[T]], closing: Closing) -> None:
        self._make = make
        self._closing = closing
        self._gone = threading.Event()
        self._room = threading.Semaphore(_BUFFERED_ITEMS)
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()
        threading.Thread(target=self._run, name="katib-stream", daemon=True).start()

    async def next(self) -> T | _End | None:
        """Return the next item, None when there was none for a moment."""
        if self._queue.empty():
            try:
                item = await asyncio.wait_for(self._queue.get(), _CHECK_SECONDS)
            except TimeoutError:
                return None
        else:
            item = self._queue.get_nowait()  # without a timer
        self._room.release()
        return item

    def leave(self) -> None:
        self._gone.set()

    def _stopped(self) -> bool:
        return self._gone.is_set() or self._closing.begun

    def _run(self) -> None:
        end = _End(None)
        try:
            for item in self._make(self._stopped):
                if not self._wait_for_room():
                    break
                self._put(item)
        except Exception as error:  # noqa: BLE001 - carried to the reader
            end = _End(error)
        self._put(end)

    def _wait_for_room(self) -> bool:
        while not self._stopped():
            if self._room.acquire(timeout=_CHECK_SECONDS):
                return True
        return False

    def _put(self, item: T | _End) -> None:
        # The loop may have closed while this thread waited for the item; then it is not needed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)


async def pump(make: Callable[[Callable[[], bool]], Iterator[T]], closing: Closing) -> AsyncIterator[T | None]:
    """Yield the items of a blocking iterator, and None now and then while it is silent.

    Args:
        make: Called on the stream's own thread with a function that returns whether the reader is gone.
    """
    source = _Source(make, closing)
    try:
        while not closing.begun:
            item = await source.next()
            if not isinstance(item, _End):
                yield item
            elif item.error is None:
                return
            else:
                raise item.error
    finally:
        source.leave()


async def byte_stream(make: Callable[[], Iterator[bytes]], closing: Closing) -> AsyncIterator[bytes]:
    """Yield chunks of output as they come.

    Raises:
        CutOffError: They cannot continue; the log says why.
    """
    try:
        async for chunk in pump(lambda _stopped: make(), closing):
            if chunk:
                yield chunk
    except KatibError as error:
        _log.warning("A stream of output was cut off: %s", error)
        raise CutOffError from error


async def change_stream(service: TuningService, request: FollowChanges, closing: Closing) -> AsyncIterator[bytes]:
    """Yield the changes of an experiment as server-sent events.

    Every event is named after its type and carries its cursor as id, so that a client that reconnects, as browsers do
    by themselves, resumes at its place. An error ends the stream with an event `problem`, the deletion with `end`.
    """
    silent = 0.0
    yield b"retry: 2000\n\n"
    try:
        async for change in pump(_Slices(service, request), closing):
            silent = 0.0 if change is not None else silent + _CHECK_SECONDS
            if change is not None and change.type == BOOKMARK:
                yield f"id: {change.cursor}\n\n".encode()  # an event without data: its reader only keeps the place
            elif change is not None:
                yield _event(change.type, {"type": change.type, "object": change.document}, change.cursor)
                if _is_deletion(change):
                    yield _event("end", {})
                    return
            elif silent >= HEARTBEAT_SECONDS:
                silent = 0.0
                yield b": still here\n\n"
    except Exception as error:
        # The status line is long gone: the client learns of it here, and the server's log when it is a bug.
        yield _event("problem", problem_of(error))
        if not isinstance(error, KatibError):
            raise


@dataclass(frozen=True, slots=True)
class _Slices:
    """Changes in slices of time, so that a departed reader is noticed while nothing happens."""

    service: TuningService
    request: FollowChanges

    def __call__(self, stopped: Callable[[], bool]) -> Iterator[Change]:
        since, end = self.request.since, time.monotonic() + (self.request.timeout_seconds or math.inf)
        while not stopped() and (left := end - time.monotonic()) > 0:
            try:
                slice_ = structs.replace(self.request, timeout_seconds=min(left, SLICE_SECONDS), since=since)
                for change in self.service.call(slice_):
                    since = change.cursor or since
                    yield change
                    if _is_deletion(change):
                        return
            except ExpiredError:
                if not since:
                    raise
                since = ""


def _is_deletion(change: Change) -> bool:
    return change.type == "DELETED" and change.document.get("kind") == "Experiment"


def _event(name: str, data: Mapping[str, Any], cursor: str = "") -> bytes:
    line = f"id: {cursor}\n" if cursor else ""
    return b"%bevent: %b\ndata: %b\n\n" % (line.encode(), name.encode(), json.encode(data))
