"""Event files: no bytes make the reader fail, no cut changes what it reads, and a damage costs only what it touches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from katib.model.metrics import MetricLog
from metrics_collector.parsers.records import RecordReader
from metrics_collector.parsers.tags import TagRules
from metrics_collector.parsers.tensors import float_text
from metrics_collector.parsers.tf_events import EventParser, decode_event
from tests.support.event_records import VERSION, event, field, number_field, record, scalar, simple_value, tensor_value

NAMES = ("loss", "train/loss", "acc")

tags = st.sampled_from(["loss", "loss_1", "acc", "acc_top5", "train/loss", "other", "läß", ""])
floats = st.floats(width=32)
steps = st.one_of(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1))
numbers = st.binary(max_size=8)
tensors = st.lists(
    st.one_of(
        st.builds(number_field, st.sampled_from([1, 7, 10, 11, 13, 16, 17]), st.integers(0, 1 << 63)),
        st.builds(number_field, st.just(1), st.integers(0, 24)),
        st.builds(field, st.integers(1, 17), numbers),
        st.builds(lambda value: field(4, pack("<f", value)), floats),
    ),
    max_size=5,
)
contents = st.one_of(
    st.builds(simple_value, tags, floats), st.builds(lambda tag, parts: tensor_value(tag, *parts), tags, tensors)
)
records = st.one_of(
    st.builds(scalar, tags, floats, steps, st.floats()),
    st.builds(lambda values, step: record(event(*values, step=step)), st.lists(contents, max_size=3), steps),
    st.builds(record, st.binary(max_size=30)),
)
streams = st.lists(st.one_of(records, records, records, st.binary(max_size=20), st.just(bytes(30))), max_size=12)
cuts = st.lists(st.integers(0, 600), max_size=12)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place for place in places if place < len(data)), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def read(chunks: Sequence[bytes], parser: EventParser) -> list[MetricLog]:
    return [*(log for chunk in chunks for log in parser.feed(chunk)), *parser.finish()]


def new_parser() -> EventParser:
    return EventParser(TagRules(NAMES), "/logs/train")


@given(stream=streams, places=cuts)
def test_readings_do_not_depend_on_the_cut(stream: list[bytes], places: list[int]) -> None:
    data = VERSION + b"".join(stream)
    whole, pieced = new_parser(), new_parser()

    assert read(cut(data, places), pieced) == read([data], whole)
    assert pieced.notes == whole.notes
    assert pieced.undecodable == whole.undecodable


@given(data=st.binary(max_size=300))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    read([data], new_parser())
    read([record(data)], new_parser())
    read([record(b"\x09" + bytes(8) + field(5, field(1, data)))], new_parser())
    read([record(event(tensor_value("loss", data)))], new_parser())


@given(stream=st.lists(records, max_size=12))
def test_what_is_read_fast_is_what_is_read_slowly(stream: list[bytes]) -> None:
    """A parser that has met a tag reads its events by their layout; one that has not decodes them."""
    parser = new_parser()
    parser.feed(b"".join(scalar(tag, 1) for tag in ("loss", "train/loss", "acc")))
    stream = [one for one in stream if b"_" not in one]  # loose matches wait for one another

    assert [repr(log) for one in stream for log in parser.feed(one)] == [
        repr(log) for one in stream for log in read([one], new_parser())
    ]


@given(stream=st.lists(records, min_size=1, max_size=8), data=st.data())
def test_a_damage_costs_the_records_that_it_touches_and_no_other(stream: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(stream))
    ends = list(itertools.accumulate(map(len, stream)))
    begin = data.draw(st.integers(0, len(whole) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=min(40, len(whole) - begin)))
    whole[begin : begin + len(noise)] = noise
    untouched = [
        one[12:-4]
        for one, end in zip(stream, ends, strict=True)
        if end <= begin or end - len(one) >= begin + len(noise)
    ]
    reader = RecordReader()

    rest = iter([*reader.feed(bytes(whole)), *reader.finish()])
    assert all(one in rest for one in untouched)


@given(stream=st.lists(records, min_size=1, max_size=8), data=st.data())
def test_bytes_that_are_lost_cost_no_other_record_either(stream: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(stream)
    ends = list(itertools.accumulate(map(len, stream)))
    begin = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(begin, len(whole)))
    untouched = [one[12:-4] for one, stop in zip(stream, ends, strict=True) if stop <= begin or stop - len(one) >= end]
    reader = RecordReader()

    found = iter([*reader.feed(whole[:begin] + whole[end:]), *reader.finish()])

    assert all(one in found for one in untouched)


@given(data=st.binary(max_size=200))
def test_a_message_is_decoded_or_refused(data: bytes) -> None:
    try:
        found = decode_event(data)
    except ValueError:
        return
    assert all(isinstance(text, str) and text for _, text in found.scalars)


@given(value=floats)
def test_the_text_of_a_float_is_read_back(value: float) -> None:
    text = float_text(value)

    assert pack("<f", float(text)) == pack("<f", value) or text == "nan"
