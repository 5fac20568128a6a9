"""What every observation log promises: in memory, in each SQL database, and behind a DBManager on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import text

from katib.engine.observations import SqlObservationLog, best, sql, statements
from katib.errors import InvalidError
from katib.model.metrics import BEFORE_THE_LAST, NEW_TRY, ZERO_TIME, BatchId, MetricLog
from katib.model.thinning import thinned
from katib.model.types import Metric, Observation
from katib.wire.rpc.db_manager_client import DbManagerClient
from tests.support.observations import (
    T0,
    MemoryObservationLog,
    memory_log,
    mysql_log,
    postgresql_log,
    reading,
    served_log,
    sql_log,
)

Log = MemoryObservationLog | SqlObservationLog | DbManagerClient


@pytest.fixture(
    params=[
        pytest.param(memory_log, id="memory"),
        pytest.param(sql_log, id="sqlite"),
        pytest.param(postgresql_log, id="postgresql"),
        pytest.param(mysql_log, id="mysql"),
        pytest.param(served_log, id="served from sqlite"),
    ]
)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    opened: AbstractContextManager[Log] = request.param(tmp_path)
    with opened as log:
        yield log


def read(log: Log, trial: str = "a", **narrowed: object) -> list[MetricLog]:
    return list(log.read(trial, **narrowed))  # type: ignore[arg-type]  # keywords of `read`


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


def test_a_log_that_knows_trials_by_name_alone_is_the_same_within_every_namespace(log: Log) -> None:
    log.report("a", [reading("1")])

    assert values(log.within("team")) == ["1"]


def test_a_reading_without_time_keeps_the_zero_time(log: Log) -> None:
    log.report("a", [MetricLog(ZERO_TIME, "loss", "1")])

    assert read(log) == [MetricLog(ZERO_TIME, "loss", "1")]


def test_a_value_is_any_text(log: Log) -> None:
    texts = [
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
    ]
    log.report("a", [reading(text, second=index) for index, text in enumerate(texts)])

    assert values(log) == texts


def test_names_are_any_text_of_255_characters_and_differ_by_case(log: Log) -> None:
    name = "läß/🚀'\"\\" + "x" * 247
    log.report(name, [reading("1", name=name)])

    assert values(log, name) == ["1"]
    assert values(log, name, metric_name=name) == ["1"]

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


STEPS = [(3, 1), (None, 5), (1, 4), (3, 0), (1, 4), (None, 2), (0, 9), (2**63 - 1, 0)]
"""Of each reading, its step and second: out of order, some equal."""
IN_ORDER = ["5", "1", "6", "2", "4", "3", "0", "7"]
"""Their numbers, as they stand in the curve."""


@pytest.fixture
def steps(log: Log) -> Log:
    for number, (step, second) in enumerate(STEPS):
        log.report("a", [reading(str(number), second=second, step=step)])
    return log


def test_a_curve_is_in_order_of_steps_then_of_time_then_of_reports(steps: Log) -> None:
    assert values(steps) == IN_ORDER
    assert values(steps, metric_name="loss") == IN_ORDER
    assert [(log.step, log.time) for log in read(steps)] == [
        (step, T0 + timedelta(seconds=second)) for step, second in (STEPS[int(number)] for number in IN_ORDER)
    ]


@pytest.mark.parametrize("metric", ["", "loss"])
def test_the_newest_are_the_last_of_the_curve(steps: Log, metric: str) -> None:
    assert [log.value for log in steps.newest("a", limit=3, metric_name=metric)] == IN_ORDER[-3:]
    assert [log.step for log in steps.newest("a", limit=2, metric_name=metric)] == [3, 2**63 - 1]


def test_what_arrived_since_is_found_by_its_cursor(log: Log) -> None:
    log.report("a", [reading("0", step=5), reading("other", name="Loss")])
    log.report("b", [reading("1"), reading("2", second=-1, step=0)])
    first = log.changes({"a": 0, "b": 0, "nobody": 0}, "loss")
    cursors = {change.trial_name: change.cursor for change in first}
    log.report("a", [reading("3", step=1, second=-9), reading("4", step=0)])
    after = log.changes({**cursors, "nobody": 0}, "loss")
    last = log.changes({**cursors, **{change.trial_name: change.cursor for change in after}}, "loss")

    assert [(change.trial_name, change.reading) for change in sorted(first, key=lambda change: change.trial_name)] == [
        ("a", reading("0", step=5)),
        ("b", reading("1")),
        ("b", reading("2", second=-1, step=0)),
    ]
    assert [change.reading for change in after] == [reading("3", step=1, second=-9), reading("4", step=0)]
    assert list(last) == []


def test_a_reader_can_go_on_from_the_last_change_in_order_of_arrival(log: Log) -> None:
    log.report("b", [reading("other")])
    log.report("a", [reading("0", step=5), reading("1", name="Loss"), reading("2", name="acc", second=-1)])
    first = log.changes({"a": 0})
    log.report("a", [reading("3", step=1), reading("4", name="acc")])
    after = log.changes({"a": first[-1].cursor})

    assert [change.reading.value for change in first] == ["0", "1", "2"]
    assert [change.reading for change in after] == [reading("3", step=1), reading("4", name="acc")]

    log.report("a", [reading("0", step=9), reading("1", name="acc", second=-1)])
    last = log.changes({"a": BEFORE_THE_LAST, "nobody": BEFORE_THE_LAST})
    log.report("a", [reading("2")])

    assert [(change.trial_name, change.reading.value) for change in last] == [("a", "1")]
    assert [change.reading.value for change in log.changes({"a": last[0].cursor})] == ["2"]
    assert [change.reading.value for change in log.changes({"a": BEFORE_THE_LAST}, "acc")] == ["1"]

    assert list(log.changes({}, "loss")) == []


def test_changes_of_many_trials_come_in_a_few_answers(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "CHANGES", 4)
    monkeypatch.setattr(statements, "_TRIALS_AT_ONCE", 2)
    for trial in "abc":
        log.report(trial, [reading(f"{trial}{number}") for number in range(3)])
    cursors, found = dict.fromkeys("abc", 0), []
    while changes := log.changes(cursors, "loss"):
        found += [change.reading.value for change in changes]
        cursors |= {change.trial_name: change.cursor for change in changes}

    assert sorted(found) == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"]


def test_a_numbered_batch_that_is_repeated_changes_nothing(log: Log) -> None:
    batch = [reading(str(number), step=number) for number in range(3)]
    for _ in range(2):
        log.report("a", batch, BatchId("me", 0))

    assert log.knows_batches("a")
    assert values(log) == ["0", "1", "2"]


def test_of_a_batch_that_overlaps_only_the_rest_is_stored(log: Log) -> None:
    numbers = [reading(str(number), second=number) for number in range(9)]
    log.report("a", numbers[:3], BatchId("me", 0))
    log.report("a", numbers[:5], BatchId("me", 0))
    log.report("a", numbers[2:4], BatchId("me", 2))
    log.report("a", numbers[6:], BatchId("me", 6))  # one before it was refused for good
    log.report("a", [], BatchId("me", 20))
    log.report("a", numbers[8:], BatchId("me", 8))

    assert values(log) == ["0", "1", "2", "3", "4", "6", "7", "8"]


def test_reporters_and_trials_count_for_themselves(log: Log) -> None:
    for trial, reporter in (("a", "me"), ("a", "you"), ("b", "me"), ("b", "me")):
        log.report(trial, [reading(reporter)], BatchId(reporter, 0))
    log.report("a", [reading("not numbered", second=1)])

    assert values(log, "a") == ["me", "you", "not numbered"]
    assert values(log, "b") == ["me"]


def test_with_a_log_its_reporters_are_forgotten(log: Log) -> None:
    log.report("a", [reading("1")], BatchId("me", 0))
    log.report("b", [reading("2")], BatchId("me", 0))
    log.delete("a")
    for trial in "ab":
        log.report(trial, [reading("3")], BatchId("me", 0))

    assert (values(log, "a"), values(log, "b")) == (["3"], ["2"])


@pytest.fixture(params=[sql.FOLDED_ROWS, 0], ids=["folded", "computed by the database"])
def _short_or_long(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "FOLDED_ROWS", request.param)


@pytest.mark.usefixtures("_short_or_long")
@pytest.mark.parametrize("max_points", [4, 5, 9, 13, 100])
def test_a_curve_is_thinned_and_keeps_its_extremes(log: Log, max_points: int) -> None:
    texts = ["5", "nan", "-1e9", "3", "", "3.0", "9e9", "1E5", "7", "inf", "abc", "0", "8"] * 3
    logs = [reading(text, second=-number, step=number // 2) for number, text in enumerate(texts)]
    log.report("a", [*logs, *(reading("99e99", name="Loss") for _ in range(3))])
    curve, whole = list(log.curve("a", "loss", max_points)), read(log, metric_name="loss")

    assert curve == thinned(whole, max_points)
    assert len(curve) <= max_points
    assert {"-1e9", "9e9"} <= {log.value for log in curve}
    assert (curve[0], curve[-1]) == (whole[0], whole[-1])


def test_a_short_curve_is_whole(log: Log) -> None:
    log.report("a", [reading("1", step=1), reading("0", step=0)])

    assert values(log) == [log.value for log in log.curve("a", "loss", 4)]
    assert list(log.curve("nobody", "loss", 4)) == []


@pytest.mark.usefixtures("_short_or_long")
def test_a_curve_keeps_the_times_and_steps_of_its_readings(log: Log) -> None:
    early = MetricLog(ZERO_TIME, "loss", 'a "quoted" \\ value', 7)
    late = MetricLog(T0 + timedelta(microseconds=123_450), "loss", "2\t\u00e9", None)
    log.report("a", [early, late, *(reading("1", second=second, step=9) for second in range(9))])

    assert log.curve("a", "loss", 4)[0] == late
    assert early in log.curve("a", "loss", 20)


@pytest.mark.parametrize("entries", [2, 200], ids=["looked up", "found in the index"])
@pytest.mark.parametrize("maximize", [False, True])
def test_the_best_of_some_trials_is_found_among_many(
    log: Log, monkeypatch: pytest.MonkeyPatch, entries: int, *, maximize: bool
) -> None:
    monkeypatch.setattr(best, "_ENTRIES", entries)
    for number in range(10):
        log.report(f"other-{number}", [reading(str(-number)), reading(str(100 + number))])
    names = ["z", 'q"uo\\te{,}\x1f\n\x20', "a b", "none"]
    for name in names[:-1]:
        log.report(name, [reading("1"), reading("99" if name != "z" else "98.9")])

    assert log.best(names, "loss", maximize=maximize) == ("a b", "99" if maximize else "1")
    assert log.best(["z"], "loss", maximize=maximize) == ("z", "98.9" if maximize else "1")
    assert log.best(["none"], "loss", maximize=maximize) is None


@pytest.mark.parametrize(("maximize", "expected"), [(False, ("b", "-1.50")), (True, ("a", "7.0"))])
def test_the_best_trial_is_found_by_its_best_reading(log: Log, maximize: bool, expected: tuple[str, str]) -> None:
    log.report("a", [reading("nan"), reading("7.0"), reading("-99", name="Loss"), reading("7")])
    log.report("c", [reading("-1.5"), reading("7")])
    log.report("b", [reading("3"), reading("-inf"), reading("1_0_0")])
    log.report("b", [reading("-1.50"), reading("-1.5")])
    log.report("d", [reading("-1e9"), reading("1e9")])
    log.report("e", [reading("nan")])

    assert log.best(["c", "a", "b", "e", "nobody", "b"], "loss", maximize=maximize) == expected
    assert log.best(["e", "nobody"], "loss", maximize=maximize) is None
    assert log.best([], "loss", maximize=maximize) is None
    log.delete("b")
    log.delete("a")
    assert log.best(["a", "b", "c"], "loss", maximize=maximize) == ("c", "7" if maximize else "-1.5")


def test_trials_do_not_see_each_other_and_an_unknown_one_has_an_empty_log(log: Log) -> None:
    log.report("a", [])
    assert read(log) == []

    log.report("a", [reading("1")])
    log.report("b", [reading("2")])

    assert values(log, "a") == ["1"]
    assert values(log, "b") == ["2"]
    assert read(log, "nobody") == []


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


def test_the_newest_readings_are_the_last_of_all(log: Log) -> None:
    """Out of order, with equal times and names that differ in case alone."""
    seconds = [3, 1, 2, 2, 2, 0, 2]
    names = ["loss", "accuracy", "Loss", "loss", "accuracy", "loss", "loss"]
    for index, (second, name) in enumerate(zip(seconds, names, strict=True)):
        log.report("a", [reading(str(index), second=second, name=name)])
        log.report("b", [reading("other", second=9)])

    for metric in ("", "loss", "Loss", "accuracy", "nobody"):
        for limit in (1, 2, 6, 7, 8):
            assert list(log.newest("a", limit=limit, metric_name=metric)) == read(log, metric_name=metric)[-limit:]


def test_readings_are_counted_by_trial_and_metric(log: Log) -> None:
    log.report("a", [reading("1"), reading("1"), reading("2", name="Loss")])
    log.report("b", [reading("3")])

    assert (log.count("a"), log.count("a", metric_name="loss"), log.count("a", metric_name="Loss")) == (3, 2, 1)
    assert (log.count("a", metric_name="nothing"), log.count("nobody")) == (0, 0)


def test_a_deleted_log_is_empty_and_others_stay(log: Log) -> None:
    log.report("a", [reading("1")])
    log.report("b", [reading("2")])

    log.delete("a")
    log.delete("a")

    assert read(log, "a") == []
    assert values(log, "b") == ["2"]


@pytest.mark.usefixtures("_short_or_long")
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


@pytest.mark.usefixtures("_short_or_long")
def test_a_summary_ends_with_the_last_step(steps: Log) -> None:
    steps.report("a", [reading("0.0", step=9), reading("7.0", second=9)])

    assert steps.summarize("a", ["loss"]) == Observation(metrics=(Metric(name="loss", min="0", max="7.0", latest="7"),))


@pytest.mark.usefixtures("_short_or_long")
def test_a_summary_uses_only_usable_numbers(log: Log) -> None:
    cases = {
        "falling": (["0.99", "0.11"], ("0.11", "0.99", "0.11")),
        "equal numbers keep the first text": (["1", "1.0", "1.00"], ("1", "1", "1.00")),
        "NaN first": (["nan", "0.5", "0.4"], ("0.4", "0.5", "0.4")),
        "NaN last": (["0.5", "nan"], ("0.5", "0.5", "nan")),
        "infinities": (["inf", "-Infinity", "3"], ("3", "3", "3")),
        "text": (["abc", "2", ""], ("2", "2", "")),
        "digit separators are no number": (["1_0", "2"], ("2", "2", "2")),
        "beyond a double": (["1e999", "2"], ("2", "2", "2")),
        "unavailable": (["unavailable"], ("unavailable", "unavailable", "unavailable")),
        "no usable number": (["nan"], ("unavailable", "unavailable", "nan")),
    }
    for trial, (texts, _) in cases.items():
        log.report(trial, [reading(text, second=index) for index, text in enumerate(texts)])

    expected = {
        trial: Observation(metrics=(Metric(name="loss", min=low, max=high, latest=latest),))
        for trial, (_, (low, high, latest)) in cases.items()
    }
    assert {trial: log.summarize(trial, ["loss"]) for trial in cases} == expected


@pytest.mark.usefixtures("_short_or_long")
def test_a_summary_keeps_the_order_asked_for_and_marks_what_is_missing(log: Log) -> None:
    log.report("a", [reading("1", name="a"), reading("2", name="b")])

    summary = log.summarize("a", ["b", "c", "a"])

    assert summary is not None
    assert [(m.name, m.latest) for m in summary.metrics] == [("b", "2"), ("c", "unavailable"), ("a", "1")]


@pytest.mark.parametrize("metrics", [["loss"], ["loss", "accuracy"], []], ids=["unknown", "second known", "none asked"])
def test_a_log_without_the_first_metric_has_no_summary(log: Log, metrics: list[str]) -> None:
    log.report("a", [reading("1", name="accuracy")])

    assert log.summarize("a", metrics) is None


def test_a_long_log_is_summarized_like_a_short_one(log: Log) -> None:
    count = sql.FOLDED_ROWS + 1
    log.report("a", [reading(repr((i * 7919 % count) / count), second=-i) for i in range(count)])
    log.report("a", [reading("nan", second=-1.5), reading("0.50", second=1)])

    largest = repr((count - 1) / count)
    assert log.summarize("a", ["loss"]) == Observation(
        metrics=(Metric(name="loss", min="0.0", max=largest, latest="0.50"),)
    )


def test_threads_may_share_a_log(log: Log) -> None:
    def write(trial: str) -> None:
        for index in range(10):
            log.report(trial, [reading(str(index), second=index), reading(str(index), second=index)])
            log.summarize(trial, ["loss"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [f"t{number}" for number in range(4)]))

    for number in range(4):
        assert values(log, f"t{number}") == [str(index) for index in range(10) for _ in range(2)]


def test_a_large_report_is_stored_whole(log: Log) -> None:
    """More than one statement of any database takes, and more than gRPC's default message."""
    count = sql.INSERT_ROWS + 1
    log.report("a", [reading(f"{index:0450}", second=index) for index in range(count)])

    found = values(log)

    assert len(found) == count
    assert found[-1] == f"{count - 1:0450}"


def test_a_new_try_sets_aside_what_the_one_before_it_reported(log: Log) -> None:
    mark = MetricLog(ZERO_TIME, NEW_TRY, "")
    log.report("a", [reading("0.1")])
    log.report("a", [reading("0.2", second=1), mark, reading("0.5", second=2)])
    log.report("a", [mark, reading("0.7", second=3)])

    assert [values(log), values(log, "a.1"), values(log, "a.2")] == [["0.7"], ["0.1", "0.2"], ["0.5"]]
    last = Metric(name="loss", min="0.7", max="0.7", latest="0.7")
    assert log.summarize("a", ["loss"]) == Observation(metrics=(last,))

    log.delete("a")

    assert [values(log), values(log, "a.1"), values(log, "a.2")] == [[], [], []]


def test_a_name_with_a_blank_behind_it_is_another_name(log: Log) -> None:
    log.report("a", [reading("0.5"), reading("0.1", second=1, name="loss ")])

    assert [values(log, metric_name=name) for name in ("loss", "loss ")] == [["0.5"], ["0.1"]]
    found = [log.best(["a"], name, maximize=False) for name in ("loss", "loss ")]
    assert [one and one.value for one in found] == ["0.5", "0.1"]


def test_a_name_that_a_table_of_mysql_cannot_hold_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with mysql_log(tmp_path) as log:
        with log._database.write() as connection:
            connection.execute(text("ALTER TABLE observation_logs CONVERT TO CHARACTER SET latin1"))
        log.report("a", [reading("0.5", name="é")])

        assert values(log, metric_name="é") == ["0.5"]
        for ask in (lambda: log.report("a", [reading("0.5", name="損失")]), lambda: log.read("a", metric_name="損失")):
            with pytest.raises(InvalidError, match="CONVERT TO CHARACTER SET utf8mb4"):
                ask()
        with log._database.write() as connection:  # other tests use the same table
            connection.execute(
                text("ALTER TABLE observation_logs CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
            )
