"""Changes while a page is open, as server-sent events: pages do not poll.

An event describes changes in a few hundred bytes, at most some times a second; the page then requests its content.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from katib.doors.rest.problems import problem_of
from katib.doors.rest.routing import Name, Namespace, Service
from katib.doors.rest.streams import HEARTBEAT_SECONDS, Closing
from katib.doors.ui.running_now import running_now
from katib.doors.ui.tables import LiveTable, Snapshot, Tables, Viewer
from katib.doors.ui.views import experiment_summary
from katib.errors import KatibError

_PAUSE_SECONDS = 0.2
"""Minimum pause between two events of a stream: a hundred trials a second need not be drawn a hundred times."""
CHECK_SECONDS = 0.5
_LOOK_SECONDS = 1.0
"""Pause between two looks at the readings of running trials."""

STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def live_routes(tables: Tables, closing: Closing) -> APIRouter:
    """Return the routes of live streams."""
    router = APIRouter(prefix="/data")

    @router.get("/experiments/{namespace}/{name}/live")
    def follow(service: Service, user: Viewer, namespace: Namespace, name: Name) -> StreamingResponse:
        table = tables.table(service, user, namespace, name)
        events = table_events(table, closing, lambda snapshot: running_now(service, snapshot))
        return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)

    return router


class Changes:
    """The changes that an event stream waits for; created on its loop."""

    def __init__(self) -> None:
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()

    def notify(self) -> None:
        """Signal a change; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    async def beats(self, closing: Closing, *, quiet: bool = False) -> AsyncIterator[bytes]:
        """Yield an empty part after every change, and a comment after a long silence, until the server ends.

        Args:
            closing: Ends them.
            quiet: Whether to yield an empty part after half a second without a change, too.
        """
        silent = 0.0
        while not closing.begun:
            try:
                await asyncio.wait_for(self._changed.wait(), CHECK_SECONDS)
            except TimeoutError:
                silent += CHECK_SECONDS
                if silent >= HEARTBEAT_SECONDS:
                    silent = 0.0
                    yield b": still here\n\n"
                elif quiet:
                    yield b""
                continue
            self._changed.clear()
            silent = 0.0
            yield b""


async def table_events(
    table: LiveTable, closing: Closing, running: Callable[[Snapshot], dict[str, Any]] = lambda _snapshot: {}
) -> AsyncIterator[bytes]:
    """Yield `change` with the head of the page after every change, `running` each second, and `problem` at the end.

    Args:
        table: The trials.
        closing: Ends the stream.
        running: Returns the running trials with their newest values.
    """
    changes = Changes()
    changes.notify()
    end, version = table.watch(changes.notify), -1
    told: dict[str, Any] = {}
    looked_at = -_LOOK_SECONDS
    yield b"retry: 1000\n\n"
    try:
        async for beat in changes.beats(closing, quiet=True):
            if beat:
                yield beat
                continue
            snapshot = await asyncio.to_thread(table.snapshot, wait_seconds=CHECK_SECONDS)
            if snapshot.version != version:
                version = snapshot.version
                head = experiment_summary(snapshot.experiment)
                yield event("change", {"version": version, "complete": snapshot.complete, "experiment": head})
            if (now := time.monotonic()) - looked_at >= _LOOK_SECONDS:
                looked_at = now
                found = await asyncio.to_thread(running, snapshot)
                if found != told:
                    told = found
                    yield event("running", {"trials": found})
            if table.has_ended:  # it was evicted; a client that reconnects gets a followed one
                return
            await asyncio.sleep(_PAUSE_SECONDS)
    except KatibError as error:
        yield event("problem", problem_of(error))
    finally:
        end()


def event(name: str, data: Mapping[str, Any]) -> bytes:
    """Return one server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
