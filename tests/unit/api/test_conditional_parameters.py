"""Which conditions of parameters are accepted, and what is said of the others."""

from __future__ import annotations

import pytest

from katib.model.conditional_parameters import check_conditions
from katib.model.search_space import check_search_space
from katib.model.types import ExperimentSpec, FeasibleSpace, NasConfig, Operation, ParameterCondition, ParameterSpec
from tests.support.golden import Golden

SPACES = {
    "optimizer": ("categorical", FeasibleSpace(list=("adam", "sgd", "1"))),
    "units": ("discrete", FeasibleSpace(list=("8", "16", "32"))),
    "layers": ("int", FeasibleSpace(min="1", max="9", step="2")),
    "many": ("int", FeasibleSpace(min="1", max="1000")),
    "rate": ("double", FeasibleSpace(min="0", max="0.5", step="0.1")),
    "free": ("double", FeasibleSpace(min="0", max="1")),
    "fixed": ("double", FeasibleSpace(min="2", max="2")),
    "wrong": ("int", FeasibleSpace(min="x", max="1")),
}


def parameter(name: str, *when: str) -> ParameterSpec:
    kind, space = SPACES.get(name, ("double", FeasibleSpace(min="0", max="1")))
    condition = ParameterCondition(parameter=when[0], values=when[1:]) if when else None
    return ParameterSpec(name=name, parameter_type=kind, feasible_space=space, when=condition)


def errors_of(*parameters: ParameterSpec) -> list[str]:
    return [str(error) for error in check_conditions(parameters, "spec.parameters")]


@pytest.mark.parametrize(
    ("parent", "values"),
    [
        ("optimizer", ("sgd", "1")),
        ("units", ("8.0", "3.2e1")),
        ("layers", ("1", "3.0")),
        ("rate", ("0", "0.3", "5e-1")),
        ("fixed", ("2.0",)),
        ("wrong", ("0",)),
    ],
)
def test_values_of_the_parent_are_accepted_however_a_number_is_spelled(parent: str, values: tuple[str, ...]) -> None:
    assert errors_of(parameter("child", parent, *values), parameter(parent)) == []


@pytest.mark.parametrize(
    ("parent", "value", "remedy"),
    [
        ("optimizer", "sdg", "did you mean sgd? use one of adam, sgd, 1"),
        ("optimizer", "1.0", "use one of adam, sgd, 1"),
        ("units", "9", "use one of 8, 16, 32"),
        ("layers", "2", "use one of 1, 3, 5, 7, 9"),
        ("layers", "11", "use one of 1, 3, 5, 7, 9"),
        ("layers", "many", "use one of 1, 3, 5, 7, 9"),
        ("many", "0", "use 1, 2, ..., 1000"),
        ("rate", "0.25", "use one of 0, 0.1, 0.2, 0.3, 0.4, 0.5"),
        ("fixed", "1", "use 2"),
    ],
)
def test_a_value_that_the_parent_never_has_is_an_error(parent: str, value: str, remedy: str, golden: Golden) -> None:
    [error] = errors_of(parameter(parent), parameter("child", parent, value))

    golden(error)


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param([parameter("x", "")], id="empty"),
        pytest.param([parameter("optimizer"), parameter("x", "optimiser", "sgd")], id="unknown"),
        pytest.param([parameter("x", "free", "0.5"), parameter("free")], id="continuous"),
        pytest.param([parameter("units"), parameter("x", "units", "8", "8.0")], id="twice"),
        pytest.param([parameter("optimizer", "optimizer", "sgd")], id="itself"),
        pytest.param(
            [
                parameter("x", "units", "8"),
                parameter("units", "layers", "1"),
                parameter("layers", "optimizer", "sgd"),
                parameter("optimizer", "units", "8"),
            ],
            id="cycle-told-once",
        ),
    ],
)
def test_a_condition_that_cannot_hold_is_named(parameters: list[ParameterSpec], golden: Golden) -> None:
    golden(errors_of(*parameters))


def test_numbers_of_any_size_are_compared_and_operations_have_no_conditions(golden: Golden) -> None:
    space = FeasibleSpace(min="0", max="1e300", step="1e-999999999")
    parent = ParameterSpec(name="p", parameter_type="double", feasible_space=space)

    assert errors_of(parent, parameter("x", "p", "1e299")) == []

    operation = Operation(operation_type="convolution", parameters=(parameter("units"), parameter("x", "units", "8")))

    golden(list(check_search_space(ExperimentSpec(nas_config=NasConfig(operations=(operation,))))))
