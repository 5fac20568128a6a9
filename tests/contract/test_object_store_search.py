"""What a store promises that keeps facts beside objects; the pass over all objects, for the others, gives the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.engine.runtime.search import (
    FactsOf,
    ObjectFacts,
    SearchableStore,
    SearchPage,
    SearchQuery,
    SortOrder,
    search_in,
)
from katib.engine.stores.sql import SqlStore
from katib.errors import InvalidError
from tests.support.memory_store import MemoryStore
from tests.support.stores import STATUS_KINDS, WIDGET, changed, widget

Search = Callable[[SearchQuery], SearchPage | None]


def facts_of(obj: Object) -> tuple[ObjectFacts, object]:
    spec, metadata = obj["spec"], obj["metadata"]
    state = obj.get("status", {}).get("state", "new")
    facts = ObjectFacts(spec["team"], state, metadata["name"], spec.get("cost", float("inf")), spec.get("brevity", 0.0))
    return facts, (metadata["name"], state)


FACTS = FactsOf(1, {WIDGET: facts_of})


@pytest.fixture(params=["memory", "sql", "pass"])
def searched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ObjectStore, Search]]:
    if request.param == "sql":
        with open_database(tmp_path / "objects.db") as database:
            sql = SqlStore(database, STATUS_KINDS, facts=FACTS)
            yield sql, sql.search
        return
    memory = MemoryStore(STATUS_KINDS, facts=FACTS)

    def by_pass(query: SearchQuery) -> SearchPage:
        found = reversed(memory.list(query.kind).items)
        return search_in(((f"{int(obj['metadata']['name'][2:]):04}", obj) for obj in found), FACTS, query)

    yield memory, memory.search if request.param == "memory" else by_pass


@pytest.fixture
def store(searched: tuple[ObjectStore, Search]) -> ObjectStore:
    return searched[0]


@pytest.fixture
def search(searched: tuple[ObjectStore, Search]) -> Callable[..., list[int]]:
    def names(limit: int = 500, **options: object) -> list[int]:
        """Return the numbers of all that is found, page by page."""
        numbers: list[int] = []
        cursor, total = "", None
        while True:
            found = searched[1](SearchQuery(WIDGET, "one", limit=limit, after=cursor, **options))  # type: ignore[arg-type]
            assert found is not None
            assert total in (None, found.total)
            assert len(found.items) <= limit
            numbers += [int(obj["metadata"]["name"][2:]) for obj in found.items]
            cursor, total = found.cursor, found.total
            if not cursor:
                assert total == len(numbers)
                return numbers

    return names


def fill(store: ObjectStore, *specs: dict[str, float]) -> None:
    for number, spec in enumerate(specs):
        store.create(widget(f"w-{number}", spec={"team": "one", **spec}))
    store.create(widget("w-99", spec={"team": "two", "cost": 0.0}))


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
def test_the_smallest_cost_comes_first_equal_ones_in_order_of_creation_and_none_last(
    store: ObjectStore, search: Callable[..., list[int]], limit: int
) -> None:
    fill(store, {"cost": 0.5}, {}, {"cost": -1.5}, {"cost": 0.5}, {}, {"cost": 1e-300})

    assert search(limit, order=SortOrder.COST) == [2, 5, 0, 3, 1, 4]


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_every_order_is_whole_on_pages_of_any_size(
    store: ObjectStore, search: Callable[..., list[int]], limit: int
) -> None:
    fill(store, *({"brevity": -float(number % 4)} for number in range(11)))

    assert search(limit) == list(range(11))
    assert search(limit, order=SortOrder.BREVITY) == [3, 7, 2, 6, 10, 1, 5, 9, 0, 4, 8]
    assert search(limit, order=SortOrder.NAME) == [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9]


def test_facts_follow_every_write_and_go_with_their_object(
    store: ObjectStore, search: Callable[..., list[int]]
) -> None:
    fill(store, {"cost": 1.0}, {"cost": 2.0}, {"cost": 3.0})
    ended = store.update_status(changed(store.get(WIDGET, Key("team", "w-2")), status={"state": "ended"}))
    store.patch(ended, {"spec": {"cost": 0.5}})
    store.delete(WIDGET, Key("team", "w-0"))

    assert search(order=SortOrder.COST) == [2, 1]
    assert search(states=frozenset({"ended"})) == [2]
    assert search(states=frozenset({"ended", "new"}), order=SortOrder.COST) == [2, 1]
    assert search(states=frozenset({"lost"})) == []


def test_a_cursor_stays_good_while_objects_come_and_go(
    store: ObjectStore, searched: tuple[ObjectStore, Search]
) -> None:
    fill(store, {"cost": 1.0}, {"cost": 2.0}, {"cost": 3.0})
    first = searched[1](SearchQuery(WIDGET, "one", order=SortOrder.COST, limit=2))
    assert first is not None
    for number in (0, 1):
        store.delete(WIDGET, Key("team", f"w-{number}"))
    store.create(widget("w-7", spec={"team": "one", "cost": 0.0}))
    rest = searched[1](SearchQuery(WIDGET, "one", order=SortOrder.COST, after=first.cursor))

    assert rest is not None
    assert [obj["metadata"]["name"] for obj in rest.items] == ["w-2"]


@pytest.mark.parametrize("cursor", ["abc", "-1", "\u00b2", "1,2", "x,"])
def test_a_cursor_of_another_list_is_bad_input(
    store: ObjectStore, searched: tuple[ObjectStore, Search], cursor: str
) -> None:
    with pytest.raises(InvalidError):
        searched[1](SearchQuery(WIDGET, "one", after=cursor))


def test_a_store_without_facts_says_so() -> None:
    store = MemoryStore(STATUS_KINDS)

    assert isinstance(store, SearchableStore)
    assert store.search(SearchQuery(WIDGET, "one")) is None


def test_the_facts_of_an_older_file_are_derived_when_it_is_opened(tmp_path: Path) -> None:
    with open_database(tmp_path / "objects.db") as database:
        fill(SqlStore(database, STATUS_KINDS), {"cost": 2.0}, {"cost": 1.0})
    with open_database(tmp_path / "objects.db") as database:
        found = SqlStore(database, STATUS_KINDS, facts=FACTS).search(SearchQuery(WIDGET, "one", order=SortOrder.COST))

    assert found is not None
    assert [obj["metadata"]["name"] for obj in found.items] == ["w-1", "w-0"]


def test_what_a_store_decodes_for_its_search_comes_with_the_event(store: ObjectStore) -> None:
    since = store.list(WIDGET).resource_version
    store.create(widget("w-1", spec={"team": "one"}))
    store.delete(WIDGET, Key("team", "w-1"))
    with store.watch(WIDGET, since) as watch:
        events = [watch.next(), watch.next()]

    structs = [event and event.struct for event in events]
    assert structs == [("w-1", "new") if isinstance(store, SqlStore) else None, None]
