from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Dialect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from katib.engine.databases.sqlite import Database, open_database
from katib.engine.observations import SqlObservationLog, observation_log
from katib.engine.observations.access import access_list
from katib.engine.observations.tables import SCHEMA_VERSION, observation_logs
from katib.errors import TerminalError
from katib.model.metrics import BatchId, LogAccess
from katib.wire.rpc.db_manager_client import DbManagerClient
from tests.support.observations import reading, serving_log

KATIB_TABLE = (
    "CREATE TABLE observation_logs (trial_name VARCHAR(255) NOT NULL, id INTEGER NOT NULL, time DATETIME, "
    "metric_name VARCHAR(255) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (id))"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "katib.db"


def run(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def layout(path: Path) -> dict[str, object]:
    """Return what SQLite knows of all tables of the file: columns, keys, indexes and the versions."""
    connection = sqlite3.connect(path)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    found: dict[str, object] = {
        name: (
            connection.execute(f"PRAGMA table_info({name})").fetchall(),
            sorted(
                (index[1:], connection.execute(f"PRAGMA index_info({index[1]})").fetchall())
                for index in connection.execute(f"PRAGMA index_list({name})").fetchall()
            ),
        )
        for name in names
    }
    found["versions"] = connection.execute("SELECT * FROM schema_versions").fetchall()
    connection.close()
    return found


def kept_by_alembic(*version: str) -> list[str]:
    """Return the statements that leave the version where earlier releases kept it."""
    table = "CREATE TABLE observation_log_version (version_num VARCHAR(32) NOT NULL, PRIMARY KEY (version_num))"
    return [table, *(f"INSERT INTO observation_log_version VALUES ('{number}')" for number in version)]


def opened(path: Path) -> SqlObservationLog:
    with open_database(path) as database:
        return SqlObservationLog(database)


def with_log(path: Path, use: Callable[[SqlObservationLog], object]) -> object:
    with open_database(path) as database:
        return use(SqlObservationLog(database))


def test_a_file_made_without_sqlalchemy_is_laid_out_as_with_it(path: Path, tmp_path: Path) -> None:
    opened(path)
    with open_database(tmp_path / "quick.db") as database:
        observation_log(database)

    assert layout(tmp_path / "quick.db") == layout(path)


@pytest.mark.parametrize("log", [SqlObservationLog, observation_log], ids=["plain", "quick"])
def test_a_migrated_file_is_laid_out_as_a_fresh_one(
    log: Callable[[Database], object], path: Path, tmp_path: Path
) -> None:
    run(path, KATIB_TABLE)
    with open_database(path) as database:
        log(database)
    opened(tmp_path / "fresh.db")

    assert layout(path) == layout(tmp_path / "fresh.db")


def test_a_table_made_by_katib_is_taken_over_with_its_readings(path: Path) -> None:
    run(
        path,
        KATIB_TABLE,
        "INSERT INTO observation_logs (trial_name, time, metric_name, value) "
        "VALUES ('a', '2016-12-31 20:02:05.123456', 'loss', '0.5')",
    )
    logs = with_log(path, lambda log: log.read("a"))  # type: ignore[misc]  # what `read` returns

    assert [(log.time.isoformat(), log.name, log.value) for log in logs] == [
        ("2016-12-31T20:02:05.123456+00:00", "loss", "0.5")
    ]


INDEX = "CREATE INDEX observation_logs_by_metric ON observation_logs (trial_name, metric_name, time, id)"


ACCESS = (
    "CREATE TABLE observation_log_access (trial_name VARCHAR(255) NOT NULL, namespace VARCHAR(63) NOT NULL, "
    "reports_without_token BOOLEAN NOT NULL, reads_without_token BOOLEAN NOT NULL, PRIMARY KEY (trial_name))"
)
STEP = "ALTER TABLE observation_logs ADD COLUMN step BIGINT NOT NULL DEFAULT '-1'"


@pytest.mark.parametrize(
    "left",
    [
        pytest.param([KATIB_TABLE, *kept_by_alembic("0001")], id="Alembic's first"),
        pytest.param([KATIB_TABLE, INDEX, *kept_by_alembic("0002")], id="Alembic's second"),
        pytest.param([KATIB_TABLE, INDEX, *kept_by_alembic()], id="killed before Alembic wrote it down"),
        pytest.param([KATIB_TABLE, INDEX, ACCESS, *kept_by_alembic("0003")], id="the last before there were steps"),
        pytest.param([KATIB_TABLE, INDEX, STEP, *kept_by_alembic()], id="killed while steps were added"),
    ],
)
def test_each_older_layout_can_be_upgraded(path: Path, tmp_path: Path, left: list[str]) -> None:
    run(path, *left)
    opened(path)
    opened(tmp_path / "fresh.db")
    found = layout(path)
    del found["observation_log_version"]

    assert found == layout(tmp_path / "fresh.db")


def test_the_layout_before_ends_were_kept_is_upgraded_with_what_it_holds(path: Path, tmp_path: Path) -> None:
    with_log(path, lambda log: log.report("a", [reading("1"), reading("2")]))
    run(
        path,
        "DROP TABLE observation_log_access",
        ACCESS,
        "INSERT INTO observation_log_access VALUES ('a', 'team', 0, 1)",
        "DROP INDEX observation_log_extremes_by_low",
        "DROP INDEX observation_log_extremes_by_high",
        "UPDATE schema_versions SET version = 4",
    )
    with open_database(path) as database:
        log = SqlObservationLog(database)
        access = access_list(database)
        closed_before = LogAccess("team", reads_without_token=True)
        before = access.find("a")
        access.end("a")

        assert log.best(["a"], "loss", maximize=True) == ("a", "2")
        assert (before, access.find("a")) == (closed_before, replace(closed_before, has_ended=True))
    opened(tmp_path / "fresh.db")
    assert layout(path) == layout(tmp_path / "fresh.db")


def test_an_access_list_that_may_not_be_changed_knows_no_ends(path: Path) -> None:
    run(path, KATIB_TABLE, ACCESS)
    with open_database(path) as database:
        SqlObservationLog(database, initialize=False)
        access = access_list(database)
        access.keep("a", LogAccess("team"))
        access.end("a")

        assert access.find("a") == access.find_all(["a"])["a"] == LogAccess("team")


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(["UPDATE schema_versions SET version = 99"], id="ours"),
        pytest.param(["DELETE FROM schema_versions", *kept_by_alembic("0099")], id="Alembic's"),
    ],
)
@pytest.mark.parametrize("initialize", [True, False])
def test_a_newer_file_is_refused_and_left_as_it_was(path: Path, newer: list[str], *, initialize: bool) -> None:
    opened(path)
    run(path, *newer)
    before = path.read_bytes()

    with open_database(path) as database, pytest.raises(TerminalError, match=f"schema 99, .* knows {SCHEMA_VERSION}"):
        SqlObservationLog(database, initialize=initialize)

    assert path.read_bytes() == before


def test_other_tables_of_the_file_are_left_alone(path: Path) -> None:
    run(path, "CREATE TABLE other (x)", "CREATE TABLE alembic_version (version_num)", KATIB_TABLE)
    opened(path)

    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM alembic_version").fetchall() == [(0,)]
    connection.close()


def test_opening_again_changes_nothing(path: Path) -> None:
    with_log(path, lambda log: log.report("a", [reading("1")]))
    before = layout(path)

    logs = with_log(path, lambda log: log.read("a"))  # type: ignore[misc]  # what `read` returns

    assert logs == [reading("1")]
    assert layout(path) == before


def test_a_table_that_may_not_be_changed_is_served_without_steps(path: Path) -> None:
    run(path, KATIB_TABLE)
    before = path.read_bytes()
    with open_database(path) as database:
        log = SqlObservationLog(database, initialize=False)
        assert path.read_bytes() == before

        log.report("a", [reading("1", second=1, step=1), reading("2", step=2)])

        assert log.read("a") == log.newest("a", limit=2) == [reading("2"), reading("1", second=1)]
        assert [change.reading for change in log.changes({"a": 0}, "loss")] == [reading("1", second=1), reading("2")]
        summary = log.summarize("a", ["loss"])
        assert summary is not None
        assert summary.metrics[0].latest == "1"


def test_a_table_that_may_not_be_changed_keeps_no_numbers_and_says_so_behind_a_db_manager_too(path: Path) -> None:
    run(path, KATIB_TABLE)
    with open_database(path) as database:
        log = SqlObservationLog(database, initialize=False)
        with serving_log(log) as server, closing(DbManagerClient(server.address)) as client:
            client.report("a", [reading("1", step=1)], BatchId("me", 0))

            assert (log.knows_batches("a"), client.knows_batches("a")) == (False, False)
        assert [entry.value for entry in log.read("a")] == ["1"]


def test_katibs_statements_go_on_working(path: Path) -> None:
    """Those of its DB manager, whose columns are named."""
    opened(path)
    run(
        path,
        "INSERT INTO observation_logs (trial_name, time, metric_name, value) "
        "VALUES ('a', '2024-03-04 17:55:08.000000', 'loss', '0.5')",
    )

    assert with_log(path, lambda log: log.read("a")) == [reading("0.5")]


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        pytest.param(sqlite.dialect(), ["id INTEGER NOT NULL", "time DATETIME"], id="sqlite"),
        pytest.param(mysql.dialect(), ["id INTEGER NOT NULL AUTO_INCREMENT", "time DATETIME(6)"], id="mysql"),
        pytest.param(
            postgresql.dialect(), ["id SERIAL NOT NULL", "time TIMESTAMP(6) WITHOUT TIME ZONE"], id="postgresql"
        ),
    ],
)
def test_the_table_is_katibs_in_every_dialect(dialect: Dialect, expected: list[str]) -> None:
    lines = str(CreateTable(observation_logs).compile(dialect=dialect)).strip().splitlines()

    assert [line.strip().rstrip(",") for line in lines if line.startswith("\t")] == [
        "trial_name VARCHAR(255) NOT NULL",
        *expected,
        "metric_name VARCHAR(255) NOT NULL",
        "value TEXT NOT NULL",
        "step BIGINT NOT NULL DEFAULT '-1'" if dialect.name == "mysql" else "step BIGINT DEFAULT '-1' NOT NULL",
        "PRIMARY KEY (id)",
    ]
