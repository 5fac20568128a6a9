"""What bounds, steps, distributions and lists mean."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from random import Random
from statistics import fmean, stdev

import pytest

from katib.errors import InvalidError
from katib.model.space import Parameter, SearchSpace, Value, ValueList, check_assignments
from katib.model.types import FeasibleSpace, ParameterAssignment, ParameterSpec
from tests.support.refusals import refused

DRAWS = 4000


def a_parameter(kind: str, **space: object) -> Parameter:
    spec = ParameterSpec(name="p", parameter_type=kind, feasible_space=FeasibleSpace(**space))  # type: ignore[arg-type]  # fields by name
    return SearchSpace.of([spec]).parameters[0]


def values_of(parameter: Parameter) -> list[Value]:
    return [parameter.at(k) for k in range(parameter.size or 0)]


def draws_from(parameter: Parameter) -> list[float]:
    random = Random(3)
    return [float(parameter.sample(random)) for _ in range(DRAWS)]


@pytest.mark.parametrize(
    ("kind", "space", "expected"),
    [
        pytest.param("int", {"min": "1", "max": "4"}, [1, 2, 3, 4], id="every-int"),
        pytest.param("int", {"min": "1", "max": "5", "step": "3"}, [1, 4], id="from-min-not-multiples-of-the-step"),
        pytest.param("int", {"min": "-3", "max": "-3"}, [-3], id="one-int"),
        pytest.param("int", {"min": "2.0", "max": "1e1", "step": "4"}, [2, 6, 10], id="whole-decimals"),
        pytest.param(
            "double", {"min": "0.1", "max": "0.5", "step": "0.1"}, [0.1, 0.2, 0.3, 0.4, 0.5], id="exact-tenths"
        ),
        pytest.param("double", {"min": "0", "max": "1", "step": "0.4"}, [0.0, 0.4, 0.8], id="short-of-max"),
        pytest.param("double", {"min": "1", "max": "2", "step": "9"}, [1.0], id="step-beyond-max"),
        pytest.param("double", {"min": "1.5", "max": "1.5"}, [1.5], id="one-double"),
        pytest.param("discrete", {"list": ["3", "2.0", "6"]}, ["2.0", "3", "6"], id="discrete-in-order"),
        pytest.param("discrete", {"list": ["b", "a"]}, ["b", "a"], id="discrete-texts"),
        pytest.param("categorical", {"list": ["b", "a", "b"]}, ["b", "a"], id="equal-texts-once"),
    ],
)
def test_a_finite_parameter_lists_its_values(kind: str, space: dict[str, object], expected: list[Value]) -> None:
    parameter = a_parameter(kind, **space)

    assert values_of(parameter) == expected
    assert [type(v) for v in values_of(parameter)] == [type(v) for v in expected]


def test_extreme_bounds_stay_finite_and_points_end() -> None:
    assert a_parameter("double", min="0", max="1").size is None

    parameter = a_parameter("double", min="-1.7e308", max="1.7e308")

    assert all(math.isfinite(float(parameter.from_unit(u))) for u in (0.0, 0.3, 0.5, 1.0))
    assert parameter.to_unit(0.0) == 0.5

    spec = ParameterSpec(name="i", parameter_type="int", feasible_space=FeasibleSpace(min="1", max="3"))

    with pytest.raises(IndexError, match="3 points"):
        SearchSpace.of([spec]).at(3)

    assert a_parameter("discrete", list=["10", "9"]) == ValueList("p", ("9", "10"), ordered=True)
    assert a_parameter("categorical", list=["10", "9"]) == ValueList("p", ("10", "9"))


def test_every_int_is_equally_likely_also_at_the_ends() -> None:
    counts = Counter(draws_from(a_parameter("int", min="1", max="5")))

    assert all(abs(count - DRAWS / 5) < 5 * math.sqrt(DRAWS / 5) for count in counts.values())


def test_log_uniform_draws_have_the_weight_of_the_log_axis_also_at_the_ends() -> None:
    counts = Counter(draws_from(a_parameter("int", min="1", max="8", distribution="logUniform")))
    axis = math.log(8.5 / 0.5)

    assert counts[1] / DRAWS == pytest.approx(math.log(1.5 / 0.5) / axis, abs=0.03)
    assert counts[8] / DRAWS == pytest.approx(math.log(8.5 / 7.5) / axis, abs=0.03)

    draws = draws_from(a_parameter("double", min="1e-4", max="1", distribution="logUniform"))
    decades = Counter(math.floor(math.log10(x)) for x in draws)

    assert all(abs(decades[d] - DRAWS / 4) < 150 for d in (-4, -3, -2, -1))


def test_normal_has_its_mean_in_the_middle_and_a_sixth_of_the_range_as_deviation() -> None:
    draws = draws_from(a_parameter("double", min="1", max="5", distribution="normal"))

    assert fmean(draws) == pytest.approx(3.0, abs=0.05)
    assert stdev(draws) == pytest.approx(4 / 6, rel=0.05)
    assert min(draws) >= 1
    assert max(draws) <= 5


def test_log_normal_is_normal_on_the_log_axis() -> None:
    logs = [math.log(x) for x in draws_from(a_parameter("double", min="1", max="100", distribution="logNormal"))]

    assert fmean(logs) == pytest.approx(math.log(10), abs=0.06)
    assert stdev(logs) == pytest.approx(math.log(100) / 6, rel=0.05)


@pytest.mark.parametrize("distribution", ["", "uniform", "logUniform", "normal", "logNormal", "unknown"])
@pytest.mark.parametrize("step", ["", "3"], ids=["no-step", "step"])
@pytest.mark.parametrize("kind", ["int", "double"])
def test_no_draw_leaves_the_feasible_space(kind: str, step: str, distribution: str) -> None:
    parameter = a_parameter(kind, min="1", max="11", step=step, distribution=distribution)
    random = Random(5)

    texts = [parameter.format(parameter.sample(random)) for _ in range(300)]

    assert [text for text in texts if not parameter.contains(text)] == []


@pytest.mark.parametrize(
    ("kind", "space", "text", "expected"),
    [
        pytest.param("double", {"min": "0", "max": "1"}, "1e-05", 1e-05, id="scientific"),
        pytest.param("double", {"min": "0", "max": "0.3"}, "0.30000000000000004", 0.3, id="rounding-beyond-max"),
        pytest.param(
            "double", {"min": "0", "max": "1", "step": "0.1"}, "0.30000000000000004", 0.3, id="rounding-off-step"
        ),
        pytest.param("int", {"min": "1", "max": "5"}, "3.0", 3, id="whole-decimal"),
        pytest.param("discrete", {"list": ["2", "4"]}, "2.0", "2", id="the-listed-spelling"),
    ],
)
def test_other_spellings_of_a_feasible_value_are_understood(
    kind: str, space: dict[str, object], text: str, expected: Value
) -> None:
    assert a_parameter(kind, **space).parse(text) == expected


@pytest.mark.parametrize(
    ("kind", "space", "text"),
    [
        pytest.param("double", {"min": "0", "max": "1"}, "1.1", id="above"),
        pytest.param("double", {"min": "0", "max": "1"}, "nan", id="nan"),
        pytest.param("double", {"min": "0", "max": "1"}, "", id="empty"),
        pytest.param("double", {"min": "0", "max": "1", "step": "0.1"}, "0.25", id="off-step"),
        pytest.param("int", {"min": "1", "max": "5"}, "2.5", id="fraction"),
        pytest.param("int", {"min": "1", "max": "5"}, "0", id="below"),
        pytest.param("discrete", {"list": ["2", "4"]}, "3", id="not-listed"),
        pytest.param("categorical", {"list": ["2", "4"]}, "2.0", id="categories-are-texts"),
    ],
)
def test_what_is_not_in_the_space_is_refused(kind: str, space: dict[str, object], text: str) -> None:
    assert not a_parameter(kind, **space).contains(text)


@pytest.mark.parametrize(
    ("kind", "space", "origin"),
    [
        pytest.param("double", {"min": "2", "max": "1"}, "bounds-order", id="order"),
        pytest.param("double", {"max": "1"}, "bounds-missing", id="missing"),
        pytest.param("double", {"min": "low", "max": "1"}, "bound-not-number", id="text"),
        pytest.param("double", {"min": "-inf", "max": "1"}, "bound-not-number", id="infinite"),
        pytest.param("double", {"min": "1e-999999999", "max": "x" * 5}, "bound-not-number", id="endless-exponent"),
        pytest.param("int", {"min": "0.5", "max": "1"}, "bound-not-whole", id="fraction"),
        pytest.param("int", {"min": "0", "max": "9" * 5000}, "bound-not-number", id="too-many-digits"),
        pytest.param("int", {"min": "0", "max": str(2**63)}, "bound-not-whole", id="beyond-64-bits"),
        pytest.param("int", {"min": "0", "max": "5", "step": "0"}, "step-not-positive", id="step-zero"),
        pytest.param("double", {"min": "0", "max": "5", "step": "-1"}, "step-not-positive", id="step-negative"),
        pytest.param(
            "double", {"min": "0", "max": "5", "distribution": "logUniform"}, "bound-not-logarithmic", id="log-of-zero"
        ),
        pytest.param(
            "int", {"min": "-1", "max": "5", "distribution": "logNormal"}, "bound-not-logarithmic", id="log-of-negative"
        ),
        pytest.param(
            "double", {"min": "0", "max": "5", "distribution": "cauchy"}, "distribution-unknown", id="distribution"
        ),
        pytest.param("categorical", {}, "feasible-space-empty", id="empty-list"),
        pytest.param("unknown", {"list": ["a"]}, "parameter-type", id="type"),
    ],
)
def test_nonsense_is_refused_by_rule(kind: str, space: dict[str, object], origin: str) -> None:
    with refused(origin):
        a_parameter(kind, **space)


def test_a_refusal_says_where() -> None:
    with pytest.raises(InvalidError) as caught:
        a_parameter("double", min="10", max="1")

    assert [error.path for error in caught.value.errors] == ["spec.parameters[0].feasibleSpace.min"]


@pytest.mark.parametrize(
    ("kind", "space", "size"),
    [("categorical", {"list": ["a", "b", "a"]}, 2), ("int", {"min": "1", "max": "3", "step": "5"}, 1)],
    ids=["listed twice", "wide step"],
)
def test_what_does_no_harm_passes(kind: str, space: dict[str, object], size: int) -> None:
    """Another controller may have accepted it."""
    assert a_parameter(kind, **space).size == size


def test_a_grid_of_a_billion_points_is_never_built() -> None:
    names = "abcdef"
    specs = [
        ParameterSpec(name=n, parameter_type="int", feasible_space=FeasibleSpace(min="1", max="1000")) for n in names
    ]
    space = SearchSpace.of(specs)

    assert space.size == 10**18
    assert space.at(10**18 - 1) == dict.fromkeys(names, 1000)
    assert space.at(1) == {**dict.fromkeys(names, 1), "f": 2}


def test_importing_the_space_needs_no_numerical_library() -> None:
    code = "import sys, katib.model.space; print(sorted({'numpy', 'scipy', 'optuna'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_grid_finer_than_its_floats_understands_its_own_texts() -> None:
    parameter = a_parameter("double", min="0.59375", max="68719476737.0", step="0.001")
    value = parameter.from_unit(1.0)

    assert parameter.parse(parameter.format(value)) == value


SPECS = (
    ParameterSpec(name="x", parameter_type="double", feasible_space=FeasibleSpace(min="0", max="1", step="0.25")),
    ParameterSpec(name="n", parameter_type="int", feasible_space=FeasibleSpace(min="1", max="5")),
    ParameterSpec(name="c", parameter_type="categorical", feasible_space=FeasibleSpace(list=("a", "b"))),
    ParameterSpec(
        name="z", parameter_type="double", feasible_space=FeasibleSpace(min="0", max="1", distribution="normal")
    ),
)
GOOD = {"x": "0.5", "n": "3", "c": "a", "z": "0.5"}


def origins(values: dict[str, str], *more: tuple[str, str]) -> list[str]:
    assignments = [ParameterAssignment(name=name, value=value) for name, value in [*values.items(), *more]]
    return [error.origin for error in check_assignments(SPECS, assignments)]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="as-suggested"),
        pytest.param({"x": "5e-01"}, id="scientific"),
        pytest.param({"n": "3.0"}, id="whole-decimal"),
        pytest.param({"x": "0.3"}, id="between-steps"),
        pytest.param({"z": "1.3"}, id="normal-beyond-the-bound"),
    ],
)
def test_a_usable_reply_has_no_errors(change: dict[str, str]) -> None:
    assert origins({**GOOD, **change}) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"x": "1.5"}, "assignment-infeasible", id="out-of-bounds"),
        pytest.param({"x": "nan"}, "assignment-infeasible", id="nan"),
        pytest.param({"x": ""}, "assignment-infeasible", id="empty"),
        pytest.param({"n": "2.5"}, "assignment-infeasible", id="fraction"),
        pytest.param({"n": "6"}, "assignment-infeasible", id="int-out-of-bounds"),
        pytest.param({"c": "d"}, "assignment-infeasible", id="not-listed"),
        pytest.param({"z": "inf"}, "assignment-infeasible", id="normal-but-infinite"),
        pytest.param({"y": "1"}, "assignment-unknown", id="unknown-parameter"),
    ],
)
def test_a_malformed_value_is_one_error(change: dict[str, str], expected: str) -> None:
    assert origins({**GOOD, **change}) == [expected]


def test_missing_and_repeated_parameters_are_errors() -> None:
    values = {name: value for name, value in GOOD.items() if name != "c"}

    assert origins(values, ("n", "3")) == ["assignment-missing", "assignment-duplicate"]

    assert origins({}) == ["assignment-missing"] * len(SPECS)
