"""Databases in a SQLite file or on a PostgreSQL, MySQL or MariaDB server, for the rooms that store data in them.

Belongs here: addresses and logins, connections that survive a server's restart, translation of errors, and migration of
tables. Does not belong here: any table of a room.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from katib.engine.databases.address import ServerAddress, address_from_environment, address_of
    from katib.engine.databases.server import SqlServer, open_sql_server

__all__ = ["ServerAddress", "SqlServer", "address_from_environment", "address_of", "open_sql_server"]


def __getattr__(name: str) -> Any:
    """Import the modules for servers on demand: reading a SQLite file does not need SQLAlchemy."""
    if name in ("SqlServer", "open_sql_server"):
        return getattr(import_module("katib.engine.databases.server"), name)
    if name in __all__:
        return getattr(import_module("katib.engine.databases.address"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
