"""The observation log on real PostgreSQL and MySQL servers under real trouble."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest
from sqlalchemy import text

from katib.engine.databases import SqlServer, address_of, open_sql_server
from katib.engine.observations import SqlObservationLog
from katib.engine.observations import sql as log_module
from katib.engine.observations.dialects import insert
from katib.engine.observations.tables import SCHEMA_VERSION
from katib.errors import InternalError, InvalidError, KatibError, TerminalError, UnavailableError
from katib.model.metrics import BatchId, MetricLog
from tests.support.networks import Cut, LossyProxy, lossy
from tests.support.observations import reading
from tests.support.sql_servers import PASSWORD, QUOTED_PASSWORD, SERVERS, USER, SqlServerProcess, mysql, postgresql
from tests.support.waiting import PATIENCE_SECONDS, eventually

KATIB_TABLE = {
    "postgresql": "CREATE TABLE observation_logs (trial_name VARCHAR(255) NOT NULL, id serial PRIMARY KEY, "
    "time TIMESTAMP(6), metric_name VARCHAR(255) NOT NULL, value TEXT NOT NULL)",
    "mysql": "CREATE TABLE observation_logs (trial_name VARCHAR(255) NOT NULL, id INT AUTO_INCREMENT PRIMARY KEY, "
    "time DATETIME(6), metric_name VARCHAR(255) NOT NULL, value TEXT NOT NULL)",
}
KATIB_ROWS = (
    "INSERT INTO observation_logs (trial_name, time, metric_name, value) VALUES "
    "('a', '2016-12-31 20:02:05.123456', 'loss', '0.5'), ('a', '2016-12-31 20:02:06', 'Loss', '0.4')"
)
TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'"

# A driver that fails within a read over TLS leaves its socket to the garbage collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()  # here, and not within a test that has nothing to do with it


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> SqlServerProcess:
    start: Callable[[], SqlServerProcess] = request.param
    return start()


@pytest.fixture
def name(server: SqlServerProcess) -> str:
    return server.new_database()


@contextmanager
def opened(server: SqlServerProcess, name: str, **options: float) -> Iterator[SqlServer]:
    with open_sql_server(address_of(server.url(name)), **options) as database:
        yield database


@pytest.fixture
def database(server: SqlServerProcess, name: str) -> Iterator[SqlServer]:
    with opened(server, name) as database:
        yield database


@pytest.fixture
def log(database: SqlServer) -> SqlObservationLog:
    return SqlObservationLog(database)


def values(log: SqlObservationLog, trial: str = "a") -> list[str]:
    return [entry.value for entry in log.read(trial)]


def schema_of(server: SqlServerProcess, name: str) -> str:
    return "public" if server.scheme == "postgresql" else name


def tables(server: SqlServerProcess, name: str) -> list[str]:
    rows = server.sql(TABLES.format(schema=schema_of(server, name)), name)
    return sorted(row[0] for row in rows)


def katib_table(server: SqlServerProcess, name: str, *more: str) -> None:
    """Lay out a table as Katib's DB manager does, owned by our user, with two readings."""
    owner = [f"ALTER TABLE observation_logs OWNER TO {USER}"] if server.scheme == "postgresql" else []
    server.sql(";\n".join((KATIB_TABLE[server.scheme], KATIB_ROWS, *owner, *more)), name)


def retried(action: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Do it again until it is done, as anyone who keeps readings does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            action()
        except UnavailableError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_times_are_stored_in_utc_whatever_the_zone_of_the_server(
    server: SqlServerProcess, name: str, log: SqlObservationLog
) -> None:
    log.report("a", [reading("0.5", second=0.25)])

    rows = server.sql("SELECT trial_name, time, metric_name, value FROM observation_logs", name)

    assert [(a, b.rstrip("0"), *rest) for a, b, *rest in rows] == [("a", "2024-03-04 17:55:08.25", "loss", "0.5")]


@pytest.mark.parametrize(
    ("start", "entry", "cause"),
    [
        pytest.param(postgresql, reading("1", name="x" * 256), "too long", id="name, postgresql"),
        pytest.param(mysql, reading("1", name="x" * 256), "too long", id="name, mysql"),
        pytest.param(postgresql, reading("\0"), "0x00", id="NUL, postgresql"),
        pytest.param(mysql, reading("x" * 70_000), "too long", id="70,000 bytes, mysql"),
    ],
)
def test_what_a_server_cannot_store_is_refused_whole(
    start: Callable[[], SqlServerProcess], entry: MetricLog, cause: str
) -> None:
    server = start()
    with opened(server, server.new_database()) as database:
        refused_whole(SqlObservationLog(database), entry, cause)


def refused_whole(log: SqlObservationLog, entry: MetricLog, cause: str) -> None:
    with pytest.raises(InvalidError) as caught:
        log.report("a", [reading("1"), entry])

    assert [(field.path, field.origin) for field in caught.value.errors] == [("observation_log", "log-not-storable")]
    assert cause in str(caught.value).lower()
    assert values(log) == []


def test_a_large_log_is_removed_in_several_transactions(
    log: SqlObservationLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "DELETE_ROWS", 10)
    for trial in ("a", "b"):
        log.report(trial, [reading("1")] * 25)

    log.delete("a")

    assert (len(values(log, "a")), len(values(log, "b"))) == (0, 25)


def test_reads_of_one_trial_use_the_index(database: SqlServer, log: SqlObservationLog) -> None:
    log.report_all({f"t{trial}": [reading("1", second=second) for second in range(20)] for trial in range(200)})
    query = (
        "SELECT value FROM observation_logs WHERE trial_name = 't7' AND metric_name = 'loss' ORDER BY step, time, id"
    )
    with database.write() as connection:
        connection.execute(text("ANALYZE TABLE observation_logs" if is_mysql(database) else "ANALYZE"))
    with database.read() as connection:
        plan = " ".join(map(str, connection.execute(text(f"EXPLAIN {query}")).all()))

    assert "observation_logs_curves" in plan
    assert "Seq Scan" not in plan
    assert "filesort" not in plan


def is_mysql(database: SqlServer) -> bool:
    return database.address.dialect == "mysql"


def test_reports_and_deletions_at_once_do_not_disturb_each_other(log: SqlObservationLog) -> None:
    def work(number: int) -> None:
        for turn in range(10):
            trial = f"t{number}-{turn}"
            log.report(trial, [reading("1")] * 50)
            log.report("shared", [reading(f"{number}-{turn}")])
            log.delete(trial)

    in_threads(work, 5)

    assert sorted(values(log, "shared")) == sorted(f"{number}-{turn}" for number in range(5) for turn in range(10))


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Do work in so many threads at once; raises what it raises in one of them."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_made_by_katib_is_taken_over_with_its_readings(server: SqlServerProcess, name: str) -> None:
    katib_table(server, name)
    with opened(server, name) as database:
        log = SqlObservationLog(database)
        log.report("a", [reading("0.3")])
        adopted = log.read("a")
        narrowed = log.read("a", metric_name="loss")

    server.sql(KATIB_ROWS, name)  # the other one continues writing
    with opened(server, name) as database:
        both = SqlObservationLog(database).read("a")

    assert [(entry.time.isoformat(), entry.name, entry.value) for entry in adopted] == [
        ("2016-12-31T20:02:05.123456+00:00", "loss", "0.5"),
        ("2016-12-31T20:02:06+00:00", "Loss", "0.4"),
        ("2024-03-04T17:55:08+00:00", "loss", "0.3"),
    ]
    assert [entry.value for entry in narrowed] == ["0.5", "0.3"]
    assert len(both) == 5


def test_the_index_of_a_large_table_is_made_under_readers(server: SqlServerProcess, name: str) -> None:
    katib_table(server, name)
    double = "INSERT INTO observation_logs (trial_name, time, metric_name, value) "
    double += "SELECT trial_name, time, metric_name, value FROM observation_logs"
    server.sql(";\n".join([double] * 13), name)
    done, reads = threading.Event(), 0

    def keep_reading() -> None:
        nonlocal reads
        with opened(server, name) as database:
            while not done.is_set():
                with database.read() as connection:
                    connection.execute(text("SELECT count(*) FROM observation_logs")).scalar_one()
                reads += 1

    with going_on(keep_reading, done):
        eventually(lambda: reads > 0)
        with opened(server, name) as database:
            count = SqlObservationLog(database).count("a")

    assert count == 2 << 13


@contextmanager
def going_on(work: Callable[[], None], done: threading.Event) -> Iterator[None]:
    """Do work in a thread, until `done` is set at the end; raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(work)
        try:
            yield
        finally:
            done.set()
        doing.result()


@pytest.mark.parametrize("before", ["nothing", "a table made by Katib"])
def test_managers_that_start_at_once_lay_out_one_table(server: SqlServerProcess, name: str, before: str) -> None:
    if before != "nothing":
        katib_table(server, name)
    barrier = threading.Barrier(6)

    def start(number: int) -> None:
        with opened(server, name) as database:
            barrier.wait()
            SqlObservationLog(database).report("all", [reading(str(number))])

    in_threads(start, 6)

    assert tables(server, name) == [
        "katib_schema_versions",
        "observation_log_access",
        "observation_log_extremes",
        "observation_log_reporters",
        "observation_logs",
    ]
    assert server.sql("SELECT version FROM katib_schema_versions", name) == [(str(SCHEMA_VERSION),)]
    with opened(server, name) as database:
        assert sorted(values(SqlObservationLog(database), "all")) == list("012345")


@pytest.mark.parametrize(
    "left",
    [
        pytest.param("DELETE FROM katib_schema_versions", id="before the version was written down"),
        pytest.param("DROP TABLE katib_schema_versions", id="before the table of versions"),
        pytest.param(
            "DELETE FROM katib_schema_versions; DROP INDEX observation_logs_curves{on}", id="before the index"
        ),
        pytest.param("DELETE FROM katib_schema_versions; DROP TABLE observation_logs", id="before the table"),
    ],
)
def test_a_layout_that_was_killed_half_way_is_gone_on_from(
    server: SqlServerProcess, name: str, database: SqlServer, log: SqlObservationLog, left: str
) -> None:
    server.sql(left.format(on=" ON observation_logs" if server.scheme == "mysql" else ""), name)
    again = SqlObservationLog(database)
    again.report("a", [reading("1")])

    assert values(again) == ["1"]
    assert server.sql("SELECT version FROM katib_schema_versions", name) == [(str(SCHEMA_VERSION),)]


def test_a_database_of_a_release_that_used_alembic_is_taken_over_with_its_readings(
    server: SqlServerProcess, name: str, database: SqlServer, log: SqlObservationLog
) -> None:
    log.report("a", [reading("1")])
    with database.write() as connection:
        connection.execute(text("DROP TABLE katib_schema_versions"))
        connection.execute(text("CREATE TABLE observation_log_version (version_num VARCHAR(32) PRIMARY KEY)"))
        connection.execute(text("INSERT INTO observation_log_version VALUES ('0003')"))
    before = tables(server, name)

    assert values(SqlObservationLog(database)) == ["1"]
    assert tables(server, name) == ["katib_schema_versions", *before]


def test_a_table_that_is_not_to_be_made_is_missed(server: SqlServerProcess, name: str, database: SqlServer) -> None:
    with pytest.raises(TerminalError, match="there is no table observation_logs; make it, or let it be made"):
        SqlObservationLog(database, initialize=False)

    assert tables(server, name) == []


def test_a_table_that_is_not_to_be_changed_is_used_as_it_is(server: SqlServerProcess, name: str) -> None:
    katib_table(server, name)
    with opened(server, name) as database:
        log = SqlObservationLog(database, initialize=False)
        log.report("b", [reading("1")])

        assert (values(log, "b"), values(log, "a")) == (["1"], ["0.5", "0.4"])
    assert tables(server, name) == ["observation_logs"]


def test_a_user_who_may_not_make_tables_learns_which_rights_are_missing(server: SqlServerProcess, name: str) -> None:
    if server.scheme == "postgresql":
        server.sql(f"ALTER SCHEMA public OWNER TO postgres; REVOKE CREATE ON SCHEMA public FROM PUBLIC, {USER}", name)
        server.sql(f"ALTER DATABASE {name} OWNER TO postgres")
    else:
        server.sql(f"REVOKE ALL ON {name}.* FROM {USER}@'%'; GRANT SELECT ON {name}.* TO {USER}@'%'")
    with opened(server, name) as database, pytest.raises(TerminalError, match="grant the user SELECT, INSERT"):
        SqlObservationLog(database)


# --- logins and encryption --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "password", "known", "remedy"),
    [
        pytest.param(USER, "wr0ng", True, "check user and password", id="password"),
        pytest.param("nobody", QUOTED_PASSWORD, True, "check user and password", id="user"),
        pytest.param(USER, "", True, "check user and password", id="no password"),
        pytest.param(USER, QUOTED_PASSWORD, False, "create the database, or name another", id="database"),
    ],
)
def test_a_refused_login_says_what_to_check_and_keeps_the_password_to_itself(
    server: SqlServerProcess, name: str, user: str, password: str, known: bool, remedy: str
) -> None:
    address = address_of(server.url(name if known else "nowhere", user=user, password=password))

    with pytest.raises(UnavailableError) as caught:
        open_sql_server(address)

    assert str(caught.value).endswith(f"; {remedy}")
    assert str(caught.value).startswith(f"{server.scheme}://{user}@127.0.0.1:{server.port}/")
    assert "\n" not in str(caught.value)
    for secret in (PASSWORD, QUOTED_PASSWORD, "wr0ng"):
        assert secret not in str(caught.value)
        assert secret not in repr(address)


ENCRYPTED = {
    "postgresql": "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
    "mysql": "SELECT variable_value <> '' FROM information_schema.session_status WHERE variable_name = 'Ssl_cipher'",
}


@pytest.mark.parametrize(
    ("query", "encrypted"),
    [
        pytest.param("", True, id="default"),
        pytest.param("sslmode=disable", False, id="disable"),
        pytest.param("sslmode=prefer", True, id="prefer"),
        pytest.param("sslmode=require", True, id="require"),
        pytest.param("sslmode=verify-ca&sslrootcert={ca}", True, id="verify-ca"),
        pytest.param("sslmode=verify-full&sslrootcert={ca}", True, id="verify-full"),
    ],
)
def test_a_connection_is_encrypted_as_asked(server: SqlServerProcess, name: str, query: str, encrypted: bool) -> None:
    if server.scheme == "mysql" and not getattr(server, "is_mariadb", True):
        pytest.skip("MySQL keeps these variables elsewhere")
    url = server.url(name, query=query.format(ca=server.certificate))
    with open_sql_server(address_of(url)) as database, database.read() as connection:
        found = connection.execute(text(ENCRYPTED[server.scheme])).scalar()

    assert bool(found) is encrypted


def test_an_impostor_is_refused(server: SqlServerProcess, name: str) -> None:
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        open_sql_server(address_of(server.url(name, query="sslmode=verify-full")))


# --- servers that go away ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_a_server_that_was_restarted_costs_no_failed_call(
    server: SqlServerProcess, log: SqlObservationLog, way: str
) -> None:
    log.report("a", [reading("1")])
    getattr(server, way)()
    server.start()

    log.report("a", [reading("2")])

    assert values(log) == ["1", "2"]


def test_while_the_server_is_away_each_call_fails_at_once_and_later_goes_on(
    server: SqlServerProcess, log: SqlObservationLog
) -> None:
    log.report("a", [reading("1")])
    server.kill()
    try:
        for call in (lambda: log.report("a", [reading("x")]), lambda: log.read("a"), lambda: log.count("")):
            begin = time.monotonic()
            with pytest.raises(UnavailableError, match="connection refused; check that the server runs"):
                call()

            assert time.monotonic() - begin < 30
    finally:
        server.start()
    log.count("")

    assert values(log) == ["1"]


def test_a_server_that_hangs_is_given_up_and_later_goes_on(
    server: SqlServerProcess, name: str, log: SqlObservationLog
) -> None:
    log.report("a", [reading("1")])
    with opened(server, name, answer_seconds=0.5) as database:
        impatient = SqlObservationLog(database)
        retried(lambda: impatient.read("a"))
        with server.frozen():
            begin = time.monotonic()
            with pytest.raises(UnavailableError, match=r"no answer in time|timed out"):
                impatient.report("a", [reading("2")])
            seconds = time.monotonic() - begin
        retried(lambda: impatient.read("a"))

    assert seconds < 30
    log.report("a", [reading("3")])
    assert values(log) == ["1", "3"]


def test_a_crowded_server_is_unavailable_and_later_goes_on(server: SqlServerProcess, name: str) -> None:
    with opened(server, name) as database:
        log = SqlObservationLog(database)
    with ExitStack() as others:
        with pytest.raises(UnavailableError) as caught:
            crowd(server, name, others)
        with pytest.raises(UnavailableError):
            log.count("")

    assert str(caught.value).endswith("; raise max_connections of the server or close other sessions")
    eventually(lambda: answers(log))


def crowd(server: SqlServerProcess, name: str, others: ExitStack) -> None:
    while True:
        other = others.enter_context(opened(server, name))
        others.enter_context(other.read()).execute(text("SELECT 1"))


def answers(log: SqlObservationLog) -> bool:
    with suppress(UnavailableError):
        log.count("")
        return True
    return False


def test_a_lock_that_somebody_else_holds_is_not_waited_for_for_ever(
    server: SqlServerProcess, name: str, log: SqlObservationLog
) -> None:
    lock = {"postgresql": "LOCK TABLE observation_logs", "mysql": "LOCK TABLES observation_logs WRITE"}
    with opened(server, name) as other, other.write() as connection:
        connection.execute(text(lock[server.scheme]))
        with pytest.raises(UnavailableError, match="; try again, or end the session that holds the lock"):
            log.report("a", [reading("1")])
    retried(lambda: log.report("a", [reading("2")]))

    assert values(log) == ["2"]


# --- exactly once -----------------------------------------------------------------------------------------------------


def test_reports_survive_a_server_that_is_killed_again_and_again_each_once(
    server: SqlServerProcess, log: SqlObservationLog
) -> None:
    expected: list[str] = []
    done = threading.Event()

    def keep_reporting() -> None:
        number = 0
        while not done.is_set():
            batch = [reading(f"{number}/{row}", second=number) for row in range(300)]
            retried(lambda batch=batch: log.report("a", batch))  # type: ignore[misc]  # bound as it is now
            expected.extend(entry.value for entry in batch)
            number += 1

    with going_on(keep_reporting, done):
        for life in range(6):
            before = len(expected)
            eventually(lambda before=before: len(expected) > before)  # type: ignore[misc]  # as above
            time.sleep(0.017 * life)  # somewhere within a report
            server.kill()
            server.start()

    assert values(log) == expected


@contextmanager
def lossy_log(server: SqlServerProcess, name: str) -> Iterator[tuple[SqlObservationLog, LossyProxy]]:
    with lossy(server.port) as proxy:
        address = replace(address_of(server.url(name, query="sslmode=disable")), port=proxy.port)
        with open_sql_server(address, answer_seconds=60) as database:
            yield SqlObservationLog(database), proxy


def test_a_commit_whose_answer_is_lost_is_found_out_at_once(server: SqlServerProcess, name: str) -> None:
    with lossy_log(server, name) as (log, proxy):
        proxy.cut = Cut.AFTER
        log.report("a", [reading("1"), reading("2")])
        log.report("a", [reading("1"), reading("2")])  # a report of its own

        assert proxy.commits_cut == 1
        assert values(log) == ["1", "2", "1", "2"]


def test_a_commit_that_never_arrived_fails_and_is_stored_once_when_tried_again(
    server: SqlServerProcess, name: str
) -> None:
    with lossy_log(server, name) as (log, proxy):
        proxy.cut = Cut.BEFORE
        # A server that has not seen the end of the connection yet still has the transaction.
        with pytest.raises(UnavailableError, match=r"it is not known whether it was stored|is still being committed"):
            log.report("a", [reading("1")])
        assert values(log) == []

        def is_reported() -> bool:
            with suppress(UnavailableError):
                log.report("a", [reading("1")])
                return True
            return False

        eventually(is_reported)
        assert proxy.commits_cut == 1
        assert values(log) == ["1"]


@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.value)
def test_a_report_of_unknown_outcome_is_settled_when_it_is_tried_again_after_an_outage(
    server: SqlServerProcess, name: str, cut: Cut
) -> None:
    with lossy_log(server, name) as (log, proxy):
        proxy.cut, proxy.refuse_after_cut = cut, True
        with pytest.raises(UnavailableError):
            log.report("a", [reading("1")])
        with pytest.raises(UnavailableError):
            log.report("a", [reading("1")])
        proxy.refusing = False
        log.report("b", [reading("other")])
        retried(lambda: log.report("a", [reading("1")]))  # the session that was cut off may not have ended yet

        assert (values(log, "a"), values(log, "b")) == (["1"], ["other"])
        log.report("a", [reading("1")])

        assert values(log) == ["1", "1"]


def test_a_numbered_batch_of_unknown_outcome_is_sent_again_and_stored_once(server: SqlServerProcess, name: str) -> None:
    """By another DB manager, which knows nothing of the first attempt."""
    batch = [reading("1"), reading("2")]
    for number, cut in enumerate(Cut):
        with lossy_log(server, name) as (log, proxy):
            proxy.cut = cut
            with pytest.raises(UnavailableError):
                log.report("a", batch, BatchId("me", 2 * number))
        with opened(server, name) as database:
            SqlObservationLog(database).report("a", batch, BatchId("me", 2 * number))

            assert SqlObservationLog(database).count("a") == 2 * (number + 1)


def test_several_managers_store_each_reading_once_and_show_each_to_whoever_asks_for_changes(
    server: SqlServerProcess, name: str
) -> None:
    """Every batch goes to two managers at once, of two reporters, while somebody asks what is new."""
    batches = 12
    with ExitStack() as stack:
        logs = [SqlObservationLog(stack.enter_context(opened(server, name))) for _ in range(3)]
        barrier = threading.Barrier(4)

        def work(number: int) -> None:
            log, reporter = logs[number % 2], f"reporter {number // 2}"
            try:
                for turn in range(batches):
                    barrier.wait(60)
                    batch = [reading(f"{reporter}/{turn}/{row}", step=turn) for row in range(20)]
                    retried(lambda batch=batch, turn=turn: log.report("a", batch, BatchId(reporter, 20 * turn)))  # type: ignore[misc]  # bound as they are now
            except KatibError:
                barrier.abort()
                raise

        seen: list[str] = []
        reporting = stack.enter_context(ThreadPoolExecutor(1)).submit(in_threads, work, 4)
        cursor, is_over = 0, False
        while True:
            is_over = reporting.done()
            changes = logs[2].changes({"a": cursor}, "loss")
            seen += [change.reading.value for change in changes]
            cursor = changes[-1].cursor if changes else cursor
            if is_over and not changes:
                break
        reporting.result()

    expected = [
        f"reporter {number}/{turn}/{row}" for number in range(2) for turn in range(batches) for row in range(20)
    ]
    assert sorted(seen) == sorted(expected)
    for number in range(2):
        mine = [value for value in seen if value.startswith(f"reporter {number}")]
        assert mine == [value for value in expected if value.startswith(f"reporter {number}")]


def test_a_wrong_statement_is_a_bug_of_ours_and_spoils_nothing(database: SqlServer, log: SqlObservationLog) -> None:
    with pytest.raises(InternalError), database.read() as connection:
        connection.execute(text("SELEKT 1"))
    with pytest.raises(TerminalError, match="changed my mind"):
        insert_and_fail(database)

    assert values(log) == []


def insert_and_fail(database: SqlServer) -> None:
    with database.write() as connection:
        insert(connection, [("a", reading("1").time, "loss", "1", -1)])
        raise TerminalError("changed my mind")
