"""Records of a TFRecord stream, the framing of event files: bytes in chunks of any size; undamaged records out.

    length: uint64    crc: masked CRC-32C of length    data: byte[length]    crc: masked CRC-32C of data

All numbers are little-endian. Source: `tensorflow/core/lib/io/record_writer.h`.

Damage is skipped: reading continues at the next place with a valid checksum of a length, so bytes that were changed,
lost or inserted cost only the records that they touch. An incomplete record is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from struct import Struct

MAX_RECORD_BYTES = (1 << 24) - 1
"""Longer records, which hold graphs or videos, are skipped: memory stays bounded."""

HEADER_BYTES = 12

_HEADER = Struct("<QI")
_CHECKSUM = Struct("<I")

# Possible start of a record: a length below 2**24, and a checksum other than zero, which none of these lengths has. The
# second condition keeps a long run of zeros from being a candidate at each of its bytes.
_CANDIDATE = re.compile(rb"(?s)(?=...\0{5}(?!\0{4})....)")

_MAX_KNOWN_HEADERS = 4096


@dataclass(slots=True)
class RecordNotes:
    """Observations of a stream.

    Attributes:
        damages: Number of damaged places that were skipped.
        long_records: Records that were skipped because of their length.
        missing_bytes: Bytes missing in the last record at the end of the stream.
    """

    records: int = 0
    damages: int = 0
    long_records: int = 0
    missing_bytes: int = 0


class RecordReader:
    """Splits a stream into records. Not thread-safe."""

    def __init__(self) -> None:
        self.notes = RecordNotes()
        self._checksum = checksum_function()
        self._lengths: dict[bytes, int] = {}  # of headers with a valid checksum
        self._pending: list[bytes] = []  # unused input; joined once there is enough of it
        self._pending_size = 0
        self._needed = HEADER_BYTES
        self._to_skip = 0  # of a long record
        self._is_lost = False  # between a damaged place and the next record

    def feed(self, data: bytes) -> list[bytes]:
        """Return the records that this chunk completes."""
        if self._to_skip:
            skipped = min(self._to_skip, len(data))
            self._to_skip -= skipped
            data = data[skipped:]
        if not data:
            return []
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size < self._needed:
            return []
        records, rest = self._cut(b"".join(self._pending))
        self._keep(rest)
        return records

    def finish(self) -> list[bytes]:
        """End the input; return the records after one that was never completed."""
        records: list[bytes] = []
        missing = self._to_skip
        while self._pending_size and not self._is_lost:
            missing = self._needed - self._pending_size
            self._is_lost = True
            found, rest = self._cut(b"".join(self._pending)[1:])
            self._keep(rest)
            if found:
                self.notes.damages += 1
                records += found
                missing = 0
        self.notes.missing_bytes = missing
        return records

    def _keep(self, rest: bytes) -> None:
        self._pending = [rest] if rest else []
        self._pending_size = len(rest)

    def _cut(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Return the records in data and the bytes after them, of which `_needed` are required to continue."""
        records: list[bytes] = []
        lengths, checksum, stored = self._lengths, self._checksum, _CHECKSUM.unpack_from
        position, end = 0, len(data)
        while True:
            if self._is_lost:
                position = self._next_beginning(data, position)
            start = position + HEADER_BYTES
            self._needed = HEADER_BYTES
            if start > end:
                break
            header = data[position:start]
            length = lengths.get(header)
            if length is None and (length := self._length(header)) is None:
                self._lose()
                position += 1
                continue
            self._is_lost = False
            stop = start + length
            if length > MAX_RECORD_BYTES:
                self.notes.long_records += 1
                position = stop + _CHECKSUM.size
                self._to_skip = max(0, position - end)
            elif stop + _CHECKSUM.size > end:
                self._needed = stop + _CHECKSUM.size - position
                break
            else:
                record = data[start:stop]
                check = checksum(record)
                if ((check >> 15 | check << 17) + MASK_DELTA) & 0xFFFFFFFF == stored(data, stop)[0]:  # see masked
                    records.append(record)
                    position = stop + _CHECKSUM.size
                else:
                    self._lose()
                    position = start
        self.notes.records += len(records)
        return records, data[position:]

    def _lose(self) -> None:
        self._is_lost = True
        self.notes.damages += 1

    def _length(self, header: bytes) -> int | None:
        length, checksum = _HEADER.unpack(header)
        if masked(self._checksum(header[:8])) != checksum:
            return None
        if len(self._lengths) >= _MAX_KNOWN_HEADERS:
            self._lengths.clear()
        self._lengths[header] = length
        return int(length)

    def _next_beginning(self, data: bytes, position: int) -> int:
        """Return the start of the next record, or the first position with too few bytes to decide."""
        for candidate in _CANDIDATE.finditer(data, position):
            if self._length(data[candidate.start() : candidate.start() + HEADER_BYTES]) is not None:
                return candidate.start()
        return max(position, len(data) - HEADER_BYTES + 1)


def begins_with_record(data: bytes) -> bool:
    header = data[:HEADER_BYTES]
    return len(header) == HEADER_BYTES and masked(checksum_function()(header[:8])) == _HEADER.unpack(header)[1]


# --- the checksum -----------------------------------------------------------------------------------------------------


# CRC-32C, masked. Source: RFC 3720, appendix B.4 (polynomial, test vectors); `tensorflow/core/lib/hash/crc32c.h` (the
# mask: rotated by 15 bits and added to, because the checksum of data with its own checksum is weak).
# google-crc32c needs a tenth of a microsecond for a record of 50 bytes; without it, a table needs 4.
_POLYNOMIAL = 0x82F63B78  # its bits reversed
MASK_DELTA = 0xA282EAD8


def masked(checksum: int) -> int:
    """Return a checksum in its stored form."""
    return ((checksum >> 15 | checksum << 17) + MASK_DELTA) & 0xFFFFFFFF


@cache
def checksum_function() -> Callable[[bytes], int]:
    """Return the fastest available function that computes a CRC-32C."""
    try:
        import google_crc32c
    except ImportError:
        return crc32c
    return google_crc32c.value if google_crc32c.implementation == "c" else crc32c


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of data, by a table alone."""
    table = _table()
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    return tuple(_remainder(byte) for byte in range(256))


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ _POLYNOMIAL * (byte & 1)
    return byte
