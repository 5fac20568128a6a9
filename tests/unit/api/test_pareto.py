"""Domination, a spread of a front and hypervolume (`katib.model.pareto`)."""

from __future__ import annotations

from itertools import pairwise, product
from math import dist
from random import Random

import pytest

from katib.model.pareto import Point, dominates, front, hypervolume, reference_point, spread


def counted(points: list[Point], side: int) -> float:
    """Return the hypervolume of points with whole costs by counting unit cubes below `side` in each objective."""
    cubes = product(range(side), repeat=len(points[0]))
    return sum(any(all(p <= c for p, c in zip(point, cube, strict=True)) for point in points) for cube in cubes)


def whole_points(seed: int, objectives: int, side: int) -> list[Point]:
    """Return up to twelve points on a lattice, with equal ones and dominated ones among them."""
    random = Random(seed)
    return [tuple(float(random.randrange(side)) for _ in range(objectives)) for _ in range(random.randrange(1, 13))]


def test_a_point_dominates_what_is_nowhere_better_and_somewhere_worse() -> None:
    assert dominates((1, 2), (1, 3))
    assert not dominates((1, 2), (1, 2))
    assert not dominates((1, 3), (2, 2))


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(30))
def test_a_front_is_what_no_other_point_dominates(seed: int, objectives: int) -> None:
    points = whole_points(seed, objectives, 5)

    found = front(points)

    assert sorted(found) == [i for i, p in enumerate(points) if not any(dominates(other, p) for other in points)]
    assert [points[i] for i in found] == sorted(points[i] for i in found)


@pytest.mark.parametrize("objectives", [1, 2, 3])
@pytest.mark.parametrize("seed", range(60))
def test_the_hypervolume_is_exact_up_to_three_objectives(seed: int, objectives: int) -> None:
    points = whole_points(seed, objectives, 6)

    assert hypervolume(points, (6.0,) * objectives) == counted(points, 6)


@pytest.mark.parametrize("seed", range(5))
def test_beyond_three_objectives_it_is_estimated_within_a_few_percent(seed: int) -> None:
    points = whole_points(seed, 4, 6)

    assert hypervolume(points, (6.0,) * 4) == pytest.approx(counted(points, 6), rel=0.06)
    assert hypervolume(points, (6.0,) * 4) == hypervolume(points, (6.0,) * 4)


def test_what_is_not_better_than_the_reference_everywhere_adds_nothing() -> None:
    assert hypervolume([(0, 5), (9, 0)], (5, 5)) == 0
    assert hypervolume([], (5, 5)) == 0


def test_a_spread_shows_both_ends_and_no_crowd() -> None:
    points = [(i / 1000, 1 - i / 1000) for i in range(500)] + [(0.5 + i / 20, 0.5 - i / 20) for i in range(11)]

    shown = [points[i] for i in spread(points, 12)]

    gaps = [after[0] - before[0] for before, after in pairwise(shown)]
    assert len(shown) == 12
    assert shown[0] == (0.0, 1.0)
    assert shown[-1] == (1.0, 0.0)
    assert max(gaps) < 0.2
    assert spread(points[:5], 12) == [0, 1, 2, 3, 4]
    assert spread([(1.0, 1.0)] * 30, 3) == [0, 1, 2]


def one_by_one(points: list[Point], size: int) -> list[int]:
    """Return the spread as it is defined: the point that is farthest from those taken, again and again."""
    order = sorted(range(len(points)), key=lambda i: (points[i], i))
    columns = list(zip(*points, strict=True))
    ranges = [max(costs) - min(costs) or 1.0 for costs in columns]
    scaled = [tuple(cost * (1 / width) for cost, width in zip(point, ranges, strict=True)) for point in points]
    taken = {min(order, key=lambda i: (costs[i], points[i])) for costs in columns}
    while len(taken) < size:
        left = [i for i in order if i not in taken]
        taken.add(max(left, key=lambda i: min(dist(scaled[i], scaled[j]) for j in taken)))
    return [i for i in order if i in taken]


@pytest.mark.parametrize("objectives", [2, 3, 4])
@pytest.mark.parametrize("seed", range(20))
def test_a_spread_takes_the_farthest_point_again_and_again(seed: int, objectives: int) -> None:
    """On a lattice, where many are equally far, and with points that are equal."""
    random = Random(seed)
    points = [tuple(float(random.randrange(6)) for _ in range(objectives)) for _ in range(60)]
    points = [points[i] for i in front(points)] + points[:20]

    assert spread(points, 12) == one_by_one(points, 12)


def test_the_reference_is_a_tenth_of_the_range_beyond_the_worst() -> None:
    assert reference_point([(0.0, 3.0), (10.0, 3.0)]) == (11.0, 3.0)
