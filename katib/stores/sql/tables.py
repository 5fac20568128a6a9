"""Layout of the object tables, and its version.

An object is one row with its JSON text; what is searched for stands beside it. Labels and owners have tables of their
own, clustered by what is searched, so that finding 10 trials among 10,000 reads 10 rows. `id` counts creations, and so
gives the order of lists.

The layout changes by raising `SCHEMA_VERSION` and adding a step to `migrate`: these are three tables that one module
reads, which a migration tool would only make slower to open.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint, insert

ROOM = "objects"
SCHEMA_VERSION = 1

metadata = MetaData()

objects = Table(
    "objects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("api_version", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
    UniqueConstraint("kind", "api_version", "namespace", "name"),
    sqlite_autoincrement=True,  # an id is not given twice, or the order of creation would lie
)

object_labels = Table(
    "object_labels",
    metadata,
    Column("label", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("object_id", ForeignKey(objects.c.id, ondelete="CASCADE"), primary_key=True),
    Index("object_labels_by_object", "object_id"),
    sqlite_with_rowid=False,
)

object_owners = Table(
    "object_owners",
    metadata,
    Column("owner_uid", Text, primary_key=True),
    Column("object_id", ForeignKey(objects.c.id, ondelete="CASCADE"), primary_key=True),
    Index("object_owners_by_object", "object_id"),
    sqlite_with_rowid=False,
)

object_revision = Table(
    "object_revision",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("revision", Integer, nullable=False),
)
"""One row: the revision of the newest write."""


def migrate(connection: Connection, found: int) -> None:
    """Bring the tables from a version (0: none) to `SCHEMA_VERSION`."""
    if found == 0:
        metadata.create_all(connection)
        connection.execute(insert(object_revision).values(id=1, revision=0))
