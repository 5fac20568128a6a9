"""Random search is a function of the seed and the number of the suggestion."""

from __future__ import annotations

from tests.support.searches import algorithm_for


def test_the_kth_point_does_not_depend_on_how_it_was_asked_for() -> None:
    algorithm = algorithm_for("random", settings={"random_state": 1})

    one_by_one = [point for k in range(6) for point in algorithm.suggest([], first=k, count=1)]

    assert list(algorithm.suggest([], first=0, count=6)) == one_by_one
    assert list(algorithm.suggest([], first=4, count=2)) == one_by_one[4:]


def test_the_millionth_point_needs_no_history() -> None:
    points = list(algorithm_for("random").suggest([], first=1_000_000, count=2))

    assert len(points) == 2
    assert points[0] != points[1]


def test_other_seeds_give_other_points() -> None:
    one, other = (algorithm_for("random", settings={"random_state": seed}) for seed in (1, 2))

    assert list(one.suggest([], first=0, count=3)) != list(other.suggest([], first=0, count=3))
