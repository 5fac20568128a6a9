"""Laws of the language of constraints."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from katib.errors import InvalidError
from katib.model.space.where import parse_constraint
from katib.model.types import FeasibleSpace, ParameterSpec

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
