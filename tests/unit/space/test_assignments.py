"""Which replies of a suggestion service may become trials."""

from __future__ import annotations

import pytest

from katib.api.types import FeasibleSpace, ParameterAssignment, ParameterSpec
from katib.space import check_assignments

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


def test_a_missing_and_a_repeated_parameter_are_errors() -> None:
    values = {name: value for name, value in GOOD.items() if name != "c"}

    assert origins(values, ("n", "3")) == ["assignment-missing", "assignment-duplicate"]


def test_an_empty_reply_misses_everything() -> None:
    assert origins({}) == ["assignment-missing"] * len(SPECS)
