"""One SQLite file, shared by the rooms that keep something in it.

Theory of operation. The file is in WAL mode: readers never wait for the writer and see the last commit. SQLite allows
one writer at a time, so a process writes through one connection guarded by a lock and never meets its own threads as
`SQLITE_BUSY`; a writer in another process (a backup, a curious `sqlite3`) is waited for. `synchronous=NORMAL` may lose
the last commits when the machine loses power, never when the process is killed, and never leaves a broken file.

Each room owns its tables and numbers their layout by itself; the numbers are kept in the table `schema_versions`. A
room whose tables are up to date costs one small query at start and no import of a migration tool. A file written by a
newer version is refused before anything in it is touched.

SQLAlchemy's exceptions stop here: `read` and `write` raise errors of `katib.errors` only.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from katib.errors import InternalError, TerminalError, UnavailableError

LOCK_TIMEOUT_SECONDS = 30.0
"""Longer than any backup of a small file takes; whoever waits longer wants to know."""

_WRITER = "katib_writer"

_NO_SPACE = "free some space on that disk; the write is tried again"
_REMEDIES = {
    sqlite3.SQLITE_BUSY: (UnavailableError, "end the process that holds the lock, or wait for it"),
    sqlite3.SQLITE_LOCKED: (UnavailableError, "end the process that holds the lock, or wait for it"),
    sqlite3.SQLITE_FULL: (UnavailableError, _NO_SPACE),
    sqlite3.SQLITE_IOERR: (UnavailableError, _NO_SPACE),
    sqlite3.SQLITE_CANTOPEN: (UnavailableError, "check that its directory exists and may be written"),
    sqlite3.SQLITE_READONLY: (TerminalError, "check the permissions of the file and its directory"),
    sqlite3.SQLITE_PERM: (TerminalError, "check the permissions of the file and its directory"),
    sqlite3.SQLITE_CORRUPT: (TerminalError, "restore a backup or move the file away to start anew"),
    sqlite3.SQLITE_NOTADB: (TerminalError, "restore a backup or move the file away to start anew"),
}

Migrate = Callable[[Connection, int], None]
"""Brings a room's tables from a version (0: none exist) to the latest, inside a write transaction."""


class Database:
    """An open SQLite file. Safe to call from any thread; close it when nobody uses it any more.

    Use `open_database`. `engine` is for tools that want one, such as migrations; a write through it has to wait for the
    lock as a foreign process would, so rooms use `read` and `write`.
    """

    def __init__(self, path: Path, engine: Engine, lock_timeout_seconds: float) -> None:
        self.path = path
        self.engine = engine
        self._lock_timeout_seconds = lock_timeout_seconds
        self._write_lock = threading.Lock()
        self._writer: Connection | None = None

    @contextmanager
    def write(self, on_commit: Callable[[], None] | None = None) -> Iterator[Connection]:
        """Run a block as one transaction that writes; rolled back when the block raises. Not to be nested.

        Args:
            on_commit: Called after the commit, before anybody else may write: what it announces is in order.

        Raises:
            UnavailableError: The lock could not be had in time, the disk is full or does not answer.
            TerminalError: The file is damaged, read-only, or no database.
        """
        if not self._write_lock.acquire(timeout=self._lock_timeout_seconds):
            raise UnavailableError(f"{self.path}: still being written to; wait for the writer to finish")
        try:
            with self._translated(), self._begin_write() as connection:
                yield connection
            if on_commit is not None:
                on_commit()
        finally:
            self._write_lock.release()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run a block on one consistent snapshot of the file. Raises as `write`."""
        with self._translated(), self.engine.begin() as connection:
            yield connection

    def schema_version(self, room: str) -> int:
        """Return the version of a room's tables in the file; 0: it has none yet."""
        with self.read() as connection:
            return _schema_version(connection, room)

    def upgrade(self, room: str, version: int, migrate: Migrate) -> None:
        """Bring a room's tables to a version, all or nothing; cheap when they are there already.

        Raises:
            TerminalError: The file was written by a newer version; it is left untouched.
        """
        found = self.schema_version(room)
        if found == version:
            return
        if found > version:
            raise TerminalError(
                f"{self.path}: {room} written by a newer version (schema {found}, this version knows {version}); "
                "upgrade katib or use another --data-dir"
            )
        with self.write() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE IF NOT EXISTS schema_versions (room TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"
            )
            migrate(connection, _schema_version(connection, room))
            connection.exec_driver_sql("INSERT OR REPLACE INTO schema_versions VALUES (?, ?)", (room, version))

    def close(self) -> None:
        """Close all connections. Closing twice is fine."""
        with self._write_lock:
            self._drop_writer()
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _begin_write(self) -> Iterator[Connection]:
        if self._writer is None:
            self._writer = self._connect_writer()
        connection = self._writer
        try:
            with connection.begin():
                yield connection
        except (SQLAlchemyError, sqlite3.Error):
            self._drop_writer()  # what a failed connection remembers is not worth trusting
            raise

    def _connect_writer(self) -> Connection:
        connection = self.engine.connect().execution_options(**{_WRITER: True})
        try:
            # Only a writer turns the file to WAL: reading must leave a file that is to be refused as it was.
            driver_connection(connection).execute("PRAGMA journal_mode=WAL")
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        return connection

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.invalidate()
            writer.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._translate(error.orig or error) from error
        except PoolTimeoutError as error:
            raise UnavailableError(f"{self.path}: all connections are in use; try again") from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._translate(error) from error

    def _translate(self, error: BaseException) -> Exception:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the low byte: the primary code
        if code in _REMEDIES:
            error_class, remedy = _REMEDIES[code]
            return error_class(f"{self.path}: {error}; {remedy}")
        return InternalError(f"{self.path}: {error}")


def open_database(path: Path, *, lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Database:
    """Open a SQLite file, or create it in an existing directory.

    Args:
        path: The file.
        lock_timeout_seconds: How long a write waits for other writers, of this process or another.

    Raises:
        UnavailableError: It cannot be opened.
        TerminalError: It is not a database.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),  # not as text: a path may hold what means something in a URL
        connect_args={"check_same_thread": False, "isolation_level": None, "timeout": lock_timeout_seconds},
        pool_size=8,
        max_overflow=24,
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    database = Database(path, engine, lock_timeout_seconds)
    try:
        database.schema_version("")
    except BaseException:
        database.close()
        raise
    return database


def _set_up(connection: sqlite3.Connection, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin(connection: Connection) -> None:
    """Begin explicitly: the driver would begin late, after a read on which a write is to be based."""
    writes = connection.get_execution_options().get(_WRITER, False)
    driver_connection(connection).execute("BEGIN IMMEDIATE" if writes else "BEGIN")


def driver_connection(connection: Connection) -> sqlite3.Connection:
    """Return what is below a connection, for statements that run so often that SQLAlchemy's 30 microseconds count."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _schema_version(connection: Connection, room: str) -> int:
    exists = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_versions'"
    if connection.exec_driver_sql(exists).first() is None:
        return 0
    row = connection.exec_driver_sql("SELECT version FROM schema_versions WHERE room = ?", (room,)).first()
    return int(row[0]) if row else 0
