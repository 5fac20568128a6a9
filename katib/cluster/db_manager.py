"""The DB manager: waits for its database, then serves the observation log over gRPC until it is stopped.

It needs no API server: anything that reaches a database can run it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from katib.api.metrics import MetricLog
from katib.database import Database, open_database
from katib.errors import FieldError, InvalidError, TerminalError, UnavailableError
from katib.observations import SqlObservationLog
from katib.rpc.db_manager import DEFAULT_PORT, serve_db_manager
from katib.runtime.clock import Clock, SystemClock
from katib.sql_server import SqlServer, address_from_environment, address_of, open_sql_server

DEFAULT_LISTEN_ADDRESS = f"0.0.0.0:{DEFAULT_PORT}"
DEFAULT_CONNECT_SECONDS = 60.0
RETRY_SECONDS = 5.0
GRACE_SECONDS = 10.0
"""For calls under way when it is stopped: as long as the database has to answer one."""

_SQLITE = "sqlite:"

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DbManagerOptions:
    """How to run a DB manager.

    Attributes:
        open: Opens the database; raises UnavailableError while it does not answer.
        database_name: The database in messages, without a password.
        initialize: Make the table, or bring it up to date; False: use the one that is there.
        listen_address: `host:port`.
        connect_seconds: How long to wait for the database.
    """

    open: Callable[[], Database | SqlServer]
    database_name: str
    initialize: bool = True
    listen_address: str = DEFAULT_LISTEN_ADDRESS
    connect_seconds: float = DEFAULT_CONNECT_SECONDS


def read_options(
    *,
    url: str | None,
    listen_address: str = DEFAULT_LISTEN_ADDRESS,
    connect_seconds: float = DEFAULT_CONNECT_SECONDS,
    environment: Mapping[str, str] = os.environ,
) -> DbManagerOptions:
    """Return the options that a URL, or without one Katib's variables, stand for.

    Raises:
        InvalidError: Something is missing or unusable.
    """
    opened, name = _sqlite(url) if url and url.startswith(_SQLITE) else _server(url, environment)
    return DbManagerOptions(
        open=opened,
        database_name=name,
        initialize=(environment.get("SKIP_DB_INITIALIZATION") or "false") == "false",
        listen_address=_listenable(listen_address),
        connect_seconds=connect_seconds,
    )


class DbManager:
    """One DB manager; `run` in the main thread, `stop` from anywhere."""

    def __init__(self, options: DbManagerOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._changed = threading.Condition(threading.RLock())  # a signal's handler may interrupt who holds it
        self._stopping = False

    def run(self) -> None:
        """Serve until stopped; return when the port is free and every call has ended.

        Raises:
            UnavailableError: The database did not answer in time, or the port is taken.
            TerminalError: The database cannot be used.
        """
        with ExitStack() as stack:
            log = self._wait_for_database(stack)
            if log is None:
                return
            server = serve_db_manager(log, self._options.listen_address)
            stack.callback(server.stop, GRACE_SECONDS)
            _log.info("serving", extra={"address": server.address, "database": self._options.database_name})
            self._pause(None)
            _log.info("stopping")

    def stop(self) -> None:
        """Have `run` end. Stopping twice is fine."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _wait_for_database(self, stack: ExitStack) -> _WatchedLog | None:
        """Return the log, open until the stack ends; None when stopped before."""
        give_up = self._clock.monotonic() + self._options.connect_seconds
        while not self._stopping:
            try:
                return self._open_log(stack)
            except UnavailableError as error:
                left = give_up - self._clock.monotonic()
                if left <= 0:
                    raise
                fields = {"error": str(error), "giving_up_in_seconds": round(left)}
                _log.warning("waiting for the database", extra=fields)
            self._pause(min(RETRY_SECONDS, left))
        return None

    def _open_log(self, stack: ExitStack) -> _WatchedLog:
        with ExitStack() as attempt:
            database = self._options.open()
            attempt.enter_context(database)
            log = SqlObservationLog(database, initialize=self._options.initialize)
            stack.push(attempt.pop_all())
        return _WatchedLog(log)

    def _pause(self, seconds: float | None) -> None:
        """Return when stopped, or when the time is up."""
        until = None if seconds is None else self._clock.monotonic() + seconds
        with self._changed:
            while not self._stopping:
                left = None if until is None else until - self._clock.monotonic()
                if left is not None and left <= 0:
                    return
                self._clock.wait(self._changed, left)


class _WatchedLog:
    """A log that writes to the process's own log when the database goes away, and when it is back."""

    def __init__(self, log: SqlObservationLog) -> None:
        self._inner = log
        self._away = False

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        with self._watched():
            self._inner.report(trial_name, logs)

    def read(
        self, trial_name: str, *, metric_name: str = "", start: datetime | None = None, end: datetime | None = None
    ) -> tuple[Sequence[MetricLog], str]:
        with self._watched():
            return self._inner.read(trial_name, metric_name=metric_name, start=start, end=end)

    def delete(self, trial_name: str) -> None:
        with self._watched():
            self._inner.delete(trial_name)

    def check(self) -> None:
        with self._watched():
            self._inner.check()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except UnavailableError as error:
            if not self._away:
                _log.warning("the database is away; calls fail until it is back", extra={"error": str(error)})
            self._away = True
            raise
        except TerminalError as error:
            _log.error("the database cannot be used", extra={"error": str(error)})
            raise
        except InvalidError:
            raise
        except Exception as error:
            _log.exception("a call failed; this is a bug, please report it", extra={"error": str(error)})
            raise
        if self._away:
            _log.info("the database is back")
        self._away = False


def _server(url: str | None, environment: Mapping[str, str]) -> tuple[Callable[[], SqlServer], str]:
    address = address_of(url) if url else address_from_environment(environment)
    return lambda: open_sql_server(address), str(address)


def _sqlite(url: str) -> tuple[Callable[[], Database], str]:
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is None or not parsed.database or parsed.database == ":memory:" or parsed.host or parsed.query:
        cause = f'"{url}" names no file'
        remedy = "write it like sqlite:////var/lib/katib/katib.db, with four slashes before an absolute path"
        raise InvalidError([FieldError("--url", cause, remedy, "database-url")])
    path = Path(parsed.database)
    return lambda: open_database(path), f"sqlite:///{path}"


def _listenable(address: str) -> str:
    """Return an address with a host: Katib's flag takes `:6789` for all interfaces."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        cause = f'"{address}" is no address'
        remedy = f"write it like {DEFAULT_LISTEN_ADDRESS}"
        raise InvalidError([FieldError("--listen-address", cause, remedy, "listen-address")])
    return f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - the caller asked for all interfaces
