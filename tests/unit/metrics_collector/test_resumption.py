"""Collectors that take turns on one file, over a log in memory that may forget to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from katib.errors import FieldError, InternalError, InvalidError, UnavailableError
from katib.model.metrics import BatchId, MetricLog
from metrics_collector.parsers import ParserNotes
from metrics_collector.resume_point import CollectorProgress, ResumePoint, UncertainReport
from metrics_collector.resumption import ResumableLog
from metrics_collector.sources import FileSource, ReadPosition
from metrics_collector.sources.file_tail import FileTail
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Log(MemoryObservationLog):
    """A log that may take no numbers, forget to answer, or not be read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_readable = True
        self.takes_numbers = False
        self._failure: tuple[BaseException, bool] | None = None

    @property
    def stored(self) -> list[MetricLog]:
        return [change.reading for change in self.changes({"t": 0})]

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        failure, stored = self._failure or (None, True)
        if stored:
            super().report(trial_name, logs, batch if self.takes_numbers else None)
        if failure:
            raise failure

    @contextmanager
    def failing(self, failure: BaseException, *, stored: bool = True) -> Iterator[None]:
        """Have the one report that is sent fail, before or after it is stored."""
        self._failure = failure, stored
        with pytest.raises(type(failure)):
            yield
        self._failure = None

    def knows_batches(self, _trial_name: str) -> bool:
        return self.takes_numbers

    def read(self, trial_name: str, **narrowed: Any) -> list[MetricLog]:
        if not self.is_readable:
            raise InternalError("no such call")
        return super().read(trial_name, **narrowed)


class Seconds:
    """A parser of whole lines: second, name and value."""

    notes = ParserNotes()

    def feed(self, data: bytes) -> list[MetricLog]:
        words = (line.split() for line in data.decode().splitlines())
        return [MetricLog(NOON + timedelta(seconds=int(second)), name, value) for second, name, value in words]

    def finish(self) -> list[MetricLog]:
        return []


class Life:
    """One collector, from its start to the moment it is killed. Its reporter settles what `store` is given."""

    def __init__(self, log: Log, directory: Path) -> None:
        self.log = ResumableLog(log, ResumePoint(directory / "x.checkpoint"))
        self.log.follow_reporter(lambda: (self.settled, self.refused))
        self.source = FileSource(FileTail(directory / "metrics.log"), Seconds())
        self.settled = self.refused = 0

    def read(self) -> list[MetricLog]:
        """Return what is to be reported of the lines that are new: each is a second, a name and a value."""
        found: list[MetricLog] = []
        for readings in self.source.poll():
            self.log.follow_source(self.source)
            found += self.log.unsettled(readings)
        return found

    def store_all(self) -> Life:
        """Store what is new, and return this collector."""
        self.store(self.read())
        return self

    def store(self, readings: Sequence[MetricLog]) -> None:
        self.log.report("t", readings)
        self.settled += len(readings)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.log"


@pytest.fixture(params=["a log that takes no numbers", "a log that takes numbers"])
def log(request: pytest.FixtureRequest) -> Log:
    log = Log()
    log.takes_numbers = request.param == "a log that takes numbers"
    return log


Start = Callable[[], Life]


@pytest.fixture
def start(log: Log, tmp_path: Path) -> Iterator[Start]:
    """Start a collector; the ones before it are dead."""
    lives: list[Life] = []

    def start() -> Life:
        lives.append(Life(log, tmp_path))
        return lives[-1]

    yield start
    for life in lives:
        life.source.close()


def lines(*numbers: int, second: int | None = None) -> str:
    return "".join(f"{number if second is None else second} loss {number}\n" for number in numbers)


def replace(file: Path, text: str) -> None:
    """Put another file in the place of a file."""
    file.with_name("other").write_text(text)
    file.with_name("other").replace(file)


def values(log: Log) -> list[str]:
    return [reading.value for reading in log.stored]


def test_the_next_collector_stores_what_is_left(start: Start, file: Path, log: Log) -> None:
    file.write_text(lines(1, 2, 3, 4))
    first = start()
    first.store(first.read()[:2])

    start().store_all()
    file.write_text(lines(1, 2, 3, 4, 5))
    start().store_all()

    assert values(log) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("second", [None, 7], ids=["times-differ", "one-time-for-all"])
def test_a_report_that_was_under_way_is_asked_for(
    start: Start, file: Path, log: Log, second: int | None, *, stored: bool
) -> None:
    """Equal readings of one moment, which programs print that stamp whole seconds, are told apart by their number."""
    file.write_text(lines(1, 1, 1, 1, 1, second=second))
    first = start()
    readings = first.read()
    first.store(readings[:2])

    with log.failing(KeyboardInterrupt(), stored=stored):
        first.store(readings[2:4])
    second_life = start()
    left = second_life.read()
    second_life.store(left[:1])
    second_life.store(left[1:])

    assert len(log.stored) == 5


def test_a_report_without_an_answer_is_asked_for_before_it_is_sent_again(start: Start, file: Path, log: Log) -> None:
    file.write_text(lines(1, 2))
    life = start()
    readings = life.read()

    with log.failing(UnavailableError("no answer")):
        life.store(readings)
    life.store(readings)

    assert values(log) == ["1", "2"]


def test_a_log_that_does_not_tell_gets_the_readings_rather_twice_than_never(start: Start, file: Path, log: Log) -> None:
    log.takes_numbers = False
    file.write_text(lines(1))
    life = start()
    readings = life.read()
    with log.failing(UnavailableError("no answer")):
        life.store(readings)
    log.is_readable = False

    life.store(readings)

    assert values(log) == ["1", "1"]


def test_refused_readings_count_as_settled_and_are_remembered(start: Start, file: Path, log: Log) -> None:
    file.write_text(lines(1, 2))
    first = start()
    readings = first.read()
    with log.failing(InvalidError([FieldError("value", "too long", "print less", "value")]), stored=False):
        first.store(readings[:1])
    first.settled, first.refused = 1, 1
    first.log.save()
    second = start().store_all()

    assert values(log) == ["2"]
    assert second.log.refused == 1
    assert "too long" in first.log.refusal


@pytest.mark.parametrize("how", ["replaced", "truncated"])
def test_a_file_that_is_another_one_is_read_from_its_beginning(start: Start, file: Path, log: Log, how: str) -> None:
    file.write_text(lines(1, 2, 3))
    start().store_all()
    if how == "replaced":
        replace(file, lines(4, 5, 6, 7))
    else:
        file.write_text(lines(4))

    start().store_all()

    assert values(log) == ["1", "2", "3", *(line.split()[2] for line in file.read_text().splitlines())]


def test_a_file_that_replaced_another_while_we_read_counts_by_itself(start: Start, file: Path, log: Log) -> None:
    file.write_text(lines(1, 2, 3))
    first = start().store_all()
    replace(file, lines(4, 5))
    first.store(first.read()[:1])

    start().store_all()

    assert values(log) == ["1", "2", "3", "4", "5"]


def test_numbers_go_on_over_files_and_collectors(start: Start, file: Path, log: Log) -> None:
    """The third collector sends again what the second one has stored, for its last words did not reach the disk."""
    log.takes_numbers = True
    file.write_text(lines(1, 2, 3))
    first = start().store_all()
    replace(file, lines(4, 5, 6))
    first.store(first.read()[:1])
    kept = (file.parent / "x.checkpoint").read_bytes()
    start().store_all()
    (file.parent / "x.checkpoint").write_bytes(kept)
    start().store_all()

    assert values(log) == ["1", "2", "3", "4", "5", "6"]


# --- the resume point -------------------------------------------------------------------------------------------------

PROGRESS = CollectorProgress(
    1, 2, 3, 4, 5, doubt=UncertainReport(6, "2026-01-01T12:00:00Z", "loss", "ab", 7), reporter="me", origin=8
)


def test_progress_is_kept_as_it_is(tmp_path: Path) -> None:
    ResumePoint(tmp_path / "c").save(PROGRESS)

    assert ResumePoint(tmp_path / "c").load() == PROGRESS
    assert ResumePoint(tmp_path / "none").load() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"doubt": 1}', "\0" * 4096, '{"doubt": null, "more": 1}'])
def test_a_resume_point_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").write_text(text)

    assert ResumePoint(tmp_path / "c").load() is None


def test_a_resume_point_that_cannot_be_written_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    resume_point = ResumePoint(tmp_path)  # a directory, which not even root can write to
    resume_point.save(PROGRESS)
    resume_point.save(PROGRESS)

    golden([record.message.partition(",")[0] for record in caplog.records])


def test_a_resume_point_takes_one_page(tmp_path: Path) -> None:
    ResumePoint(tmp_path / "c").save(PROGRESS)

    assert (tmp_path / "c").stat().st_size == 4096


# --- several files that are read together -----------------------------------------------------------------------------


class Several:
    """A source of two files whose readings come in another order each time."""

    def __init__(self, readings: Sequence[MetricLog]) -> None:
        self.position = ReadPosition(1, 2, 3, 3, is_ordered=False)
        self._readings = list(readings)

    def poll(self) -> Iterator[list[MetricLog]]:
        yield self._readings


def read_by(life: Life, readings: Sequence[MetricLog]) -> list[MetricLog]:
    source = Several(readings)
    found: list[MetricLog] = []
    for part in source.poll():
        life.log.follow_source(source)  # type: ignore[arg-type]  # as far as it is looked at
        found += life.log.unsettled(part)
    return found


def at(*seconds: int) -> list[MetricLog]:
    return [MetricLog(NOON + timedelta(seconds=second), "loss", str(second)) for second in seconds]


def test_what_is_read_in_another_order_is_stored_once(start: Start, log: Log) -> None:
    first = start()
    first.store(read_by(first, at(1, 2, 11, 12)))

    second = start()
    second.store(read_by(second, at(11, 12, 13, 1, 2, 3)))

    assert values(log) == ["1", "2", "11", "12", "13", "3"]


def test_a_report_without_answer_is_looked_for_among_what_is_stored(start: Start, log: Log) -> None:
    first = start()
    first.store(read_by(first, at(1, 11)))
    second = start()
    readings = read_by(second, at(11, 12, 1, 2))

    with log.failing(UnavailableError("no answer")):
        second.store(readings)
    second.store(readings)

    assert values(log) == ["1", "11", "12", "2"]


def test_of_several_files_that_became_one_nothing_is_skipped_by_number(start: Start, file: Path, log: Log) -> None:
    first = start()
    first.store(read_by(first, at(1, 2)))
    file.write_text(lines(1, 3))

    start().store_all()

    assert values(log) == ["1", "2", "3"]
