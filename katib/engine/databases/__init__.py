"""Databases in a SQLite file or on a PostgreSQL, MySQL or MariaDB server, for the rooms that store data in them.

Belongs here: addresses and logins, connections that survive a server's restart, translation of errors, and migration of
tables. Does not belong here: any table of a room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.model.loadable import lazy_names

if TYPE_CHECKING:
    from katib.engine.databases.address import ServerAddress, address_from_environment, address_of
    from katib.engine.databases.server import SqlServer, open_sql_server

if not TYPE_CHECKING:  # which knows all names
    __getattr__ = lazy_names(
        __name__,
        {
            "address": "ServerAddress address_from_environment address_of",
            "server": "SqlServer open_sql_server",
        },
    )
