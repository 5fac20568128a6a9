"""Addresses of databases, their connections, and what their errors say."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pymysql
import pytest
from pg8000.exceptions import DatabaseError, InterfaceError

from katib.engine.databases import ServerAddress, address_from_environment, address_of, open_sql_server
from katib.engine.databases.address import Tls
from katib.engine.databases.connecting import _close
from katib.engine.databases.failures import breaks_connection, translated
from katib.errors import InternalError, InvalidError, KatibError, TerminalError, UnavailableError
from tests.support.refusals import refused

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param(
            "postgresql://katib:p%40ss@db:5433/metrics?sslmode=verify-full&sslrootcert=/ca.pem",
            ServerAddress("postgresql", "db", 5433, "metrics", "katib", "p@ss", Tls("verify-full", "/ca.pem")),
            id="all parts",
        ),
        pytest.param("postgres://u@db/d", ServerAddress("postgresql", "db", 5432, "d", "u"), id="postgres"),
        pytest.param("mysql://u@db/d", ServerAddress("mysql", "db", 3306, "d", "u"), id="mysql"),
        pytest.param("mariadb://u@[::1]/d", ServerAddress("mysql", "::1", 3306, "d", "u"), id="mariadb and IPv6"),
    ],
)
def test_a_url_is_read(url: str, expected: ServerAddress) -> None:
    assert address_of(url) == expected


@pytest.mark.parametrize(
    ("url", "origins"),
    [
        pytest.param(f"oracle://u:{SECRET}@db/d", ["database-url"], id="scheme"),
        pytest.param(f"mysql://u:{SECRET}@/", ["database-url"] * 2, id="no host, no database"),
        pytest.param(SECRET, ["database-url"], id="no URL"),
        pytest.param(f"mysql://u:{SECRET}@db:x/d", ["database-url"], id="port"),
        pytest.param(f"mysql://u:{SECRET}@db/d?charset=latin1", ["database-url-option"], id="option"),
        pytest.param(f"mysql://u:{SECRET}@db/d?sslmode=sometimes", ["db-tls-mode"], id="mode"),
        pytest.param(f"mysql://u:{SECRET}@db/d?sslmode=disable&sslmode=require", ["database-url-option"], id="twice"),
    ],
)
def test_an_unusable_url_is_refused_without_its_password(url: str, origins: list[str]) -> None:
    with pytest.raises(InvalidError) as caught:
        address_of(url)

    assert [error.origin for error in caught.value.errors] == origins
    assert SECRET not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    address = address_of(f"mysql://u:{SECRET}@db/d")

    assert str(address) == "mysql://u@db:3306/d"
    assert SECRET not in repr(address)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"DB_NAME": "mysql"}, ServerAddress("mysql", "katib-mysql", 3306, "katib", "root"), id="mysql"),
        pytest.param(
            {"DB_NAME": "postgres"},
            ServerAddress("postgresql", "katib-postgres", 5432, "katib", "katib", "", Tls("disable")),
            id="postgres",
        ),
        pytest.param(
            {
                "DB_NAME": "mysql",
                "DB_USER": "u",
                "DB_PASSWORD": "p",
                "KATIB_MYSQL_DB_HOST": "h",
                "KATIB_MYSQL_DB_PORT": "1",
                "KATIB_MYSQL_DB_DATABASE": "d",
                "KATIB_POSTGRESQL_DB_HOST": "other",
            },
            ServerAddress("mysql", "h", 1, "d", "u", "p"),
            id="all of mysql",
        ),
        pytest.param(
            {
                "DB_NAME": "postgres",
                "DB_USER": "u",
                "DB_PASSWORD": "p",
                "KATIB_POSTGRESQL_DB_HOST": "h",
                "KATIB_POSTGRESQL_DB_PORT": "1",
                "KATIB_POSTGRESQL_DB_DATABASE": "d",
                "KATIB_POSTGRESQL_SSL_MODE": "require",
            },
            ServerAddress("postgresql", "h", 1, "d", "u", "p", Tls("require")),
            id="all of postgres",
        ),
    ],
)
def test_the_variables_of_katib_are_read(environment: dict[str, str], expected: ServerAddress) -> None:
    assert address_from_environment(environment) == expected


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        pytest.param({}, "DB_NAME", id="nothing"),
        pytest.param({"DB_NAME": "oracle"}, "DB_NAME", id="unknown"),
        pytest.param({"DB_NAME": "mysql", "KATIB_MYSQL_DB_PORT": "0"}, "KATIB_MYSQL_DB_PORT", id="port"),
        pytest.param(
            {"DB_NAME": "postgres", "KATIB_POSTGRESQL_SSL_MODE": "no"}, "KATIB_POSTGRESQL_SSL_MODE", id="TLS mode"
        ),
    ],
)
def test_unusable_variables_are_named(environment: dict[str, str], path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        address_from_environment(environment)

    assert [error.path for error in caught.value.errors] == [path]


def test_a_certificate_that_cannot_be_read_is_bad_input() -> None:
    with refused("db-tls-file"):
        open_sql_server(address_of("mysql://u@127.0.0.1:1/d?sslmode=verify-ca&sslrootcert=/nowhere.pem"))


def test_what_can_not_be_sent_any_more_keeps_no_stream_open() -> None:
    ours, theirs = socket.socketpair()
    stream = ours.makefile("rwb")
    connection = SimpleNamespace(_sock=stream, _usock=ours)  # of pg8000
    stream.write(b"good-bye")
    theirs.close()

    _close(connection, stream.flush)
    _close(connection, stream.flush)

    assert stream.closed
    assert ours.fileno() == -1


def pg(code: str) -> DatabaseError:
    return DatabaseError({"S": "ERROR", "C": code, "M": "a message.\nof two lines"})


def my(code: int) -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(code, "a message.\nof two lines")


@pytest.mark.parametrize(
    ("error", "expected", "broken"),
    [
        pytest.param(pg("57P01"), UnavailableError, True, id="pg shuts down"),
        pytest.param(pg("57P03"), UnavailableError, True, id="pg starts up"),
        pytest.param(pg("08006"), UnavailableError, True, id="pg connection"),
        pytest.param(pg("53300"), UnavailableError, False, id="pg too many connections"),
        pytest.param(pg("53100"), UnavailableError, False, id="pg disk full"),
        pytest.param(pg("40P01"), UnavailableError, False, id="pg deadlock"),
        pytest.param(pg("55P03"), UnavailableError, False, id="pg lock"),
        pytest.param(pg("25006"), UnavailableError, True, id="pg replica"),
        pytest.param(pg("28P01"), UnavailableError, False, id="pg password"),
        pytest.param(pg("2200H"), TerminalError, False, id="pg numbers used up"),
        pytest.param(pg("42501"), TerminalError, False, id="pg rights"),
        pytest.param(pg("22021"), InvalidError, False, id="pg NUL"),
        pytest.param(pg("42601"), InternalError, False, id="pg syntax"),
        pytest.param(InterfaceError("network error"), UnavailableError, True, id="pg connection lost"),
        pytest.param(my(2013), UnavailableError, True, id="my connection lost"),
        pytest.param(my(1053), UnavailableError, True, id="my shuts down"),
        pytest.param(my(1040), UnavailableError, False, id="my too many connections"),
        pytest.param(my(1114), UnavailableError, False, id="my disk full"),
        pytest.param(my(1213), UnavailableError, False, id="my deadlock"),
        pytest.param(my(1205), UnavailableError, False, id="my lock"),
        pytest.param(my(1290), UnavailableError, True, id="my replica"),
        pytest.param(my(1045), UnavailableError, False, id="my password"),
        pytest.param(my(1467), TerminalError, False, id="my numbers used up"),
        pytest.param(my(1142), TerminalError, False, id="my rights"),
        pytest.param(my(1406), InvalidError, False, id="my too long"),
        pytest.param(my(1064), InternalError, False, id="my syntax"),
        pytest.param(pymysql.err.InterfaceError(0, ""), UnavailableError, True, id="my closed"),
        pytest.param(ConnectionRefusedError(111, "Connection refused"), UnavailableError, True, id="refused"),
        pytest.param(TimeoutError(), UnavailableError, True, id="no answer"),
        pytest.param(UnicodeError("label empty or too long"), UnavailableError, True, id="no host name"),
    ],
)
def test_an_error_of_a_server_says_what_to_do(error: Exception, expected: type[KatibError], broken: bool) -> None:
    found = translated(error, "mysql://u@db:3306/d")

    assert type(found) is expected
    assert "mysql://u@db:3306/d: " in str(found)
    assert "\n" not in str(found)
    assert ("; " in str(found)) is (expected is not InternalError)
    assert breaks_connection(error) is broken
