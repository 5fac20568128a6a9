"""Translation of servers' errors: the remedy of each, and whether its connection is still usable.

A problem that an administrator fixes outside - a login, a full disk, an unreachable server - is an `UnavailableError`:
reporters keep their readings and try again. Input that no server of the kind can store is an `InvalidError`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from katib.errors import (
    InternalError,
    InvalidError,
    KatibError,
    TerminalError,
    UnavailableError,
    invalid,
    one_line,
)


class _Translation(NamedTuple):
    """Translation of an error.

    Attributes:
        broken: Whether the connection, and earlier ones, must be discarded.
    """

    error_class: type[UnavailableError | TerminalError | InvalidError]
    remedy: str
    broken: bool = False


_AWAY = _Translation(UnavailableError, "check that the server runs and can be reached", broken=True)
_LOGIN = _Translation(UnavailableError, "check user and password")
_DATABASE = _Translation(UnavailableError, "create the database, or name another")
_CROWDED = _Translation(UnavailableError, "raise max_connections of the server or close other sessions")
_LOCKED = _Translation(UnavailableError, "try again, or end the session that holds the lock")
_FULL = _Translation(UnavailableError, "free some space on the server's disk")
_MEMORY = _Translation(UnavailableError, "give the server more memory")
_READ_ONLY = _Translation(UnavailableError, "connect to the primary, not to a replica", broken=True)
_TABLE = _Translation(UnavailableError, "restart the DB manager, which makes the table")
_LAYOUT = _Translation(TerminalError, "the table is not laid out as Katib's; rename it or use another database")
_RIGHT = _Translation(TerminalError, "grant the user SELECT, INSERT, DELETE, CREATE, ALTER and INDEX on the database")
_EXHAUSTED = _Translation(
    TerminalError, "the numbers of its readings are used up; make the column id of the table a BIGINT"
)
_DAMAGED = _Translation(TerminalError, "restore a backup")
_LENGTH = _Translation(InvalidError, "use at most 255 characters for a name and 65,535 bytes for a value")
_TEXT = _Translation(InvalidError, "leave out that character, or use a database in UTF-8")
_CHARSET = _Translation(
    InvalidError,
    "leave out that character, or run ALTER TABLE observation_logs CONVERT TO CHARACTER SET utf8mb4",
)
_RANGE = _Translation(InvalidError, "use a time between the years 1 and 9999")

_POSTGRESQL = {
    _AWAY: "08 57",
    _LOGIN: "28000 28P01",
    _DATABASE: "3D000",
    _CROWDED: "53300",
    _LOCKED: "55P03 57014 40001 40P01",
    _FULL: "53100 58030 58",
    _MEMORY: "53200 53",
    _READ_ONLY: "25006",
    _TABLE: "42P01",
    _LAYOUT: "42703",
    _RIGHT: "42501",
    _EXHAUSTED: "2200H 22003",
    _DAMAGED: "XX",
    _LENGTH: "22001",
    _TEXT: "22021 22P05",
    _RANGE: "22008",
}
"""SQLSTATE codes, and their classes (the first two characters) for codes that are not listed."""

_MYSQL = {
    _AWAY: (
        "0 1047 1053 1077 1079 1129 1130 1152 1153 1158 1159 1160 1161 "
        "1184 1317 1927 2002 2003 2005 2006 2013 2014 2026 2045 2055 4031 3168"
    ),
    _LOGIN: "1045 1698 1862 2059 2061",
    _DATABASE: "1044 1049",
    _CROWDED: "1040 1203 1226",
    _LOCKED: "1205 1213 1969 3024",
    _FULL: "1021 1114 3 1026 1030",
    _MEMORY: "1037 1038 1041",
    _READ_ONLY: "1290 1792 1836",
    _TABLE: "1146",
    _LAYOUT: "1054",
    _RIGHT: "1142 1227",
    _EXHAUSTED: "167 1062 1467",
    _DAMAGED: "1034 1194",
    _LENGTH: "1406",
    _CHARSET: "1366 1267 1271",
    _RANGE: "1264 1292",
}
"""Error numbers of MySQL and MariaDB."""

_DUPLICATE_NUMBER = re.compile(r"Duplicate entry '-?[0-9]+'")

_ANSWERS = {code: answer for codes in (_POSTGRESQL, _MYSQL) for answer, text in codes.items() for code in text.split()}


def translated(error: BaseException, where: str) -> KatibError:
    """Return the translation of an error of a driver or a socket.

    Args:
        where: The database, without a password.
    """
    answer, cause = _answer(error), one_line(_cause(error)).rstrip(".;")
    if answer is _EXHAUSTED and "Duplicate entry" in cause and not _DUPLICATE_NUMBER.search(cause):
        answer = None
    if answer is None:
        return InternalError(f"{where}: {cause}")
    if issubclass(answer.error_class, InvalidError):
        return invalid("observation_log", f"{where}: {cause}", answer.remedy, "log-not-storable")
    return answer.error_class(f"{where}: {cause}; {answer.remedy}")


def breaks_connection(error: BaseException) -> bool:
    """Return whether the connection is lost, or leads to a server that is no longer usable."""
    answer = _answer(error)
    return answer is not None and answer.broken


def _answer(error: BaseException) -> _Translation | None:
    if isinstance(error, OSError | UnicodeError | EOFError):
        return _AWAY
    code = _code(error)
    if code is not None:
        return _ANSWERS.get(code) or _ANSWERS.get(code[:2] if len(code) == len("57P01") else "")
    if "password" in str(error):  # of the driver for PostgreSQL: the server requires one and none is given
        return _LOGIN
    # The drivers' own errors concern the connection: broken, closed, refused, not encrypted.
    return _AWAY if type(error).__name__ in {"InterfaceError", "ScramException"} else None


def _code(error: BaseException) -> str | None:
    first: Any = error.args[0] if error.args else None
    if isinstance(first, dict):
        return str(first.get("C", ""))
    return str(first) if isinstance(first, int) else None


def _cause(error: BaseException) -> str:
    if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    first: Any = error.args[0] if error.args else str(error)
    if isinstance(first, dict):
        return str(first.get("M", first))
    if isinstance(first, int) and len(error.args) > 1:
        return str(error.args[1]) or "connection lost"
    return "connection lost" if str(first) in {"network error", "0"} else str(first)
