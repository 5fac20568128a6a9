"""Dialect of the object store: all its statements, sent as text to SQLite's driver.

A write is four statements of 3 to 15 microseconds, to each of which SQLAlchemy would add 30, and importing it takes
longer than most commands that read a data directory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, overload

from msgspec import Struct

from katib.engine.runtime.objects import Key, Kind, Object
from katib.engine.runtime.search import FactsOf, SearchPage, SearchQuery, SortOrder, SortPosition, foreign_cursor
from katib.engine.stores import semantics

_LONGEST_ID = 19
"""Digits of SQLite's largest id."""

_SELECT_NAMED = "SELECT body FROM objects WHERE api_version = ? AND kind = ? AND namespace = ? AND name = ?"
_IS_OWNED = "id IN (SELECT object_id FROM object_owners WHERE owner_uid = :owner)"
_SELECT_OWNED = f"SELECT body FROM objects WHERE {_IS_OWNED} ORDER BY id"  # noqa: S608 - of constants
_SELECT_EXISTS = "SELECT EXISTS (SELECT 1 FROM objects WHERE uid = :uid)"
_SELECT_REVISION = "SELECT revision FROM object_revision"
_COUNT_REVISION = "UPDATE object_revision SET revision = revision + 1 RETURNING revision"
_INSERT = (
    "INSERT INTO objects (api_version, kind, namespace, name, uid, body)"
    " VALUES (:api_version, :kind, :namespace, :name, :uid, :body)"
)
_INSERT_FACTS = (
    "INSERT INTO object_facts (object_id, scope, state, name, cost, brevity)"
    " VALUES ((SELECT id FROM objects WHERE uid = :uid), :scope, :state, :name, :cost, :brevity)"
)
_UPDATE_FACTS = (
    "UPDATE object_facts SET scope = :scope, state = :state, name = :name, cost = :cost, brevity = :brevity"
    " WHERE object_id = (SELECT id FROM objects WHERE uid = :uid)"
    " AND (scope, state, name, cost, brevity) IS NOT (:scope, :state, :name, :cost, :brevity)"
)
"""SQLite compares with the existing row, which is cheaper than deriving the facts of the earlier object again."""
_UPDATE = "UPDATE objects SET body = :body WHERE uid = :uid"
_DELETE = "DELETE FROM objects WHERE uid = :uid"
_UNRELATE = (
    "DELETE FROM object_labels WHERE object_id = (SELECT id FROM objects WHERE uid = :uid)",
    "DELETE FROM object_owners WHERE object_id = (SELECT id FROM objects WHERE uid = :uid)",
)
_RELATE = (
    """
    INSERT INTO object_labels SELECT key, value, objects.id FROM objects, json_each(body, '$.metadata.labels')
    WHERE uid = :uid AND json_type(body, '$.metadata.labels') = 'object'
    """,
    """
    INSERT INTO object_owners SELECT DISTINCT json_extract(value, '$.uid'), objects.id
    FROM objects, json_each(body, '$.metadata.ownerReferences')
    WHERE uid = :uid AND json_type(body, '$.metadata.ownerReferences') = 'array'
    """,
)


@cache
def _select_listed(*, namespaced: bool, label_count: int, owned: bool, sliced: bool = False) -> str:
    """Return the statement of a list call with these conditions.

    For a search by label or owner, a unary plus keeps SQLite from searching by kind: without statistics it would rather
    read all trials of a namespace than the few with a label.
    """
    searched = [
        f"id IN (SELECT object_id FROM object_labels WHERE label = :label_{number} AND value = :value_{number})"  # noqa: S608 - of numbers
        for number in range(label_count)
    ] + [_IS_OWNED] * owned
    plus = "+" if searched else ""
    plain = ("kind", "api_version", "namespace") if namespaced else ("kind", "api_version")
    conditions = [*searched, *(f"{plus}{column} = :{column}" for column in plain)]
    if sliced:  # ids are sorted without the bodies, and only those of the slice are read
        ids = f"SELECT id FROM objects WHERE {' AND '.join(conditions)} AND id > :place ORDER BY id LIMIT :limit"  # noqa: S608 - of constants
        return f"SELECT id, body FROM objects WHERE id IN ({ids}) ORDER BY id"  # noqa: S608 - of constants
    return f"SELECT body FROM objects WHERE {' AND '.join(conditions)} ORDER BY id"  # noqa: S608 - of constants


@cache
def _select_found(order: SortOrder, *, begun: bool, state_count: int) -> str:
    """Return the statement of a search; `begun` if it continues after a cursor."""
    key = "object_id" if order is SortOrder.CREATION else f"object_facts.{order}"
    behind = "object_id > :age" if order is SortOrder.CREATION else f"({key}, object_id) > (:key, :age)"
    return (
        f"SELECT {key}, object_id, body FROM object_facts JOIN objects ON id = object_id"  # noqa: S608 - of constants
        f" WHERE {_facts_conditions(state_count)}{f' AND {behind}' if begun else ''}"
        f" ORDER BY {key}, object_id LIMIT :limit"
    )


@cache
def _count_found(state_count: int) -> str:
    return f"SELECT count(*) FROM object_facts WHERE {_facts_conditions(state_count)}"  # noqa: S608 - of constants


def _facts_conditions(state_count: int) -> str:
    states = ", ".join(f":state_{number}" for number in range(state_count))
    return f"scope = :scope AND state IN ({states})" if states else "scope = :scope"


def read_revision(connection: sqlite3.Connection) -> int:
    (revision,) = connection.execute(_SELECT_REVISION).fetchone()
    return int(revision)


def list_objects(
    connection: sqlite3.Connection,
    kind: Kind,
    namespace: str | None,
    labels: Mapping[str, str],
    owner_uid: str | None,
) -> tuple[Object, ...]:
    """Return the matching objects of a kind, in order of creation."""
    return _decoded(_bodies(connection, kind, namespace, labels, owner_uid))


def object_pages(
    connection: sqlite3.Connection, kind: Kind, namespace: str | None, labels: Mapping[str, str], page_size: int
) -> Iterator[tuple[Object, ...]]:
    """Yield the objects of a kind in order of creation, a page at a time; an empty one if there are none."""
    bodies = _bodies(connection, kind, namespace, labels, None)
    page = _decoded(bodies.fetchmany(page_size))
    while True:
        yield page
        del page
        if not (page := _decoded(bodies.fetchmany(page_size))):
            return


def slice_objects(
    connection: sqlite3.Connection,
    kind: Kind,
    namespace: str | None,
    labels: Mapping[str, str],
    limit: int,
    place: str,
) -> tuple[tuple[str, ...], str]:
    """Return the text of at most `limit` objects after a place, and the place after them, empty after the last one.

    Raises:
        InvalidError: The place is malformed.
    """
    if place and not (place.isascii() and place.isdecimal() and len(place) < _LONGEST_ID):
        raise foreign_cursor(place)
    statement = _select_listed(namespaced=namespace is not None, label_count=len(labels), owned=False, sliced=True)
    values = {**_listed_values(kind, namespace, labels), "place": int(place or 0), "limit": limit + 1}
    found = connection.execute(statement, values).fetchall()
    return tuple([body for _, body in found[:limit]]), str(found[limit - 1][0]) if len(found) > limit else ""


def _decoded(bodies: Iterable[tuple[str]]) -> tuple[Object, ...]:
    return tuple([semantics.decode(body) for (body,) in bodies])


def _bodies(
    connection: sqlite3.Connection,
    kind: Kind,
    namespace: str | None,
    labels: Mapping[str, str],
    owner_uid: str | None,
) -> sqlite3.Cursor:
    statement = _select_listed(namespaced=namespace is not None, label_count=len(labels), owned=owner_uid is not None)
    return connection.execute(statement, {**_listed_values(kind, namespace, labels), "owner": owner_uid})


def _listed_values(kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {**kind._asdict(), "namespace": namespace}
    for number, (label, value) in enumerate(labels.items()):
        values |= {f"label_{number}": label, f"value_{number}": value}
    return values


def search(connection: sqlite3.Connection, query: SearchQuery) -> SearchPage:
    """Return the result of a search.

    Raises:
        InvalidError: The cursor does not belong to this order.
    """
    values: dict[str, object] = {"scope": query.scope, "limit": query.limit + 1}
    values |= {f"state_{number}": state for number, state in enumerate(query.states)}
    (total,) = connection.execute(_count_found(len(query.states)), values).fetchone()
    if query.after:
        place = SortPosition.parse(query.after, query.order)
        age = str(place.age)
        if not (age.isascii() and age.isdecimal() and len(age) < _LONGEST_ID):
            raise foreign_cursor(query.after)
        values |= {"key": place.key, "age": int(age)}
    statement = _select_found(query.order, begun=bool(query.after), state_count=len(query.states))
    found = connection.execute(statement, values).fetchall()
    cursor = ""
    if len(found) > query.limit:
        key, age, _ = found[query.limit - 1]
        cursor = str(SortPosition("" if query.order is SortOrder.CREATION else key, age))
    return SearchPage(_Decoded([body for _, _, body in found[: query.limit]]), cursor, int(total))


@dataclass(frozen=True, slots=True)
class _Decoded(Sequence[Object]):
    """Objects by their texts, decoded on each access: a page of thousands is not held twice."""

    _bodies: Sequence[str]

    def __len__(self) -> int:
        return len(self._bodies)

    @overload
    def __getitem__(self, index: int) -> Object: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Object]: ...

    def __getitem__(self, index: int | slice) -> Object | Sequence[Object]:
        found = self._bodies[index]
        return semantics.decode(found) if isinstance(found, str) else _Decoded(found)


def scopes(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return every scope of facts once, each found by one lookup in the index."""
    found: list[str] = []
    query = "SELECT min(scope) FROM object_facts WHERE scope > :last"
    last = ""
    while (row := connection.execute(query, {"last": last}).fetchone())[0] is not None:
        last = str(row[0])
        found.append(last)
    return tuple(found)


def derive_all(connection: sqlite3.Connection, facts_of: FactsOf) -> None:
    """Fill the table of facts from the objects."""
    connection.execute("DELETE FROM object_facts")
    for kind in facts_of.kinds:
        for (body,) in _bodies(connection, kind, None, {}, None):
            SqlRows(connection, facts_of).write_facts(_INSERT_FACTS, semantics.decode(body))


class SqlRows(Struct, frozen=True):
    """Objects in tables, inside one write transaction: `katib.engine.stores.transaction.ObjectRows`."""

    _connection: sqlite3.Connection
    _facts_of: FactsOf

    def next_revision(self) -> int:
        ((revision,),) = self._connection.execute(_COUNT_REVISION).fetchall()  # fetching all finishes the update
        return int(revision)

    def find(self, kind: Kind, key: Key) -> Object | None:
        row = self._connection.execute(_SELECT_NAMED, (*kind, *key)).fetchone()
        return semantics.decode(row[0]) if row else None

    def has_uid(self, uid: str) -> bool:
        return bool(self._connection.execute(_SELECT_EXISTS, {"uid": uid}).fetchone()[0])

    def owned_by(self, uid: str) -> list[Object]:
        return [semantics.decode(body) for (body,) in self._connection.execute(_SELECT_OWNED, {"owner": uid})]

    def insert(self, obj: Object) -> Any:
        """Add a row, and rows for its labels and owners."""
        kind, key = Kind.of(obj), Key.of(obj)
        values = {
            "api_version": kind.api_version,
            "kind": kind.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": obj["metadata"]["uid"],
            "body": semantics.encode(obj),
        }
        for statement in (_INSERT, *_RELATE):
            self._connection.execute(statement, values)
        return self.write_facts(_INSERT_FACTS, obj)

    def replace(self, old: Object, new: Object) -> Any:
        """Rewrite the row, and labels and owners only if they differ."""
        before, after = old["metadata"], new["metadata"]
        uid = {"uid": after["uid"]}
        self._connection.execute(_UPDATE, {**uid, "body": semantics.encode(new)})
        if (before.get("labels"), before.get("ownerReferences")) != (after.get("labels"), after.get("ownerReferences")):
            for statement in _UNRELATE + _RELATE:
                self._connection.execute(statement, uid)
        return self.write_facts(_UPDATE_FACTS, new)

    def remove(self, obj: Object) -> None:
        """Delete the row; its labels, owners and facts are deleted with it."""
        self._connection.execute(_DELETE, {"uid": obj["metadata"]["uid"]})

    def write_facts(self, statement: str, obj: Object) -> Any:
        """Write the facts of an object, if its kind is searchable; return the decoded object."""
        derive = self._facts_of.kinds.get(Kind(obj["apiVersion"], obj["kind"]))
        if derive is None:
            return None
        facts, struct = derive(obj)
        self._connection.execute(statement, {"uid": obj["metadata"]["uid"], **facts._asdict()})
        return struct
