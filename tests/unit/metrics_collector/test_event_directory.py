from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from katib.model.metrics import MetricLog
from metrics_collector.sources.event_directory import LONGEST_PAUSE_SECONDS, MAX_OPEN_FILES, EventDirectory
from tests.support.event_records import VERSION, event, record, scalar, simple_value
from tests.support.golden import Golden

NAME = "events.out.tfevents.1.host"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def source(logs: Path) -> Iterator[EventDirectory]:
    with closing(EventDirectory(logs, ["loss"], monotonic=lambda: 0.0)) as source:
        yield source


def polled(source: EventDirectory) -> list[str]:
    return [reading.value for readings in source.poll() for reading in readings]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def write(path: Path, *values: float, tag: str = "loss") -> Path:
    """Append one event for each value; a new file gets its version first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"" if file.tell() else VERSION)
        file.writelines(scalar(tag, value, step) for step, value in enumerate(values))
    return path


def test_a_directory_may_appear_late(source: EventDirectory, logs: Path) -> None:
    assert polled(source) == []
    assert source.is_empty
    assert source.problem == ""

    write(logs / NAME, 1)

    assert polled(source) == ["1"]
    assert polled(source) == []


def test_what_a_program_adds_is_read_as_it_comes(source: EventDirectory, logs: Path) -> None:
    path = write(logs / NAME, 1)
    assert polled(source) == ["1"]
    data = scalar("loss", 2)
    with path.open("ab", buffering=0) as file:
        file.write(data[:20])
        assert polled(source) == []
        file.write(data[20:])
        assert polled(source) == ["2"]


def test_files_of_all_directories_are_read_also_late_ones(source: EventDirectory, logs: Path) -> None:
    write(logs / "b" / NAME, 2)
    write(logs / "a" / "deep" / NAME, 1)
    assert polled(source) == ["1", "2"]

    write(logs / "c" / "events.out.tfevents.2.host", 3)
    write(logs / "a" / "deep" / NAME, 4)

    assert sorted(polled(source)) == ["3", "4"]


def test_the_leading_part_of_a_metric_is_the_directory(logs: Path) -> None:
    write(logs / "train" / NAME, 1)
    write(logs / "test" / NAME, 2)

    with closing(EventDirectory(logs, ["train/loss", "test/loss"])) as source:
        found = {reading.name: reading.value for readings in source.poll() for reading in readings}

    assert found == {"train/loss": "1", "test/loss": "2"}


def test_a_directory_may_have_another_name_here_than_where_the_metrics_were_named(logs: Path) -> None:
    write(logs / NAME, 1)

    with closing(EventDirectory(logs, ["train/loss"], "/mnist/train/")) as source:
        assert polled(source) == ["1"]


def test_a_renamed_file_is_not_read_again(source: EventDirectory, logs: Path) -> None:
    path = write(logs / NAME, 1)
    polled(source)
    write(path, 2)
    path.rename(logs / f"{NAME}.old")
    write(path, 3)

    assert sorted(polled(source)) == ["2", "3"]


def test_a_truncated_file_is_read_from_its_start(source: EventDirectory, logs: Path) -> None:
    path = write(logs / NAME, 1, 2)
    polled(source)
    path.unlink()
    write(path)
    polled(source)
    path.write_bytes(b"")
    write(path, 3)

    assert polled(source) == ["3"]


def test_a_deleted_file_is_read_to_its_end(source: EventDirectory, logs: Path) -> None:
    path = write(logs / NAME, 1)
    polled(source)
    write(path, 2)
    path.unlink()
    logs.rmdir()

    assert polled(source) == ["2"]
    assert source.problem == ""


def test_only_some_files_are_kept_open(source: EventDirectory, logs: Path) -> None:
    paths = [write(logs / f"{NAME}.{number}", number) for number in range(MAX_OPEN_FILES + 5)]
    before = open_files()

    assert len(polled(source)) == len(paths)
    assert open_files() - before == MAX_OPEN_FILES

    write(paths[0], 77)
    assert polled(source) == ["77"]


def test_loops_of_links_are_harmless_and_a_linked_file_is_read_once(source: EventDirectory, logs: Path) -> None:
    path = write(logs / "run" / NAME, 1)
    (logs / "run" / "up").symlink_to(logs)
    (logs / "self-tfevents").symlink_to(logs / "self-tfevents")
    (logs / "a-link-tfevents").symlink_to(path)
    (logs / "nowhere-tfevents").symlink_to(logs / "nothing")

    assert polled(source) == ["1"]
    assert source.problem == ""


def test_a_file_with_another_name_counts_if_it_begins_as_an_event_file(source: EventDirectory, logs: Path) -> None:
    write(logs / "events", 1)
    (logs / "notes.txt").write_bytes(b"loss=2\n" * 50)
    (logs / "data.tfrecord").write_bytes(record(b"x" * 80))
    (logs / "17.pid").write_bytes(b"started\n")
    late = logs / "late"
    late.touch()
    assert polled(source) == ["1"]

    write(late, 3)

    assert polled(source) == ["3"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "named pipe"])
def test_what_is_no_regular_file_does_not_block(source: EventDirectory, logs: Path, make: object) -> None:
    write(logs / NAME, 1)
    make(logs / f"{NAME}.odd")  # type: ignore[operator]  # either takes a path

    assert polled(source) == ["1"]


def test_a_file_in_place_of_the_directory_is_a_problem(source: EventDirectory, logs: Path) -> None:
    logs.touch()

    assert polled(source) == []
    assert str(logs) in source.problem


def test_a_damaged_record_is_skipped_and_told(source: EventDirectory, logs: Path, golden: Golden) -> None:
    damaged = bytearray(scalar("loss", 2))
    damaged[30] ^= 1
    append(write(logs / NAME, 1), bytes(damaged) + scalar("loss", 3) + scalar("loss", 4)[:-5])

    assert polled(source) == ["1", "3"]
    source.finish()
    assert source.damage == "1 damaged place skipped"
    assert source.damage in source.problem
    golden(source.notes)
    assert source.notes in source.hint("accuracy")


def test_a_caller_that_stops_early_finds_the_rest_next_time(source: EventDirectory, logs: Path) -> None:
    large = record(event(simple_value("other", 1)) + bytes([0x1A]) + b"\x80\x80\x40" + bytes(1 << 20))
    append(write(logs / NAME, 1), large + scalar("loss", 2))
    write(logs / f"{NAME}.2", 3)

    assert [reading.value for reading in next(source.poll())] == ["1"]
    assert polled(source) == ["2", "3"]


def test_after_the_end_one_whole_poll_is_awaited(source: EventDirectory, logs: Path) -> None:
    write(logs / NAME, 1)
    source.end()
    assert not source.is_over

    assert polled(source) == ["1"]
    assert source.is_over


def test_a_directory_that_takes_long_to_search_is_searched_less_often(logs: Path) -> None:
    ticks = count(step=0.1)
    path = write(logs / NAME, 1)
    with closing(EventDirectory(logs, ["loss"], monotonic=lambda: next(ticks))) as source:
        assert polled(source) == ["1"]
        late = write(logs / f"{NAME}.2", 3)
        write(path, 2)

        assert polled(source) == ["2"], "a file that is known is read all the same"
        assert sum(polled(source) == ["3"] for _ in range(int(LONGEST_PAUSE_SECONDS * 10) + 10)) == 1

        write(late, 4)
        write(logs / f"{NAME}.3", 5)
        source.end()
        assert polled(source) == ["4", "5"], "nothing is missed in the end"


def test_finish_reads_what_is_left_and_gives_back_what_was_held(source: EventDirectory, logs: Path) -> None:
    write(logs / NAME, 0.5, tag="loss_1")
    assert polled(source) == []
    write(logs / f"{NAME}.2", 0.25, tag="loss_2")

    assert sorted(reading.value for reading in source.finish()) == ["0.25", "0.5"]


def test_it_says_what_there_is(source: EventDirectory, logs: Path, golden: Golden) -> None:
    polled(source)
    assert source.seen() == f"no event file below {logs}"

    logs.mkdir()
    (logs / "notes.txt").write_bytes(b"loss=2\n" * 50)
    polled(source)
    golden(source.seen())

    write(logs / "train" / NAME, 1, tag="epoch_loss")
    polled(source)
    golden(source.seen())
    golden(source.hint("loss"))
    assert source.hint("q") == '; tags: "epoch_loss"'


def test_one_file_is_in_order_and_has_a_position(source: EventDirectory, logs: Path) -> None:
    assert source.position is None
    path = write(logs / NAME, 1, 2)
    polled(source)

    position = source.position
    assert position is not None
    assert position.size == position.length == path.stat().st_size
    assert position.is_ordered

    write(logs / f"{NAME}.2", 1)
    polled(source)
    assert source.position is not None
    assert not source.position.is_ordered


def test_readings_are_metric_logs_with_steps(source: EventDirectory, logs: Path) -> None:
    write(logs / NAME, 3, 4)

    (readings,) = source.poll()

    assert all(isinstance(reading, MetricLog) for reading in readings)
    assert [reading.step for reading in readings] == [0, 1]
