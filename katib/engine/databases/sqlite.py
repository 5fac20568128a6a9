"""One SQLite file, shared by the rooms that store data in it.

Theory of operation. The file is in WAL mode: readers never wait for the writer and see the last commit. SQLite allows
one writer at a time, so a process writes through one connection guarded by a lock and its own threads never cause
`SQLITE_BUSY`; a writer in another process (a backup, an interactive `sqlite3`) is waited for. `synchronous=NORMAL` may
lose the last commits if the machine loses power, never if the process is killed, and never corrupts the file.

Each room owns its tables and their layout versions (`katib.engine.databases.migrations`). A file written by a newer
version is refused before anything in it is changed.

A file opened for reading cannot be written to by SQLite. If its directory is writable, SQLite may create its own files
beside it (`-wal`, `-shm`), through which readers and a concurrent writer see each other.

There are two interfaces: `snapshot` and `transaction` on the driver's connections, for few and fast statements, and
`read` and `write` on SQLAlchemy's, for tables that also exist on servers. SQLAlchemy is imported on first use of the
second: for a command that shows objects, the import would take longer than everything else. Both translate exceptions
into errors of `katib.errors`.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar
from urllib.parse import quote

from katib.errors import Backoff, InternalError, TerminalError, UnavailableError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from katib.engine.databases.sqlite_engine import Engines

R = TypeVar("R")


class WithElsewhere(Protocol):
    """A database, with the option that selects another one."""

    elsewhere: str


LOCK_TIMEOUT_SECONDS = 30.0
"""Longer than a backup of a small file takes; a longer wait should be reported."""

_TURNING = Backoff(0.001, 0.1, jitter=0.5)
"""Pauses between attempts to set the journal mode of a file that others open for the first time, too."""

_IDLE_READERS = 8
"""Concurrent readers of a busy server; more are opened on demand."""

_NO_SPACE = "free some space on that disk; a run that waits for it continues by itself"
_REMEDIES = {
    sqlite3.SQLITE_BUSY: (UnavailableError, "end the process that holds the lock, or wait for it"),
    sqlite3.SQLITE_LOCKED: (UnavailableError, "end the process that holds the lock, or wait for it"),
    sqlite3.SQLITE_FULL: (UnavailableError, _NO_SPACE),
    sqlite3.SQLITE_IOERR: (UnavailableError, _NO_SPACE),
    sqlite3.SQLITE_CANTOPEN: (UnavailableError, "check that its directory exists and may be written"),
    sqlite3.SQLITE_READONLY: (TerminalError, "check the permissions of the file and its directory"),
    sqlite3.SQLITE_PERM: (TerminalError, "check the permissions of the file and its directory"),
    sqlite3.SQLITE_CORRUPT: (TerminalError, "restore a backup or move the file away to start with a new one"),
    sqlite3.SQLITE_NOTADB: (TerminalError, "restore a backup or move the file away to start with a new one"),
}


_INCREMENTAL = 2
_SET_INCREMENTAL = f"PRAGMA auto_vacuum={_INCREMENTAL}"
_PAGE_COUNTS = ("auto_vacuum", "freelist_count", "page_count")
_KEPT_PAGES = 256
"""Of 4 KiB: free space for the next rows, so that a file does not alternately shrink and grow."""

_STEP_PAGES = 500
"""Pages released per transaction: some milliseconds, during which no other writer proceeds."""

_REWRITTEN_PAGES = 25_000
"""Largest number of used pages for rewriting a file: 100 MB take a second, during which no other writer proceeds."""


class OutdatedError(TerminalError):
    """The tables are of an earlier version and the database is open for reading only."""


_CREATE_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS {} (room VARCHAR(63) NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (room))"
)


def newer(database: WithElsewhere, room: str, found: int, newest: int) -> TerminalError:
    return TerminalError(
        f"{database}: {room} written by a newer version (schema {found}, this version knows {newest}); "
        f"upgrade katib or use another {database.elsewhere}"
    )


class Database:
    """An open SQLite file. Thread-safe; close it after the last use.

    Use `open_database`.
    """

    versions_table = "schema_versions"
    elsewhere = "--data-dir"

    def __init__(
        self,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        lock_timeout_seconds: float,
        *,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._connect = connect
        self._read_only = read_only
        self._lock_timeout_seconds = lock_timeout_seconds
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._engines: Engines | None = None
        self._making_engines = threading.Lock()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Run a block on one consistent snapshot of the file, on the driver's connection.

        Raises:
            UnavailableError: The file cannot be read now.
            TerminalError: It is damaged, or not a database.
        """
        try:
            try:
                driver = self._readers.pop()
            except IndexError:
                driver = self._connect()
            is_sound = True  # after any other error of the block the connection is reusable
            try:
                driver.execute("BEGIN")
                yield driver
            except sqlite3.Error:
                is_sound = False  # the state of a failed connection cannot be trusted
                raise
            finally:
                if is_sound and len(self._readers) < _IDLE_READERS:
                    driver.rollback()
                    self._readers.append(driver)
                else:
                    driver.close()
        except sqlite3.Error as error:
            raise self._translate(error) from error

    @contextmanager
    def transaction(self, on_commit: Callable[[], None] | None = None) -> Iterator[sqlite3.Connection]:
        """Run a block as one write transaction, on the driver's connection; rolled back if it raises.

        The block must not write through this database in another way.

        Args:
            on_commit: Called after the commit, before any other writer, so that announcements are in order.

        Raises:
            UnavailableError: The lock timed out, or the disk is full or does not respond.
            TerminalError: The file is damaged, read-only, or not a database.
        """
        if not self._write_lock.acquire(timeout=self._lock_timeout_seconds):
            raise self._locked()
        try:
            driver = self._writer or self._open_writer()
            driver.execute("BEGIN IMMEDIATE")
            try:
                yield driver
            except BaseException:  # including an interrupt: no transaction stays open
                driver.rollback()
                raise
            driver.commit()
        except sqlite3.Error as error:
            self._drop_writer()
            raise self._translate(error) from error
        else:
            if on_commit is not None:
                on_commit()
        finally:
            self._write_lock.release()

    def _locked(self) -> UnavailableError:
        return UnavailableError(f"{self.path}: still being written to; wait for the writer to finish")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run a block on a snapshot on SQLAlchemy's connection; see `snapshot`."""
        try:
            with self._sqlalchemy().reading() as connection:
                yield connection
        except sqlite3.Error as error:
            raise self._translate(error) from error

    @contextmanager
    def write(self, on_commit: Callable[[], None] | None = None) -> Iterator[Connection]:
        """Run a block as one transaction on SQLAlchemy's connection; see `transaction`. Not to be nested."""
        if not self._write_lock.acquire(timeout=self._lock_timeout_seconds):
            raise self._locked()
        try:
            with self._sqlalchemy().writing(self._open_writer()) as connection:
                yield connection
            if on_commit is not None:
                on_commit()
        except sqlite3.Error as error:
            self._drop_writer()
            raise self._translate(error) from error
        finally:
            self._write_lock.release()

    def give_back(self) -> None:
        """Return the space of deleted rows to the file system, in steps between which other writers can proceed.

        A file of an earlier version must be rewritten once before, which is done if it is small.

        Raises:
            UnavailableError: The lock timed out, or the disk is full; the space stays in the file.
        """
        with self.snapshot() as driver:
            mode, free, pages = (driver.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGE_COUNTS)
        if free < _KEPT_PAGES or free < pages // 4:
            return
        if mode == _INCREMENTAL:
            while free > _KEPT_PAGES:
                with self.transaction() as driver:
                    driver.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
                    left = driver.execute("PRAGMA freelist_count").fetchone()[0]
                if left >= free:
                    return
                free = left
        elif pages - free < _REWRITTEN_PAGES and self._write_lock.acquire(timeout=self._lock_timeout_seconds):
            try:
                driver = self._writer or self._open_writer()
                driver.execute(_SET_INCREMENTAL)
                driver.execute("VACUUM")
            except sqlite3.Error as error:
                self._drop_writer()
                raise self._translate(error) from error
            finally:
                self._write_lock.release()

    def schema_version(self, room: str) -> int:
        """Return the version of a room's tables in the file; 0 if there are none."""
        with self.snapshot() as driver:
            if not driver.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (self.versions_table,)).fetchone():
                return 0
            query = f"SELECT version FROM {self.versions_table} WHERE room = ?"  # noqa: S608 - a constant
            found = driver.execute(query, (room,)).fetchone()
        return int(found[0]) if found else 0

    def exclusive(self, _purpose: str, /) -> AbstractContextManager[Connection]:
        """Run a block that may change tables: SQLite lets one process write at a time.

        Raises:
            OutdatedError: The file is open for reading only.
        """
        if self._read_only:
            raise self._outdated()
        return self.write()

    def upgrade(self, room: str, version: int, migrate: Callable[[sqlite3.Connection, int], None]) -> None:
        """Migrate a room's tables to a version, all or nothing; see `katib.engine.databases.migrations.upgrade`."""
        found = self.schema_version(room)
        if found > version:
            raise newer(self, room, found, version)
        if found == version:
            return
        if self._read_only:
            raise self._outdated()
        with self.transaction() as driver:
            driver.execute(_CREATE_VERSIONS.format(self.versions_table))
            query = f"SELECT version FROM {self.versions_table} WHERE room = ?"  # noqa: S608 - a constant, as below
            row = driver.execute(query, (room,)).fetchone()  # again: another process may have migrated
            found = int(row[0]) if row else 0
            if found > version:
                raise newer(self, room, found, version)
            if found < version:
                migrate(driver, found)
                note = f"INSERT OR REPLACE INTO {self.versions_table} (room, version) VALUES (?, ?)"  # noqa: S608
                driver.execute(note, (room, version))

    def _outdated(self) -> OutdatedError:
        return OutdatedError(f"{self.path}: written by an earlier version; start `katib serve` there once")

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Close all connections. Idempotent."""
        with self._write_lock:
            self._drop_writer()
        if self._engines is not None:
            self._engines.dispose()
        while self._readers:
            self._readers.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sqlalchemy(self) -> Engines:
        with self._making_engines:
            if self._engines is None:
                from katib.engine.databases.sqlite_engine import Engines

                self._engines = Engines(self.path, self._connect)
            return self._engines

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            writer = self._connect()
            try:
                writer.execute(_SET_INCREMENTAL)  # no effect if there are tables already
                self._turn_to_wal(writer)
            except BaseException:  # including an interrupt: no connection stays open
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def _turn_to_wal(self, writer: sqlite3.Connection) -> None:
        """Set the journal mode; only writers do: reading must not change a file that is to be refused.

        If several set it on a new file at once, SQLite refuses all but one immediately, as they would deadlock.
        """
        deadline, refusals = time.monotonic() + self._lock_timeout_seconds, 0
        while True:
            try:
                writer.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            else:
                return
            refusals += 1
            time.sleep(_TURNING.pause_seconds(refusals, random.random()))

    def _drop_writer(self) -> None:
        """Close the writer: the state of a failed connection cannot be trusted."""
        writer, self._writer = self._writer, None
        if writer is not None:
            if self._engines is not None:
                self._engines.forget_writer()
            writer.close()

    def _translate(self, error: BaseException) -> Exception:
        code = _primary_code(error)
        if code in _REMEDIES:
            error_class, remedy = _REMEDIES[code]
            return error_class(f"{self.path}: {error}; {remedy}")
        return InternalError(f"{self.path}: {error}")


def _primary_code(error: BaseException) -> int:
    """Return the primary error code of SQLite: the low byte of its code."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def open_database(
    path: Path, *, lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS, read_only: bool = False
) -> Database:
    """Open a SQLite file, or create it in an existing directory.

    Args:
        lock_timeout_seconds: How long a write waits for other writers, of this process or another.
        read_only: Whether to leave the file unchanged; it must exist.

    Raises:
        UnavailableError: It cannot be opened.
        TerminalError: It is not a database.
    """

    def connect() -> sqlite3.Connection:
        return _connect(path, lock_timeout_seconds, _reading_mode(path) if read_only else "mode=rwc")

    database = Database(path, connect, lock_timeout_seconds, read_only=read_only)
    try:
        database.schema_version("")
    except BaseException:  # as above: no connection stays open
        database.close()
        raise
    return database


def open_copy(path: Path) -> Database:
    """Open a writable copy of a file, which is deleted after its last use. Raises as `open_database`."""
    directory = tempfile.mkdtemp(prefix=f"katib-{os.getpid()}-")  # the next engine removes those of killed processes
    database = open_database(Path(directory) / path.name)
    weakref.finalize(database, shutil.rmtree, directory, ignore_errors=True)
    with (
        closing(_connect(path, LOCK_TIMEOUT_SECONDS, _reading_mode(path))) as source,
        closing(sqlite3.connect(database.path)) as target,
    ):
        source.backup(target)
    return database


def _connect(path: Path, timeout_seconds: float, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{mode}"
    driver = sqlite3.connect(uri, uri=True, timeout=timeout_seconds, isolation_level=None, check_same_thread=False)
    driver.execute("PRAGMA synchronous=NORMAL")
    driver.execute("PRAGMA foreign_keys=ON")
    return driver


def _reading_mode(path: Path) -> str:
    """Return the mode for opening a file without writing to it.

    If the directory is not writable either, SQLite cannot share the file with a writer; a file without a log beside it
    has no writer, so it is opened as immutable.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    return "mode=ro" if has_log or os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
