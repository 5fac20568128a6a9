"""Address and login of a database server, from a URL or from the variables of Katib's DB manager.

URL: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full&sslrootcert=FILE`, or `postgres://`, `mysql://`,
`mariadb://`. Special characters of user and password are percent-encoded. The TLS options have libpq's names and
meanings on all servers. Messages never contain the password.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

from katib.errors import FieldError, InvalidError, invalid

POSTGRESQL = "postgresql"
MYSQL = "mysql"

DIALECTS = {"postgresql": POSTGRESQL, "postgres": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL}
"""The dialect of each scheme. MariaDB is distinguished from MySQL after connecting."""

TLS_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
DEFAULT_TLS_MODE = "prefer"

_PORTS = {POSTGRESQL: 5432, MYSQL: 3306}
_LAST_PORT = 65535
_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_FORM = "write it like postgresql://USER:PASSWORD@HOST:5432/DATABASE or mysql://USER:PASSWORD@HOST:3306/DATABASE"


@dataclass(frozen=True, slots=True)
class Tls:
    """Encryption of a connection.

    Attributes:
        mode: One of `TLS_MODES`. `prefer` encrypts if the server supports it; only `verify-ca` and `verify-full` detect
            an impostor, and only `verify-full` compares the host's name. `allow` means `prefer`.
        root_file: Certificates of the authorities to trust; empty for those of the system.
        certificate_file: Client certificate, if the server requires one; empty for none.
        key_file: Key of the client certificate; empty if it is in the same file.
    """

    mode: str = DEFAULT_TLS_MODE
    root_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """One database of one server, and the login. Its text is a URL without the password, suitable for messages."""

    dialect: str
    host: str
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    tls: Tls = Tls()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.dialect}://{self.user}@{host}:{self.port}/{self.database}"


def address_of(url: str) -> ServerAddress:
    """Parse a URL.

    Raises:
        InvalidError: It is malformed, or contains an unknown value. The message does not quote it.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise invalid("--url", "not readable as a URL", _FORM, "database-url") from error
    errors = list(_url_errors(parsed))
    if errors:
        raise InvalidError(errors)
    dialect = DIALECTS[parsed.get_backend_name()]
    options = {name: str(value) for name, value in parsed.query.items()}
    return ServerAddress(
        dialect=dialect,
        host=parsed.host or "",
        port=parsed.port or _PORTS[dialect],
        database=parsed.database or "",
        user=parsed.username or "",
        password=str(parsed.password or ""),
        tls=Tls(
            mode=options.get("sslmode", DEFAULT_TLS_MODE),
            root_file=options.get("sslrootcert", ""),
            certificate_file=options.get("sslcert", ""),
            key_file=options.get("sslkey", ""),
        ),
    )


def address_from_environment(environment: Mapping[str, str]) -> ServerAddress:
    """Read the variables of Katib's DB manager, with its defaults; an empty variable counts as not set.

    Raises:
        InvalidError: `DB_NAME` is missing or unknown, or a value is unusable.
    """

    def value(name: str, default: str) -> str:
        return environment.get(name) or default

    match value("DB_NAME", ""):
        case "mysql":
            return ServerAddress(
                dialect=MYSQL,
                host=value("KATIB_MYSQL_DB_HOST", "katib-mysql"),
                port=_port("KATIB_MYSQL_DB_PORT", value("KATIB_MYSQL_DB_PORT", str(_PORTS[MYSQL]))),
                database=value("KATIB_MYSQL_DB_DATABASE", "katib"),
                user=value("DB_USER", "root"),
                password=value("DB_PASSWORD", ""),
            )
        case "postgres":
            mode = value("KATIB_POSTGRESQL_SSL_MODE", "disable")
            if mode not in TLS_MODES:
                raise InvalidError([_unknown_mode("KATIB_POSTGRESQL_SSL_MODE", mode)])
            return ServerAddress(
                dialect=POSTGRESQL,
                host=value("KATIB_POSTGRESQL_DB_HOST", "katib-postgres"),
                port=_port("KATIB_POSTGRESQL_DB_PORT", value("KATIB_POSTGRESQL_DB_PORT", str(_PORTS[POSTGRESQL]))),
                database=value("KATIB_POSTGRESQL_DB_DATABASE", "katib"),
                user=value("DB_USER", "katib"),
                password=value("DB_PASSWORD", ""),
                tls=Tls(mode=mode),
            )
        case "":
            raise invalid("DB_NAME", "not set", "set it to mysql or postgres, or give --url", "db-name")
        case other:
            raise invalid("DB_NAME", f'"{other}" is unknown', "set it to mysql or postgres, or give --url", "db-name")


def _url_errors(url: URL) -> Iterator[FieldError]:
    if url.get_backend_name() not in DIALECTS:
        cause = f'"{url.get_backend_name()}" is not a kind of database that is known'
        yield FieldError("--url", cause, _FORM, "database-url")
        return
    for part, value in (("host", url.host), ("user", url.username), ("database", url.database)):
        if not value:
            yield FieldError("--url", f"names no {part}", _FORM, "database-url")
    for name, given in url.query.items():
        if name not in _OPTIONS or isinstance(given, tuple):
            remedy = f"use each at most once of {', '.join(_OPTIONS)}"
            yield FieldError(f"--url: {name}", "no option that is known, or given twice", remedy, "database-url-option")
        elif name == "sslmode" and given not in TLS_MODES:
            yield _unknown_mode("--url: sslmode", given)


def _port(name: str, text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text) <= _LAST_PORT:
        return int(text)
    raise invalid(name, f'"{text}" is not a port', f"give a number from 1 to {_LAST_PORT}", "db-port")


def _unknown_mode(path: str, mode: str) -> FieldError:
    return FieldError(path, f'"{mode}" is unknown', f"use one of {', '.join(TLS_MODES)}", "db-tls-mode")
