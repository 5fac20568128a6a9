"""Fixtures of the contracts of object stores and of suggestion services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import ObjectStore
from katib.engine.stores.sql import SqlStore
from tests.support.clock import VirtualClock
from tests.support.faulty_store import FaultyStore
from tests.support.object_stores import BackDoor, Home, bodies, kube_api_home, kubernetes_home
from tests.support.stores import STATUS_KINDS, memory_store
from tests.support.suggestion import Service, each_served_here


@pytest.fixture(scope="module")
def here() -> Iterator[Callable[[str], Service]]:
    """One server per algorithm in this process."""
    with each_served_here() as serve:
        yield serve


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC))


@pytest.fixture(
    params=[
        "memory",
        "sql",
        "wrapped",
        pytest.param("kube_api", marks=pytest.mark.slow),
        pytest.param("kubernetes", marks=pytest.mark.cluster),
    ]
)
def home(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Home]:
    """A store that keeps few changes, where that can be chosen."""
    if request.param == "kubernetes":
        yield from kubernetes_home(request.getfixturevalue("api_server"))
        return
    if request.param not in ("sql", "kube_api"):
        memory = memory_store(clock, kept_changes=20, longest_backlog=30)
        store = memory if request.param == "memory" else FaultyStore(memory)  # without faults it has to be transparent
        yield Home(
            store, lambda: [dict(obj) for kind in memory._rows._objects.values() for obj in kind.values()], clock.now
        )
        return
    path = tmp_path / "objects.db"
    with open_database(path) as database:
        if request.param == "kube_api":
            yield from kube_api_home(SqlStore(database, STATUS_KINDS, kept_changes=20), tmp_path)
            return
        store = SqlStore(database, STATUS_KINDS, clock=clock, kept_changes=20, longest_backlog=30)
        yield Home(store, lambda: bodies(path), clock.now)


@pytest.fixture
def store(home: Home) -> ObjectStore:
    return home.store


@pytest.fixture
def back_door(home: Home) -> BackDoor:
    return home.back_door
