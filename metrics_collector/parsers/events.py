"""Decoding of TensorBoard's event messages with scalars: the bytes of a record in, tags and values out.

    Event     wall_time: 1 (double)    step: 2 (varint)    summary: 5
    Summary   value: 1 (repeated)
    Value     tag: 1    simple_value: 2 (float)    tensor: 8

Sources: `tensorflow/core/util/event.proto`, `tensorflow/core/framework/summary.proto`.

A scalar is a `simple_value` (TensorFlow 1, tensorboardX, torch) or a tensor of numbers with exactly one element
(TensorFlow 2, Keras), for any plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from metrics_collector.parsers.protobuf import BYTES, FIXED32, FIXED64, VARINT, field_key, fields, signed, varint
from metrics_collector.parsers.tensors import FLOAT, float_text, tensor_text

WALL_TIME_KEY, STEP_KEY = field_key(1, FIXED64), field_key(2, VARINT)
_SUMMARY = field_key(5, BYTES)
_VALUE = field_key(1, BYTES)
_TAG, _SIMPLE_VALUE, _TENSOR = field_key(1, BYTES), field_key(2, FIXED32), field_key(8, BYTES)

WALL_TIME = Struct("<d")

PLUGIN = b"J\x0b\n\t\n\x07scalars"
"""The field after a tensor's value: the metadata that name the plugin."""

# Bytes before and after the value in the three layouts of the usual writers: torch and TensorFlow 1; TensorFlow 2, with
# content in tensors; the new style of torch, with a list in tensors.
_FLOAT_LAYOUTS = ((b"\x15", b""), (b"B\x0a\x08\x01\x12\x00\x22\x04", PLUGIN), (b"B\x08\x08\x01\x2a\x04", PLUGIN))


class Scalar(NamedTuple):
    """A tag and the text of its value."""

    tag: bytes
    text: str


class ScalarEvent(NamedTuple):
    """An event with its scalars; the step is negative if the program counts so."""

    wall_time: float
    step: int
    scalars: list[Scalar]


def decode_event(data: bytes) -> ScalarEvent:
    """Return the event in a record.

    Raises:
        ValueError: The record is not an event.
    """
    wall_time, step = 0.0, 0
    scalars: list[Scalar] = []
    for key, value, stop in fields(data, 0, len(data)):
        if key == WALL_TIME_KEY:
            (wall_time,) = WALL_TIME.unpack_from(data, value)
        elif key == STEP_KEY:
            step = signed(value)
        elif key == _SUMMARY:
            bounds = ((begin, end) for its_key, begin, end in fields(data, value, stop) if its_key == _VALUE)
            scalars += filter(None, (_scalar(data, begin, end) for begin, end in bounds))
    return ScalarEvent(wall_time, step, scalars)


def float_layouts(tag: bytes) -> Iterator[bytes]:
    """Yield the byte strings between the step of an event and its only value, a float of this tag."""
    for before, after in _FLOAT_LAYOUTS:
        rest = FLOAT.size + len(after)
        name = b"\x0a" + varint(len(tag)) + tag + before
        value = b"\x0a" + varint(len(name) + rest) + name
        yield b"\x2a" + varint(len(value) + rest) + value


def _scalar(data: bytes, start: int, end: int) -> Scalar | None:
    tag = b""
    text: str | None = None
    for key, value, stop in fields(data, start, end):
        if key == _TAG:
            tag = data[value:stop]
        elif key == _SIMPLE_VALUE:
            text = float_text(FLOAT.unpack_from(data, value)[0])
        elif key == _TENSOR:
            text = tensor_text(data, value, stop)
    return None if text is None else Scalar(tag, text)
