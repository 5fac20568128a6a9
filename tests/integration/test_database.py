"""The shared SQLite file under real trouble: other processes, kills, full disks, damage, other versions."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection

from katib.engine.databases.sqlite import Database, open_database
from katib.engine.databases.sqlite_engine import driver_connection
from katib.engine.runtime.objects import Key
from katib.engine.stores.sql import SqlStore, rows
from katib.errors import ConflictError, InternalError, TerminalError, UnavailableError
from tests.support.golden import Golden
from tests.support.stores import STATUS_KINDS, WIDGET, changed, drain, names, owned_by, widget
from tests.support.waiting import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "katib.db"


@contextmanager
def opened(path: Path, lock_timeout_seconds: float = 30.0) -> Iterator[SqlStore]:
    with open_database(path, lock_timeout_seconds=lock_timeout_seconds) as database:
        yield SqlStore(database, STATUS_KINDS)


@contextmanager
def running(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a Python script that reports on its output; end it at the end."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
print("released", flush=True)
connection.execute("COMMIT")
"""


@contextmanager
def locked(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that locks the file until its standard input ends."""
    with running(LOCK, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process


# --- locks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seconds", [pytest.param(0.3, id="short"), pytest.param(6.0, id="longer than the library waits")]
)
def test_a_write_waits_for_another_process_and_readers_do_not(path: Path, seconds: float) -> None:
    with opened(path) as store, locked(path) as other:
        assert other.stdin is not None
        assert names(store) == []  # nobody would ever release the lock if this waited for it
        threading.Timer(seconds, other.stdin.close).start()
        store.create(widget("a"))
        said, _, _ = select.select([other.stdout], [], [], 0)

        assert said  # "released", which comes before the lock is given back
        assert names(store) == ["a"]
        assert other.wait(60) == 0


def test_a_lock_that_is_never_given_back_is_unavailable_and_later_goes_on(path: Path) -> None:
    with opened(path, 0.1) as store, locked(path) as other:
        with pytest.raises(UnavailableError) as caught:
            store.create(widget("a"))
        other.kill()
        other.wait(60)
        store.create(widget("a"))

    message = f"{path}: database is locked; end the process that holds the lock, or wait for it"
    assert str(caught.value) == message


def test_writers_of_one_process_wait_for_each_other(path: Path) -> None:
    with open_database(path, lock_timeout_seconds=0.05) as database, database.write():
        refused = in_thread(lambda: enter(database))

    assert str(refused).startswith(f"{path}: ")


def enter(database: Database) -> None:
    with database.write():
        pass


def in_thread(action: Callable[[], None]) -> BaseException | None:
    """Run an action in a thread; return what it raised."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except UnavailableError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    return caught[0] if caught else None


def test_a_reader_sees_one_state_while_others_write(path: Path) -> None:
    with open_database(path) as database:
        store = SqlStore(database, STATUS_KINDS)
        store.create(widget("a"))
        with database.read() as connection:
            count = "SELECT count(*) FROM objects"
            before = connection.exec_driver_sql(count).scalar_one()
            store.create(widget("b"))
            after = connection.exec_driver_sql(count).scalar_one()

    assert (before, after) == (1, 1)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_block_that_raises_leaves_nothing_and_announces_nothing(path: Path) -> None:
    announced: list[str] = []
    with open_database(path) as database:
        with database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE t (x)")
        with pytest.raises(ConflictError):
            insert_and_fail(database, announced)
        with database.write(lambda: announced.append("right")) as connection:
            count = connection.exec_driver_sql("SELECT count(*) FROM t").scalar_one()

    assert count == 0
    assert announced == ["right"]


def insert_and_fail(database: Database, announced: list[str]) -> None:
    with database.write(lambda: announced.append("wrong")) as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        raise ConflictError("changed")


@pytest.mark.parametrize("through", ["sqlalchemy", "driver"])
def test_a_wrong_statement_is_a_bug_of_ours_and_spoils_nothing(path: Path, through: str) -> None:
    def send(connection: Connection, statement: str) -> None:
        if through == "driver":
            driver_connection(connection).execute(statement)
        else:
            connection.exec_driver_sql(statement)

    with open_database(path) as database:
        with pytest.raises(InternalError, match="no such table: nowhere"), database.write() as connection:
            send(connection, "SELECT * FROM nowhere")
        with pytest.raises(InternalError, match="no such table: nowhere"), database.read() as connection:
            send(connection, "SELECT * FROM nowhere")
        with database.write() as connection:
            send(connection, "CREATE TABLE nowhere (x)")


def test_a_connection_that_failed_is_not_used_again(path: Path) -> None:
    seen = []
    with open_database(path) as database:
        for statement in ("SELECT 1", "SELECT 2", "SELECT * FROM nowhere", "SELECT 3"):
            with suppress(InternalError), database.write() as connection:
                seen.append(driver_connection(connection))
                connection.exec_driver_sql(statement)

    assert [driver is seen[0] for driver in seen] == [True, True, True, False]


# --- what is in the file ----------------------------------------------------------------------------------------------


def test_a_reopened_database_keeps_everything(path: Path) -> None:
    with opened(path) as store:
        owner = store.create(widget("owner", labels={"x": "1"}))
        made = store.create(widget("a", finalizers=["f"], ownerReferences=owned_by(owner), spec={"n": 1}))
        made = store.update_status(changed(made, status={"ready": True}))
        store.create(widget("gone"))
        store.delete(WIDGET, Key("team", "gone"))
        before = store.list(WIDGET)

    with opened(path) as store:
        assert store.list(WIDGET) == before
        assert names(store, labels={"x": "1"}) == ["owner"]
        assert names(store, owner_uid=owner["metadata"]["uid"]) == ["a"]
        with store.watch(WIDGET, before.resource_version) as watch:
            after = store.update(changed(made, spec={"n": 2}))
            (event,) = drain(watch)

    assert event.object == after
    assert int(after["metadata"]["resourceVersion"]) > int(before.resource_version)


@pytest.mark.parametrize("room", ["objects", "observations"])
def test_a_file_of_a_newer_version_is_refused_and_left_untouched(path: Path, room: str) -> None:
    with open_database(path) as database:
        database.upgrade(room, 7, lambda _connection, _found: None)
    before = path.read_bytes()

    with open_database(path) as database, pytest.raises(TerminalError) as caught:
        database.upgrade(room, 1, lambda _connection, _found: None)

    assert str(caught.value) == (
        f"{path}: {room} written by a newer version (schema 7, this version knows 1); "
        "upgrade katib or use another --data-dir"
    )
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_upgrade_runs_once_and_rooms_do_not_see_each_other(path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def note(room: str) -> Callable[[sqlite3.Connection, int], None]:
        return lambda _connection, found: seen.append((room, found))

    for _ in range(2):
        with open_database(path) as database:
            database.upgrade("one", 2, note("one"))
            database.upgrade("two", 1, note("two"))
            assert database.schema_version("one") == 2
            assert database.schema_version("three") == 0
    with open_database(path) as database:
        database.upgrade("one", 3, note("one"))

    assert seen == [("one", 0), ("two", 0), ("one", 2)]


def test_an_upgrade_that_fails_leaves_the_old_version(path: Path) -> None:
    def fail(driver: sqlite3.Connection, _found: int) -> None:
        driver.execute("CREATE TABLE half (x)")
        raise UnavailableError("power cut")

    with open_database(path) as database:
        with pytest.raises(UnavailableError):
            database.upgrade("one", 1, fail)
        assert database.schema_version("one") == 0
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema").scalar_one() == 0


def test_a_file_that_is_no_database_is_refused(path: Path, golden: Golden) -> None:
    path.write_text("once upon a time " * 1000)

    with golden.raises(TerminalError):
        open_database(path)

    assert path.read_text() == "once upon a time " * 1000


def test_a_damaged_file_is_terminal(path: Path, golden: Golden) -> None:
    with opened(path) as store:
        for number in range(50):
            store.create(widget(f"w-{number}", spec={"x": "y" * 2000}))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))

    with golden.raises(TerminalError):
        open_database(path)


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "of an earlier version"])
def test_the_room_of_deleted_rows_comes_back_while_others_write(path: Path, *, is_old: bool) -> None:
    if is_old:
        with closing(sqlite3.connect(path)) as driver:
            driver.execute("PRAGMA journal_mode=WAL")
            driver.execute("CREATE TABLE earlier (x)")
    with open_database(path) as database:
        with database.transaction() as driver:
            driver.execute("CREATE TABLE rows (x)")
            driver.executemany("INSERT INTO rows VALUES (?)", [("x" * 4_000,)] * 3_000)
        with database.transaction() as driver:
            driver.execute("DELETE FROM rows WHERE rowid > 10")
        full = path.stat().st_size
        database.give_back()
        with database.transaction() as driver:
            driver.execute("INSERT INTO rows VALUES ('more')")
    with open_database(path) as database, database.snapshot() as driver:
        assert driver.execute("SELECT count(*) FROM rows").fetchone() == (11,)

    assert full > 10_000_000
    assert path.stat().st_size < full / 5


@pytest.mark.parametrize("name", ["with space", "what?x=1", "100%41", "a#b", "uri:file", "größe"])
def test_a_path_means_what_it_says(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / name) as store:
        store.create(widget("a"))

    assert (tmp_path / name).stat().st_size > 0
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "katib.db"

    with pytest.raises(
        UnavailableError, match="unable to open database file; check that its directory exists"
    ) as caught:
        open_database(path)

    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "owned"),
    [pytest.param(1, False, id="label"), pytest.param(2, False, id="labels"), pytest.param(0, True, id="owner")],
)
@pytest.mark.parametrize("namespaced", [True, False], ids=["in a namespace", "anywhere"])
def test_finding_by_label_or_owner_looks_at_no_other_objects(
    path: Path, labels: int, *, owned: bool, namespaced: bool
) -> None:
    statement = rows._select_listed(namespaced=namespaced, label_count=labels, owned=owned)
    given = dict.fromkeys(re.findall(r":(\w+)", statement), "x")
    with open_database(path) as database:
        SqlStore(database, STATUS_KINDS)
        with database.snapshot() as driver:
            plan = driver.execute(f"EXPLAIN QUERY PLAN {statement}", given).fetchall()
    steps = [step[3] for step in plan]

    assert "SEARCH objects USING INTEGER PRIMARY KEY (rowid=?)" in steps
    assert [step for step in steps if step.startswith("SCAN")] == []


# --- kills and full disks ---------------------------------------------------------------------------------------------

WRITE = """
import sys
from pathlib import Path
from katib.engine.databases.sqlite import open_database
from katib.engine.stores.sql import SqlStore, rows
from tests.support.stores import STATUS_KINDS, changed, owned_by, widget

store = SqlStore(open_database(Path(sys.argv[1])), STATUS_KINDS)
owner = store.create(widget("owner-" + sys.argv[2]))
for number in range(100_000):
    name = f"w-{sys.argv[2]}-{number}"
    labels = {"n": str(number)}
    made = store.create(widget(name, labels=labels, ownerReferences=owned_by(owner), spec={"x": "y" * 3000}))
    made = store.update_status(changed(made, status={"number": number}))
    print(name, made["metadata"]["resourceVersion"], flush=True)
"""


def test_a_killed_writer_leaves_a_consistent_file_with_everything_it_had_confirmed(path: Path) -> None:
    confirmed: dict[str, str] = {}
    for life in range(4):
        with running(WRITE, path, life) as writer:
            assert writer.stdout is not None
            for _ in range(10 + 7 * life):
                name, revision = writer.stdout.readline().split()
                confirmed[name] = revision
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:  # what it said before it died was already on disk
                if line.endswith("\n"):
                    name, revision = line.split()
                    confirmed[name] = revision
        with opened(path) as store:
            found = store.list(WIDGET)
            assert_consistent(path)
        kept = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in found.items}

        assert {name: kept.get(name) for name in confirmed} == confirmed
        assert max(map(int, kept.values())) <= int(found.resource_version)


def assert_consistent(path: Path) -> None:
    connection = sqlite3.connect(path)
    damage = connection.execute("PRAGMA integrity_check").fetchall()
    dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
    half = "SELECT count(*) FROM objects WHERE name LIKE 'w-%' AND id NOT IN (SELECT object_id FROM object_labels)"
    unlabeled = connection.execute(half).fetchall()
    connection.close()

    assert (damage, dangling, unlabeled) == ([("ok",)], [], [(0,)])


def fill_up(store: SqlStore) -> list[str]:
    """Write until the disk is full; return the names that were confirmed."""
    confirmed = []
    for number in range(2000):
        try:
            store.create(widget(f"w-{number}", labels={"n": "1"}, spec={"x": "y" * 20_000}))
        except UnavailableError as error:
            remedy = str(error).partition("; ")[2]
            break
        confirmed.append(f"w-{number}")
    else:
        raise AssertionError("the disk did not fill up")

    assert remedy.startswith("free some space")
    return confirmed


def test_a_full_disk_is_unavailable_and_goes_on_when_there_is_space(path: Path) -> None:
    """The quota is the largest file this process may write; the kernel refuses the rest as it does on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as store:
        store.create(widget("before"))
        with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
            try:
                confirmed = fill_up(store)
                assert names(store) == ["before", *confirmed]
                with pytest.raises(UnavailableError):
                    store.create(widget("refused", spec={"x": "y" * 20_000}))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            store.create(widget("after", spec={"x": "y" * 20_000}))
            told = [event.object["metadata"]["name"] for event in drain(watch)]

        assert names(store) == ["before", *confirmed, "after"]
        assert told == [*confirmed, "after"]
    assert_consistent(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_full_file_system_is_unavailable_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mount], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine mounts no tmpfs")
    try:
        ballast = mount / "ballast"
        ballast.write_bytes(b"x" * (1 << 19))
        with opened(mount / "katib.db") as store:
            confirmed = fill_up(store)
            assert names(store) == confirmed
            ballast.unlink()
            store.create(widget("after"))
            assert names(store) == [*confirmed, "after"]
            assert_consistent(mount / "katib.db")
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def test_a_database_is_closed_twice_without_complaint(path: Path) -> None:
    database = open_database(path)
    enter(database)
    database.close()
    database.close()

    eventually(lambda: not path.with_name("katib.db-wal").exists())
