"""Sobol sequences: even, each point alone, within limits."""

from __future__ import annotations

from collections import Counter

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.sobol.sobol import SobolSearch
from tests.support.golden import Golden
from tests.support.searches import algorithm_for, problem_for, texts
from tests.support.suggestion import a_parameter


@pytest.mark.parametrize("k", [0, 1, 7, 1000])
def test_each_point_is_the_same_alone_and_among_others(k: int) -> None:
    settings = {"random_state": 5}
    among = texts(algorithm_for("sobol", settings=settings), [], first=max(k - 3, 0), count=6)
    used = algorithm_for("sobol", settings=settings)
    texts(used, [], first=k + 50, count=2)

    assert texts(algorithm_for("sobol", settings=settings), [], first=k) == [among[k - max(k - 3, 0)]]
    assert texts(used, [], first=k) == [among[k - max(k - 3, 0)]]


def test_seeds_differ() -> None:
    one, other = (texts(algorithm_for("sobol", settings={"random_state": s}), [], first=0, count=4) for s in (1, 2))

    assert one != other


def test_every_part_of_the_space_gets_its_share() -> None:
    points = texts(algorithm_for("sobol"), [], first=0, count=64)

    cells = Counter((int(float(p["x"]) * 8), int(float(p["y"]) * 8)) for p in points)
    assert set(cells.values()) == {1}
    assert len(cells) == 64


def test_every_value_of_a_list_and_a_step_comes_equally_often() -> None:
    parameters = [
        a_parameter("c", pb.CATEGORICAL, list=["a", "b", "c", "d"]),
        a_parameter("i", pb.INT, min="1", max="8"),
        a_parameter("one", pb.INT, min="3", max="3"),
    ]
    points = texts(algorithm_for("sobol", parameters), [], first=0, count=64)

    assert set(Counter(p["c"] for p in points).values()) == {16}
    assert set(Counter(p["i"] for p in points).values()) == {8}
    assert {p["one"] for p in points} == {"3"}


def test_a_logarithmic_parameter_has_as_many_points_in_each_decade() -> None:
    parameters = [a_parameter("lr", min="1e-4", max="1", distribution=pb.LOG_UNIFORM), a_parameter("x")]

    assert sum(float(p["lr"]) < 1e-2 for p in texts(algorithm_for("sobol", parameters), [], first=0, count=64)) == 32


def test_more_parameters_than_the_sequence_has_are_refused(golden: Golden) -> None:
    parameters = [a_parameter(f"x{i}") for i in range(21_202)]
    (error,) = SobolSearch.check(problem_for("sobol", parameters))

    golden(error)
    assert not SobolSearch.check(problem_for("sobol", parameters[:21_201]))
