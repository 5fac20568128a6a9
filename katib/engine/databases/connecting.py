"""Opens single connections to a server, each with a session independent of the server's settings.

The socket is Katib's own. The kernel detects a host that disappeared after `DEAD_SECONDS`, however long the current
statement takes; a server that does not respond is given up after the caller's timeout. Nagle's algorithm is off: the
drivers send several messages for one statement, and each would wait for the one before.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from katib.engine.databases.address import POSTGRESQL, ServerAddress, Tls
from katib.errors import invalid

CONNECT_SECONDS = 5.0
DEAD_SECONDS = 10

_OPTIONAL_TLS = frozenset({"allow", "prefer"})

# STRICT_TRANS_TABLES: a value that does not fit a column is refused instead of truncated.
_MYSQL_SESSION = (
    "SET time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', "
    "innodb_lock_wait_timeout = {lock_seconds}, lock_wait_timeout = {lock_seconds}"
)
_POSTGRESQL_SESSION = (
    "SET TIME ZONE 'UTC'; SET client_encoding TO 'UTF8'; SET DateStyle TO 'ISO'; SET lock_timeout TO '{lock_seconds}s'"
)


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """Timeouts.

    Attributes:
        answer_seconds: Timeout of each response of the server; None for no limit while it is reachable.
        lock_seconds: Timeout for a lock held by another session.
    """

    answer_seconds: float | None
    lock_seconds: int


class Connector:
    """Opens driver connections to one address.

    Raises:
        InvalidError: A file for TLS cannot be read.
    """

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._tls = _tls_context(address.tls)

    def connect(self, driver: Any, patience: ConnectionTimeouts) -> Any:
        """Return an open driver connection, logged in and set up.

        Raises:
            OSError: No server answers there. The driver's own errors are not translated.
        """
        sock = _connected(self._address, patience)
        try:
            if self._address.dialect == POSTGRESQL:
                return self._postgresql(driver, sock, patience)
            return self._mysql(driver, sock, patience)
        except BaseException:
            # Close the socket, even if a driver that failed still holds a stream over it.
            descriptor = sock.detach()
            if descriptor >= 0:
                os.close(descriptor)
            raise

    def _postgresql(self, driver: Any, sock: socket.socket, patience: ConnectionTimeouts) -> Any:
        address = self._address
        connection = driver.Connection(  # its `connect` accepts no socket
            user=address.user,
            password=address.password,
            database=address.database,
            host=address.host,  # the name in the certificate
            sock=sock,
            ssl_context=False if address.tls.mode == "disable" else self._tls,
            application_name="katib",
        )
        # The driver sends a last message first, and fails if the server is gone.
        connection.close = partial(_close, connection, connection.close)
        try:
            connection.autocommit = True
            connection.cursor().execute(_POSTGRESQL_SESSION.format(lock_seconds=patience.lock_seconds))
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection

    def _mysql(self, driver: Any, sock: socket.socket, patience: ConnectionTimeouts) -> Any:
        address = self._address
        connection = driver.connect(
            user=address.user,
            password=address.password.encode(),  # the driver would encode text as Latin-1, the server takes it as UTF-8
            host=address.host,
            port=address.port,
            database=address.database,
            charset="utf8mb4",
            init_command=_MYSQL_SESSION.format(lock_seconds=patience.lock_seconds),
            read_timeout=patience.answer_seconds,
            write_timeout=patience.answer_seconds,
            ssl=self._tls,
            ssl_disabled=address.tls.mode == "disable",
            defer_connect=True,
        )
        connection.connect(sock)
        return connection


def _connected(address: ServerAddress, patience: ConnectionTimeouts) -> socket.socket:
    sock = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
    sock.settimeout(patience.answer_seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, DEAD_SECONDS // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, DEAD_SECONDS // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
    return sock


def _close(connection: Any, say_good_bye: Callable[[], None]) -> None:
    """Close a connection of pg8000 silently.

    The driver's stream over the socket keeps it open, with unsent data: dropped as is, it would try to send that once
    more and report the failure on standard error.
    """
    stream, sock = connection._sock, connection._usock  # noqa: SLF001 - the driver closes the socket only
    with suppress(Exception):  # the connection ends in any case
        say_good_bye()
    for part in (stream, sock):
        if part is not None:
            with suppress(OSError):
                part.close()


def _tls_context(tls: Tls) -> ssl.SSLContext | None:
    """Return the TLS context; None for no encryption, or for the driver's opportunistic encryption."""
    if tls.mode == "disable" or tls.mode in _OPTIONAL_TLS:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.mode == "verify-full"
    if tls.root_file:
        _read("sslrootcert", tls.root_file, lambda: context.load_verify_locations(tls.root_file))
    elif tls.mode == "require":
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_default_certs()
    if tls.certificate_file:
        files = (tls.certificate_file, tls.key_file or None)
        _read("sslcert", tls.certificate_file, lambda: context.load_cert_chain(*files))
    return context


def _read(option: str, file: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as error:  # including SSLError
        cause = f'"{file}" cannot be used: {error.strerror or error}'
        raise invalid(f"--url: {option}", cause, "give a readable file in PEM form", "db-tls-file") from error
