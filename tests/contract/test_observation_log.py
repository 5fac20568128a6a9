"""What every observation log promises: in memory, in each SQL database, and there behind a DBManager on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest

from katib.api.metrics import ZERO_TIME, MetricLog
from katib.api.types import Metric, Observation
from katib.errors import InvalidError
from katib.observations import MemoryObservationLog, SqlObservationLog
from katib.rpc.db_manager_client import DbManagerClient
from tests.support.observations import T0, memory_log, mysql_log, postgresql_log, reading, served_log, sql_log

Log = MemoryObservationLog | SqlObservationLog | DbManagerClient


@pytest.fixture(
    params=[
        pytest.param(memory_log, id="memory"),
        pytest.param(sql_log, id="sqlite"),
        pytest.param(postgresql_log, id="postgresql"),
        pytest.param(mysql_log, id="mysql"),
        pytest.param(served_log, id="served from sqlite"),
        pytest.param(partial(served_log, opened=postgresql_log), id="served from postgresql"),
        pytest.param(partial(served_log, opened=mysql_log), id="served from mysql"),
    ]
)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    opened: AbstractContextManager[Log] = request.param(tmp_path)
    with opened as log:
        yield log


def read(log: Log, trial: str = "a", **narrowed: object) -> list[MetricLog]:
    logs, cursor = log.read(trial, **narrowed)  # type: ignore[arg-type]  # keywords of `read`

    assert cursor == ""
    return list(logs)


def values(log: Log, trial: str = "a", **narrowed: object) -> list[str]:
    return [entry.value for entry in read(log, trial, **narrowed)]


def test_readings_come_back_as_they_were_reported(log: Log) -> None:
    logs = [
        reading("0.5", second=1.000001),
        reading(" .50e0 ", second=2, name="läß"),
        reading("nan", second=3),
        reading("", second=4),
    ]
    log.report("a", logs)

    assert read(log) == logs


def test_a_reading_without_time_keeps_the_zero_time(log: Log) -> None:
    log.report("a", [MetricLog(ZERO_TIME, "loss", "1")])

    assert read(log) == [MetricLog(ZERO_TIME, "loss", "1")]


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "-inf",
        "1e999",
        "",
        " ",
        "🚀 läß 模型",
        "tab\there",
        "two\nlines\r",
        "back\\slash \\N \\.",
        "'quo\"ted'",
        "%s %(x)s :y",
    ],
)
def test_a_value_is_any_text(log: Log, text: str) -> None:
    log.report("a", [reading(text), reading("1", second=1)])

    assert values(log) == [text, "1"]


def test_names_are_any_text_of_255_characters(log: Log) -> None:
    name = "läß/🚀'\"\\" + "x" * 247
    log.report(name, [reading("1", name=name)])

    assert values(log, name) == ["1"]
    assert values(log, name, metric_name=name) == ["1"]


def test_metrics_are_told_apart_by_case(log: Log) -> None:
    log.report("a", [reading("1", name="loss"), reading("2", name="Loss")])

    assert values(log, metric_name="loss") == ["1"]
    assert log.summarize("a", ["Loss"]) == Observation(metrics=(Metric(name="Loss", min="2", max="2", latest="2"),))


@pytest.mark.parametrize(
    "time",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 3, 31, 1, 30, 0, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
    ids=["epoch", "an hour that summer time leaves out", "last microsecond"],
)
def test_a_time_is_kept_to_the_microsecond(log: Log, time: datetime) -> None:
    log.report("a", [MetricLog(time, "loss", "1")])

    assert read(log) == [MetricLog(time, "loss", "1")]
    assert read(log, start=time, end=time) == [MetricLog(time, "loss", "1")]


def test_times_of_other_zones_are_kept_as_the_same_moment(log: Log) -> None:
    log.report("a", [MetricLog(T0.astimezone(timezone(timedelta(hours=9))), "loss", "1")])

    assert read(log) == [reading("1")]


def test_readings_are_in_order_of_time_then_of_their_reports(log: Log) -> None:
    log.report("a", [reading("3", second=2), reading("1"), reading("4", second=2)])
    log.report("a", [reading("2"), reading("5", second=2)])

    assert values(log) == ["1", "2", "3", "4", "5"]


def test_trials_do_not_see_each_other(log: Log) -> None:
    log.report("a", [reading("1")])
    log.report("b", [reading("2")])

    assert values(log, "a") == ["1"]
    assert values(log, "b") == ["2"]


def test_an_unknown_trial_has_an_empty_log(log: Log) -> None:
    assert read(log, "nobody") == []


def test_an_empty_report_stores_nothing(log: Log) -> None:
    log.report("a", [])

    assert read(log) == []


def test_reporting_twice_stores_twice(log: Log) -> None:
    log.report("a", [reading("1")])
    log.report("a", [reading("1")])

    assert values(log) == ["1", "1"]


@pytest.mark.parametrize(
    ("narrowed", "expected"),
    [
        pytest.param({"metric_name": "loss"}, ["l0", "l1", "l2"], id="metric"),
        pytest.param({"start": T0 + timedelta(seconds=1)}, ["a1", "l1", "l2"], id="start is inclusive"),
        pytest.param({"end": T0 + timedelta(seconds=1)}, ["l0", "a1", "l1"], id="end is inclusive"),
        pytest.param(
            {"metric_name": "loss", "start": T0 + timedelta(seconds=1), "end": T0 + timedelta(seconds=1)},
            ["l1"],
            id="all three",
        ),
        pytest.param({"metric_name": "nobody"}, [], id="unknown metric"),
    ],
)
def test_a_read_can_be_narrowed(log: Log, narrowed: dict[str, object], expected: list[str]) -> None:
    loss = [reading(f"l{second}", second=second) for second in range(3)]
    log.report("a", [loss[0], reading("a1", second=1, name="accuracy"), *loss[1:]])

    assert values(log, **narrowed) == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_add_up_to_the_whole_log(log: Log, limit: int) -> None:
    expected = [reading(str(index), second=index // 3) for index in range(7)]
    log.report("a", expected)

    found: list[MetricLog] = []
    cursor, pages = "", 0
    while cursor or not pages:
        page, cursor = log.read("a", limit=limit, cursor=cursor)
        assert len(page) <= limit
        found += page
        pages += 1

    assert found == expected
    assert pages == -(-7 // limit)


def test_a_foreign_cursor_is_refused(log: Log) -> None:
    with pytest.raises(InvalidError) as caught:
        log.read("a", cursor="tomorrow")

    assert [error.origin for error in caught.value.errors] == ["cursor"]


def test_a_deleted_log_is_empty_and_others_stay(log: Log) -> None:
    log.report("a", [reading("1")])
    log.report("b", [reading("2")])

    log.delete("a")
    log.delete("a")

    assert read(log, "a") == []
    assert values(log, "b") == ["2"]


def test_a_summary_takes_the_smallest_the_largest_and_the_latest(log: Log) -> None:
    """Out of order and with equal times, as several processes of one trial report."""
    seconds = [1, 2, 3, 4, 4, 4, -86400]
    error = [".03", ".02", ".01", ".05", ".06", ".07", ".1"]
    accuracy = [".7", ".71", ".72", ".68", ".69", ".67", ".6"]
    for second, e, a in zip(seconds, error, accuracy, strict=True):
        log.report("a", [reading(e, second=second, name="error"), reading(a, second=second, name="accuracy")])

    assert log.summarize("a", ["error", "accuracy"]) == Observation(
        metrics=(
            Metric(name="error", min=".01", max=".1", latest=".07"),
            Metric(name="accuracy", min=".6", max=".72", latest=".67"),
        )
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(["0.99", "0.11"], ("0.11", "0.99", "0.11"), id="falling"),
        pytest.param(["1", "1.0", "1.00"], ("1", "1", "1.00"), id="equal numbers keep the first text"),
        pytest.param(["nan", "0.5", "0.4"], ("0.4", "0.5", "0.4"), id="NaN first"),
        pytest.param(["0.5", "nan"], ("0.5", "0.5", "nan"), id="NaN last"),
        pytest.param(["inf", "-Infinity", "3"], ("3", "3", "3"), id="infinities"),
        pytest.param(["abc", "2", ""], ("2", "2", ""), id="text"),
        pytest.param(["1_0", "2"], ("2", "2", "2"), id="digit separators are no number"),
        pytest.param(["1e999", "2"], ("2", "2", "2"), id="beyond a double"),
        pytest.param(["unavailable"], ("unavailable", "unavailable", "unavailable"), id="unavailable"),
        pytest.param(["nan"], ("unavailable", "unavailable", "nan"), id="no usable number"),
    ],
)
def test_a_summary_uses_only_usable_numbers(log: Log, texts: list[str], expected: tuple[str, str, str]) -> None:
    log.report("a", [reading(text, second=index) for index, text in enumerate(texts)])

    low, high, latest = expected
    assert log.summarize("a", ["loss"]) == Observation(metrics=(Metric(name="loss", min=low, max=high, latest=latest),))


def test_a_summary_keeps_the_order_asked_for_and_marks_what_is_missing(log: Log) -> None:
    log.report("a", [reading("1", name="a"), reading("2", name="b")])

    summary = log.summarize("a", ["b", "c", "a"])

    assert summary is not None
    assert [(m.name, m.latest) for m in summary.metrics] == [("b", "2"), ("c", "unavailable"), ("a", "1")]


@pytest.mark.parametrize("metrics", [["loss"], ["loss", "accuracy"], []], ids=["unknown", "second known", "none asked"])
def test_a_log_without_the_first_metric_has_no_summary(log: Log, metrics: list[str]) -> None:
    log.report("a", [reading("1", name="accuracy")])

    assert log.summarize("a", metrics) is None


def test_threads_may_share_a_log(log: Log) -> None:
    def write(trial: str) -> None:
        for index in range(10):
            log.report(trial, [reading(str(index), second=index), reading(str(index), second=index)])
            log.summarize(trial, ["loss"])

    threads = [threading.Thread(target=write, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number in range(4):
        assert values(log, f"t{number}") == [str(index) for index in range(10) for _ in range(2)]


def test_a_large_report_is_stored_whole(log: Log) -> None:
    """More than one statement of any database takes, and more than gRPC's default message."""
    count = 25_000
    log.report("a", [reading(f"{index:0160}", second=index) for index in range(count)])

    found = values(log)

    assert len(found) == count
    assert found[-1] == f"{count - 1:0160}"
