"""Events that wait to be written: those that repeat are counted, and the oldest are dropped when too many wait."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

MAX_WAITING = 2_000

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Event(Generic[S]):
    """What happened to a subject, how often, and when first and last."""

    subject: S
    warning: bool
    reason: str
    message: str
    first_time: datetime
    last_time: datetime
    count: int = 1

    @property
    def identity(self) -> tuple[S, str, str]:
        """What makes two events the same."""
        return self.subject, self.reason, self.message


@dataclass(frozen=True, slots=True)
class EventSubject:
    """What an event is about.

    Attributes:
        experiment: Name of the experiment it belongs to, so that an experiment's events include its trials'.
    """

    kind: str
    namespace: str
    name: str
    experiment: str


StoredEvent = Event[EventSubject]


class EventQueue(Generic[S]):
    """Waiting events, the one that happened last at the end. Its owner guards it with a lock.

    Attributes:
        dropped: How many were dropped because too many waited.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._events: dict[tuple[S, str, str], Event[S]] = {}

    def __len__(self) -> int:
        return len(self._events)

    def all(self) -> list[Event[S]]:
        """Return what waits."""
        return list(self._events.values())

    def add(self, event: Event[S]) -> bool:
        """Add an event, merged with those like it; return whether none waited."""
        was_empty = not self._events
        identity = event.identity
        known = self._events.pop(identity, None)
        if known is not None:
            times = known.first_time, known.last_time, event.first_time, event.last_time
            event = replace(event, first_time=min(times), last_time=max(times), count=known.count + event.count)
        self._events[identity] = event
        while len(self._events) > MAX_WAITING:
            del self._events[next(iter(self._events))]
            self.dropped += 1
        return was_empty

    def take_all(self) -> list[Event[S]]:
        """Remove all events, to write them."""
        events, self._events = self._events, {}
        return list(events.values())

    def put_back(self, events: Iterable[Event[S]]) -> None:
        """Put events back that could not be written, before those that came meanwhile."""
        newer, self._events = self._events, {}
        for event in (*events, *newer.values()):
            self.add(event)

    def take(self, events: Iterable[Event[S]]) -> None:
        """Remove events, to forget them."""
        for event in events:
            self._events.pop(event.identity, None)
