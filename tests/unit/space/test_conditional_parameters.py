"""Search spaces in which a parameter has a value only next to certain values of another."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from katib.errors import InvalidError
from katib.model.space import SearchSpace, check_assignments
from katib.model.types import FeasibleSpace, ParameterAssignment, ParameterCondition, ParameterSpec
from tests.support.golden import Golden


def listed(name: str, *values: str, when: tuple[str, ...] = ()) -> ParameterSpec:
    return ParameterSpec(
        name=name,
        parameter_type="categorical",
        feasible_space=FeasibleSpace(list=values),
        when=ParameterCondition(parameter=when[0], values=when[1:]) if when else None,
    )


def whole(name: str, low: int, high: int, *, when: tuple[str, ...] = ()) -> ParameterSpec:
    space = FeasibleSpace(min=str(low), max=str(high))
    spec = ParameterSpec(name=name, parameter_type="int", feasible_space=space)
    return structs.replace(spec, when=ParameterCondition(parameter=when[0], values=when[1:])) if when else spec


OPTIMIZERS = (
    listed("nesterov", "yes", "no", when=("momentum", "2", "3")),
    listed("optimizer", "adam", "sgd", "none"),
    whole("momentum", 1, 3, when=("optimizer", "sgd")),
    whole("layers", 1, 2),
)
"""A child before its parent, and a child of a child."""


def texts(space: SearchSpace, k: int) -> dict[str, str]:
    return space.format(space.at(k))


def test_a_grid_counts_and_lists_each_different_point_once_with_parents_before_children() -> None:
    space = SearchSpace.of(OPTIMIZERS)
    shown = [" ".join(texts(space, k).values()) for k in range(space.size or 0)]

    assert shown == [
        "adam 1",
        "adam 2",
        "sgd 1 1",
        "sgd 1 2",
        "yes sgd 2 1",
        "yes sgd 2 2",
        "no sgd 2 1",
        "no sgd 2 2",
        "yes sgd 3 1",
        "yes sgd 3 2",
        "no sgd 3 1",
        "no sgd 3 2",
        "none 1",
        "none 2",
    ]


def test_a_point_of_a_huge_grid_is_found_without_listing_it() -> None:
    last = 10**15
    space = SearchSpace.of([whole("a", 1, last), whole("b", 1, last, when=("a", "5", str(last))), whole("c", 0, 9)])

    assert space.size == (last - 2 + 2 * last) * 10
    assert texts(space, 39) == {"a": "4", "c": "9"}
    assert texts(space, 40 + 10 * last - 1) == {"a": "5", "b": str(last), "c": "9"}
    assert texts(space, space.size - 1) == {"a": str(last), "b": str(last), "c": "9"}
    with pytest.raises(IndexError, match="there is none at"):
        space.at(space.size)


def test_equal_trials_have_equal_whole_points_and_one_that_lacks_a_parameter_none() -> None:
    space = SearchSpace.of(OPTIMIZERS)
    trial = {"optimizer": "adam", "layers": "2"}

    assert space.nearest(trial.items()) == space.nearest({**trial, "momentum": "3", "nesterov": "no"}.items())
    assert space.nearest(trial.items()) == {"nesterov": "no", "optimizer": "adam", "momentum": 2, "layers": 2}

    space = SearchSpace.of(OPTIMIZERS)

    assert space.nearest({"optimizer": "sgd", "layers": "2"}.items()) is None
    assert space.nearest({"layers": "2"}.items()) is None


def test_draws_keep_their_number_of_random_numbers_whatever_is_absent() -> None:
    """Otherwise a condition on one parameter would change the draws of the parameters after it."""
    free = SearchSpace.of([structs.replace(spec, when=None) for spec in OPTIMIZERS])
    space = SearchSpace.of(OPTIMIZERS)
    for seed in range(20):
        point, other = space.sample(Random(seed)), free.sample(Random(seed))

        assert dict(space.active(point)) == {name: other[name] for name in space.active(point)}
        assert point == space.complete(space.active(point))


def test_values_are_compared_as_numbers_and_absent_ones_dropped(golden: Golden) -> None:
    space = SearchSpace.of([whole("a", 1, 3), whole("b", 1, 3, when=("a", "2.0"))])

    assert space.active({"a": 2, "b": 1}) == {"a": 2, "b": 1}
    assert space.active({"a": 1, "b": 1}) == {"a": 1}

    space = SearchSpace.of(OPTIMIZERS)
    given = {"optimizer": "none", "momentum": "3", "nesterov": "yes", "layers": "1", "epochs": "9"}

    assert space.drop_absent(given) == {"optimizer": "none", "layers": "1", "epochs": "9"}

    with pytest.raises(InvalidError) as refused:
        SearchSpace.of([whole("a", 1, 3, when=("b", "1"))])

    golden(refused.value)


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        pytest.param({"optimizer": "adam", "layers": "1"}, [], id="absent"),
        pytest.param({"optimizer": "sgd", "momentum": "1.0", "layers": "1"}, [], id="child"),
        pytest.param({"optimizer": "sgd", "momentum": "2", "nesterov": "no", "layers": "1"}, [], id="grandchild"),
        pytest.param({"optimizer": "sgd", "layers": "1"}, ["assignment-missing"], id="child-missing"),
        pytest.param(
            {"optimizer": "adam", "momentum": "2", "layers": "1"}, ["assignment-not-absent"], id="child-not-absent"
        ),
        pytest.param(
            {"optimizer": "adam", "nesterov": "no", "layers": "1"}, ["assignment-not-absent"], id="grandchild-alone"
        ),
    ],
)
def test_absent_parameters_have_no_assignment_and_present_ones_have(
    assignments: dict[str, str], expected: list[str]
) -> None:
    given = [ParameterAssignment(name=name, value=value) for name, value in assignments.items()]

    assert [error.origin for error in check_assignments(OPTIMIZERS, given)] == expected


def test_a_value_that_should_be_absent_is_said_in_one_line(golden: Golden) -> None:
    given = [
        ParameterAssignment(name=n, value=v) for n, v in [("optimizer", "none"), ("momentum", "2"), ("layers", "1")]
    ]

    golden(check_assignments(OPTIMIZERS, given))
