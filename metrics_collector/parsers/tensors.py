"""The text of a number, and of a tensor with exactly one.

    Tensor    dtype: 1    tensor_shape: 2    tensor_content: 4    and one list of values for each group of types

Sources: `tensorflow/core/framework/tensor.proto`, `tensor_shape.proto` and `types.proto`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from metrics_collector.parsers.protobuf import BYTES, VARINT, field_key, fields, read_varint, signed

_TYPE, _SHAPE, _CONTENT = field_key(1, VARINT), field_key(2, BYTES), field_key(4, BYTES)
_DIMENSION, _UNKNOWN_RANK = field_key(2, BYTES), field_key(3, VARINT)
_DIMENSION_SIZE = field_key(1, VARINT)

FLOAT = Struct("<f")
_DOUBLE = Struct("<d")
_UINT16 = Struct("<H")
_UINT32 = Struct("<I")


class _NumberType(NamedTuple):
    """Encoding of a type of numbers.

    Attributes:
        layout: Layout in `tensor_content`.
        list_number: Number of the field with the list of values.
        list_layout: Layout in that list; None: a varint.
        text: Formats a number.
    """

    layout: Struct
    list_number: int
    list_layout: Struct | None
    text: Callable[[float], str]


def float_text(value: float) -> str:
    """Return the shortest text of a 32-bit float, such as 0.1 for 0.10000000149011612."""
    text = f"{value:.7g}"
    try:
        packed = FLOAT.pack(value)
        if FLOAT.pack(float(text)) == packed:
            return text
        text = f"{value:.8g}"
        if FLOAT.pack(float(text)) == packed:
            return text
    except OverflowError:  # the text of the largest float, rounded up
        pass
    return f"{value:.9g}"


def tensor_text(data: bytes, start: int, end: int) -> str | None:
    """Return the value of a tensor with one element; None if it has several, none, or no number.

    Raises:
        ValueError: The data is not a tensor.
    """
    found = list(fields(data, start, end))
    number_type = _TYPES.get(next((value for key, value, _ in found if key == _TYPE), 0))
    if number_type is None or any(_elements(data, value, stop) != 1 for key, value, stop in found if key == _SHAPE):
        return None
    values: list[float] = []
    for key, value, stop in found:
        if key == _CONTENT and stop > value:
            if stop - value != number_type.layout.size:
                return None
            values += number_type.layout.unpack_from(data, value)
        elif key >> 3 == number_type.list_number:
            values += _listed(data, key, value, stop, number_type.list_layout)
    if len(values) > 1:
        return None
    return number_type.text(values[0] if values else 0)  # omitted values are zero


def _elements(data: bytes, start: int, end: int) -> int:
    """Return the number of elements of a shape; -1 if it is unknown."""
    sizes: list[int] = []
    for key, value, stop in fields(data, start, end):
        if key == _UNKNOWN_RANK and value:
            return -1
        if key == _DIMENSION:
            its_fields = fields(data, value, stop)
            sizes.append(signed(next((size for its_key, size, _ in its_fields if its_key == _DIMENSION_SIZE), 0)))
    return math.prod(sizes)


def _listed(data: bytes, key: int, value: int, stop: int, layout: Struct | None) -> list[float]:
    """Return the numbers in a field of a list, packed or single; not all if there is more than one."""
    if key & 7 == VARINT:
        return [signed(value)] if layout is None else []
    if key & 7 == BYTES and layout is None:
        found: list[float] = []
        while value < stop and len(found) <= 1:
            number, value = read_varint(data, value, stop)
            found.append(signed(number))
        return found
    if layout is None or (stop - value) % layout.size:
        return []
    return [layout.unpack_from(data, at)[0] for at in range(value, stop, layout.size)[:2]]


def _integer(value: float) -> str:
    return str(int(value))


def _unsigned(value: float) -> str:
    return str(int(value) & 0xFFFFFFFFFFFFFFFF)


def _bfloat16(bits: float) -> str:
    return float_text(FLOAT.unpack(_UINT32.pack((int(bits) & 0xFFFF) << 16))[0])


def _half(bits: float) -> str:
    return float_text(Struct("<e").unpack(_UINT16.pack(int(bits) & 0xFFFF))[0])


_TYPES = {
    1: _NumberType(FLOAT, 5, FLOAT, float_text),
    2: _NumberType(_DOUBLE, 6, _DOUBLE, repr),
    3: _NumberType(Struct("<i"), 7, None, _integer),
    4: _NumberType(Struct("<B"), 7, None, _integer),
    5: _NumberType(Struct("<h"), 7, None, _integer),
    6: _NumberType(Struct("<b"), 7, None, _integer),
    9: _NumberType(Struct("<q"), 10, None, _integer),
    10: _NumberType(Struct("<?"), 11, None, _integer),
    14: _NumberType(_UINT16, 13, None, _bfloat16),
    17: _NumberType(_UINT16, 7, None, _integer),
    19: _NumberType(_UINT16, 13, None, _half),
    22: _NumberType(_UINT32, 16, None, _integer),
    23: _NumberType(Struct("<Q"), 17, None, _unsigned),
}
"""By number in `types.proto`: float, double, int32, uint8, int16, int8, int64, bool, bfloat16, uint16, half, uint32 and
uint64. The others are complex, quantized, or not numbers."""
