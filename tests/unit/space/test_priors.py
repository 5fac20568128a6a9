"""Priors: densities over the unit interval from centers and weights."""

from __future__ import annotations

from statistics import fmean

import pytest
from msgspec import structs

from katib.model.space import SearchSpace, check_assignments
from katib.model.space.priors import UNIFORM_SHARE, Prior
from katib.model.types import (
    AlgorithmSpec,
    ExperimentSpec,
    FeasibleSpace,
    ParameterAssignment,
    ParameterPrior,
    ParameterSpec,
)
from katib.model.validation import find_warnings
from katib.places.machine import open_catalog

LR = FeasibleSpace(min="1e-5", max="1e-1", distribution="logUniform")
CHOICES = FeasibleSpace(list=("adam", "sgd", "lion"))


def prior_of(kind: str, space: FeasibleSpace, prior: ParameterPrior) -> Prior:
    spec = ParameterSpec(name="p", parameter_type=kind, feasible_space=space, prior=prior)
    (found,) = SearchSpace.of([spec]).priors
    return found


PRIORS = {
    "log": prior_of("double", LR, ParameterPrior(center="3e-4", factor="10")),
    "log, usual width": prior_of("double", LR, ParameterPrior(center="3e-4")),
    "at a bound": prior_of("double", LR, ParameterPrior(center="1e-5", factor="2")),
    "linear": prior_of("double", FeasibleSpace(min="0", max="1"), ParameterPrior(center="0.9", width="0.05")),
    "far wider than the space": prior_of(
        "double", FeasibleSpace(min="0", max="1"), ParameterPrior(center="0.9", width="1e9")
    ),
    "a point": prior_of("double", FeasibleSpace(min="0", max="1"), ParameterPrior(center="0.5", width="1e-300")),
    "int": prior_of("int", FeasibleSpace(min="1", max="8"), ParameterPrior(center="3")),
    "numbers": prior_of("discrete", FeasibleSpace(list=("32", "16", "64")), ParameterPrior(center="16.0")),
    "weights": prior_of("categorical", CHOICES, ParameterPrior(weights={"adam": 3, "sgd": 1})),
    "favourite": prior_of("categorical", CHOICES, ParameterPrior(center="sgd")),
}


@pytest.mark.parametrize("name", PRIORS)
def test_a_density_has_mass_one_and_is_never_zero(name: str) -> None:
    densities = [PRIORS[name].density((i + 0.5) / 30_000) for i in range(30_000)]

    assert fmean(densities) == pytest.approx(1.0, abs=1e-3)
    assert min(densities) >= UNIFORM_SHARE


@pytest.mark.parametrize("name", PRIORS)
def test_quantiles_have_the_mass_of_the_density_below_them(name: str) -> None:
    prior = PRIORS[name]
    grid = [(i + 0.5) / 30_000 for i in range(30_000)]
    for v in (0.0, 0.2, 0.5, 0.97, 1.0):
        u = prior.quantile(v)
        below = sum(prior.density(x) for x in grid if x < u) / 30_000

        assert 0.0 <= u <= 1.0
        assert below == pytest.approx((1 - UNIFORM_SHARE) * v + UNIFORM_SHARE * u, abs=0.03)


def test_a_factor_is_a_distance_on_the_logarithmic_axis_and_a_width_on_the_linear_one() -> None:
    assert PRIORS["log"].deviation == pytest.approx(0.25)
    assert PRIORS["linear"].deviation == pytest.approx(0.05)
    assert PRIORS["weights"].shares == (0.75, 0.25, 0.0)


@pytest.mark.parametrize(
    ("kind", "space", "prior"),
    [
        ("double", LR, ParameterPrior(center="7")),
        ("double", LR, ParameterPrior(center="fast")),
        ("double", LR, ParameterPrior(center="1e-3", factor="nan")),
        ("double", LR, ParameterPrior(weights={"1e-3": 1})),
        ("double", FeasibleSpace(min="1", max="1"), ParameterPrior(center="1")),
        ("categorical", CHOICES, ParameterPrior(weights={"rmsprop": 1})),
        ("categorical", CHOICES, ParameterPrior(weights={"adam": 0})),
        ("categorical", CHOICES, ParameterPrior(weights={"adam": float("inf")})),
        ("categorical", CHOICES, ParameterPrior()),
    ],
    ids=lambda value: str(getattr(value, "weights", None) or getattr(value, "center", "") or "")[:20],
)
def test_a_service_does_without_a_prior_that_a_foreign_controller_left_unchecked(
    kind: str, space: FeasibleSpace, prior: ParameterPrior
) -> None:
    spec = ParameterSpec(name="p", parameter_type=kind, feasible_space=space, prior=prior)

    assert SearchSpace.of([spec]).priors == ()


def test_assignments_of_a_parameter_with_weights_are_checked() -> None:
    spec = ParameterSpec(
        name="p", parameter_type="categorical", feasible_space=CHOICES, prior=ParameterPrior(weights={"adam": 3})
    )

    assert check_assignments([spec], [ParameterAssignment(name="p", value="sgd")]) == []
    assert [e.origin for e in check_assignments([spec], [ParameterAssignment(name="p", value="x")])] == [
        "assignment-infeasible"
    ]


@pytest.mark.parametrize(
    ("algorithm", "expected"), [("random", ["prior-unused"]), ("gp", []), ("auto", []), ("cmaes", ["prior-unused"])]
)
def test_one_warning_names_an_algorithm_that_ignores_priors(algorithm: str, expected: list[str]) -> None:
    lr = ParameterSpec(name="lr", parameter_type="double", feasible_space=LR, prior=ParameterPrior(center="1e-3"))
    other = structs.replace(lr, name="other")
    spec = ExperimentSpec(parameters=(lr, other), algorithm=AlgorithmSpec(algorithm_name=algorithm))

    assert [warning.origin for warning in find_warnings(spec, open_catalog())] == expected
