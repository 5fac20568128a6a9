"""The object store in SQLite: `tables` is the layout, `rows` the dialect, `store` the store.

Belongs here: SQL about objects. Does not belong here: the meaning of a write (`katib.engine.stores.semantics`),
connections and locks (`katib.engine.databases.sqlite`).
"""

from katib.engine.stores.sql.store import SqlStore
