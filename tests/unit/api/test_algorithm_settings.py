"""Which values of an algorithm's settings are in range, and what an algorithm needs of a search space."""

from __future__ import annotations

import pytest

from katib.engine.algorithm_services.catalog import Catalog
from katib.model.algorithms import AlgorithmInfo, SettingSpec, check_named_parameters, check_settings, find_cut_amounts
from katib.model.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    ExperimentSpec,
    FeasibleSpace,
    ParameterCondition,
    ParameterSpec,
)
from katib.model.validation.algorithm import check_needs
from suggestion_services.algorithms import ENTRIES
from tests.support.golden import Golden

LIMITS = {
    "above": (SettingSpec("x", "float", "", "", above=1), "1.5", "1"),
    "at least": (SettingSpec("x", "float", "", "", at_least=1), "1", "0.5"),
    "below": (SettingSpec("x", "float", "", "", below=1), "0.5", "1"),
    "at most": (SettingSpec("x", "float", "", "", at_most=1), "1", "1.5"),
}


def origins(spec: SettingSpec, value: str) -> list[str]:
    info = AlgorithmInfo("a", "", (spec,))
    return [error.origin for error in check_settings(info, [AlgorithmSetting(name="x", value=value)], "settings")]


BETWEEN = AlgorithmInfo(
    "a", "", (SettingSpec("low", "int", "3", "", at_least=1), SettingSpec("high", "int", "", "", above_setting="low"))
)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"high": "3"}),
        pytest.param({"low": "9", "high": "4"}),
        pytest.param({"low": "x", "high": "1"}),
        pytest.param({"low": "4", "high": "5"}),
        pytest.param({"low": "4"}),
    ],
    ids=["default", "given", "unreadable", "in order", "left out"],
)
def test_one_setting_may_have_to_be_above_another(given: dict[str, str], golden: Golden) -> None:
    settings = [AlgorithmSetting(name=name, value=value) for name, value in given.items()]

    golden("; ".join(map(str, check_settings(BETWEEN, settings, "settings"))))


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_the_last_rung_is_above_the_first(name: str) -> None:
    info = next(entry.info for entry in ENTRIES if entry.info.name == name and entry.info.early_stopping)
    settings = [AlgorithmSetting(name="min_resource", value="9"), AlgorithmSetting(name="max_resource", value="9")]

    assert [error.origin for error in check_settings(info, settings, "settings")] == ["setting-range"]


@pytest.mark.parametrize(("spec", "inside", "outside"), LIMITS.values(), ids=LIMITS)
def test_a_limit_belongs_to_the_range_when_it_says_so(spec: SettingSpec, inside: str, outside: str) -> None:
    assert origins(spec, inside) == []
    assert origins(spec, outside) == ["setting-range"]
    assert origins(spec, "nan") == ["setting-range"]


@pytest.mark.parametrize(
    "epochs", [FeasibleSpace(min="0", max="0.5"), FeasibleSpace(list=("0",))], ids=["below one", "no amount"]
)
def test_the_least_amount_is_one_where_the_parameter_begins_at_nothing(epochs: FeasibleSpace, golden: Golden) -> None:
    settings = [AlgorithmSetting(name="most", value="2"), AlgorithmSetting(name="resource", value="epochs")]
    parameters = [ParameterSpec(name="epochs", parameter_type="double", feasible_space=epochs)]

    (error,) = check_named_parameters(HALVING, settings, parameters, "settings")
    golden(error.cause)


@pytest.mark.parametrize(
    ("most", "epochs"),
    [
        ("27", FeasibleSpace(min="0", max="27")),
        ("nine", FeasibleSpace(min="1", max="27")),
        ("81", FeasibleSpace(min="1", max="")),
        ("81", FeasibleSpace(min="1", max="27")),
        ("10", FeasibleSpace(list=("3", "9"))),
    ],
    ids=["the most", "no number", "no bound", "above", "above all of a list"],
)
def test_an_amount_above_what_trials_get_is_a_warning(most: str, epochs: FeasibleSpace, golden: Golden) -> None:
    settings = [AlgorithmSetting(name="most", value=most), AlgorithmSetting(name="resource", value="epochs")]
    parameters = [ParameterSpec(name="lr"), ParameterSpec(name="epochs", parameter_type="int", feasible_space=epochs)]

    golden(find_cut_amounts(HALVING, settings, parameters, "settings"))


HALVING = AlgorithmInfo(
    "halving",
    "",
    (
        SettingSpec("most", "float", "", "The largest resource.", is_required=True, amount_of="resource"),
        SettingSpec("eta", "float", "3", "", above=1),
        SettingSpec("s_max", "int", "", ""),
        SettingSpec("resource", "text", "", "The parameter that receives it.", is_required=True, names_parameter=True),
    ),
    echoed=("state",),
)
PARAMETERS = [
    ParameterSpec(name="epochs", parameter_type="int", feasible_space=FeasibleSpace(min="0", max="27")),
    ParameterSpec(name="optimizer", parameter_type="categorical"),
    ParameterSpec(name="depth", parameter_type="int", when=ParameterCondition(parameter="optimizer", values=("a",))),
]


def told(**settings: str) -> list[str]:
    given = [AlgorithmSetting(name=name, value=value) for name, value in settings.items()]
    errors = [
        *check_settings(HALVING, given, "settings"),
        *check_named_parameters(HALVING, given, PARAMETERS, "settings"),
    ]
    return list(map(str, errors))


@pytest.mark.parametrize(
    "settings",
    [
        {"most": "9", "resource": "epochs"},
        {"most": "9", "resource": "epochs", "state": "-1"},
        {"most": "3", "resource": "epochs"},
        {"most": "2", "resource": "epochs", "eta": "2"},
        {"most": "2", "resource": "epochs", "s_max": "0"},
        {"resource": "epochs", "most": "2"},
        {"resource": "epochs"},
        {"most": "9", "resource": "epoch"},
        {"most": "9", "resource": "optimizer"},
        {"most": "9", "resource": "depth"},
    ],
    ids=[
        "complete",
        "copied-state",
        "room",
        "room-by-eta",
        "s-max",
        "no-room",
        "missing",
        "misspelled",
        "categorical",
        "conditional",
    ],
)
def test_what_an_algorithm_needs_is_named_with_its_path(settings: dict[str, str], golden: Golden) -> None:
    golden(told(**settings))


def named(name: str, *settings: str, early_stopping: bool = False) -> AlgorithmInfo:
    specs = tuple(SettingSpec(setting, "int", "", "Something.") for setting in settings)
    return AlgorithmInfo(name, settings=specs, early_stopping=early_stopping)


@pytest.mark.parametrize(
    "setting", ["sigma", "seed", "gama", "grace"], ids=["of-one-other", "of-several", "misspelled", "of-early-stopping"]
)
def test_a_setting_of_another_algorithm_is_called_by_its_owner(setting: str, golden: Golden) -> None:
    own = named("tpe", "gamma")
    others = [own, named("cmaes", "sigma", "seed"), named("pbt", "seed"), named("asha", "grace", early_stopping=True)]

    [error] = check_settings(own, [AlgorithmSetting(name=setting, value="1")], "settings", lambda: others)

    golden(error)


def a_spec(algorithm: str, *types: str) -> ExperimentSpec:
    parameters = tuple(ParameterSpec(name=f"p{i}", parameter_type=kind) for i, kind in enumerate(types))
    return ExperimentSpec(algorithm=AlgorithmSpec(algorithm_name=algorithm), parameters=parameters)


@pytest.mark.parametrize("types", [("double",), ("int", "categorical")], ids="-".join)
def test_cmaes_needs_two_parameters_of_numbers(types: tuple[str, ...], golden: Golden) -> None:
    (error,) = check_needs(a_spec("cmaes", *types), Catalog())

    assert error.origin == "algorithm-numeric-parameters"
    golden(error)


def test_grid_needs_a_step_of_each_double(golden: Golden) -> None:
    (error,) = check_needs(a_spec("grid", "int", "double", "categorical"), Catalog())

    assert error.origin == "algorithm-step"
    golden(error)


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
