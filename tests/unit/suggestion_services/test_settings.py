"""Settings become numbers, or are refused in the words that Katib's users know."""

from __future__ import annotations

import pytest
from msgspec import structs

from katib.errors import InvalidError
from katib.model.algorithms import AlgorithmInfo, check_settings
from katib.model.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    ExperimentSpec,
    FeasibleSpace,
    GraphConfig,
    NasConfig,
    Operation,
    ParameterSpec,
)
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.base import Problem
from suggestion_services.base.settings import read_settings
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.suggestion import REQUIRED

SPACE = (
    ParameterSpec(name="i", parameter_type="int", feasible_space=FeasibleSpace(min="1", max="5")),
    ParameterSpec(name="j", parameter_type="int", feasible_space=FeasibleSpace(min="1", max="5")),
)

AN_ARCHITECTURE = NasConfig(
    graph_config=GraphConfig(num_layers=1, input_sizes=(8,), output_sizes=(2,)),
    operations=(Operation(operation_type="pool", parameters=SPACE),),
)


def a_spec(algorithm: str, *settings: tuple[str, str]) -> ExperimentSpec:
    chosen = {**{name: str(value) for name, value in REQUIRED.get(algorithm, {}).items()}, **dict(settings)}
    given = tuple(AlgorithmSetting(name=name, value=value) for name, value in chosen.items())
    return ExperimentSpec(parameters=SPACE, algorithm=AlgorithmSpec(algorithm_name=algorithm, algorithm_settings=given))


def refusal(algorithm: str, *settings: tuple[str, str]) -> str:
    with pytest.raises(InvalidError) as caught:
        Problem.of("demo", a_spec(algorithm, *settings), find_entry(algorithm).info)
    return "; ".join(map(str, caught.value.errors))


@pytest.mark.parametrize(
    ("algorithm", "name", "value"),
    [
        ("tpe", "gama", "0.5"),
        ("random", "gamma", "0.5"),
        ("bayesianoptimization", "kappa", "1"),
        ("tpe", "gamma", "1.5"),
        ("tpe", "gamma", "0"),
        ("tpe", "prior_weight", "-1"),
        ("tpe", "n_EI_candidates", "0"),
        ("tpe", "random_state", "-1"),
        ("random", "random_state", "-1"),
        ("bayesianoptimization", "random_state", "-1"),
        ("bayesianoptimization", "n_initial_points", "-1"),
        ("bayesianoptimization", "acq_func", "UCB"),
        ("bayesianoptimization", "base_estimator", "gp"),
        ("bayesianoptimization", "acq_optimizer", "adam"),
        ("tpe", "gamma", "x"),
        ("random", "random_state", "1.5"),
        ("tpe", "prior_weight", "inf"),
        ("tpe", "n_startup_trials", "-1"),
        ("multivariate-tpe", "n_ei_candidate", "1"),
        ("tpe", "n_ei_candidates", "9999999"),
    ],
)
def test_a_wrong_setting_is_refused_literally(algorithm: str, name: str, value: str, golden: Golden) -> None:
    golden(refusal(algorithm, (name, value)))


def test_all_wrong_settings_are_named_at_once() -> None:
    expected = "gamma should be in the range of (0, 1); unknown setting speed for algorithm tpe"

    assert refusal("tpe", ("gamma", "2"), ("speed", "1")) == expected


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.info.early_stopping], ids=lambda e: e.info.name)
def test_every_declared_setting_is_accepted_with_its_default(entry: object) -> None:
    info = entry.info  # type: ignore[attr-defined]  # an Entry
    defaults = [(s.name, s.default) for s in info.settings if s.default]

    settings = read_settings(info, a_spec(info.name, *defaults).algorithm.algorithm_settings)
    spec = a_spec(info.name, *defaults)
    if info.graph_fields:
        spec = structs.replace(spec, parameters=(), nas_config=AN_ARCHITECTURE)
    settings = Problem.of("demo", spec, info).settings

    assert [settings.get(name) is not None for name, _ in defaults] == [True] * len(defaults)


def test_two_names_of_one_setting_must_agree() -> None:
    entry = find_entry("tpe")
    problem = Problem.of("demo", a_spec("tpe", ("n_ei_candidates", "5"), ("n_EI_candidates", "6")), entry.info)

    assert [error.origin for error in entry.load().check(problem)] == ["setting-conflict"]


# --- The seed of a search, under both of its names, for every algorithm -----------------------------------------------


SEARCHES = [entry.info for entry in ENTRIES if not entry.info.early_stopping]


def settings(**values: object) -> list[AlgorithmSetting]:
    return [AlgorithmSetting(name=name, value=str(value)) for name, value in values.items()]


@pytest.mark.parametrize("info", SEARCHES, ids=lambda info: info.name)
def test_every_algorithm_has_a_seed(info: AlgorithmInfo) -> None:
    assert [spec.name for spec in info.settings or () if spec.name == "seed"] == ["seed"]
    assert {error.origin for error in check_settings(info, settings(seed=3), "s")} <= {"setting-missing"}
    assert read_settings(info, settings(seed=3)).get("seed") == 3


def test_two_seeds_that_differ_are_refused_in_both_places(golden: Golden) -> None:
    info, both = SEARCHES[0], settings(seed=3, random_state=4)

    golden(check_settings(info, both, "spec.algorithm.algorithmSettings"))
    with refused("setting-conflict"):
        read_settings(info, both)


def test_the_same_seed_twice_is_no_contradiction() -> None:
    assert check_settings(SEARCHES[0], settings(seed=3, random_state=3), "s") == []
