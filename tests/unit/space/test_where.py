"""Constraints on parameters: their language, and spaces without the points that violate them."""

from __future__ import annotations

from random import Random

import pytest

from katib.errors import InvalidError
from katib.model.space import SearchSpace, check_assignments
from katib.model.space.where import Constraint, parse_constraint
from katib.model.types import FeasibleSpace, ParameterAssignment, ParameterCondition, ParameterSpec
from tests.support.golden import Golden


def a_number(name: str, low: str = "0", high: str = "10", kind: str = "double", step: str = "") -> ParameterSpec:
    return ParameterSpec(
        name=name, parameter_type=kind, feasible_space=FeasibleSpace(min=low, max=high, step=step), default=None
    )


def a_choice(name: str, *values: str, kind: str = "categorical") -> ParameterSpec:
    return ParameterSpec(name=name, parameter_type=kind, feasible_space=FeasibleSpace(list=values))


SPECS = [
    a_number("a"),
    a_number("b"),
    a_number("a-b"),
    a_number("weight-decay"),
    a_number("two words"),
    a_number("n", "1", "8", "int"),
    a_choice("batch", "16", "32", kind="discrete"),
    a_choice("width", "8", "wide"),
    a_choice("size", "8", "16"),
    a_choice("opt", "adam", "sgd", "adam-w"),
    a_choice("amp", "--amp", ""),
]
POINT: dict[str, float | int | str] = {
    "a": 0.1,
    "b": 3.0,
    "a-b": 7.0,
    "weight-decay": 0.5,
    "two words": 2.0,
    "n": 4,
    "batch": "32",
    "width": "wide",
    "size": "16",
    "opt": "adam-w",
    "amp": "",
}


def parsed(text: str) -> Constraint:
    return parse_constraint(text, SPECS)


@pytest.mark.parametrize(
    "text",
    [
        "b <= 3",
        "b>2.9",
        "3 * a <= 0.3",
        "a + a + a == 0.3",
        "n * batch <= 128",
        "n * batch == 128",
        "2 + b * 2 == 8",
        "(2 + b) * 2 == 10",
        "b - n == -1",
        "-b < --b",
        "b / n < 1",
        "1 < b <= n < 5",
        "a - b < 0",
        "a-b == 7",
        "b-a > 2",
        "weight-decay == .5",
        "`two words` == 2e0",
        "size == 16",
        "opt == adam-w",
        "opt == 'adam-w'",
        'opt != "sgd"',
        "adam-w == opt",
        "amp == ''",
        "opt != width",
        "opt == sgd or b == 3",
        "opt == sgd and b == 4 or b == 3",
        "b == 4 OR n == 4 AND a < 1",
    ],
)
def test_a_constraint_holds(text: str) -> None:
    assert parsed(text).holds(POINT)


@pytest.mark.parametrize(
    "text",
    [
        "b < 3",
        "3 * a < 0.3",
        "3 * a != 0.3",
        "1 < b < 3",
        "opt == sgd",
        "opt != adam-w",
        "amp == '--amp'",
        "b / (n - 4) < 1",
        "b / (n - 4) >= 1",
        "b == 4 or b == 5",
        "b == 3 and n == 5",
        "1e308 * 1e308 * b - 1e308 * 1e308 * b == 0",
    ],
)
def test_a_constraint_does_not_hold(text: str) -> None:
    assert not parsed(text).holds(POINT)


def test_values_may_be_texts() -> None:
    texts = {name: str(value) for name, value in POINT.items()}

    assert parsed("n * batch == 128 and opt == adam-w and size <= 16").holds(texts)


def test_a_comparison_of_an_absent_parameter_holds() -> None:
    point = {name: value for name, value in POINT.items() if name != "b"}

    assert parsed("b * n < 0").holds(point)
    assert parsed("b < 1 < n").holds(point)
    assert not parsed("b < 1 and n < 2").holds(point)
    assert not parsed("b < 1 < n < 2").holds(point)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("", "where-syntax"),
        ("a *", "where-syntax"),
        ("a * <= 4", "where-syntax"),
        ("a = 4", "where-syntax"),
        ("a <= (b", "where-syntax"),
        ("a <= b)", "where-syntax"),
        ("a <= 4 $", "where-syntax"),
        ("opt == 'sgd", "where-syntax"),
        ("a + b", "where-syntax"),
        ("1 < 2", "where-syntax"),
        ("a < 1e999", "where-syntax"),
        ("a and b < 1", "where-syntax"),
        ("batc <= 4", "where-unknown"),
        ("opt == sgdd", "where-unknown"),
        ("opt <= sgd", "where-type"),
        ("opt * 2 == 4", "where-type"),
        ("opt == 4", "where-type"),
        ("a == 'x'", "where-type"),
        ("-opt == sgd", "where-type"),
        ("opt == 'rmsprop'", "where-value"),
    ],
)
def test_a_fault_has_its_position(text: str, origin: str, golden: Golden) -> None:
    with pytest.raises(InvalidError) as refused:
        parsed(text)

    (error,) = refused.value.errors
    assert (error.origin, error.path) == (origin, "spec.parameterConstraints")
    golden(str(error))


@pytest.mark.parametrize("text", ["a <= 1" + " " * 500, "(" * 60 + "a" + ")" * 60 + " < 1"], ids=["long", "deep"])
def test_a_text_that_would_need_a_deep_stack_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        parsed(text)

    assert [error.origin for error in refused.value.errors] == ["where-syntax"]


GRID = [a_number("x", "1", "4", "int"), a_number("y", "0", "0.9", step="0.3")]


def test_a_listed_space_has_the_allowed_points_alone() -> None:
    space = SearchSpace.of(GRID, constraints=["x * y <= 0.9"])
    expected = [(x, y / 10) for x in range(1, 5) for y in (0, 3, 6, 9) if x * y <= 9]

    assert [(p["x"], p["y"]) for p in (space.at(i) for i in range(space.size or 0))] == expected
    assert space.share() == len(expected) / 16
    with pytest.raises(IndexError):
        space.at(len(expected))


def test_draws_satisfy_the_constraints() -> None:
    space = SearchSpace.of([a_number("x"), a_number("y")], constraints=["x + y <= 1", "x < y"])
    random = Random(1)

    points = [space.sample(random) for _ in range(200)]

    assert all(p["x"] + p["y"] <= 1 and p["x"] < p["y"] for p in points)  # type: ignore[operator]  # numbers
    assert space.share() == pytest.approx(0.0025, rel=0.3)


def test_conditions_decide_first() -> None:
    child = ParameterSpec(
        name="momentum",
        parameter_type="double",
        feasible_space=FeasibleSpace(min="0", max="1", step="0.5"),
        when=ParameterCondition(parameter="opt", values=("sgd",)),
    )
    space = SearchSpace.of([a_choice("opt", "adam", "sgd"), child], constraints=["momentum >= 0.5"])

    found = [dict(space.active(space.at(i))) for i in range(space.size or 0)]

    assert found == [{"opt": "adam"}, {"opt": "sgd", "momentum": 0.5}, {"opt": "sgd", "momentum": 1.0}]


def test_an_assignment_that_violates_a_constraint_is_refused() -> None:
    def errors(x: str, y: str) -> list[str]:
        assignments = [ParameterAssignment(name="x", value=x), ParameterAssignment(name="y", value=y)]
        return [e.origin for e in check_assignments(GRID, assignments, ["x * y <= 0.9"])]

    assert errors("3", "0.3") == []
    assert errors("4", "0.3") == ["assignment-constraint"]
    assert errors("9", "0.3") == ["assignment-infeasible"]
