"""The dialect of the object store: every statement it sends.

Statements are built with SQLAlchemy from the tables, compiled once, and run by the driver: a write is four statements
of 3 to 15 microseconds, to each of which SQLAlchemy's execution would add 30.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    UnaryExpression,
    bindparam,
    delete,
    exists,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.operators import custom_op

from katib.runtime.objects import Key, Kind, Object
from katib.stores import semantics
from katib.stores.sql.tables import object_labels, object_owners, object_revision, objects

_DIALECT = sqlite.dialect(paramstyle="named")


def _text(statement: ClauseElement) -> str:
    return str(statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True}))


def _labeled(number: int = 0) -> Any:
    """Return a condition on objects: they carry the label number n."""
    is_label = object_labels.c.label == bindparam(f"b_label_{number}")
    is_value = object_labels.c.value == bindparam(f"b_value_{number}")
    return objects.c.id.in_(select(object_labels.c.object_id).where(is_label, is_value))


_IS_OWNED = objects.c.id.in_(select(object_owners.c.object_id).where(object_owners.c.owner_uid == bindparam("b_owner")))
_HAS_UID = objects.c.uid == bindparam("b_uid")
_IS_OF_KIND = (objects.c.kind == bindparam("b_kind")) & (objects.c.api_version == bindparam("b_api_version"))
_IS_IN_NAMESPACE = objects.c.namespace == bindparam("b_namespace")
_ID = select(objects.c.id).where(_HAS_UID).scalar_subquery()

_SELECT_NAMED = _text(
    select(objects.c.body).where(_IS_OF_KIND, _IS_IN_NAMESPACE, objects.c.name == bindparam("b_name"))
)
_SELECT_OWNED = _text(select(objects.c.body).where(_IS_OWNED).order_by(objects.c.id))
_SELECT_EXISTS = _text(select(exists().where(_HAS_UID)))
_SELECT_REVISION = _text(select(object_revision.c.revision))
_COUNT_REVISION = _text(
    update(object_revision)
    .values(revision=object_revision.c.revision + literal(1, literal_execute=True))
    .returning(object_revision.c.revision)
)
_INSERT = _text(
    insert(objects).inline().values({c.name: bindparam(c.name) for c in objects.c if c is not objects.c.id})
)
_INSERT_LABEL = _text(
    insert(object_labels).inline().values(object_id=_ID, label=bindparam("label"), value=bindparam("value"))
)
_INSERT_OWNER = _text(insert(object_owners).inline().values(object_id=_ID, owner_uid=bindparam("owner_uid")))
_UPDATE = _text(update(objects).where(_HAS_UID).values(body=bindparam("b_body")))
_DELETE = _text(delete(objects).where(_HAS_UID))
_DELETE_LABELS = _text(delete(object_labels).where(object_labels.c.object_id == _ID))
_DELETE_OWNERS = _text(delete(object_owners).where(object_owners.c.object_id == _ID))


def _searched(column: ColumnElement[str]) -> ColumnElement[str]:
    return column


def _not_searched(column: ColumnElement[str]) -> ColumnElement[str]:
    """Return a column behind a unary plus, which keeps SQLite from searching by it.

    It knows no numbers about the tables and would rather read all trials of a namespace than the few with a label.
    """
    return UnaryExpression(column, operator=custom_op("+"))


@cache
def _select_listed(*, namespaced: bool, label_count: int, owned: bool) -> str:
    """Return the statement of a list call with these conditions."""
    searched = [*map(_labeled, range(label_count)), *([_IS_OWNED] if owned else [])]
    column = _not_searched if searched else _searched
    conditions = [
        *searched,
        column(objects.c.kind) == bindparam("b_kind"),
        column(objects.c.api_version) == bindparam("b_api_version"),
        *([column(objects.c.namespace) == bindparam("b_namespace")] if namespaced else []),
    ]
    return _text(select(objects.c.body).where(*conditions).order_by(objects.c.id))


def read_revision(connection: sqlite3.Connection) -> int:
    """Return the revision of the newest write."""
    (revision,) = connection.execute(_SELECT_REVISION).fetchone()
    return int(revision)


def find_object(connection: sqlite3.Connection, kind: Kind, key: Key) -> Object | None:
    """Return an object or None."""
    row = connection.execute(
        _SELECT_NAMED, {**_of_kind(kind), "b_namespace": key.namespace, "b_name": key.name}
    ).fetchone()
    return semantics.decode(row[0]) if row else None


def list_objects(
    connection: sqlite3.Connection,
    kind: Kind,
    namespace: str | None,
    labels: Mapping[str, str],
    owner_uid: str | None,
) -> tuple[Object, ...]:
    """Return the objects of a kind that fit, in order of creation."""
    statement = _select_listed(namespaced=namespace is not None, label_count=len(labels), owned=owner_uid is not None)
    values = {**_of_kind(kind), "b_namespace": namespace, "b_owner": owner_uid}
    for number, (label, value) in enumerate(labels.items()):
        values |= {f"b_label_{number}": label, f"b_value_{number}": value}
    return tuple([semantics.decode(body) for (body,) in connection.execute(statement, values)])


class SqlRows:
    """Objects in tables, inside one write transaction: `katib.stores.transaction.Rows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def next_revision(self) -> int:
        """Count up in the file."""
        ((revision,),) = self._connection.execute(_COUNT_REVISION).fetchall()  # reading to the end finishes the update
        return int(revision)

    def find(self, kind: Kind, key: Key) -> Object | None:
        """Read one row."""
        return find_object(self._connection, kind, key)

    def has_uid(self, uid: str) -> bool:
        """Look into the index of uids."""
        return bool(self._connection.execute(_SELECT_EXISTS, {"b_uid": uid}).fetchone()[0])

    def owned_by(self, uid: str) -> list[Object]:
        """Read the rows of dependents."""
        return [semantics.decode(body) for (body,) in self._connection.execute(_SELECT_OWNED, {"b_owner": uid})]

    def insert(self, obj: Object) -> None:
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
        self._connection.execute(_INSERT, values)
        self._add_labels(obj)
        self._add_owners(obj)

    def replace(self, old: Object, new: Object) -> None:
        """Rewrite the row; touch labels and owners only where they differ."""
        uid = {"b_uid": new["metadata"]["uid"]}
        self._connection.execute(_UPDATE, {**uid, "b_body": semantics.encode(new)})
        if semantics.labels_of(old) != semantics.labels_of(new):
            self._connection.execute(_DELETE_LABELS, uid)
            self._add_labels(new)
        if semantics.owner_uids(old) != semantics.owner_uids(new):
            self._connection.execute(_DELETE_OWNERS, uid)
            self._add_owners(new)

    def remove(self, obj: Object) -> None:
        """Delete the row; its labels and owners follow."""
        self._connection.execute(_DELETE, {"b_uid": obj["metadata"]["uid"]})

    def _add_labels(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        for label, value in semantics.labels_of(obj).items():
            self._connection.execute(_INSERT_LABEL, {"b_uid": uid, "label": label, "value": value})

    def _add_owners(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        for owner_uid in semantics.owner_uids(obj):
            self._connection.execute(_INSERT_OWNER, {"b_uid": uid, "owner_uid": owner_uid})


def _of_kind(kind: Kind) -> dict[str, str | None]:
    return {"b_kind": kind.kind, "b_api_version": kind.api_version}
