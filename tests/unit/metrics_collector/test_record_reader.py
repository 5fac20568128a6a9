from __future__ import annotations

import pytest

from metrics_collector.parsers.records import MAX_RECORD_BYTES, RecordReader, checksum_function, crc32c
from tests.support.event_records import header, record, scalar

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


def read(*chunks: bytes) -> tuple[list[bytes], RecordReader]:
    reader = RecordReader()
    return [found for chunk in chunks for found in reader.feed(chunk)] + reader.finish(), reader


def test_records_are_found_whole() -> None:
    found, reader = read(b"".join(map(record, RECORDS)))

    assert found == RECORDS
    assert reader.notes.records == 3
    assert reader.notes.damages == 0


def test_a_record_is_waited_for() -> None:
    reader, data = RecordReader(), record(b"whole")

    assert [found for at in range(len(data)) for found in reader.feed(data[at : at + 1])] == [b"whole"]
    assert reader.finish() == []
    assert reader.notes.missing_bytes == 0


def test_a_record_that_is_never_completed_is_counted() -> None:
    found, reader = read(record(b"first") + record(b"second")[:-3])

    assert found == [b"first"]
    assert reader.notes.missing_bytes == 3
    assert reader.notes.damages == 0


@pytest.mark.parametrize("place", [0, 8, 12, 16], ids=["length", "its checksum", "data", "its checksum"])
def test_a_damaged_record_is_skipped_and_counted(place: int) -> None:
    damaged = bytearray(record(b"seco"))
    damaged[place] ^= 0xFF

    found, reader = read(record(b"first"), bytes(damaged), record(b"third"))

    assert found == [b"first", b"third"]
    assert reader.notes.damages == 1


def test_two_damages_are_two() -> None:
    garbage = b"\x01\x02\x03"

    found, reader = read(garbage + record(b"first") + garbage + record(b"second"))

    assert found == [b"first", b"second"]
    assert reader.notes.damages == 2


def test_lost_bytes_cost_the_record_they_were_in() -> None:
    data = record(b"x" * 50)

    found, reader = read(record(b"first") + data[:20] + data[40:] + record(b"third"))

    assert found == [b"first", b"third"]
    assert reader.notes.damages == 1


def test_what_follows_a_record_without_end_is_found_in_the_end() -> None:
    found, reader = read(record(b"x" * 500)[:100] + record(b"second"))

    assert found == [b"second"]
    assert reader.notes.damages == 1
    assert reader.notes.missing_bytes == 0


def test_a_long_stretch_of_zeros_is_passed_quickly() -> None:
    found, reader = read(scalar("a", 1.0), bytes(1_000_000), record(b"end"))

    assert found[1:] == [b"end"]
    assert reader.notes.damages == 1


def test_a_record_too_long_to_be_held_is_skipped_unread() -> None:
    reader = RecordReader()
    data = header(MAX_RECORD_BYTES + 1) + bytes(MAX_RECORD_BYTES + 1 + 4) + record(b"next")
    chunks = (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20))

    assert [found for chunk in chunks for found in reader.feed(chunk)] == [b"next"]
    assert reader.notes.long_records == 1
    assert reader.notes.damages == 0
