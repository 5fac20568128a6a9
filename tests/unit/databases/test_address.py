from __future__ import annotations

import pytest

from katib.databases import ServerAddress, address_from_environment, address_of, open_sql_server
from katib.databases.address import Tls
from katib.errors import InvalidError

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
    with pytest.raises(InvalidError, match=r'sslrootcert: "/nowhere\.pem" cannot be used: No such file'):
        open_sql_server(address_of("mysql://u@127.0.0.1:1/d?sslmode=verify-ca&sslrootcert=/nowhere.pem"))
