"""Event files: records, readings, and files as the usual writers write them (`tests/support/event_files/make.py`)."""

from __future__ import annotations

import math
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from struct import pack

import pytest

from katib.model.metrics import ZERO_TIME, MetricLog, parse_value
from metrics_collector.parsers.protobuf import varint
from metrics_collector.parsers.records import MAX_RECORD_BYTES, RecordReader, checksum_function, crc32c
from metrics_collector.parsers.tags import TagRules
from metrics_collector.parsers.tensors import float_text
from metrics_collector.parsers.tf_events import EventParser
from metrics_collector.sources.event_directory import EventDirectory
from tests.support.event_records import (
    EVENT_FILES,
    VERSION,
    event,
    field,
    header,
    number_field,
    record,
    scalar,
    simple_value,
    tensor_value,
    values,
)

SCALAR_SHAPE = field(2, b"")
ONE_IN_A_MATRIX = field(2, field(2, number_field(1, 1)) * 2)
TWO = field(2, field(2, number_field(1, 2)))


def read(data: bytes, *names: str, directory: str = "") -> list[MetricLog]:
    parser = EventParser(TagRules(names), directory)
    return parser.feed(data) + parser.finish()


def test_a_reading_has_the_time_and_the_step_of_its_event() -> None:
    found = read(VERSION + scalar("loss", 0.25, step=7, wall_time=1_700_000_000.5), "loss")

    assert found == [MetricLog(datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC), "loss", "0.25", 7)]


@pytest.mark.parametrize("step", [0, 1, 42, 127, 128, 5546, 16_384, 1 << 40, (1 << 63) - 1])
def test_every_step_is_read_also_when_the_layout_is_known(step: int) -> None:
    data = scalar("loss", 1, step=3) + scalar("loss", 2, step=step) + scalar("loss", 3, step=step)

    assert values(read(data, "loss"))[1:] == [("loss", "2", step), ("loss", "3", step)]


def test_a_step_below_zero_is_none() -> None:
    data = scalar("loss", 1, step=-1) + scalar("loss", 2, step=-1)

    assert values(read(data, "loss")) == [("loss", "1", None), ("loss", "2", None)]


@pytest.mark.parametrize("wall_time", [math.nan, math.inf, 1e30, -1e30])
def test_a_time_that_is_none_is_the_zero_time(wall_time: float) -> None:
    data = scalar("loss", 1, wall_time=wall_time) * 2

    assert [reading.time for reading in read(data, "loss")] == [ZERO_TIME, ZERO_TIME]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (0.9796, "0.9796"),
        (0.3333333432674408, "0.33333334"),
        (16_777_216.0, "16777216"),
        (1.401298464324817e-45, "1.401298e-45"),
        (3.4028234663852886e38, "3.4028235e+38"),
        (-0.0, "-0"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_a_float_has_the_shortest_text_that_stands_for_it(value: float, text: str) -> None:
    assert text == float_text(value)
    assert pack("<f", float(text)) == pack("<f", value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([number_field(1, 1), SCALAR_SHAPE, field(4, pack("<f", 0.1))], "0.1"),
        ([number_field(1, 1), SCALAR_SHAPE, field(5, pack("<f", 0.1))], "0.1"),
        ([number_field(1, 1), SCALAR_SHAPE, b"\x2d" + pack("<f", 0.1)], "0.1"),
        ([number_field(1, 1), field(4, pack("<f", 0.1))], "0.1"),
        ([number_field(1, 1), ONE_IN_A_MATRIX, field(4, pack("<f", 0.1))], "0.1"),
        ([number_field(1, 1), SCALAR_SHAPE], "0"),
        ([number_field(1, 2), SCALAR_SHAPE, field(6, pack("<d", 0.1))], "0.1"),
        ([number_field(1, 2), SCALAR_SHAPE, field(4, pack("<d", 1 / 3))], "0.3333333333333333"),
        ([number_field(1, 3), SCALAR_SHAPE, field(7, varint((1 << 64) - 5))], "-5"),
        ([number_field(1, 3), SCALAR_SHAPE, number_field(7, 5)], "5"),
        ([number_field(1, 9), SCALAR_SHAPE, field(10, varint(1 << 40))], str(1 << 40)),
        ([number_field(1, 9), SCALAR_SHAPE, field(4, pack("<q", -3))], "-3"),
        ([number_field(1, 10), SCALAR_SHAPE, field(11, b"\x01")], "1"),
        ([number_field(1, 14), SCALAR_SHAPE, field(13, varint(0x3F80))], "1"),
        ([number_field(1, 14), SCALAR_SHAPE, field(4, b"\x00\x3f")], "0.5"),
        ([number_field(1, 19), SCALAR_SHAPE, field(13, varint(0x3C00))], "1"),
        ([number_field(1, 23), SCALAR_SHAPE, field(17, varint((1 << 64) - 1))], str((1 << 64) - 1)),
    ],
    ids=[
        "float content",
        "float list",
        "float alone",
        "no shape",
        "a matrix of one",
        "left out",
        "double list",
        "double content",
        "negative int32",
        "int32 alone",
        "int64 list",
        "int64 content",
        "bool",
        "bfloat16 list",
        "bfloat16 content",
        "half",
        "uint64",
    ],
)
def test_a_tensor_of_one_number_is_a_scalar(fields: list[bytes], text: str) -> None:
    assert values(read(record(event(tensor_value("loss", *fields), step=1)) * 2, "loss")) == [("loss", text, 1)] * 2


@pytest.mark.parametrize(
    "fields",
    [
        [number_field(1, 1), TWO, field(4, pack("<2f", 1, 2))],
        [number_field(1, 1), TWO, field(5, pack("<f", 1))],
        [number_field(1, 1), field(5, pack("<2f", 1, 2))],
        [number_field(1, 1), SCALAR_SHAPE, field(4, b"\0\0\0")],
        [number_field(1, 1), field(2, number_field(3, 1)), field(5, pack("<f", 1))],
        [number_field(1, 7), SCALAR_SHAPE, field(8, b"0.5")],
        [number_field(1, 8), SCALAR_SHAPE, field(9, pack("<2f", 1, 2))],
        [SCALAR_SHAPE, field(5, pack("<f", 1))],
    ],
    ids=["two", "two alike", "two without shape", "cut", "unknown rank", "text", "complex", "no type"],
)
def test_other_tensors_are_not(fields: list[bytes]) -> None:
    assert read(record(event(tensor_value("loss", *fields))), "loss") == []


def test_an_event_may_hold_many_values_and_tags_that_are_no_utf_8() -> None:
    data = record(event(simple_value("loss", 1), field(1, b"image") + field(4, b"png"), simple_value("acc", 2), step=4))

    assert values(read(data, "loss", "acc")) == [("loss", "1", 4), ("acc", "2", 4)]

    data = record(event(field(1, b"lo\xffss") + b"\x15" + pack("<f", 1))) + scalar("loss", 2)

    assert values(read(data, "loss")) == [("loss", "2", 0)]


def test_a_record_that_holds_no_event_is_counted() -> None:
    parser = EventParser(TagRules(["loss"]))

    assert values(parser.feed(record(b"\xff\xff") + record(b"") + scalar("loss", 1))) == [("loss", "1", 0)]
    assert parser.undecodable == 1


# --- tags and metrics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "tag", "directory", "counts"),
    [
        ("accuracy", "accuracy", "/logs/any", True),
        ("train/accuracy", "train/accuracy", "/logs/any", True),
        ("train/accuracy", "accuracy", "/logs/train", True),
        ("train/accuracy", "accuracy", "train", True),
        ("a/train/accuracy", "accuracy", "/logs/a/train", True),
        ("train/accuracy", "accuracy", "/logs/test", False),
        ("train/accuracy", "accuracy", "/logs/train/more", False),
        ("accuracy", "train/accuracy", "/logs/any", False),
        ("accuracy", "accuracy_1", "/logs/any", True),
        ("train/accuracy", "accuracy_1", "/logs/train", True),
        ("train/accuracy", "accuracy", "/logs/pretrain", True),
        ("train/accuracy", "train/accuracy_1", "/logs/any", False),
        ("accuracy", "epoch_accuracy", "/logs/any", False),
    ],
)
def test_which_tag_of_which_directory_counts(metric: str, tag: str, directory: str, counts: bool) -> None:
    assert bool(read(scalar(tag, 1), metric, directory=directory)) == counts


def test_one_tag_may_stand_for_two_metrics() -> None:
    found = read(scalar("loss", 1), "loss", "train/loss", directory="/logs/train")

    assert [reading.name for reading in found] == ["loss", "train/loss"]


def rounds(*tags: str, count: int = 3) -> bytes:
    return b"".join(scalar(tag, 10 * step + place, step) for step in range(count) for place, tag in enumerate(tags))


def test_a_loose_match_counts_while_no_exact_tag_is_known() -> None:
    parser = EventParser(TagRules(["accuracy"]))

    assert parser.feed(rounds("accuracy_1", "other", count=1)) == []
    assert values(parser.feed(scalar("accuracy_1", 10, 1))) == [("accuracy", "0", 0), ("accuracy", "10", 1)]
    assert values(parser.feed(scalar("accuracy_1", 20, 2))) == [("accuracy", "20", 2)]

    assert values(read(scalar("accuracy_1", 0.5), "accuracy")) == [("accuracy", "0.5", 0)]

    data = rounds("accuracy_top5", count=2) + scalar("accuracy", 0.5, 2) + scalar("accuracy_top5", 9, 3)

    assert [reading.value for reading in read(data, "accuracy")] == ["0", "10", "0.5"]

    assert [reading.value for reading in read(rounds("accuracy_top5", "accuracy"), "accuracy")] == ["1", "11", "21"]


def test_an_exact_tag_or_directory_of_one_file_goes_before_all_that_are_alike() -> None:
    rules = TagRules(["accuracy"])
    first, second = EventParser(rules), EventParser(rules)
    first.feed(scalar("accuracy_top5", 0.9))
    second.feed(scalar("accuracy", 0.5))

    assert first.finish() == []

    rules = TagRules(["train/loss"])
    other, right = EventParser(rules, "/logs/pretrain"), EventParser(rules, "/logs/train")

    readings = other.feed(scalar("loss", 1)) + right.feed(scalar("loss", 2))

    assert values(readings + other.finish()) == [("train/loss", "2", 0)]

    assert values(read(scalar("train_acc", 0.5), "train acc")) == [("train acc", "0.5", 0)]
    assert values(read(scalar("eval/acc_5_", 0.5), "/eval/acc(5)")) == [("/eval/acc(5)", "0.5", 0)]
    assert values(read(scalar("train_acc", 0.5), "train acc", "train_acc")) == [("train_acc", "0.5", 0)]


RECORDS = [b"first", b"", b"third" * 100]


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ],
    ids=["nothing", "zeros", "ones", "upwards", "downwards", "digits"],
)
def test_checksums_are_those_of_the_rfc(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum
    assert checksum_function()(data) == checksum


def records_of(*chunks: bytes) -> tuple[list[bytes], RecordReader]:
    reader = RecordReader()
    return [found for chunk in chunks for found in reader.feed(chunk)] + reader.finish(), reader


def test_records_are_found_whole_and_waited_for() -> None:
    found, reader = records_of(b"".join(map(record, RECORDS)))

    assert found == RECORDS
    assert reader.notes.records == 3
    assert reader.notes.damages == 0

    reader, data = RecordReader(), record(b"whole")

    assert [found for at in range(len(data)) for found in reader.feed(data[at : at + 1])] == [b"whole"]
    assert reader.finish() == []
    assert reader.notes.missing_bytes == 0

    found, reader = records_of(record(b"first") + record(b"second")[:-3])

    assert found == [b"first"]
    assert reader.notes.missing_bytes == 3
    assert reader.notes.damages == 0


@pytest.mark.parametrize("place", [0, 8, 12, 16], ids=["length", "its checksum", "data", "its checksum"])
def test_a_damaged_record_is_skipped_and_counted(place: int) -> None:
    damaged = bytearray(record(b"seco"))
    damaged[place] ^= 0xFF

    found, reader = records_of(record(b"first"), bytes(damaged), record(b"third"))

    assert found == [b"first", b"third"]
    assert reader.notes.damages == 1


def test_damages_are_counted_and_cost_the_records_that_they_were_in() -> None:
    garbage = b"\x01\x02\x03"

    found, reader = records_of(garbage + record(b"first") + garbage + record(b"second"))

    assert found == [b"first", b"second"]
    assert reader.notes.damages == 2

    data = record(b"x" * 50)

    found, reader = records_of(record(b"first") + data[:20] + data[40:] + record(b"third"))

    assert found == [b"first", b"third"]
    assert reader.notes.damages == 1

    found, reader = records_of(record(b"x" * 500)[:100] + record(b"second"))

    assert found == [b"second"]
    assert reader.notes.damages == 1
    assert reader.notes.missing_bytes == 0


def test_a_long_stretch_of_zeros_is_passed_quickly() -> None:
    found, reader = records_of(scalar("a", 1.0), bytes(1_000_000), record(b"end"))

    assert found[1:] == [b"end"]
    assert reader.notes.damages == 1


def test_a_record_too_long_to_be_held_is_skipped_unread() -> None:
    reader = RecordReader()
    data = header(MAX_RECORD_BYTES + 1) + bytes(MAX_RECORD_BYTES + 1 + 4) + record(b"next")
    chunks = (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20))

    assert [found for chunk in chunks for found in reader.feed(chunk)] == [b"next"]
    assert reader.notes.long_records == 1
    assert reader.notes.damages == 0


FOUR = ("train/accuracy", "train/loss", "test/accuracy", "test/loss")


def readings_of(directory: str, *names: str) -> list[MetricLog]:
    with closing(EventDirectory(EVENT_FILES / directory, names)) as source:
        readings = [reading for part in source.poll() for reading in part] + source.finish()
        assert source.notes == ""
        assert source.problem == ""
        return readings


def curve(readings: list[MetricLog], name: str) -> list[tuple[int | None, float | None]]:
    return [(reading.step, parse_value(reading.value)) for reading in readings if reading.name == name]


@pytest.mark.parametrize(
    ("directory", "names", "count"),
    [
        ("tensorflow2", FOUR, 20),
        ("tensorflow2/train", ("accuracy", "loss"), 10),
        ("tensorflow2/train", ("train/accuracy", "train/loss"), 10),
        ("tensorboardx", FOUR, 12),
        ("tensorboardx/train", ("accuracy", "loss"), 6),
    ],
)
def test_as_many_readings_are_found_as_katib_finds(directory: str, names: tuple[str, ...], count: int) -> None:
    assert len(readings_of(directory, *names)) == count


@pytest.mark.parametrize("directory", ["tensorflow2", "tensorboardx"])
def test_curves_are_those_of_their_directories(directory: str) -> None:
    readings = readings_of(directory, *FOUR)

    assert curve(readings, "train/loss")[:3] == [(0, 1.0), (1, 0.5), (2, 0.33333334)]
    assert curve(readings, "test/accuracy")[:3] == [(0, 0.5), (1, 0.6666667), (2, 0.75)]


def test_torch_writes_floats_and_tensors_with_and_without_descriptions() -> None:
    readings = readings_of("torch", "train/loss", "new", "double", "weights", "note")

    assert curve(readings, "train/loss") == [(0, 1.0), (1, 0.5), (2, 0.33333334)]
    assert curve(readings, "new") == [(0, 0.5), (1, 0.6666667), (2, 0.75)]
    assert curve(readings, "double") == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert len(readings) == 9

    assert curve(readings_of("tensorboardx/train", "described"), "described") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_other_writers_names_are_read_as_they_write_them() -> None:
    readings = readings_of("tensorflow1", "accuracy", "loss")

    assert curve(readings, "accuracy") == [(0, 0.5), (10, 0.6666667), (20, 0.75)]
    assert curve(readings, "loss") == [(0, 0.5), (10, 0.3333333), (20, 0.25)]

    readings = readings_of("keras", "train/epoch_loss", "validation/epoch_loss", "epoch_accuracy")

    assert [step for step, _ in curve(readings, "train/epoch_loss")] == [0, 1, 2]
    assert [step for step, _ in curve(readings, "validation/epoch_loss")] == [0, 1, 2]
    assert len(curve(readings, "epoch_accuracy")) == 6
    assert all(0 < (value or 0) < 10 for _, value in curve(readings, "train/epoch_loss"))


@pytest.mark.parametrize(
    "name", ["float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_tensorflow_2_writes_numbers_of_every_type(name: str) -> None:
    assert curve(readings_of("tensorflow2/types", name), name) == [(300, 3.0)]


def test_tensorflow_2_writes_more_than_scalars() -> None:
    readings = readings_of(
        "tensorflow2/types", "bool", "one in a list", "two", "text", "image", "nan", "large step", "negative step"
    )

    assert values(readings) == [
        ("bool", "1", 300),
        ("one in a list", "0.5", 300),
        ("nan", "nan", 300),
        ("large step", "1", 1 << 40),
        ("negative step", "1", None),
    ]


def test_the_files_are_small() -> None:
    sizes = {path: path.stat().st_size for path in Path(EVENT_FILES).rglob("*tfevents*")}

    assert len(sizes) == 9
    assert max(sizes.values()) < 20_000
