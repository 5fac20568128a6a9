"""A summary that the database computes is the one that folding the log gives, in every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from katib.engine.databases import address_of, open_sql_server
from katib.engine.databases.sqlite import open_database
from katib.engine.observations import SqlObservationLog
from katib.engine.observations.statements import Statements
from katib.engine.observations.summaries import NotComputableError, metric_summary
from katib.engine.observations.tables import TableLayout, Transactions
from katib.model.metrics import MetricLog
from katib.model.summary import observation_of
from tests.support.observations import reading
from tests.support.sql_servers import SqlServerProcess, mysql, postgresql

AWKWARD = [
    *("nan", "NaN", "inf", "-Infinity", "1e999", "-1e999", "1e-999", "1e308", "-1.7976931348623157e308", "5e-324"),
    *("0", "-0", "0.0", "+1", ".5", "5.", "1e5", "1E5", "100000", "1_000", " 1", "1 ", "1\n", "\n1", "", "abc", "1e"),
    *("0.1", "0.10000000000000001", "0.1000000000000000055511151231257827", "1" * 400, "0." + "0" * 300 + "1"),
    *("e", "E5", "--1", "1-2", "1.2.3", "1e5e5", "٣", "0x10", "unavailable", "9007199254740993", "9007199254740992"),
]

printed = st.one_of(
    st.sampled_from(AWKWARD),
    st.floats().map(repr),
    st.integers(-3, 3).map(str),
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=5),
)
logs = st.lists(st.tuples(printed, st.integers(0, 3), st.none() | st.integers(0, 1)), min_size=1, max_size=8)

CURVE = Statements(TableLayout()).curve


@contextmanager
def sqlite(directory: Path) -> Iterator[Transactions]:
    with open_database(directory / "katib.db") as database:
        yield database


def on(start: Callable[[], SqlServerProcess]) -> Callable[[Path], AbstractContextManager[Transactions]]:
    @contextmanager
    def opened(_directory: Path) -> Iterator[Transactions]:
        server = start()
        with open_sql_server(address_of(server.url(server.new_database()))) as database:
            yield database

    return opened


@pytest.fixture(
    params=[
        pytest.param(sqlite, id="sqlite"),
        pytest.param(on(postgresql), id="postgresql"),
        pytest.param(on(mysql), id="mysql"),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Transactions]:
    with request.param(tmp_path) as opened:
        yield opened


trials = (f"trial-{number}" for number in count())


def folded(readings: list[MetricLog]) -> object:
    curve = sorted(readings, key=lambda log: (-1 if log.step is None else log.step, log.time))
    found = observation_of(["loss"], [(log.name, log.value) for log in curve])
    return found and found.metrics[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(printed=logs)
@example(printed=[("0.10", 3, None), ("0.1", 1, None), ("0.100", 2, None), ("0.10", 1, None)])
@example(printed=[("0.10", 0, 1), ("0.1", 1, 0), ("0.100", 2, None)])
@example(printed=[("-1\n", 0, None), ("2", 0, None)])
@example(printed=[("1e5", 1, None), ("1E5", 0, None)])
@example(printed=[("1e308", 0, None), ("1e999", 0, None), ("-1e308", 1, None), ("nan", 2, None)])
def test_the_database_and_the_reader_of_a_log_agree(
    database: Transactions, printed: list[tuple[str, int, int | None]]
) -> None:
    readings = [reading(text, second=second, step=step) for text, second, step in printed]
    trial = next(trials)
    SqlObservationLog(database, initialize=True).report(trial, [*readings, reading("-9e9", name="other")])
    with database.read() as connection:
        try:
            found = metric_summary(connection, trial, "loss", CURVE)
        except NotComputableError:
            return

    assert found == folded(readings)


@pytest.mark.parametrize(
    "printed",
    [
        pytest.param(["0.5", "0.25", "0.75"], id="plain numbers"),
        pytest.param(["1e308", "-1e308", "1"], id="huge numbers"),
        pytest.param(["nan", "0.5", "abc", "inf"], id="few numbers"),
        pytest.param(["nan", "abc"], id="no number"),
        pytest.param(["0.1", "0.10000000000000001"], id="equal numbers"),
        pytest.param(["1E5", "1e5"], id="texts that differ by case"),
        pytest.param(["3", "3.0"] * 2_000, id="many equal numbers"),
    ],
)
def test_the_database_computes_what_programs_usually_print(database: Transactions, printed: list[str]) -> None:
    """So that the property above is not kept by giving up."""
    readings = [reading(text, second=second) for second, text in enumerate(printed)]
    SqlObservationLog(database).report("a", readings)
    with database.read() as connection:
        found = metric_summary(connection, "a", "loss", CURVE)

    assert found == folded(readings)
