"""Recorder of Kubernetes Events, shown by `kubectl describe`.

Recording never delays or fails a controller: events wait in memory and a thread writes them, at a bounded rate. A
repeated event is counted: for free while it waits, and by at most one patch in ten seconds once it is written. If too
many wait, the oldest is dropped.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.stores.event_queue import Event, EventQueue
from katib.errors import KatibError, NotFoundError, UnavailableError
from katib.model.types import Resource, format_time
from katib.places.cluster.client import ApiConnection

MAX_REMEMBERED = 5_000
"""Written events whose repetition is recognized; the server itself expires events after an hour."""
PAUSE_SECONDS = 0.04
"""Pause between two writes: at most 25 a second, so that events do not compete with work."""
REPEAT_SECONDS = 10.0
RETRY_SECONDS = 2.0
LONGEST_MESSAGE = 1024
"""Limit of the API server."""

_log = logging.getLogger(__name__)


_Subject = tuple[tuple[str, str], ...]
"""Identity of the involved object: the fields of `involvedObject` that are not empty."""


@dataclass(frozen=True, slots=True)
class _WrittenEvent:
    """A written event: its path, its count, and the earliest time of the next patch."""

    path: str
    count: int
    due: float


class KubernetesEvents:
    """Records events. Implements `katib.engine.controllers.ports.EventRecorder`. Thread-safe.

    Args:
        component: Source of the events, as `kubectl describe` shows it.
    """

    def __init__(self, connection: ApiConnection, component: str, clock: Clock | None = None) -> None:
        self._connection = connection
        self._component = component
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()  # guards the next two
        self._waiting: EventQueue[_Subject] = EventQueue()
        self._stopping = False
        self._written: OrderedDict[tuple[_Subject, str, str], _WrittenEvent] = OrderedDict()  # the thread's
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the waiting events, as long as the server accepts them, and end. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        """Record an event of an object. Returns at once and never fails."""
        place = {"namespace": obj.namespace, "name": obj.name, "uid": obj.metadata.uid}
        about = {"apiVersion": obj.api_version, "kind": type(obj).__name__, **place}
        subject = tuple((name, value) for name, value in about.items() if value)
        now = self._clock.now()
        text = message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 3]}..."
        with self._changed:
            self._waiting.add(Event(subject, warning, reason, text, now, now))
            self._changed.notify_all()

    def _run(self) -> None:
        while (event := self._next()) is not None:
            pause = PAUSE_SECONDS
            try:
                self._write(event)
            except UnavailableError:
                pause = RETRY_SECONDS
                with self._changed:
                    if self._stopping:
                        return
                    self._waiting.put_back([event])
            except KatibError as error:
                _log.warning("Event not written: %s", error, extra={"reason": event.reason})
            except Exception:  # noqa: BLE001 - one event's error must not stop the others
                _log.exception("Event not written", extra={"reason": event.reason})
            with self._changed:
                if not self._stopping:
                    self._clock.wait(self._changed, pause)

    def _next(self) -> Event[_Subject] | None:
        """Wait for an event that may be written now; return None at the end."""
        with self._changed:
            while True:
                now = self._clock.monotonic()
                soonest: float | None = None
                for event in self._waiting.all():
                    written = self._written.get(event.identity)
                    if written is None or written.due <= now or self._stopping:
                        self._waiting.take([event])
                        return event
                    soonest = written.due if soonest is None else min(soonest, written.due)
                if self._waiting.dropped:
                    _log.warning("Events dropped: too many waited", extra={"count": self._waiting.dropped})
                    self._waiting.dropped = 0
                if self._stopping:
                    return None
                self._clock.wait(self._changed, None if soonest is None else soonest - now)

    def _write(self, event: Event[_Subject]) -> None:
        written = self._written.pop(event.identity, None)
        count = event.count
        path = None
        if written is not None:
            count += written.count
            path = self._count_up(written, event, count)
        if path is None:  # new, or expired on the server
            count = event.count
            about = dict(event.subject)
            namespace = about.get("namespace", "default")
            name = f"{about['name'][:230]}.{secrets.token_hex(8)}"
            self._connection.request("POST", _path(namespace), body=self._body(event, namespace, name))
            path = f"{_path(namespace)}/{quote(name, safe='')}"
        self._written[event.identity] = _WrittenEvent(path, count, self._clock.monotonic() + REPEAT_SECONDS)
        while len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)

    def _count_up(self, written: _WrittenEvent, event: Event[_Subject], count: int) -> str | None:
        """Patch a written event; return its path, None if it is gone."""
        body = {"count": count, "lastTimestamp": format_time(event.last_time)}
        try:
            self._connection.request("PATCH", written.path, body=body, content_type="application/merge-patch+json")
        except NotFoundError:
            return None
        return written.path

    def _body(self, event: Event[_Subject], namespace: str, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": dict(event.subject),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": event.message,
            "source": {"component": self._component},
            "firstTimestamp": format_time(event.first_time),
            "lastTimestamp": format_time(event.last_time),
            "count": event.count,
        }


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
