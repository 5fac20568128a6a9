"""The checksum of records in event files: CRC-32C, masked.

Source: RFC 3720, appendix B.4 (polynomial, test vectors); `tensorflow/core/lib/hash/crc32c.h` (the mask: rotated by 15
bits and added to, because the checksum of data that holds its own checksum says little).

google-crc32c needs a tenth of a microsecond for a record of 50 bytes; where it is not installed, a table needs 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

_POLYNOMIAL = 0x82F63B78  # its bits reversed
MASK_DELTA = 0xA282EAD8


def masked(checksum: int) -> int:
    """Return a checksum as it is written beside the data."""
    return ((checksum >> 15 | checksum << 17) + MASK_DELTA) & 0xFFFFFFFF


@cache
def checksum_function() -> Callable[[bytes], int]:
    """Return the fastest function that computes a CRC-32C here."""
    try:
        import google_crc32c
    except ImportError:
        return crc32c
    return google_crc32c.value if google_crc32c.implementation == "c" else crc32c


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of data, with nothing but a table."""
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
