"""Numbers as a page shows them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.ui.numbers import four_digits, shown_number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (32.0, "32"),
        (123_456.0, "123456"),
        (0.981_349, "0.9813"),
        (0.5, "0.5"),
        (9999.7, "10000"),
        (12_345.678, "12,346"),
        (0.000_123_456, "0.0001235"),
        (0.000_099_999_99, "0.0001"),
        (1.23456e-7, "1.235e-07"),
        (1.5e12, "1.500e+12"),
        (-0.123_456, "-0.1235"),
        (math.inf, "inf"),
    ],
)
def test_a_number_has_four_significant_digits(value: float, expected: str) -> None:
    assert four_digits(value) == expected


@given(st.floats(-1e300, 1e300))
def test_what_is_shown_is_the_number_but_for_the_digits_behind_the_fourth(value: float) -> None:
    assert math.isclose(float(four_digits(value).replace(",", "")), value, rel_tol=5.1e-4, abs_tol=0)


def test_other_text_stays() -> None:
    assert [shown_number(text) for text in ("adam", "", "0.123456", "unavailable")] == [
        "adam",
        "",
        "0.1235",
        "unavailable",
    ]
