"""Queue of events to be written: repeated events are counted, and the oldest are dropped if too many wait."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

MAX_WAITING = 2_000

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Event(Generic[S]):
    """An event of a subject, with its count and its first and last time."""

    subject: S
    warning: bool
    reason: str
    message: str
    first_time: datetime
    last_time: datetime
    count: int = 1

    @property
    def identity(self) -> tuple[S, str, str]:
        """Identity of an event, for counting repetitions."""
        return self.subject, self.reason, self.message


@dataclass(frozen=True, slots=True)
class EventSubject:
    """Subject of an event.

    Attributes:
        experiment: Name of its experiment, so that an experiment's events include its trials'.
    """

    kind: str
    namespace: str
    name: str
    experiment: str


StoredEvent = Event[EventSubject]


class EventQueue(Generic[S]):
    """Waiting events, the last one at the end. Its owner guards it with a lock."""

    def __init__(self) -> None:
        self.dropped = 0
        self._events: dict[tuple[S, str, str], Event[S]] = {}

    def __len__(self) -> int:
        return len(self._events)

    def all(self) -> list[Event[S]]:
        return list(self._events.values())

    def add(self, event: Event[S]) -> bool:
        """Add an event, merged with equal ones; return whether the queue was empty."""
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
        """Put events that could not be written before the newer ones."""
        newer, self._events = self._events, {}
        for event in (*events, *newer.values()):
            self.add(event)

    def take(self, events: Iterable[Event[S]]) -> None:
        """Remove events, to forget them."""
        for event in events:
            self._events.pop(event.identity, None)
