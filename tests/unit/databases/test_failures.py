from __future__ import annotations

import pymysql
import pytest
from pg8000.exceptions import DatabaseError, InterfaceError

from katib.databases.failures import breaks_connection, translated
from katib.errors import InternalError, InvalidError, KatibError, TerminalError, UnavailableError


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
