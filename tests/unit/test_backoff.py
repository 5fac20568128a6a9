"""Pauses between attempts: a pure function of how many failed."""

from __future__ import annotations

import pytest

from katib.errors import Backoff


def test_pauses_double_up_to_their_bound() -> None:
    backoff = Backoff(0.05, 15.0)

    assert [backoff.pause_seconds(failures) for failures in (0, 1, 2, 3, 9, 10, 2000)] == [
        0.0,
        0.05,
        0.1,
        0.2,
        12.8,
        15.0,
        15.0,
    ]


def test_the_factor_can_be_another() -> None:
    assert [Backoff(1, 100, factor=4).pause_seconds(failures) for failures in (1, 2, 3, 4, 5)] == [1, 4, 16, 64, 100]


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 8.0), (0.5, 6.0), (1.0, 4.0)])
def test_chance_takes_away_at_most_the_jitter(chance: float, seconds: float) -> None:
    assert Backoff(8, 8, jitter=0.5).pause_seconds(3, chance) == seconds


def test_the_first_pause_is_bounded_too() -> None:
    assert Backoff(60, 10).pause_seconds(1) == 10
