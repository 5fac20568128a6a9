"""Laws of search spaces with conditions, for any forest of parameters in any order."""

from __future__ import annotations

from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from katib.model.conditional_parameters import check_conditions
from katib.model.space import SearchSpace, check_assignments
from katib.model.types import FeasibleSpace, ParameterAssignment, ParameterCondition, ParameterSpec

UNITS = st.floats(0.0, 1.0)


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
