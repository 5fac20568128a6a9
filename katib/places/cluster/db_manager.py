"""The DB manager: waits for its database, then serves the observation log over gRPC until it is stopped.

It needs no API server: it runs anywhere with access to a database.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from katib.engine.databases import SqlServer, address_from_environment, address_of, open_sql_server
from katib.engine.databases.sqlite import Database, open_database
from katib.engine.observations import QuickObservationLog, SqlObservationLog, observation_log
from katib.engine.observations.access import access_list
from katib.engine.runtime.clock import Clock, SystemClock
from katib.errors import InternalError, InvalidError, KatibError, TerminalError, UnavailableError, invalid
from katib.model.metrics import ObservationLog
from katib.places.cluster.installation_key import read_keys
from katib.wire.rpc.credentials import CERTIFICATE_FILE, KEY_FILE, server_credentials
from katib.wire.rpc.db_manager import DEFAULT_PORT, ignore_report, serve_db_manager
from katib.wire.rpc.log_guard import AccessList, LogGuard
from katib.wire.rpc.tokens import TokenSigner
from katib.wire.rpc.trainer_status import StatusReceiver
from katib.wire.serving.status_server import StatusServer

DEFAULT_LISTEN_ADDRESS = f"0.0.0.0:{DEFAULT_PORT}"
RETRY_SECONDS = 5.0
GRACE_SECONDS = 10.0
"""For calls in progress when it is stopped: the database's own timeout."""

_LOOK_SECONDS = 0.2
"""Python handles a signal that arrives just before the main thread waits only after the wait."""

_SQLITE = "sqlite:"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DbManagerOptions:
    """Options of a DB manager.

    Attributes:
        open: Opens the database; raises UnavailableError while it does not answer.
        database_name: Name of the database in messages, without a password.
        initialize: Whether to create or migrate the table; False to use the existing one.
        listen_address: `host:port`.
        connect_seconds: Timeout for the database to become available; None for no limit.
        key_file: File with the keys that sign tokens; None to require no token.
        tls_directory: Directory of the serving certificate (`tls.crt`, `tls.key`); None for plain text.
        plain_address: Additional plain-text address, for callers with a forwarded port.
        status_address: Address for the status of Kubeflow Trainer; empty for none.
    """

    open: Callable[[], Database | SqlServer]
    database_name: str
    initialize: bool = True
    listen_address: str = DEFAULT_LISTEN_ADDRESS
    connect_seconds: float | None = None
    key_file: Path | None = None
    tls_directory: Path | None = None
    plain_address: str = ""
    status_address: str = ""


def read_options(
    *,
    url: str | None,
    listen_address: str = DEFAULT_LISTEN_ADDRESS,
    connect_seconds: float | None = None,
    key_file: Path | None = None,
    tls_directory: Path | None = None,
    plain_address: str = "",
    status_address: str = "",
    environment: Mapping[str, str] = os.environ,
) -> DbManagerOptions:
    """Return the options for a URL, or without one for Katib's variables.

    Raises:
        InvalidError: A value is missing or unusable.
    """
    opened, name = _sqlite(url) if url and url.startswith(_SQLITE) else _server(url, environment)
    return DbManagerOptions(
        open=opened,
        database_name=name,
        initialize=(environment.get("SKIP_DB_INITIALIZATION") or "false") == "false",
        listen_address=_listenable(listen_address),
        connect_seconds=connect_seconds,
        key_file=key_file,
        tls_directory=tls_directory,
        plain_address=plain_address and _listenable(plain_address, "--plain-address", host="127.0.0.1"),
        status_address=status_address and _listenable(status_address, "--status-address"),
    )


class DbManager:
    """One DB manager; call `run` in the main thread, `stop` from anywhere."""

    def __init__(self, options: DbManagerOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._changed = threading.Condition(threading.RLock())  # a signal handler may interrupt its holder
        self._stopping = False

    def run(self) -> None:
        """Serve until stopped; return when the port is free and every call has ended.

        Raises:
            UnavailableError: The database did not answer in time, or the port is in use.
            TerminalError: The database cannot be used.
            InvalidError: The key or the certificate cannot be used.
        """
        options = self._options
        tokens = None if options.key_file is None else TokenSigner(read_keys(options.key_file))
        credentials = None if options.tls_directory is None else server_credentials(options.tls_directory)
        with ExitStack() as stack:
            opened = self._wait_for_database(stack)
            if opened is None:
                return
            log, access = opened
            guard = _guard(tokens, access)
            self._serve_status(stack, log, guard)
            server = serve_db_manager(
                log,
                options.listen_address,
                guard=guard,
                credentials=credentials,
                plain_address=options.plain_address,
                on_call=_Outages().note,
            )
            stack.callback(server.stop, GRACE_SECONDS)
            _log.info("serving", extra={"address": server.address, "database": self._options.database_name})
            self._pause(None)
            _log.info("stopping")

    def _serve_status(self, stack: ExitStack, log: ObservationLog, guard: LogGuard | None) -> None:
        """Receive the status of trials until the stack ends, with the log's certificate."""
        address, directory = self._options.status_address, self._options.tls_directory
        if not address:
            return
        host, _, port = address.rpartition(":")
        certificate = None if directory is None else (directory / CERTIFICATE_FILE, directory / KEY_FILE)
        receiver = StatusReceiver(log, guard, ignore_report)
        try:
            server = StatusServer(lambda: receiver, host.strip("[]"), int(port), certificate)
        except InvalidError as error:
            raise UnavailableError(f"{address}: cannot listen there; end what uses the port or take another") from error
        stack.callback(server.close)

    def stop(self) -> None:
        """End `run`. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _wait_for_database(self, stack: ExitStack) -> tuple[SqlObservationLog | QuickObservationLog, AccessList] | None:
        """Return the log and the owners of logs, open until the stack ends; None if stopped before."""
        patience = self._options.connect_seconds
        give_up = None if patience is None else self._clock.monotonic() + patience
        while not self._stopping:
            try:
                with ExitStack() as attempt:
                    database = self._options.open()
                    attempt.enter_context(database)
                    log = observation_log(database, initialize=self._options.initialize)
                    access = access_list(database)
                    stack.push(attempt.pop_all())
                    return log, access
            except UnavailableError as error:
                left = RETRY_SECONDS if give_up is None else give_up - self._clock.monotonic()
                if left <= 0:
                    raise
                fields = {} if give_up is None else {"giving_up_in_seconds": round(left)}
                _log.warning("waiting for the database", extra={"error": str(error), **fields})
            self._pause(min(RETRY_SECONDS, left))
        return None

    def _pause(self, seconds: float | None) -> None:
        """Return when stopped, or after a timeout."""
        until = None if seconds is None else self._clock.monotonic() + seconds
        with self._changed:
            while not self._stopping:
                left = None if until is None else until - self._clock.monotonic()
                if left is not None and left <= 0:
                    return
                self._clock.wait(self._changed, _LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS))


def _guard(tokens: TokenSigner | None, access: AccessList) -> LogGuard | None:
    if tokens is None:
        _log.warning("callers are asked for no token: anyone who reaches this port reads, forges and deletes readings")
        return None
    return LogGuard(tokens, access)


class _Outages:
    """Logs when the database becomes unavailable, and when it is back."""

    def __init__(self) -> None:
        self._away = False

    def note(self, error: Exception | None) -> None:
        """Record the result of a call."""
        match error:
            case None:
                if self._away:
                    _log.info("the database is back")
                self._away = False
            case UnavailableError():
                if not self._away:
                    _log.warning("the database is away; calls fail until it is back", extra={"error": str(error)})
                self._away = True
            case TerminalError():
                _log.error("the database cannot be used", extra={"error": str(error)})
            case _ if isinstance(error, InternalError) or not isinstance(error, KatibError):
                _log.error("a call failed; this is a bug, please report it", exc_info=error)


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
        raise invalid("--url", cause, remedy, "database-url")
    path = Path(parsed.database)
    return lambda: open_database(path), f"sqlite:///{path}"


def _listenable(address: str, option: str = "--listen-address", *, host: str = "0.0.0.0") -> str:  # noqa: S104 - the caller asks for all interfaces
    """Return an address with a host: Katib's flag accepts `:6789` for all interfaces."""
    given, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        cause = f'"{address}" is not an address'
        remedy = f"write it like {DEFAULT_LISTEN_ADDRESS}"
        raise invalid(option, cause, remedy, "listen-address")
    return f"{given or host}:{port}"
