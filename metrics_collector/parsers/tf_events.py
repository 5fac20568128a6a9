"""Event files of TensorBoard: bytes in chunks of any size; readings out, without I/O, clock or TensorFlow.

A reading has the wall time and the step of its event. The readings do not depend on the boundaries of the chunks.

A loose match (see `tags`) is held back until its tag appears again, or the file ends: by then a program has written its
other tags, and it is known whether one of them matches exactly. If an exact match appears even later, loose matches no
longer count from there on, while earlier ones stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from struct import Struct
from typing import NamedTuple

from katib.model.metrics import ZERO_TIME, MetricLog
from metrics_collector.parsers.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    field_key,
    fields,
    read_varint,
    signed,
    varint,
)
from metrics_collector.parsers.records import RecordNotes, RecordReader
from metrics_collector.parsers.tags import UNWANTED, TagMatch, TagRules
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


MAX_TAGS = 10_000
"""Different tags of one file that are remembered; any others are matched again each time."""

MAX_HELD = 100
"""Loose matches of one metric that are held back."""

_MAX_KNOWN_TAG_BYTES = 1_000
_VALUE_AND_PLUGIN_BYTES = FLOAT.size + len(PLUGIN)
_PREFIX_BYTES = 1 + WALL_TIME.size
_MAX_STEP = (1 << 63) - 1


class EventParser:
    """Reads one event file. Not thread-safe.

    Attributes:
        undecodable: Number of undamaged records without an event.

    Args:
        rules: The matching rules; shared by the files of a trial.
        directory: The file's directory, as the metrics name it.
    """

    def __init__(self, rules: TagRules, directory: str = "") -> None:
        self.undecodable = 0
        self._rules = rules
        self._directory = directory
        self._reader = RecordReader()
        self._matches: dict[bytes, TagMatch] = {}  # by tag
        self._layouts: dict[bytes, TagMatch] = {}  # by the bytes between step and value
        self._held: dict[str, dict[bytes, MetricLog]] = {}  # loose matches by metric and tag
        self._released: set[str] = set()  # metrics whose loose matches count

    @property
    def notes(self) -> RecordNotes:
        """Observations of the framing."""
        return self._reader.notes

    @property
    def tags(self) -> Collection[bytes]:
        """The tags of scalars seen so far, MAX_TAGS at most."""
        return self._matches.keys()

    def feed(self, data: bytes) -> list[MetricLog]:
        """Return the readings that this chunk completes."""
        return self._read(self._reader.feed(data))

    def finish(self) -> list[MetricLog]:
        """End the input; return the readings held back, and those after an incomplete record."""
        readings = self._read(self._reader.finish())
        for name, held in self._held.items():
            if name not in self._rules.exact:
                readings += held.values()
        self._held.clear()
        return readings

    def _read(self, records: list[bytes]) -> list[MetricLog]:
        """Return the readings of these records. Avoids calls in its loop, since it dominates the cost of an event."""
        readings: list[MetricLog] = []
        layouts, add, to_time = self._layouts, readings.append, datetime.fromtimestamp
        wall_time_of, value_of = WALL_TIME.unpack_from, FLOAT.unpack_from
        encoded_step, step, begin = b"\0", None, 0
        for record in records:
            # Most events hold one float in a known layout: wall time, step, layout, value, plugin.
            if not record.startswith(encoded_step, _PREFIX_BYTES):  # events of one step are consecutive
                begin, step = _after_step(record)
                encoded_step = (begin < len(record) and record[_PREFIX_BYTES:begin]) or b"\0"
            end = -_VALUE_AND_PLUGIN_BYTES if record.endswith(PLUGIN) else -FLOAT.size
            match = layouts.get(record[begin:end])
            if match is None or record[0] != WALL_TIME_KEY:
                self._decode(record, readings)
            elif match is not UNWANTED:
                text = float_text(value_of(record, end)[0])
                try:
                    time = to_time(wall_time_of(record, 1)[0], UTC)
                except (ValueError, OverflowError, OSError):
                    time = ZERO_TIME
                for name in match.exact:
                    add(MetricLog(time, name, text, step))
                if match.loose:
                    self._hold(match.tag, [MetricLog(time, name, text, step) for name in match.loose], readings)
        return readings

    def _decode(self, record: bytes, readings: list[MetricLog]) -> None:
        try:
            event = decode_event(record)
        except ValueError:
            self.undecodable += 1
            return
        time, step = _time_of(event.wall_time), event.step if event.step >= 0 else None
        for tag, text in event.scalars:
            match = self._match(tag)
            readings += (MetricLog(time, name, text, step) for name in match.exact)
            self._hold(tag, [MetricLog(time, name, text, step) for name in match.loose], readings)
        if len(event.scalars) == 1:
            self._learn(record, event.scalars[0].tag)

    def _match(self, tag: bytes) -> TagMatch:
        match = self._matches.get(tag)
        if match is None:
            match = self._rules.match(tag, self._directory)
            if len(tag) <= _MAX_KNOWN_TAG_BYTES and len(self._matches) < MAX_TAGS:
                self._matches[tag] = match
        return match

    def _learn(self, record: bytes, tag: bytes) -> None:
        """Remember the layout of an event of a remembered tag, if it is a known one."""
        match = self._matches.get(tag)
        if match is not None:
            rest = record[_after_step(record)[0] :]
            self._layouts.update((layout, match) for layout in float_layouts(tag) if rest.startswith(layout))

    def _hold(self, tag: bytes, matches: list[MetricLog], readings: list[MetricLog]) -> None:
        """Hold loose matches back, or add those that count."""
        for reading in matches:
            name = reading.name
            if name in self._rules.exact:
                continue
            held = self._held.setdefault(name, {})
            if name not in self._released and tag not in held and len(held) < MAX_HELD:
                held[tag] = reading
                continue
            self._released.add(name)
            readings += held.values()
            held.clear()
            readings.append(reading)


def _after_step(record: bytes) -> tuple[int, int | None]:
    """Return the position after the step, and the step, of an event with the usual beginning.

    For another beginning, no layout follows at the returned position.
    """
    if len(record) <= _PREFIX_BYTES + 1 or record[0] != WALL_TIME_KEY:
        return len(record), None
    if record[_PREFIX_BYTES] != STEP_KEY:  # zero is not written
        return _PREFIX_BYTES, 0
    try:
        step, position = read_varint(record, _PREFIX_BYTES + 1, len(record))
    except ValueError:
        return len(record), None
    return position, step if step <= _MAX_STEP else None


def _time_of(wall_time: float) -> datetime:
    try:
        return datetime.fromtimestamp(wall_time, UTC)
    except (ValueError, OverflowError, OSError):
        return ZERO_TIME
