"""Runs revisions inside the transaction of the caller, who passes it as the attribute `connection`."""

from __future__ import annotations

from alembic import context

from katib.observations.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
