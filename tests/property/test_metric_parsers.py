"""Parsers take any bytes in any cut: they never fail, and what they read does not depend on the cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.model.metrics import MetricLog, format_timestamp, parse_time, parse_value
from metrics_collector.collector import Collector
from metrics_collector.explanation import nearest
from metrics_collector.parsers import LineParser, TextParser
from metrics_collector.parsers.json_lines import JsonParser
from metrics_collector.sources import ProgramOutput

NAMES = ("loss", "acc", "val_acc", "läß")
LIMIT = 40

PARSERS: dict[str, Callable[[], LineParser]] = {
    "text": lambda: TextParser(NAMES, limit=LIMIT),
    "text of short lines": lambda: TextParser(NAMES),
    "text with filters": lambda: TextParser(NAMES, [r"(\w+): (\S*)", r"(?s)(\pL+)=(.*)"], limit=LIMIT),
    "text with many metrics": lambda: TextParser([*NAMES, "f1", "auc", "recall", "mse"], limit=LIMIT),
    "json": lambda: JsonParser(NAMES, limit=LIMIT),
}

SIGNS = [b"=", b": ", b"\n", b"\r", b"\r\n", b" ", b"|", b"\x00", b"\xff", b"}", b"x" * LIMIT]
WORDS = [
    b"loss",
    b"acc",
    b"val loss=",
    b"\x1b[K",
    b"\x1b]",
    "läß=".encode(),
    b"0.5",
    b"nan",
    b"-inf",
    b"1e-3",
    b"2024-03-04T17:55:08Z ",
]
OBJECTS = [b'{"loss": ', b'"acc": "1"', b'"timestamp": 1.5']

pieces = st.sampled_from([*SIGNS, *WORDS, *OBJECTS])
output = st.lists(st.one_of(pieces, st.binary(max_size=8)), max_size=40).map(b"".join)
cuts = st.lists(st.integers(0, 600), max_size=12)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place for place in places if place < len(data)), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def read(parser: LineParser, chunks: Sequence[bytes]) -> list[MetricLog]:
    return [*(log for chunk in chunks for log in parser.feed(chunk)), *parser.finish()]


@pytest.mark.parametrize("make", PARSERS.values(), ids=PARSERS.keys())
@given(data=output, places=cuts)
def test_readings_do_not_depend_on_the_cut(make: Callable[[], LineParser], data: bytes, places: list[int]) -> None:
    whole, pieced = make(), make()

    assert read(pieced, cut(data, places)) == read(whole, [data])
    assert pieced.notes.lines == whole.notes.lines
    assert pieced.notes.size_bytes == len(data)


@pytest.mark.parametrize("make", PARSERS.values(), ids=PARSERS.keys())
@given(data=output)
def test_a_line_end_at_the_end_changes_no_reading(make: Callable[[], LineParser], data: bytes) -> None:
    assert read(make(), [data + b"\n"]) == read(make(), [data])


@pytest.mark.parametrize("make", PARSERS.values(), ids=PARSERS.keys())
@given(data=output)
def test_a_reading_names_a_metric_and_has_a_value(make: Callable[[], LineParser], data: bytes) -> None:
    for log in read(make(), [data]):
        assert log.name in {*NAMES, "f1", "auc", "recall", "mse"}
        assert log.value == log.value.strip() != ""
        assert "\0" not in log.value


@given(data=output)
def test_lines_are_those_of_wc_and_the_unfinished_one(data: bytes) -> None:
    parser = TextParser(["loss"])
    read(parser, [data])

    assert parser.notes.lines == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


@given(st.lists(st.tuples(st.sampled_from(["loss", "acc"]), st.floats()), max_size=30))
def test_every_printed_float_is_read_back(readings: list[tuple[str, float]]) -> None:
    text = "".join(f"step {index} {name}={value}\n" for index, (name, value) in enumerate(readings))
    lines = "".join(json.dumps({name: value}) + "\n" for name, value in readings)

    for found in (
        read(TextParser(["loss", "acc"]), [text.encode()]),
        read(JsonParser(["loss", "acc"]), [lines.encode()]),
    ):
        assert [(log.name, repr(parse_value(log.value))) for log in found] == [(n, repr(v)) for n, v in readings]


@given(data=output, places=cuts)
def test_every_output_without_a_usable_objective_is_explained_on_one_line(data: bytes, places: list[int]) -> None:
    program = ProgramOutput(TextParser(["loss", "acc"]))
    collector = Collector("loss", ["acc"], program)
    for chunk in cut(data, places):
        collector.take(program.feed(chunk))
    collector.take(program.finish())

    text = collector.explanation()
    assert "\n" not in text
    assert "\r" not in text
    assert len(text) < 1000


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_time_survives_the_wire(time: datetime) -> None:
    assert parse_time(format_timestamp(time)) == time


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_of_times(text: str) -> None:
    time = parse_time(text)

    assert time is None or parse_time(format_timestamp(time)) == time


@given(st.text(max_size=20), st.lists(st.text(max_size=60), max_size=8))
def test_the_nearest_candidate_is_a_part_of_a_line(metric: str, lines: list[str]) -> None:
    found = nearest(metric, lines)

    assert found == "" or any(found in line for line in lines)
