"""A database on a server, with transactions that translate errors.

Theory of operation. A few connections are kept and checked before each use, so a server restart costs no failed call.
Every wait has a timeout: for a connection, a lock, a response. Migrations exclude all other processes and have longer
timeouts, on a connection of their own.

A commit whose response is lost may have taken effect. It raises `OutcomeUnknownError`, so that a caller can check
instead of writing twice.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    ExceptionContext,
    NullPool,
    Pool,
    QueuePool,
    RootTransaction,
    bindparam,
    create_engine,
    event,
    text,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from katib.engine.databases.address import POSTGRESQL, ServerAddress
from katib.engine.databases.connecting import ConnectionTimeouts, Connector
from katib.engine.databases.failures import breaks_connection, translated
from katib.errors import InternalError, OutcomeUnknownError, TerminalError, UnavailableError

ANSWER_SECONDS = 10.0
"""A call may take two or three times this while the server hangs: well under the clients' 60 s."""

POOL_SIZE = 5
"""Half of the concurrent calls: each uses a connection for milliseconds, and servers allow few."""

_ORDINARY = ConnectionTimeouts(answer_seconds=ANSWER_SECONDS, lock_seconds=5)
# An index over many rows may take minutes. Waiting for its lock must not: later sessions queue up behind.
_LAYOUT = ConnectionTimeouts(answer_seconds=None, lock_seconds=10)

_DRIVERS = {"postgresql": "postgresql+pg8000", "mysql": "mysql+pymysql"}
_LOCK_SPACE = 0x6B617469
"""Upper half of Katib's advisory locks: other programs of the database have locks, too."""


class SqlServer:
    """An open database. Thread-safe; close it after the last use.

    Use `open_sql_server`.
    """

    versions_table = "katib_schema_versions"
    elsewhere = "database"

    def __init__(self, address: ServerAddress, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.address = address
        self._connector = Connector(address)
        self._engine = self._open(
            ConnectionTimeouts(answer_seconds, _ORDINARY.lock_seconds),
            poolclass=QueuePool,
            pool_size=POOL_SIZE,
            max_overflow=0,
            pool_timeout=answer_seconds,
            pool_pre_ping=True,
            pool_use_lifo=True,
        )
        self._driver_error: type[Exception] = self._engine.dialect.loaded_dbapi.Error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run a block whose statements each see one state of the database.

        Raises:
            UnavailableError: The server does not answer, or refuses for a reason that can be fixed there.
            TerminalError: The tables have an unexpected layout.
        """
        with self._translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Run a block as one write transaction; rolled back if the block raises.

        Raises as `read`, and also:

        Raises:
            OutcomeUnknownError: The connection broke during the commit.
            InvalidError: A value cannot be stored.
        """
        with self._translated(), self._engine.connect() as connection:
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                self._roll_back(connection, transaction)
                raise
            self._commit(transaction)

    @contextmanager
    def exclusive(self, purpose: str) -> Iterator[Connection]:
        """Run a block that may change tables, excluding all processes with the same purpose.

        All or nothing on PostgreSQL. MySQL commits at each change of a table: the block must be able to continue after
        a killed one. Raises as `read`; UnavailableError also while another process holds the lock.
        """
        engine = self._open(_LAYOUT, poolclass=NullPool)
        try:
            with self._translated(), engine.connect() as connection, connection.begin():
                self._lock(connection, purpose)
                yield connection
        finally:
            engine.dispose()

    def __str__(self) -> str:
        return str(self.address)

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, patience: ConnectionTimeouts, *, poolclass: type[Pool], **pool: Any) -> Engine:
        def connect() -> Any:
            return self._connector.connect(engine.dialect.loaded_dbapi, patience)

        try:
            engine: Engine = create_engine(
                f"{_DRIVERS[self.address.dialect]}://",
                creator=connect,
                poolclass=poolclass,
                hide_parameters=True,
                **pool,
            )
        except ImportError as error:
            raise TerminalError(
                f"{self.address}: the package {error.name} is missing; install katib[cluster]"
            ) from error
        event.listen(engine, "handle_error", _mark_broken)
        return engine

    def _roll_back(self, connection: Connection, transaction: RootTransaction) -> None:
        """Roll back; if that fails, drop the connection, after which the server rolls back."""
        try:
            transaction.rollback()
        except (SQLAlchemyError, self._driver_error, OSError):
            connection.invalidate()

    def _commit(self, transaction: RootTransaction) -> None:
        try:
            transaction.commit()
        except DBAPIError as error:
            if breaks_connection(error.orig or error):
                message = str(translated(error.orig or error, str(self.address))).partition(";")[0]
                raise OutcomeUnknownError(
                    f"{message} while a write was being committed; it is not known whether it was stored"
                ) from error
            raise

    def _lock(self, connection: Connection, purpose: str) -> None:
        """Take a lock that ends with the transaction, or with the connection."""
        if self.address.dialect == POSTGRESQL:
            key = _LOCK_SPACE << 32 | zlib.crc32(purpose.encode())
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)").bindparams(bindparam("key", key, BigInteger)))
            return
        # The name is global on the server and has at most 64 characters.
        name = f"katib/{purpose}/{zlib.crc32(self.address.database.encode()):x}"
        taken = connection.execute(text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": _LAYOUT.lock_seconds})
        if taken.scalar() != 1:
            raise UnavailableError(f"{self.address}: another process changes the tables; wait for it")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise translated(error.orig or error, str(self.address)) from error
        except PoolTimeoutError as error:
            raise UnavailableError(f"{self.address}: all connections are in use; try again") from error
        except SQLAlchemyError as error:
            raise InternalError(f"{self.address}: {' '.join(str(error).split())}") from error
        except (self._driver_error, OSError, UnicodeError) as error:
            raise translated(error, str(self.address)) from error


def open_sql_server(address: ServerAddress, *, answer_seconds: float = ANSWER_SECONDS) -> SqlServer:
    """Open a database and check that it answers.

    Raises:
        InvalidError: A file for TLS cannot be read.
        UnavailableError: It does not answer, or refuses the login.
        TerminalError: The driver is not installed.
    """
    server = SqlServer(address, answer_seconds=answer_seconds)
    try:
        with server.read() as connection:
            connection.execute(text("SELECT 1"))
    except BaseException:
        server.close()
        raise
    return server


def _mark_broken(context: ExceptionContext) -> None:
    """Discard connections that SQLAlchemy does not recognize as broken: a server shutting down, a replica."""
    if breaks_connection(context.original_exception):
        context.is_disconnect = True
