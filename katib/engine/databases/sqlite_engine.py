"""SQLAlchemy over the connections of a SQLite file, imported by `katib.engine.databases.sqlite` on demand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, QueuePool, StaticPool, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from katib.errors import UnavailableError


def driver_connection(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection of a SQLAlchemy connection."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


class Engines:
    """One engine for all readers, and one connection around the writer. The caller guards the writer by a lock.

    Transactions begin explicitly: the driver would begin late, after a read on which a write depends.

    Args:
        path: Name of the file in errors.
    """

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._readers = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=8, max_overflow=24)
        self._writer: Connection | None = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Run a block on a snapshot.

        Raises:
            sqlite3.Error: A statement failed, in the driver or before.
            UnavailableError: There are too many concurrent readers.
        """
        with self._as_driver_errors(), self._readers.connect() as connection, connection.begin():
            driver_connection(connection).execute("BEGIN")
            yield connection

    @contextmanager
    def writing(self, driver: sqlite3.Connection) -> Iterator[Connection]:
        """Run a block as one transaction on the writer's connection. Raises as `reading`."""
        with self._as_driver_errors():
            if self._writer is None:
                self._writer = create_engine("sqlite://", creator=lambda: driver, poolclass=StaticPool).connect()
            with self._writer.begin():
                driver.execute("BEGIN IMMEDIATE")
                yield self._writer

    def forget_writer(self) -> None:
        """Release the writer's connection, which the caller closes."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.invalidate()
            writer.close()

    def dispose(self) -> None:
        self._readers.dispose()

    @contextmanager
    def _as_driver_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise (error.orig if isinstance(error.orig, sqlite3.Error) else sqlite3.Error(str(error))) from error
        except PoolTimeoutError as error:
            raise UnavailableError(f"{self._path}: all connections are in use; try again") from error
        except SQLAlchemyError as error:
            raise sqlite3.Error(str(error)) from error
