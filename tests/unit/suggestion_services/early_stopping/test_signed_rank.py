"""The signed-rank test."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suggestion_services.early_stopping.wilcoxon import p_value


def by_enumeration(differences: list[int]) -> float:
    """Return the p-value by trying every assignment of signs."""
    ordered = sorted(abs(d) for d in differences)
    rank = {size: (2 * ordered.index(size) + ordered.count(size) + 1) / 2 for size in ordered}
    left = [d for d in differences if d]
    observed = sum(rank[abs(d)] for d in left if d > 0)
    sums = [
        sum(rank[abs(d)] for d, sign in zip(left, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(left))
    ]
    return sum(total >= observed for total in sums) / len(sums)


@settings(max_examples=40)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_it_is_exact_with_ties_and_zeros(differences: list[int]) -> None:
    assert p_value([float(d) for d in differences]) == pytest.approx(by_enumeration(differences))


def test_the_table_of_the_paper_is_met() -> None:
    """All of n differences of one sign: 1 / 2^n."""
    assert [p_value([1.0 + i for i in range(n)]) for n in (3, 5, 8)] == [1 / 8, 1 / 32, 1 / 256]
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([]) == 1.0


def test_many_differences_are_close_to_the_exact_value() -> None:
    some = [(-1.0) ** (i % 3 == 0) * (1 + i * 37 % 61) for i in range(25)]

    exact, normal = p_value(some), p_value([*some, 0.5])

    assert normal == pytest.approx(exact, rel=0.1)
