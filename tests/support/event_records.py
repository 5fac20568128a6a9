"""Event files in the making: records and events as bytes, built field by field."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from struct import pack

from katib.model.metrics import MetricLog
from metrics_collector.parsers.protobuf import varint
from metrics_collector.parsers.records import crc32c, masked

EVENT_FILES = Path(__file__).parent / "event_files"
WALL_TIME = 1_700_000_000.5


def header(length: int) -> bytes:
    encoded = pack("<Q", length)
    return encoded + pack("<I", masked(crc32c(encoded)))


def record(data: bytes) -> bytes:
    return header(len(data)) + data + pack("<I", masked(crc32c(data)))


def field(number: int, data: bytes) -> bytes:
    """Return a field of bytes: a text or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value & (1 << 64) - 1)


def event(*values: bytes, step: int = 0, wall_time: float = WALL_TIME) -> bytes:
    """Return an event with a summary of these values."""
    encoded_step = number_field(2, step) if step else b""
    return b"\x09" + pack("<d", wall_time) + encoded_step + field(5, b"".join(field(1, value) for value in values))


def simple_value(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + b"\x15" + pack("<f", value)


def tensor_value(tag: str, *tensor_fields: bytes) -> bytes:
    return field(1, tag.encode()) + field(8, b"".join(tensor_fields))


def scalar(tag: str, value: float, step: int = 0, wall_time: float = WALL_TIME) -> bytes:
    """Return the record of an event with one float."""
    return record(event(simple_value(tag, value), step=step, wall_time=wall_time))


VERSION = record(b"\x09" + pack("<d", WALL_TIME) + field(3, b"brain.Event:2"))
"""The first record of every event file."""


def values(readings: list[MetricLog]) -> list[tuple[str, str, int | None]]:
    """Return name, value and step of readings."""
    return [(one.name, one.value, one.step) for one in readings]


def write(directory: str, losses: Sequence[float]) -> None:
    """Write `loss` as a training program does: now and then, into two files, each value at a time of its own."""
    for i, loss in enumerate(losses):
        _write(Path(directory), i, loss)
        time.sleep(0.02)


def write_until(directory: str, gate: str) -> None:
    """Write 0, 1, 2 and so on as `write` does until somebody makes a file, then leave in it how many there are."""
    for i in count():
        if Path(gate).exists():
            Path(gate).write_text(str(i))
            return
        _write(Path(directory), i, i)
        time.sleep(0.02)


def _write(directory: Path, i: int, loss: float) -> None:
    path = directory / f"part{i % 2}" / f"events.out.tfevents.{i % 2}"
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write((b"" if file.tell() else VERSION) + scalar("loss", loss, i + 1, WALL_TIME + i))
