"""The dialect of the object store: every statement it sends, built once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, exists, insert, select, update

from katib.runtime.objects import Key, Kind, Object
from katib.stores import semantics
from katib.stores.sql.tables import object_labels, object_owners, object_revision, objects

_IS_NAMED = (
    (objects.c.kind == bindparam("b_kind"))
    & (objects.c.api_version == bindparam("b_api_version"))
    & (objects.c.namespace == bindparam("b_namespace"))
    & (objects.c.name == bindparam("b_name"))
)
_FIND = select(objects.c.body).where(_IS_NAMED)
_FIND_ID = select(objects.c.id).where(objects.c.uid == bindparam("b_uid"))
_HAS_UID = select(exists().where(objects.c.uid == bindparam("b_uid")))
_OWNED_BY = (
    select(objects.c.body)
    .where(objects.c.id.in_(select(object_owners.c.object_id).where(object_owners.c.owner_uid == bindparam("b_uid"))))
    .order_by(objects.c.id)
)
_OF_KIND = (
    select(objects.c.body)
    .where(objects.c.kind == bindparam("b_kind"), objects.c.api_version == bindparam("b_api_version"))
    .order_by(objects.c.id)
)
_INSERT = insert(objects)
_REPLACE = update(objects).where(objects.c.uid == bindparam("b_uid")).values(body=bindparam("b_body"))
_REMOVE = delete(objects).where(objects.c.uid == bindparam("b_uid"))
_INSERT_LABEL = insert(object_labels)
_INSERT_OWNER = insert(object_owners)
_REMOVE_LABELS = delete(object_labels).where(object_labels.c.object_id == bindparam("b_id"))
_REMOVE_OWNERS = delete(object_owners).where(object_owners.c.object_id == bindparam("b_id"))
_REVISION = select(object_revision.c.revision)
_NEXT_REVISION = (
    update(object_revision).values(revision=object_revision.c.revision + 1).returning(object_revision.c.revision)
)


def read_revision(connection: Connection) -> int:
    """Return the revision of the newest write."""
    return int(connection.execute(_REVISION).scalar_one())


def find_object(connection: Connection, kind: Kind, key: Key) -> Object | None:
    """Return an object or None."""
    body = connection.execute(_FIND, _named(kind, key)).scalar()
    return None if body is None else semantics.decode(body)


def list_objects(
    connection: Connection,
    kind: Kind,
    namespace: str | None,
    labels: Mapping[str, str] | None,
    owner_uid: str | None,
) -> tuple[Object, ...]:
    """Return the objects of a kind that fit, in order of creation."""
    statement, values = _OF_KIND, {"b_kind": kind.kind, "b_api_version": kind.api_version}
    if namespace is not None:
        statement = statement.where(objects.c.namespace == bindparam("b_namespace"))
        values["b_namespace"] = namespace
    for number, (label, value) in enumerate((labels or {}).items()):
        statement = _with_label(statement, number)
        values |= {f"b_label_{number}": label, f"b_value_{number}": value}
    if owner_uid is not None:
        owned = select(object_owners.c.object_id).where(object_owners.c.owner_uid == bindparam("b_owner"))
        statement = statement.where(objects.c.id.in_(owned))
        values["b_owner"] = owner_uid
    return tuple([semantics.decode(body) for body in connection.execute(statement, values).scalars()])


class SqlRows:
    """Objects in tables, inside one write transaction: `katib.stores.transaction.Rows`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def next_revision(self) -> int:
        """Count up in the file."""
        return int(self._connection.execute(_NEXT_REVISION).scalar_one())

    def find(self, kind: Kind, key: Key) -> Object | None:
        """Read one row."""
        return find_object(self._connection, kind, key)

    def has_uid(self, uid: str) -> bool:
        """Look into the index of uids."""
        return bool(self._connection.execute(_HAS_UID, {"b_uid": uid}).scalar_one())

    def owned_by(self, uid: str) -> list[Object]:
        """Read the rows of dependents."""
        bodies = self._connection.execute(_OWNED_BY, {"b_uid": uid}).scalars()
        return [semantics.decode(body) for body in bodies]

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
        inserted = self._connection.execute(_INSERT, values).inserted_primary_key
        assert inserted is not None
        self._add_labels(inserted[0], obj)
        self._add_owners(inserted[0], obj)

    def replace(self, old: Object, new: Object) -> None:
        """Rewrite the row; touch labels and owners only where they differ."""
        uid = new["metadata"]["uid"]
        self._connection.execute(_REPLACE, {"b_uid": uid, "b_body": semantics.encode(new)})
        if semantics.labels_of(old) != semantics.labels_of(new):
            object_id = self._id(uid)
            self._connection.execute(_REMOVE_LABELS, {"b_id": object_id})
            self._add_labels(object_id, new)
        if semantics.owner_uids(old) != semantics.owner_uids(new):
            object_id = self._id(uid)
            self._connection.execute(_REMOVE_OWNERS, {"b_id": object_id})
            self._add_owners(object_id, new)

    def remove(self, obj: Object) -> None:
        """Delete the row; its labels and owners follow."""
        self._connection.execute(_REMOVE, {"b_uid": obj["metadata"]["uid"]})

    def _id(self, uid: str) -> int:
        return int(self._connection.execute(_FIND_ID, {"b_uid": uid}).scalar_one())

    def _add_labels(self, object_id: int, obj: Object) -> None:
        labels = semantics.labels_of(obj).items()
        if labels:
            rows = [{"label": label, "value": value, "object_id": object_id} for label, value in labels]
            self._connection.execute(_INSERT_LABEL, rows)

    def _add_owners(self, object_id: int, obj: Object) -> None:
        owners = semantics.owner_uids(obj)
        if owners:
            self._connection.execute(_INSERT_OWNER, [{"owner_uid": uid, "object_id": object_id} for uid in owners])


def _named(kind: Kind, key: Key) -> dict[str, str]:
    return {
        "b_kind": kind.kind,
        "b_api_version": kind.api_version,
        "b_namespace": key.namespace,
        "b_name": key.name,
    }


def _with_label(statement: Select[Any], number: int) -> Select[Any]:
    is_label = object_labels.c.label == bindparam(f"b_label_{number}")
    is_value = object_labels.c.value == bindparam(f"b_value_{number}")
    return statement.where(objects.c.id.in_(select(object_labels.c.object_id).where(is_label, is_value)))
