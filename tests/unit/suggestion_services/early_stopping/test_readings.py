"""Curves gathered from a log that is asked for what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from katib.api.metrics import Change, MetricLog
from katib.errors import UnavailableError
from suggestion_services.early_stopping import Curve, Standing
from suggestion_services.early_stopping.readings import Curves, JudgedTrial

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryLog:
    """Readings in order of arrival; counts what it is asked for, and fails when it is told to."""

    def __init__(self) -> None:
        self.changes_of: list[Change] = []
        self.asked: list[set[str]] = []
        self.down = False
        self.most = 1000

    def report(self, trial: str, value: object, step: int | None = None, *, second: float | None = None) -> None:
        number = len(self.changes_of) + 1
        time = T0 + timedelta(seconds=number if second is None else second)
        self.changes_of.append(Change(trial, number, MetricLog(time, "loss", str(value), step)))

    def changes(self, cursors: Mapping[str, int], metric_name: str) -> Sequence[Change]:
        if self.down:
            raise UnavailableError("down")
        self.asked.append(set(cursors))
        new = [c for c in self.changes_of if c.trial_name in cursors and c.cursor > cursors[c.trial_name]]
        return new[: self.most]


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def trial(name: str, standing: Standing = Standing.RUNNING, start: str = "one") -> JudgedTrial:
    return JudgedTrial(name, start, standing)


def shape(curve: Curve) -> list[tuple[int, float]]:
    return list(zip(curve.resources, curve.costs, strict=True))


def test_readings_without_steps_are_numbered(log: MemoryLog) -> None:
    curves = Curves("loss", maximize=True)
    log.report("a", 0.5)
    (first,) = curves.refresh([trial("a")], log)
    log.report("a", 0.7)
    (second,) = curves.refresh([trial("a")], log)

    assert (shape(first), shape(second)) == ([(1, -0.5)], [(1, -0.5), (2, -0.7)])
    assert second.by_number


@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "one-by-one"])
def test_steps_order_a_curve_before_time_does(log: MemoryLog, at_once: bool) -> None:
    curves = Curves("loss", maximize=False)
    for value, step in ((1, 10), (3, 30), (2, 20), (5, None), (4, 30)):
        log.report("a", value, step)
        if not at_once:
            curves.refresh([trial("a")], log)
    (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(0, 5.0), (10, 1.0), (20, 2.0), (30, 3.0), (30, 4.0)]
    assert not curve.by_number


def test_readings_that_come_late_take_their_place_in_time(log: MemoryLog) -> None:
    curves = Curves("loss", maximize=False)
    log.report("a", 2, second=20)
    curves.refresh([trial("a")], log)
    log.report("a", 1, second=10)
    (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(1, 1.0), (2, 2.0)]


def test_a_source_that_tells_steps_only_later_is_counted_by_steps(log: MemoryLog) -> None:
    curves = Curves("loss", maximize=False)
    for value, step in ((3, None), (2, 100), (1, 200)):
        log.report("a", value, step)
        (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(0, 3.0), (100, 2.0), (200, 1.0)]


def test_what_is_no_number_has_its_place_in_the_curve(log: MemoryLog) -> None:
    for value in ("nan", "inf", "unavailable", "1"):
        log.report("a", value)
    (curve,) = Curves("loss", maximize=False).refresh([trial("a")], log)

    assert len(curve) == 4
    assert curve.best == 1


def test_a_trial_that_is_over_is_asked_for_once_more_and_never_again(log: MemoryLog) -> None:
    curves = Curves("loss", maximize=False)
    log.report("a", 1)
    curves.refresh([trial("a"), trial("b")], log)
    log.report("a", 0.5)
    ended = [trial("a", Standing.SUCCEEDED), trial("b")]
    for _ in range(3):
        curve, _ = curves.refresh(ended, log)

    assert log.asked == [{"a", "b"}, {"a"}, {"a", "b"}, {"a"}, {"b"}, {"b"}]
    assert curve.standing is Standing.SUCCEEDED
    assert curve.best == 0.5


def test_a_trial_of_the_same_name_in_a_later_run_begins_anew(log: MemoryLog) -> None:
    curves = Curves("loss", maximize=False)
    log.report("a", 1)
    curves.refresh([trial("a", Standing.SUCCEEDED)], log)
    log.changes_of = [Change("a", 9, MetricLog(T0, "loss", "7"))]
    (curve,) = curves.refresh([trial("a", start="two")], log)

    assert shape(curve) == [(1, 7.0)]


def test_the_version_rises_when_something_is_new_and_only_then(log: MemoryLog) -> None:
    curves = Curves("loss", maximize=False)
    versions = [curves.version]
    log.report("a", 1)
    for trials in ([trial("a")], [trial("a")], [trial("a", Standing.SUCCEEDED)], [trial("a", Standing.SUCCEEDED)], []):
        curves.refresh(trials, log)
        versions.append(curves.version)

    new, same, ended, still, gone = (b > a for a, b in pairwise(versions))
    assert (new, same, ended, still, gone) == (True, False, True, False, True)


def test_what_was_read_before_an_outage_is_not_read_again(log: MemoryLog) -> None:
    curves = Curves("loss", maximize=False)
    log.report("a", 1)
    curves.refresh([trial("a")], log)
    log.down = True
    with pytest.raises(UnavailableError):
        curves.refresh([trial("a", Standing.SUCCEEDED)], log)
    log.down = False
    log.report("a", 2)
    (curve,) = curves.refresh([trial("a", Standing.SUCCEEDED)], log)

    assert shape(curve) == [(1, 1.0), (2, 2.0)]


def test_a_long_log_comes_in_several_answers(log: MemoryLog) -> None:
    log.most = 3
    for i in range(10):
        log.report("a", i)
    (curve,) = Curves("loss", maximize=False).refresh([trial("a", Standing.SUCCEEDED)], log)

    assert len(curve) == 10


def test_reading_goes_on_where_it_was_when_nobody_waited_any_more(log: MemoryLog) -> None:
    log.most = 3
    for i in range(7):
        log.report("a", i)
    curves, patience = Curves("loss", maximize=False), iter([True, True, False])
    with pytest.raises(UnavailableError):
        curves.refresh([trial("a")], log, lambda: next(patience))
    (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(i + 1, float(i)) for i in range(7)]
    assert len(log.asked) == 4


def test_a_service_that_begins_late_asks_about_many_trials_in_several_questions(log: MemoryLog) -> None:
    Curves("loss", maximize=False).refresh([trial(f"t{i}") for i in range(450)], log)

    assert [len(names) for names in log.asked] == [200, 200, 50]
