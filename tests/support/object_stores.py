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

from katib.doors.kube_api.columns import AGE
from katib.doors.kube_api.resources import RESOURCES, ServedResource
from katib.doors.kube_api.server import KubernetesServer
from katib.engine.runtime.objects import Object, ObjectStore, Watch, WatchEvent
from katib.engine.stores.sql import SqlStore
from katib.places.cluster.client import open_connection
from katib.places.cluster.store import KubernetesStore
from katib.service.tuning.object_home import AdmittedObject, ObjectHome
from tests.support.api_server import ApiServer
from tests.support.kube import config_map
from tests.support.server_kinds import await_garbage_collection, clear_test_kinds, objects_of_tests
from tests.support.stores import GADGET, NOTE, STATUS_KINDS, WIDGET
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
        is_ours: Whether it is our own server of that API, whose words are ours and whose pages show what is there now.
    """

    store: ObjectStore
    back_door: BackDoor
    now: Callable[[], datetime]
    patience_seconds: float = 0.0
    expire: Callable[[], None] = lambda: None
    await_collector: Callable[[], None] = lambda: None
    is_kubernetes: bool = False
    is_ours: bool = False

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


class AnyObject:
    """Admits everything."""

    def new(self, obj: dict[str, Any]) -> AdmittedObject:
        return AdmittedObject(obj)

    def changed(self, _old: Object, new: dict[str, Any]) -> AdmittedObject:
        return AdmittedObject(new)


def kube_api_home(store: SqlStore, directory: Path) -> Iterator[Home]:
    """A store behind the Kubernetes API of one machine, through the client for clusters."""
    nothing: Any = None
    home = ObjectHome(store, store, AnyObject(), STATUS_KINDS, nothing, nothing, lambda _namespace, _since: ())
    kinds = [(kind, STATUS_KINDS) for kind in (WIDGET, GADGET, NOTE)]
    served = [
        *RESOURCES,
        *(
            ServedResource(kind, f"{kind.kind.lower()}s", (AGE,), subresources=("status",) if kind in having else ())
            for kind, having in kinds
        ),
    ]
    with KubernetesServer(home, directory, host="127.0.0.1", token="of-tests", resources=served) as server:
        store.create(config_map("first"))  # from revision 0, which no API server is ever at, clients get everything
        connection = open_connection(server.kubeconfig)
        yield Home(
            KubernetesStore(connection),
            lambda: [body for body in bodies(directory / "objects.db") if body["kind"] != "ConfigMap"],
            lambda: datetime.now(UTC),
            patience_seconds=10.0,
            is_kubernetes=True,
            is_ours=True,
        )
        connection.close()


def bodies(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT body FROM objects ORDER BY id").fetchall()
    connection.close()
    return [json.loads(body) for (body,) in rows]
