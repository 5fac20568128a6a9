"""What a parameter of a function may be, and how its values come back from their texts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from katib.errors import InvalidError
from katib.sdk import search


@pytest.mark.parametrize(
    ("parameter", "kind", "space"),
    [
        pytest.param(search.double(1e-5, 1), "double", {"min": "1e-05", "max": "1"}, id="double"),
        pytest.param(search.double(0, 1, step=0.25), "double", {"min": "0", "max": "1", "step": "0.25"}, id="step"),
        pytest.param(
            search.double(0.1, 1, log=True),
            "double",
            {"min": "0.1", "max": "1", "distribution": "logUniform"},
            id="log",
        ),
        pytest.param(search.int(1, 9), "int", {"min": "1", "max": "9"}, id="int"),
        pytest.param(search.int(0, 9, step=3), "int", {"min": "0", "max": "9", "step": "3"}, id="int with step"),
        pytest.param(search.categorical(["a", 2]), "categorical", {"list": ["a", "2"]}, id="categorical"),
        pytest.param(search.discrete([0.5, 1]), "discrete", {"list": ["0.5", "1"]}, id="discrete"),
    ],
)
def test_a_parameter_is_written_as_katib_has_it(parameter: search.Parameter, kind: str, space: dict[str, Any]) -> None:
    assert parameter.spec("x") == {"name": "x", "parameterType": kind, "feasibleSpace": space}


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        pytest.param(search.double(0, 1), "0.5", 0.5, id="double"),
        pytest.param(search.double(0, 1), "1", 1.0, id="whole double"),
        pytest.param(search.int(0, 9), "7", 7, id="int"),
        pytest.param(search.discrete([0.5, 1]), "1", 1, id="discrete"),
        pytest.param(search.categorical([None, "x"]), "None", None, id="None"),
        pytest.param(search.categorical([True, False]), "False", False, id="bool"),
        pytest.param(search.categorical([(64, 32), (8,)]), "(64, 32)", (64, 32), id="tuple"),
        pytest.param(search.categorical([Fraction(1, 3)]), "1/3", Fraction(1, 3), id="object"),
    ],
)
def test_a_value_comes_back_with_its_type(parameter: search.Parameter, text: str, value: Any) -> None:
    found = parameter.value(text)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("choices", [(1, "1"), ("None", None), ("a", "a")], ids=["number", "none", "twice"])
def test_choices_that_read_the_same_are_refused(choices: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidError, match="same text") as caught:
        search.categorical(choices)

    assert repr(choices[0]) in str(caught.value)
    assert repr(choices[1]) in str(caught.value)


def test_a_condition_is_written_as_an_experiment_has_it() -> None:
    free = search.int(1, 9)
    parameter = free.when("widths", (64, 32), (8,))

    assert parameter.spec("x") == {
        **free.spec("x"),
        "when": {"parameter": "widths", "values": ["(64, 32)", "(8,)"]},
    }
    assert "when" not in free.spec("x")
