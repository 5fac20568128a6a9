"""Curves gathered from a log that is asked for what is new."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from katib.errors import UnavailableError
from katib.model.metrics import Change
from suggestion_services.early_stopping import CostCurve, CurveState
from suggestion_services.early_stopping.readings import Curves, JudgedTrial
from tests.support.observations import MemoryObservationLog, reading


class AskedLog(MemoryObservationLog):
    """Counts what it is asked for, and fails while it is down."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[set[str]] = []
        self.down = False
        self.most = 1000

    def add(self, trial: str, value: object, step: int | None = None, *, second: float | None = None) -> None:
        self.report(trial, [reading(str(value), second=self.count(trial) if second is None else second, step=step)])

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> list[Change]:
        if self.down:
            raise UnavailableError("down")
        self.asked.append(set(cursors))
        return super().changes(cursors, metric_name)[: self.most]


@pytest.fixture
def log() -> AskedLog:
    return AskedLog()


def trial(name: str, standing: CurveState = CurveState.RUNNING, start: str = "one") -> JudgedTrial:
    return JudgedTrial(name, start, standing)


def shape(curve: CostCurve) -> list[tuple[int, float]]:
    return list(zip(curve.resources, curve.costs, strict=True))


def test_readings_without_steps_are_numbered(log: AskedLog) -> None:
    curves = Curves("loss", maximize=True)
    log.add("a", 0.5)
    (first,) = curves.refresh([trial("a")], log)
    log.add("a", 0.7)
    (second,) = curves.refresh([trial("a")], log)

    assert (shape(first), shape(second)) == ([(1, -0.5)], [(1, -0.5), (2, -0.7)])
    assert second.by_number


@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "one-by-one"])
def test_steps_order_a_curve_before_time_does(log: AskedLog, at_once: bool) -> None:
    curves = Curves("loss", maximize=False)
    for value, step in ((1, 10), (3, 30), (2, 20), (5, None), (4, 30)):
        log.add("a", value, step)
        if not at_once:
            curves.refresh([trial("a")], log)
    (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(0, 5.0), (10, 1.0), (20, 2.0), (30, 3.0), (30, 4.0)]
    assert not curve.by_number


def test_readings_that_come_late_take_their_place_in_time(log: AskedLog) -> None:
    curves = Curves("loss", maximize=False)
    log.add("a", 2, second=20)
    curves.refresh([trial("a")], log)
    log.add("a", 1, second=10)
    (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(1, 1.0), (2, 2.0)]


def test_a_source_that_tells_steps_only_later_is_counted_by_steps(log: AskedLog) -> None:
    curves = Curves("loss", maximize=False)
    for value, step in ((3, None), (2, 100), (1, 200)):
        log.add("a", value, step)
        (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(0, 3.0), (100, 2.0), (200, 1.0)]


def test_what_is_no_number_has_its_place_in_the_curve(log: AskedLog) -> None:
    for value in ("nan", "inf", "unavailable", "1"):
        log.add("a", value)
    (curve,) = Curves("loss", maximize=False).refresh([trial("a")], log)

    assert len(curve) == 4
    assert curve.best == 1


def test_a_trial_that_is_over_is_asked_for_once_more_and_never_again(log: AskedLog) -> None:
    curves = Curves("loss", maximize=False)
    log.add("a", 1)
    curves.refresh([trial("a"), trial("b")], log)
    log.add("a", 0.5)
    ended = [trial("a", CurveState.SUCCEEDED), trial("b")]
    for _ in range(3):
        curve, _ = curves.refresh(ended, log)

    assert log.asked == [{"a", "b"}, {"a"}, {"a", "b"}, {"a"}, {"b"}, {"b"}]
    assert curve.standing is CurveState.SUCCEEDED
    assert curve.best == 0.5


def test_a_trial_of_the_same_name_in_a_later_run_begins_anew(log: AskedLog) -> None:
    curves = Curves("loss", maximize=False)
    log.add("a", 1)
    curves.refresh([trial("a", CurveState.SUCCEEDED)], log)
    log.delete("a")
    log.add("a", 7)
    (curve,) = curves.refresh([trial("a", start="two")], log)

    assert shape(curve) == [(1, 7.0)]


def test_the_version_rises_when_something_is_new_and_only_then(log: AskedLog) -> None:
    curves = Curves("loss", maximize=False)
    versions = [curves.version]
    log.add("a", 1)
    for trials in (
        [trial("a")],
        [trial("a")],
        [trial("a", CurveState.SUCCEEDED)],
        [trial("a", CurveState.SUCCEEDED)],
        [],
    ):
        curves.refresh(trials, log)
        versions.append(curves.version)

    new, same, ended, still, gone = (b > a for a, b in pairwise(versions))
    assert (new, same, ended, still, gone) == (True, False, True, False, True)


def test_what_was_read_before_an_outage_is_not_read_again(log: AskedLog) -> None:
    curves = Curves("loss", maximize=False)
    log.add("a", 1)
    curves.refresh([trial("a")], log)
    log.down = True
    with pytest.raises(UnavailableError):
        curves.refresh([trial("a", CurveState.SUCCEEDED)], log)
    log.down = False
    log.add("a", 2)
    (curve,) = curves.refresh([trial("a", CurveState.SUCCEEDED)], log)

    assert shape(curve) == [(1, 1.0), (2, 2.0)]


def test_a_long_log_comes_in_several_answers(log: AskedLog) -> None:
    log.most = 3
    for i in range(10):
        log.add("a", i)
    (curve,) = Curves("loss", maximize=False).refresh([trial("a", CurveState.SUCCEEDED)], log)

    assert len(curve) == 10


def test_reading_goes_on_where_it_was_when_nobody_waited_any_more(log: AskedLog) -> None:
    log.most = 3
    for i in range(7):
        log.add("a", i)
    curves, patience = Curves("loss", maximize=False), iter([True, True, False])
    with pytest.raises(UnavailableError):
        curves.refresh([trial("a")], log, lambda: next(patience))
    (curve,) = curves.refresh([trial("a")], log)

    assert shape(curve) == [(i + 1, float(i)) for i in range(7)]
    assert len(log.asked) == 4


def test_a_service_that_begins_late_asks_about_many_trials_in_several_questions(log: AskedLog) -> None:
    Curves("loss", maximize=False).refresh([trial(f"t{i}") for i in range(450)], log)

    assert [len(names) for names in log.asked] == [200, 200, 50]
