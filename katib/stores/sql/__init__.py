"""The object store in SQLite: `tables` is the layout, `rows` the dialect, `store` the store.

Belongs here: SQL about objects. Does not belong here: what a write means (`katib.stores.semantics`), connections and
locks (`katib.databases.sqlite`).
"""

from katib.stores.sql.store import SqlStore

__all__ = ["SqlStore"]
