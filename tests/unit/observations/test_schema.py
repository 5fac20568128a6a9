from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Dialect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from katib.database import open_database
from katib.errors import TerminalError
from katib.observations import SqlObservationLog
from katib.observations.schema import HEAD, MIGRATIONS, REVISIONS
from katib.observations.tables import observation_logs
from tests.support.observations import reading

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
    """Return what SQLite knows of all tables of the file: columns, keys, indexes and the revision."""
    connection = sqlite3.connect(path)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    found: dict[str, object] = {
        name: (
            connection.execute(f"PRAGMA table_info({name})").fetchall(),
            [
                (index[1:], connection.execute(f"PRAGMA index_info({index[1]})").fetchall())
                for index in connection.execute(f"PRAGMA index_list({name})").fetchall()
            ],
        )
        for name in names
    }
    found["revision"] = connection.execute("SELECT version_num FROM observation_log_version").fetchall()
    connection.close()
    return found


def opened(path: Path) -> SqlObservationLog:
    with open_database(path) as database:
        return SqlObservationLog(database)


def with_log(path: Path, use: Callable[[SqlObservationLog], object]) -> object:
    with open_database(path) as database:
        return use(SqlObservationLog(database))


def test_a_migrated_file_is_laid_out_as_a_fresh_one(path: Path, tmp_path: Path) -> None:
    run(path, KATIB_TABLE)
    opened(path)
    opened(tmp_path / "fresh.db")

    assert layout(path) == layout(tmp_path / "fresh.db")


def test_a_table_made_by_katib_is_taken_over_with_its_readings(path: Path) -> None:
    run(
        path,
        KATIB_TABLE,
        "INSERT INTO observation_logs (trial_name, time, metric_name, value) "
        "VALUES ('a', '2016-12-31 20:02:05.123456', 'loss', '0.5')",
    )
    logs, _ = with_log(path, lambda log: log.read("a"))  # type: ignore[misc]  # what `read` returns

    assert [(log.time.isoformat(), log.name, log.value) for log in logs] == [
        ("2016-12-31T20:02:05.123456+00:00", "loss", "0.5")
    ]


def test_each_older_revision_can_be_upgraded(path: Path, tmp_path: Path) -> None:
    run(
        path,
        KATIB_TABLE,
        "CREATE TABLE observation_log_version (version_num VARCHAR(32) NOT NULL, PRIMARY KEY (version_num))",
        f"INSERT INTO observation_log_version VALUES ('{REVISIONS[0]}')",
    )
    opened(path)
    opened(tmp_path / "fresh.db")

    assert layout(path) == layout(tmp_path / "fresh.db")


def test_a_newer_file_is_refused_and_left_as_it_was(path: Path) -> None:
    opened(path)
    run(path, "UPDATE observation_log_version SET version_num = '9999'")
    before = layout(path)

    with pytest.raises(TerminalError) as caught:
        opened(path)

    assert str(caught.value) == (
        f"sqlite:///{path}: observation log written by a newer version (schema 9999, this version knows {HEAD}); "
        "upgrade katib or use another database"
    )
    assert layout(path) == before


def test_other_tables_of_the_file_are_left_alone(path: Path) -> None:
    run(path, "CREATE TABLE other (x)", "CREATE TABLE alembic_version (version_num)", KATIB_TABLE)
    opened(path)

    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM alembic_version").fetchall() == [(0,)]
    connection.close()


def test_opening_again_changes_nothing(path: Path) -> None:
    with_log(path, lambda log: log.report("a", [reading("1")]))
    before = layout(path)

    logs, _ = with_log(path, lambda log: log.read("a"))  # type: ignore[misc]  # what `read` returns

    assert logs == [reading("1")]
    assert layout(path) == before


def test_the_revisions_known_are_those_that_can_be_run() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)

    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == REVISIONS
    assert scripts.get_current_head() == HEAD


def test_a_fresh_file_needs_no_migration_tool(path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from katib.database import open_database\n"
        "from katib.observations import SqlObservationLog\n"
        f"SqlObservationLog(open_database(pathlib.Path({str(path)!r})))\n"
        "assert 'alembic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


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
        "PRIMARY KEY (id)",
    ]
