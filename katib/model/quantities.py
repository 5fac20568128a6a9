"""Kubernetes quantities: `500m`, `2Gi`, `1e3`."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, localcontext

_UNITS: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_SMALL_UNITS = ("", "m", "u", "n")
_PRECISION = 100
"""Digits of a sum; API servers cap values above 2**63."""

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]|[KMGTPE]i)?")


def parse_quantity(value: object) -> Decimal:
    """Return the number in a quantity; YAML may have parsed it already.

    Raises:
        ValueError: It is not a quantity.
    """
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not a quantity such as 500m, 2 or 1.5Gi")
    return Decimal(match.group(1)) * _UNITS[match.group(2) or ""]


def add_quantities(one: object, other: object) -> str:
    """Return the exact sum of two quantities, in their larger unit that gives a whole number.

    A part smaller than a billionth, which Kubernetes cannot write either, is rounded up.

    Raises:
        ValueError: One is not a quantity.
    """
    with localcontext(prec=_PRECISION):
        total = parse_quantity(one) + parse_quantity(other)
        units = sorted({_unit(one), _unit(other)}, key=_UNITS.__getitem__, reverse=True)
        candidates = [*(unit for unit in units if unit not in _SMALL_UNITS), *_SMALL_UNITS]
        unit = next((unit for unit in candidates if total % _UNITS[unit] == 0), "n")
        return f"{(total / _UNITS[unit]).to_integral_value(ROUND_CEILING):f}{unit}"


def _unit(value: object) -> str:
    match = _QUANTITY.fullmatch(str(value).strip())
    return (match and match.group(2)) or ""
