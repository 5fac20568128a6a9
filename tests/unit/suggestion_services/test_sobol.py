"""Sobol sequences: even, each point alone, within limits."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.grid.grid import GridSearch, Permutation
from suggestion_services.sobol.sobol import SobolSearch
from tests.support.golden import Golden
from tests.support.refusals import INVALID, refusal
from tests.support.searches import algorithm_for, problem_for, texts
from tests.support.suggestion import a_parameter, an_experiment, served_here


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


# --- Grid search tries every combination once and then says that it is done -------------------------------------------


PARAMETERS = [
    a_parameter("i", pb.INT, min="1", max="5", step="2"),
    a_parameter("c", pb.CATEGORICAL, list=["a", "b"]),
    a_parameter("x", min="0.1", max="0.3", step="0.1"),
]
COMBINATIONS = list(itertools.product(["1", "3", "5"], ["a", "b"], ["0.1", "0.2", "0.3"]))


def combinations(settings: dict[str, object]) -> list[tuple[str, ...]]:
    points = texts(algorithm_for("grid", PARAMETERS, settings=settings), [], first=0, count=100)
    return [tuple(point.values()) for point in points]


def test_without_a_seed_the_order_is_the_natural_one() -> None:
    assert combinations({}) == COMBINATIONS


def test_with_a_seed_the_order_is_shuffled_and_complete() -> None:
    shuffled = combinations({"random_state": 1})

    assert sorted(shuffled) == sorted(COMBINATIONS)
    assert shuffled != COMBINATIONS
    assert shuffled == combinations({"random_state": 1})
    assert shuffled != combinations({"random_state": 2})


def test_the_end_of_the_grid_is_said_on_the_wire() -> None:
    experiment = an_experiment("grid", PARAMETERS)
    with served_here("grid") as service:
        assert len(service.ask(experiment, count=10, first=0)) == 10
        assert not service.exhausted
        assert len(service.ask(experiment, count=10, first=10)) == 8
        assert service.exhausted
        assert service.ask(experiment, count=1, first=18) == []
        assert service.exhausted


def test_taking_exactly_the_last_combination_is_not_yet_the_end() -> None:
    with served_here("grid") as service:
        assert len(service.ask(an_experiment("grid", PARAMETERS), count=8, first=10)) == 8
        assert not service.exhausted


@pytest.mark.parametrize("settings", [{}, {"random_state": 1}], ids=["natural", "shuffled"])
def test_a_huge_grid_is_walked_without_building_it(settings: dict[str, object]) -> None:
    parameters = [a_parameter(f"p{i}", pb.INT, min="1", max="1000") for i in range(40)]
    algorithm = algorithm_for("grid", parameters, settings=settings)

    assert len({tuple(point.values()) for point in texts(algorithm, [], first=10**9, count=5)}) == 5


@given(st.integers(1, 3000), st.integers(0, 5))
def test_a_permutation_has_every_number_once(n: int, seed: int) -> None:
    order = Permutation(n, str(seed))

    assert sorted(order[k] for k in range(n)) == list(range(n))


def test_a_permutation_spreads_neighbors() -> None:
    n = 10_000
    order = Permutation(n, "seed")
    distance = sum(abs(order[k] - order[k + 1]) for k in range(1000)) / 1000

    assert distance == pytest.approx(n / 3, rel=0.1)  # what independent numbers have on average


def test_a_budget_beyond_the_grid_is_refused_and_one_within_is_not(golden: Golden) -> None:
    square = [a_parameter(name, pb.INT, min="1", max="5") for name in "ij"]
    (error,) = GridSearch.check(problem_for("grid", square, max_trial_count=26))

    golden(error)
    assert not GridSearch.check(problem_for("grid", square, max_trial_count=25))
    assert not GridSearch.check(problem_for("grid", square))


def test_a_double_without_step_is_refused_by_name() -> None:
    experiment = an_experiment("grid", [a_parameter("lr"), a_parameter("i", pb.INT, min="1", max="2")])
    with served_here("grid") as service:
        code, details = refusal(service.validate, experiment)

    assert code == INVALID
    assert "lr has no step" in details


# --- Random search is a function of the seed and the number of the suggestion -----------------------------------------


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
