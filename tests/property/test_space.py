"""Laws of the feasible space, for any bounds, steps, distributions and lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from katib.errors import InvalidError
from katib.model.space import Parameter, SearchSpace, check_assignments
from katib.model.space.build import build_parameter
from katib.model.types import FeasibleSpace, ParameterAssignment, ParameterSpec

DISTRIBUTIONS = st.sampled_from(["", "uniform", "normal"])
LOG_DISTRIBUTIONS = st.sampled_from(["logUniform", "logNormal"])
UNITS = st.floats(0.0, 1.0)
FLOATS = st.floats(-1e12, 1e12)
POSITIVE = st.floats(1e-9, 1e12)
WHOLE = st.integers(-(10**5), 10**5)
TEXTS = st.one_of(st.text(max_size=12), st.floats().map(repr), st.integers().map(str))


@st.composite
def specs(draw: st.DrawFn, *, stepped: bool | None = None) -> ParameterSpec:
    """Return a valid specification of one parameter."""
    kind = draw(st.sampled_from(["int", "double", "list"]))
    if kind == "list":
        values = draw(st.lists(TEXTS, min_size=1, max_size=8))
        kind = draw(st.sampled_from(["categorical", "discrete"]))
        return ParameterSpec(name="p", parameter_type=kind, feasible_space=FeasibleSpace(list=tuple(values)))
    log = draw(st.booleans())
    if kind == "int":
        numbers = st.integers(1, 10**5) if log else WHOLE
        steps = st.integers(1, 1000).map(str)
    else:
        numbers = POSITIVE if log else FLOATS
        steps = st.sampled_from(["0.001", "0.1", "0.25", "7", "1e6"])
    low, high = sorted((draw(numbers), draw(numbers)))
    has_step = draw(st.booleans()) if stepped is None else stepped
    space = FeasibleSpace(
        min=repr(low),
        max=repr(high),
        step=draw(steps) if has_step else "",
        distribution=draw(LOG_DISTRIBUTIONS if log else DISTRIBUTIONS),
    )
    return ParameterSpec(name="p", parameter_type=kind, feasible_space=space)


def built(spec: ParameterSpec) -> Parameter:
    return SearchSpace.of([spec]).parameters[0]


@given(specs(), UNITS)
def test_every_place_is_a_feasible_value_that_survives_its_text(spec: ParameterSpec, u: float) -> None:
    parameter = built(spec)
    value = parameter.from_unit(u)

    assert parameter.parse(parameter.format(value)) == value
    assert 0.0 <= parameter.to_unit(value) <= 1.0


@given(specs(), UNITS)
def test_assignments_of_our_own_are_never_refused(spec: ParameterSpec, u: float) -> None:
    space = SearchSpace.of([spec])
    point = {"p": space.parameters[0].from_unit(u)}

    assert check_assignments([spec], [ParameterAssignment(name="p", value=space.format(point)["p"])]) == []


@given(specs(), st.data())
def test_small_grids_and_lists_survive_the_unit_interval(spec: ParameterSpec, data: st.DataObject) -> None:
    parameter = built(spec)
    if parameter.size is None or parameter.size > 100_000:
        return
    k = data.draw(st.integers(0, parameter.size - 1))
    value = parameter.at(k)

    assert parameter.index_of(value) == k
    assert parameter.from_unit(parameter.to_unit(value)) == value


@given(specs(), UNITS, UNITS)
def test_the_unit_interval_keeps_the_order_of_numbers(spec: ParameterSpec, u: float, v: float) -> None:
    parameter = built(spec)
    if spec.parameter_type == "categorical" or isinstance(parameter.from_unit(0.0), str):
        return
    low, high = sorted((u, v))

    assert float(parameter.from_unit(low)) <= float(parameter.from_unit(high))


@given(specs(), TEXTS)
def test_any_text_is_a_feasible_value_or_a_value_error(spec: ParameterSpec, text: str) -> None:
    parameter = built(spec)
    if parameter.contains(text):
        assert parameter.contains(parameter.format(parameter.parse(text)))


@given(
    st.sampled_from(["int", "double", "discrete", "categorical", "unknown", "", "float"]),
    TEXTS,
    TEXTS,
    TEXTS,
    st.lists(TEXTS, max_size=3),
    st.sampled_from(["", "uniform", "logUniform", "normal", "logNormal", "unknown", "gauss"]),
)
def test_any_specification_is_a_parameter_or_errors(
    kind: str, low: str, high: str, step: str, values: list[str], distribution: str
) -> None:
    space = FeasibleSpace(min=low, max=high, step=step, list=tuple(values), distribution=distribution)
    spec = ParameterSpec(name="p", parameter_type=kind, feasible_space=space)
    if build_parameter(spec) is None:
        with pytest.raises(InvalidError, match=r"spec\.parameters"):
            SearchSpace.of([spec])
    else:
        [parameter] = SearchSpace.of([spec]).parameters
        assert parameter.contains(parameter.format(parameter.from_unit(0.5)))


@given(st.lists(specs(stepped=True), min_size=1, max_size=4), st.data())
def test_indexes_count_the_points_of_a_finite_space(many: list[ParameterSpec], data: st.DataObject) -> None:
    space = SearchSpace.of([structs.replace(spec, name=f"p{i}") for i, spec in enumerate(many)])
    assert space.size is not None
    i, j = (data.draw(st.integers(0, space.size - 1)) for _ in range(2))

    assert (space.at(i) == space.at(j)) == (i == j)
