from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from katib.errors import Backoff, FieldError, InternalError, InvalidError, UnavailableError
from katib.model.metrics import MetricLog
from metrics_collector.reporter import Reporter
from tests.support.clock import VirtualClock
from tests.support.golden import Golden
from tests.support.observations import Fault, FaultyLog, MemoryObservationLog, reading
from tests.support.waiting import eventually


@pytest.fixture
def log() -> FaultyLog:
    return FaultyLog()


@pytest.fixture
def reporter(log: FaultyLog) -> Iterator[Reporter]:
    reporter = Reporter(
        log.report, report_all=log.report_all, max_batch=100, max_waiting=1000, pauses=Backoff(0.001, 0.004)
    )
    yield reporter
    reporter.close(5)


def values(log: MemoryObservationLog, trial: str = "a") -> list[str]:
    return [entry.value for entry in log.read(trial)]


def flushed(reporter: Reporter, trial: str = "a") -> None:
    done = threading.Event()
    reporter.flush(trial, done.set)

    assert done.wait(60)


class Gate:
    """Holds calls back until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, _trials: Sequence[str]) -> None:
        self.entered.set()
        assert self.opened.wait(60)


def test_what_was_reported_before_a_flush_is_stored_when_it_is_done(reporter: Reporter, log: FaultyLog) -> None:
    flushed(reporter, "nobody")

    reporter.report("a", [reading("1"), reading("2")])
    reporter.report("a", [reading("3")])

    flushed(reporter)

    assert values(log) == ["1", "2", "3"]


def test_readings_are_stored_without_a_flush(reporter: Reporter, log: FaultyLog) -> None:
    reporter.report("a", [reading("1")])

    eventually(lambda: values(log) == ["1"])


def test_readings_wait_for_company(log: FaultyLog) -> None:
    reporter = Reporter(log.report, report_all=log.report_all, max_age_seconds=30)
    for number in range(10):
        reporter.report("a", [reading(str(number))])
        reporter.report("b", [reading(str(number))])
    reporter.close(5)

    assert log.reports == [{"a": 10, "b": 10}]


def test_a_reading_after_a_pause_waits_less_and_those_behind_it_as_long_as_all(log: FaultyLog) -> None:
    clock = VirtualClock()
    reporter = Reporter(log.report, max_age_seconds=30, first_age_seconds=2, clock=clock)
    for number, seconds in enumerate((2, 30, 30, 2)):
        if number == 3:
            clock.advance(30)
        reporter.report("a", [reading(str(number))])
        eventually(lambda: clock.waiting_count == 1)
        clock.advance(seconds - 1)
        assert len(log.reports) == number
        clock.advance(1)
        eventually(lambda number=number: len(log.reports) == number + 1)  # type: ignore[misc]

    assert reporter.close(5) == 0


def test_a_full_batch_does_not_wait(log: FaultyLog) -> None:
    reporter = Reporter(log.report, report_all=log.report_all, max_batch=10, max_age_seconds=30)
    reporter.report("a", [reading(str(number)) for number in range(10)])

    eventually(lambda: len(values(log)) == 10)
    reporter.close(5)


def test_batches_are_bounded_and_keep_the_order(reporter: Reporter, log: FaultyLog) -> None:
    expected = [str(number) for number in range(1050)]
    for start in range(0, 1050, 50):
        reporter.report("a", [reading(value) for value in expected[start : start + 50]])

    flushed(reporter)

    assert values(log) == expected
    assert max(sum(call.values()) for call in log.reports) <= 100


def test_a_flushed_trial_does_not_wait_behind_a_noisy_one(reporter: Reporter, log: FaultyLog) -> None:
    log.fault = gate = Gate()
    reporter.report("noisy", [reading("0")] * 100)
    assert gate.entered.wait(60)
    reporter.report("noisy", [reading("0")] * 900)
    reporter.report("a", [reading("1")])
    done = threading.Event()
    reporter.flush("a", done.set)

    gate.opened.set()

    assert done.wait(60)
    eventually(lambda: sum(call.get("noisy", 0) for call in log.reports) == 1000)
    assert [index for index, call in enumerate(log.reports) if "a" in call] == [1]


def test_a_batch_is_kept_while_the_log_is_unavailable(reporter: Reporter, log: FaultyLog) -> None:
    log.fault = fault = Fault(UnavailableError("katib.db: database is locked"))
    for number in range(250):
        reporter.report("a", [reading(str(number))])
    reporter.report("b", [reading("0")])
    eventually(lambda: len(log.reports) > 3)
    assert values(log) == []

    fault.on = False
    flushed(reporter)
    flushed(reporter, "b")

    assert values(log) == [str(number) for number in range(250)]
    assert values(log, "b") == ["0"]


def test_a_log_without_batches_is_asked_trial_by_trial_and_nothing_is_doubled(log: FaultyLog) -> None:
    class PlainLog:
        def __init__(self) -> None:
            self.refuse_b = 3

        def report(self, trial_name: str, logs: Sequence[object]) -> None:
            if trial_name == "b" and self.refuse_b:
                self.refuse_b -= 1
                raise UnavailableError("down")
            log.report(trial_name, logs)  # type: ignore[arg-type]  # readings

    reporter = Reporter(PlainLog().report, pauses=Backoff(0.001, 2.0), max_age_seconds=30)
    for trial in "abc":
        reporter.report(trial, [reading(trial)])

    assert reporter.close(5) == 0
    assert [values(log, trial) for trial in "abc"] == [["a"], ["b"], ["c"]]


def test_readings_refused_for_good_are_counted_and_the_others_stored(
    reporter: Reporter, log: FaultyLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.fault = Fault(InternalError("no such column"), trial="bad")
    with caplog.at_level(logging.ERROR):
        for trial in ("a", "bad", "b"):
            reporter.report(trial, [reading(trial)])
        for trial in ("bad", "a", "b"):
            flushed(reporter, trial)

    assert (values(log, "a"), values(log, "bad"), values(log, "b")) == (["a"], [], ["b"])
    assert reporter.lost == 1
    assert [record.message for record in caplog.records] == ["observation log refused readings"]


def test_backlogged_tells_when_too_much_waits(reporter: Reporter, log: FaultyLog) -> None:
    log.fault = fault = Fault(UnavailableError("down"))
    reporter.report("a", [reading("1")] * 999)
    assert not reporter.backlogged

    reporter.report("a", [reading("1")])
    assert reporter.backlogged

    fault.on = False
    flushed(reporter)
    assert not reporter.backlogged


def test_discarded_readings_are_not_stored_and_their_flush_is_done(reporter: Reporter, log: FaultyLog) -> None:
    log.fault = fault = Fault(UnavailableError("down"))
    done = threading.Event()
    reporter.report("a", [reading("1")] * 150)  # some of them under way, some waiting
    reporter.report("b", [reading("2")])
    reporter.flush("a", done.set)
    eventually(lambda: len(log.reports) > 1)

    reporter.discard("a")
    fault.on = False
    flushed(reporter, "b")

    assert done.wait(60)
    assert (values(log, "a"), values(log, "b")) == ([], ["2"])
    assert reporter.close(5) == 0


def test_discard_waits_for_the_call_that_is_storing(reporter: Reporter, log: FaultyLog) -> None:
    log.fault = gate = Gate()
    reporter.report("a", [reading("1")])
    assert gate.entered.wait(60)
    seen: list[list[str]] = []
    thread = threading.Thread(target=lambda: (reporter.discard("a"), seen.append(values(log))))
    thread.start()

    gate.opened.set()
    thread.join(60)

    assert seen == [["1"]]


def test_closing_stores_what_waits(log: FaultyLog) -> None:
    reporter = Reporter(log.report, report_all=log.report_all, max_age_seconds=30, max_batch=10)
    reporter.report("a", [reading(str(number)) for number in range(35)])

    assert reporter.close(5) == 0
    assert len(values(log)) == 35


def test_closing_gives_up_in_time_and_says_how_much_is_left(log: FaultyLog) -> None:
    log.fault = Fault(UnavailableError("down"))
    reporter = Reporter(log.report, report_all=log.report_all)
    reporter.report("a", [reading("1")] * 7)
    called = threading.Event()
    reporter.flush("a", called.set)

    assert reporter.close(0.05) == 7
    assert not called.is_set()


def test_whose_readings_have_to_wait_is_told_with_the_cause(log: FaultyLog) -> None:
    log.fault = Fault(UnavailableError("the disk is full"))
    told: list[tuple[list[str], str]] = []
    reporter = Reporter(log.report, report_all=log.report_all, max_age_seconds=30)
    reporter.on_refusal = lambda names, cause: told.append((list(names), cause))
    reporter.report("a", [reading("1")])
    reporter.report("b", [reading("1")])
    reporter.close(0.05)

    eventually(lambda: told[:1] == [(["a", "b"], "the disk is full")])


def test_ages_and_growing_pauses_count_by_the_clock(log: FaultyLog) -> None:
    fault = log.fault = Fault(UnavailableError("down"))
    clock = VirtualClock()
    reporter = Reporter(log.report, max_age_seconds=30, pauses=Backoff(60, 90), clock=clock)
    reporter.report("a", [reading("1")])
    for calls, seconds in enumerate((30, 60, 90)):
        eventually(lambda: clock.waiting_count == 1)
        clock.advance(seconds - 1)
        assert len(log.reports) == calls
        fault.on = calls < 2
        clock.advance(1)
        eventually(lambda calls=calls: len(log.reports) == calls + 1)  # type: ignore[misc]

    eventually(lambda: values(log) == ["1"])
    assert reporter.close(5) == 0


def test_a_closed_reporter_takes_no_more(log: FaultyLog) -> None:
    reporter = Reporter(log.report, report_all=log.report_all)
    reporter.close(5)

    with pytest.raises(InternalError, match="closed"):
        reporter.report("a", [reading("1")])
    with pytest.raises(InternalError, match="closed"):
        reporter.flush("a", lambda: None)


def test_a_callback_that_fails_does_not_end_the_reporter(
    reporter: Reporter, log: FaultyLog, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    def fail() -> None:
        raise ValueError

    reporter.flush("a", fail)
    reporter.report("b", [reading("1")])
    flushed(reporter, "b")

    assert values(log, "b") == ["1"]
    golden([record.message for record in caplog.records])


def test_many_threads_may_report_while_the_log_comes_and_goes(reporter: Reporter, log: FaultyLog) -> None:
    def sometimes(_trials: Sequence[str]) -> None:
        if len(log.reports) % 3:
            raise UnavailableError("down")

    def run(trial: str) -> None:
        for number in range(200):
            reporter.report(trial, [reading(str(number))])
        flushed(reporter, trial)

    log.fault = sometimes
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, [f"t{number}" for number in range(6)]))

    for number in range(6):
        assert values(log, f"t{number}") == [str(index) for index in range(200)]


class PickyLog(MemoryObservationLog):
    """Refuses calls that hold certain values, and is away at certain calls."""

    def __init__(self, refused: set[str], away_at: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.calls = 0
        self._refused = refused
        self._away_at = away_at

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        self.calls += 1
        if self.calls in self._away_at:
            raise UnavailableError("away")
        if any(log.value in self._refused for logs in batch.values() for log in logs):
            raise InvalidError([FieldError("value", "cannot be kept", "send another", "value")])
        super().report_all(batch)


@pytest.mark.parametrize("away_at", [frozenset(), frozenset({3, 5, 8})], ids=["at hand", "away now and then"])
def test_one_reading_that_is_refused_takes_no_others_with_it(away_at: frozenset[int]) -> None:
    log = PickyLog({"17", "64"}, away_at)
    reporter = Reporter(log.report, pauses=Backoff(0.001, 2.0))
    reporter.report("a", [reading(value=str(number)) for number in range(100)])
    flushed(reporter)

    assert values(log) == [str(number) for number in range(100) if number not in (17, 64)]
    assert (reporter.lost, reporter.close(5)) == (2, 0)


def test_a_log_that_refuses_everything_is_not_asked_about_each_reading() -> None:
    log = PickyLog({str(number) for number in range(1000)})
    reporter = Reporter(log.report, pauses=Backoff(0.001, 2.0))
    reporter.report("a", [reading(value=str(number)) for number in range(1000)])
    flushed(reporter)

    assert (reporter.lost, reporter.close(5)) == (1000, 0)
    assert log.calls < 100
