"""What an algorithm needs of a search space is checked when an experiment is submitted."""

from __future__ import annotations

import pytest

from katib.algorithm_services.catalog import Catalog
from katib.api.types import AlgorithmSpec, ExperimentSpec, ParameterSpec
from katib.api.validation.algorithm import check_needs


def a_spec(algorithm: str, *types: str) -> ExperimentSpec:
    parameters = tuple(ParameterSpec(name=f"p{i}", parameter_type=kind) for i, kind in enumerate(types))
    return ExperimentSpec(algorithm=AlgorithmSpec(algorithm_name=algorithm), parameters=parameters)


@pytest.mark.parametrize("types", [("double",), ("int", "categorical")], ids="-".join)
def test_cmaes_needs_two_parameters_of_numbers(types: tuple[str, ...]) -> None:
    (error,) = check_needs(a_spec("cmaes", *types), Catalog())

    assert error.origin == "algorithm-numeric-parameters"
    assert str(error) == (
        "spec.parameters: cmaes needs at least 2 parameters whose values are numbers, not 1; "
        "use tpe, which searches any space"
    )


def test_grid_needs_a_step_of_each_double() -> None:
    (error,) = check_needs(a_spec("grid", "int", "double", "categorical"), Catalog())

    assert error.origin == "algorithm-step"
    assert str(error) == (
        "spec.parameters[1].feasibleSpace.step: it is missing, and grid tries every value of p1; "
        "give a step, or use an algorithm that needs none, such as tpe"
    )


@pytest.mark.parametrize(
    "spec",
    [
        a_spec("cmaes", "double", "int"),
        a_spec("cmaes", "discrete", "int", "categorical"),
        a_spec("tpe", "categorical"),
        a_spec("cmaes"),
        a_spec("unknown", "categorical"),
        ExperimentSpec(),
    ],
    ids=["two", "discrete", "another-algorithm", "no-parameters", "unknown", "empty"],
)
def test_others_are_accepted(spec: ExperimentSpec) -> None:
    assert list(check_needs(spec, Catalog())) == []
