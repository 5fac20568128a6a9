"""Numbers on a page: four significant digits, enough for comparing. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

_DIGITS = 4
_MOST_DIGITS = 17
_LARGEST_PLAIN = 1e12
"""Larger numbers are shown with an exponent, unless they are integers that a float holds exactly."""
_LARGEST_EXACT = 2**53
_SMALLEST_PLAIN = 1e-4


def four_digits(value: float) -> str:
    """Return a number with four significant digits: `0.9813`, `12,346`, `1.235e-07`; whole ones in full."""
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if value.is_integer() and size <= _LARGEST_EXACT:
        return str(int(value))
    if 10**_DIGITS <= size < _LARGEST_PLAIN:
        return f"{value:,.0f}"
    if float(f"{size:.{_DIGITS - 1}e}") >= _SMALLEST_PLAIN and size < 10**_DIGITS:
        text = f"{value:.{_DIGITS}g}"
        return text if "e" not in text else f"{value:.0f}"
    return f"{value:.{_DIGITS - 1}e}" if value else "0"


def told_apart(texts: Sequence[str]) -> list[str]:
    """Return numbers with four significant digits, or with as many as distinguish different ones."""
    shown = list(map(shown_number, texts))
    for digits in range(_DIGITS + 1, _MOST_DIGITS + 1):
        values: dict[str, set[float]] = {}
        for text, one in zip(texts, shown, strict=True):
            values.setdefault(one, set()).add(float(text))
        alike = {one for one, different in values.items() if len(different) > 1}
        if not alike:
            break
        shown = [f"{float(text):.{digits}g}" if one in alike else one for text, one in zip(texts, shown, strict=True)]
    return shown


def shown_number(value: str | float) -> str:
    """Return a text with four significant digits if it is a number, else unchanged."""
    text = str(value)
    if text.lstrip("+-").isdigit():
        return text
    try:
        return four_digits(float(text))
    except ValueError:
        return text
