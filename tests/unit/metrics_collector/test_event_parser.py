from __future__ import annotations

import math
from datetime import UTC, datetime
from struct import pack

import pytest

from katib.api.metrics import ZERO_TIME, MetricLog
from metrics_collector.parsers.protobuf import varint
from metrics_collector.parsers.tags import TagRules
from metrics_collector.parsers.tensors import float_text
from metrics_collector.parsers.tf_events import EventParser
from tests.support.event_records import (
    VERSION,
    event,
    field,
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
    data = record(event(tensor_value("loss", *fields), step=1))

    assert values(read(data * 2, "loss")) == [("loss", text, 1)] * 2


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


def test_one_event_may_hold_many_values() -> None:
    data = record(event(simple_value("loss", 1), field(1, b"image") + field(4, b"png"), simple_value("acc", 2), step=4))

    assert values(read(data, "loss", "acc")) == [("loss", "1", 4), ("acc", "2", 4)]


def test_a_record_that_holds_no_event_is_counted() -> None:
    parser = EventParser(TagRules(["loss"]))

    found = parser.feed(record(b"\xff\xff") + record(b"") + scalar("loss", 1))

    assert values(found) == [("loss", "1", 0)]
    assert parser.undecodable == 1


def test_invalid_utf_8_in_a_tag_is_no_problem() -> None:
    data = record(event(field(1, b"lo\xffss") + b"\x15" + pack("<f", 1))) + scalar("loss", 2)

    assert values(read(data, "loss")) == [("loss", "2", 0)]


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


def test_a_tag_that_only_begins_with_the_metric_does_not_count_beside_an_exact_one() -> None:
    found = read(rounds("accuracy_top5", "accuracy"), "accuracy")

    assert [reading.value for reading in found] == ["1", "11", "21"]


def test_a_loose_match_counts_when_its_tag_comes_round_again() -> None:
    parser = EventParser(TagRules(["accuracy"]))

    assert parser.feed(rounds("accuracy_1", "other", count=1)) == []
    assert values(parser.feed(scalar("accuracy_1", 10, 1))) == [("accuracy", "0", 0), ("accuracy", "10", 1)]
    assert values(parser.feed(scalar("accuracy_1", 20, 2))) == [("accuracy", "20", 2)]


def test_a_loose_match_that_came_once_counts_in_the_end() -> None:
    assert values(read(scalar("accuracy_1", 0.5), "accuracy")) == [("accuracy", "0.5", 0)]


def test_once_an_exact_tag_is_known_loose_ones_count_no_more() -> None:
    data = rounds("accuracy_top5", count=2) + scalar("accuracy", 0.5, 2) + scalar("accuracy_top5", 9, 3)

    assert [reading.value for reading in read(data, "accuracy")] == ["0", "10", "0.5"]


def test_an_exact_tag_of_one_file_stands_for_all() -> None:
    rules = TagRules(["accuracy"])
    first, second = EventParser(rules), EventParser(rules)
    first.feed(scalar("accuracy_top5", 0.9))
    second.feed(scalar("accuracy", 0.5))

    assert first.finish() == []


def test_an_exact_directory_goes_before_one_whose_name_only_ends_alike() -> None:
    rules = TagRules(["train/loss"])
    other, right = EventParser(rules, "/logs/pretrain"), EventParser(rules, "/logs/train")

    readings = other.feed(scalar("loss", 1)) + right.feed(scalar("loss", 2))

    assert values(readings + other.finish()) == [("train/loss", "2", 0)]


def test_a_tag_whose_characters_a_writer_replaced_counts_as_the_metric() -> None:
    assert values(read(scalar("train_acc", 0.5), "train acc")) == [("train acc", "0.5", 0)]
    assert values(read(scalar("eval/acc_5_", 0.5), "/eval/acc(5)")) == [("/eval/acc(5)", "0.5", 0)]
    assert values(read(scalar("train_acc", 0.5), "train acc", "train_acc")) == [("train_acc", "0.5", 0)]
