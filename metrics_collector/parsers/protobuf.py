"""Fields of protocol buffers, read in place: nothing is copied, and skipping a field costs one step.

A field starts with its key, number and wire type in one: `field_key(1, FIXED64)`. Source: the documented encoding of
protocol buffers. Groups, which no message here has, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_MAX_VARINT_BYTES = 10
_MORE = 0x80
"""In a byte of a varint: more bytes follow."""

_BITS = 0x7F
_ALL_BITS = (1 << 64) - 1


def field_key(number: int, wire_type: int) -> int:
    return number << 3 | wire_type


def fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield key, value and end of each field of a message; the value is the number, or the start of the bytes.

    Raises:
        ValueError: The data is not a message.
    """
    while position < end:
        key, position = read_varint(data, position, end)
        wire_type, value = key & 7, position
        if wire_type == VARINT:
            value, position = read_varint(data, position, end)
        elif wire_type == BYTES:
            size, value = read_varint(data, position, end)
            position = value + size
        elif wire_type == FIXED64:
            position += 8
        elif wire_type == FIXED32:
            position += 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position > end:
            raise ValueError("a field is longer than its message")
        yield key, value, position


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return a 64-bit number and the position of the next field.

    Raises:
        ValueError: The number is not terminated.
    """
    number = shift = 0
    for at in range(position, min(end, position + _MAX_VARINT_BYTES)):
        byte = data[at]
        number |= (byte & _BITS) << shift
        if byte < _MORE:
            return number & _ALL_BITS, at + 1
        shift += 7
    raise ValueError("a number without end")


def signed(number: int) -> int:
    """Convert an unsigned 64-bit number to int64."""
    return number - (1 << 64) if number >> 63 else number


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > _BITS:
        encoded.append(number & _BITS | _MORE)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
