"""The stores that the contract of object stores runs on."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from katib.cluster.store import KubernetesStore
from katib.runtime.objects import ObjectStore, Watch, WatchEvent
from tests.support.api_server import ApiServer
from tests.support.server_kinds import await_garbage_collection, clear_test_kinds, objects_of_tests
from tests.support.waiting import eventually

BackDoor = Callable[[], list[dict[str, Any]]]


@dataclass(frozen=True)
class Home:
    """A store, and where its promises leave room.

    Attributes:
        store: The store.
        back_door: Reads it without passing through it.
        now: The time by which it stamps.
        patience_seconds: How long its garbage collection, and the news of a change, may take.
        expire: Makes it forget all changes but the last twenty.
        await_collector: Waits until its garbage collector has seen all changes so far.
        is_kubernetes: Whether the semantics are those of the API server itself: JSON of Go, its words in errors.
    """

    store: ObjectStore
    back_door: BackDoor
    now: Callable[[], datetime]
    patience_seconds: float = 0.0
    expire: Callable[[], None] = lambda: None
    await_collector: Callable[[], None] = lambda: None
    is_kubernetes: bool = False

    def settled(self, check: Callable[[], object]) -> None:
        """Assert that a check holds, at once or as soon as the store may need."""
        if self.patience_seconds:
            eventually(check, seconds=self.patience_seconds)
        assert check()

    def drained(self, watch: Watch, count: int, of: Callable[[WatchEvent], bool] | None = None) -> list[WatchEvent]:
        """Return the changes that a watch has and that matter, which should be so many."""
        events: list[WatchEvent] = []
        while event := watch.next(self.patience_seconds if len(events) < count else min(self.patience_seconds, 0.1)):
            if of is None or of(event):
                events.append(event)
        return events

    def is_now(self, text: str) -> bool:
        """Return whether a time stamp is of this moment."""
        moment = datetime.fromisoformat(text)
        return abs((moment - self.now()).total_seconds()) <= self.patience_seconds

    def await_next_second(self) -> None:
        """Let the time pass that two creations need to be told apart."""
        if self.is_kubernetes:
            second = int(time.time())
            eventually(lambda: int(time.time()) > second)


def kubernetes_home(server: ApiServer) -> Iterator[Home]:
    """The API server, empty of the kinds of the tests."""
    for name in ("team", "one", "two"):
        server.namespace(name)
    clear_test_kinds(server)
    yield Home(
        KubernetesStore(server.admin),
        lambda: objects_of_tests(server),
        lambda: datetime.now(UTC),
        patience_seconds=60.0,
        expire=server.expire,
        await_collector=lambda: await_garbage_collection(server),
        is_kubernetes=True,
    )
    clear_test_kinds(server)


def bodies(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT body FROM objects ORDER BY id").fetchall()
    connection.close()
    return [json.loads(body) for (body,) in rows]
