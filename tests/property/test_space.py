"""Laws of the feasible space, for any bounds, steps, distributions and lists."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from katib.errors import InvalidError
from katib.model.conditional_parameters import check_conditions
from katib.model.space import Parameter, SearchSpace, check_assignments
from katib.model.space.build import build_parameter
from katib.model.space.where import parse_constraint
from katib.model.types import FeasibleSpace, ParameterAssignment, ParameterCondition, ParameterSpec

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


# --- Laws of search spaces with conditions, for any forest of parameters in any order ---------------------------------


@st.composite
def forests(draw: st.DrawFn, *, finite: bool = True) -> list[ParameterSpec]:
    """Return parameters of which some depend on others, children and parents in any order."""
    specs: list[ParameterSpec] = []
    for i in range(draw(st.integers(1, 6))):
        spec = draw(_parameters(f"p{i}", finite=finite))
        parents = [parent for parent in specs if parent.parameter_type != "double"]
        if parents and draw(st.booleans()):
            parent = draw(st.sampled_from(parents))
            values = draw(st.lists(st.sampled_from(_values(parent)), min_size=1, unique=True))
            condition = ParameterCondition(parameter=parent.name, values=tuple(values))
            spec = structs.replace(spec, when=condition)
        specs.append(spec)
    return draw(st.permutations(specs))


@st.composite
def _parameters(draw: st.DrawFn, name: str, *, finite: bool) -> ParameterSpec:
    kind = draw(st.sampled_from(["int", "discrete", "categorical"] + ["double"] * (not finite)))
    if kind == "double":
        return ParameterSpec(name=name, parameter_type=kind, feasible_space=FeasibleSpace(min="0", max="1"))
    if kind == "int":
        low, count, step = draw(st.integers(-3, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
        space = FeasibleSpace(min=str(low), max=str(low + (count - 1) * step), step=str(step))
        return ParameterSpec(name=name, parameter_type=kind, feasible_space=space)
    values = draw(st.lists(st.sampled_from(["3", "1", "2", "7"]), min_size=1, max_size=4, unique=True))
    return ParameterSpec(name=name, parameter_type=kind, feasible_space=FeasibleSpace(list=tuple(values)))


def _values(spec: ParameterSpec) -> list[str]:
    space = spec.feasible_space
    return list(space.list) or [str(x) for x in range(int(space.min), int(space.max) + 1, int(space.step))]


def assigned(texts: dict[str, str]) -> list[ParameterAssignment]:
    return [ParameterAssignment(name=name, value=text) for name, text in texts.items()]


def expected_names(specs: list[ParameterSpec], values: dict[str, str]) -> set[str]:
    """Return the parameters that are present, from the definition."""
    present = {spec.name for spec in specs if spec.when is None}
    while True:
        more = {
            spec.name
            for spec in specs
            if spec.when and spec.when.parameter in present and values[spec.when.parameter] in spec.when.values
        }
        if more <= present:
            return present
        present |= more


@given(forests(finite=False))
def test_such_spaces_are_accepted(specs: list[ParameterSpec]) -> None:
    assert list(check_conditions(specs, "spec.parameters")) == []


@given(forests(finite=False), st.lists(UNITS, min_size=6, max_size=6))
def test_exactly_what_is_present_is_assigned_and_survives_its_text(specs: list[ParameterSpec], us: list[float]) -> None:
    space = SearchSpace.of(specs)
    point = {p.name: p.from_unit(u) for p, u in zip(space.parameters, us, strict=False)}
    named = space.format(point)
    full = {p.name: p.format(point[p.name]) for p in space.parameters}

    assert set(named) == expected_names(specs, full)
    assert list(named) == [s.name for s in specs if s.name in named]
    assert check_assignments(specs, assigned(named)) == []
    assert space.drop_absent(full) == named
    assert space.nearest(named.items()) == space.nearest(full.items()) == space.complete(point)


@given(forests(finite=False), st.data())
def test_one_absent_too_many_or_one_present_too_few_is_refused(specs: list[ParameterSpec], data: st.DataObject) -> None:
    space = SearchSpace.of(specs)
    named = space.format(space.sample(Random(data.draw(st.integers(0, 99)))))
    absent, assignments = [p for p in space.parameters if p.name not in named], assigned(named)

    lost = data.draw(st.sampled_from(assignments))
    assert check_assignments(specs, [a for a in assignments if a != lost]) != []
    for parameter in absent:
        extra = ParameterAssignment(name=parameter.name, value=parameter.format(parameter.from_unit(0.5)))
        assert [e.origin for e in check_assignments(specs, [*assignments, extra])] == ["assignment-not-absent"]


@given(forests())
def test_a_grid_lists_exactly_the_different_points(specs: list[ParameterSpec]) -> None:
    space = SearchSpace.of(specs)
    listed = [tuple(sorted(space.format(space.at(k)).items())) for k in range(space.size or 0)]
    every = [dict(zip((s.name for s in specs), values, strict=True)) for values in product(*map(_values, specs))]

    assert len(listed) == len(set(listed))
    assert set(listed) == {tuple(sorted(space.drop_absent(point).items())) for point in every}


@given(forests(finite=False), st.integers(0, 99))
def test_draws_are_whole_and_equal_where_their_trials_are(specs: list[ParameterSpec], seed: int) -> None:
    space = SearchSpace.of(specs)
    point = space.sample(Random(seed))

    assert list(point) == [spec.name for spec in specs]
    assert space.complete(space.active(point)) == point
    assert space.nearest(space.format(point).items()) == point


# --- Laws of the language of constraints ------------------------------------------------------------------------------


SPECS = [
    ParameterSpec(name=name, parameter_type="int", feasible_space=FeasibleSpace(min="-9", max="9"))
    for name in ("a", "b", "c-d", "x y")
]
SPECS.append(ParameterSpec(name="opt", parameter_type="categorical", feasible_space=FeasibleSpace(list=("adam", "é"))))
POINT: dict[str, float | int | str] = {"a": 3, "b": -2, "c-d": 0, "x y": 7, "opt": "adam"}
WORDS = ["a", "b", "c-d", "`x y`", "opt", "adam", "'é'", "and", "or", "(", ")", "1", ".5", "1e3", "", " ", "\n", "é"]
SIGNS = ["+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "=", "'", "`", "$"]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS + SIGNS), max_size=25).map("".join)))
def test_any_text_is_a_constraint_or_one_fault(text: str) -> None:
    try:
        constraint = parse_constraint(text, SPECS)
    except InvalidError as refused:
        (error,) = refused.errors
        assert error.origin.startswith("where-")
        assert "\n" not in str(error)
    else:
        assert constraint.names <= {spec.name for spec in SPECS}
        assert constraint.holds(POINT) in (True, False)
        assert constraint.holds({}) in (True, False)


numbers = st.recursive(
    st.sampled_from(["a", "b", "2", "3", "7"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", " - ", "*", " / "]), inner).map("".join),
        inner.map("({})".format),
        inner.map("-{}".format),
    ),
    max_leaves=8,
)


@given(numbers, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers)
def test_arithmetic_is_that_of_python(left: str, sign: str, right: str) -> None:
    assume({"a", "b"} & {*left, *right})
    names = {"a": POINT["a"], "b": POINT["b"]}
    try:
        expected = eval(f"{left} {sign} {right}", {}, names)
        difference = abs(eval(f"({left}) - ({right})", {}, names))
    except ZeroDivisionError:
        expected, difference = False, 1
    assume(difference == 0 or difference > 1e-6)  # else the tolerance decides

    assert parse_constraint(f"{left} {sign} {right}", SPECS).holds(POINT) is expected
