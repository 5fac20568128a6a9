"""The bounds of names, and what becomes of a file of an earlier layout."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import Key
from katib.engine.runtime.search import SearchQuery
from katib.engine.stores import semantics
from katib.engine.stores.sql import SqlStore
from katib.errors import InvalidError
from tests.contract.test_object_store_search import FACTS
from tests.support.memory_store import MemoryStore
from tests.support.stores import NOTE, STATUS_KINDS, WIDGET, widget

LONGEST_NAME, LONGEST_NAMESPACE = 253, 63


def test_the_longest_names_are_accepted() -> None:
    semantics.require_names({"name": "n" * LONGEST_NAME, "namespace": "s" * LONGEST_NAMESPACE})


@pytest.mark.parametrize(
    ("metadata", "origin"),
    [
        pytest.param({"name": "n" * (LONGEST_NAME + 1)}, "name-dns", id="name"),
        pytest.param({"name": "n", "namespace": "s" * (LONGEST_NAMESPACE + 1)}, "namespace-dns", id="namespace"),
    ],
)
def test_a_longer_name_is_refused(metadata: dict[str, str], origin: str) -> None:
    with pytest.raises(InvalidError) as refused:
        semantics.require_names(metadata)

    assert [error.origin for error in refused.value.errors] == [origin]


def test_what_an_earlier_version_stored_can_be_read() -> None:
    assert semantics.decode(r'{"spec": {"x": "\ud800"}}') == {"spec": {"x": "\ud800"}}


def test_half_a_character_is_kept() -> None:
    obj = widget("a", spec={"x": "\ud800"})

    assert semantics.isolated(obj) == obj


def test_a_copy_has_lists_in_place_of_tuples() -> None:
    assert semantics.isolated(widget("a", spec={"x": (1, (2.0, True))}))["spec"] == {"x": [1, [2.0, True]]}


@pytest.mark.parametrize("length", [57, 58, 59, 300])
def test_a_generated_name_is_a_label_however_long_its_base(length: int) -> None:
    name = semantics.generated_name({"metadata": {"generateName": "g" * length}})

    assert len(name) == min(length + 5, LONGEST_NAMESPACE)


def test_only_objects_of_certain_kinds_keep_the_uid_that_they_bring(tmp_path: Path) -> None:
    with open_database(tmp_path / "objects.db") as database:
        for store in (MemoryStore((), uid_kinds={NOTE}), SqlStore(database, (), uid_kinds={NOTE})):
            kept = store.create(widget("a", kind=NOTE, uid="u-1"))
            other = store.create(widget("a", uid="u-2"))
            without = store.create(widget("b", kind=NOTE))

            assert kept["metadata"]["uid"] == "u-1"
            assert other["metadata"]["uid"] != "u-2"
            assert len(without["metadata"]["uid"]) == 36


def test_a_file_of_the_first_layout_is_brought_up_to_date_with_the_facts_of_its_objects(tmp_path: Path) -> None:
    old, fresh = tmp_path / "old.db", tmp_path / "fresh.db"
    with open_database(old) as database:
        SqlStore(database, STATUS_KINDS).create(widget("w-1", spec={"team": "one"}))
    with sqlite3.connect(old) as connection:
        connection.execute("DROP TABLE object_facts")
        connection.execute("UPDATE schema_versions SET version = 1 WHERE room = 'objects'")
    connection.close()
    with open_database(old) as migrated, open_database(fresh) as new:
        store = SqlStore(migrated, STATUS_KINDS, facts=FACTS)
        SqlStore(new, STATUS_KINDS, facts=FACTS)
        found = store.search(SearchQuery(WIDGET, "one"))

        assert found is not None
        assert tuple(found.items) == (store.get(WIDGET, Key("team", "w-1")),)
    assert layout(old) == layout(fresh)


def layout(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    connection.close()
    return found


def test_half_a_character_is_read_as_it_was_written() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "status": {"message": "\udc80", "count": 10**30},
    }

    assert semantics.decode(semantics.encode(obj)) == obj
