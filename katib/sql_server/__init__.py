"""Databases of PostgreSQL, MySQL and MariaDB servers, shared by whoever keeps something in them.

Belongs here: where a server is and how to log in, connections that survive its restarts, and its errors in our words.
Does not belong here: any table.
"""

from __future__ import annotations

from katib.sql_server.address import ServerAddress, address_from_environment, address_of
from katib.sql_server.server import SqlServer, open_sql_server

__all__ = ["ServerAddress", "SqlServer", "address_from_environment", "address_of", "open_sql_server"]
