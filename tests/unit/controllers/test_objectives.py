"""Which reading stands for a trial, and which of two is better."""

from __future__ import annotations

import pytest

from katib.api.types import Observation
from katib.controllers.objectives import cost, is_available, objective_text, objective_value, reaches_goal
from tests.support.planning import objective, observed


@pytest.mark.parametrize(
    ("strategy", "reading", "text"),
    [
        pytest.param("min", observed("0.5", low="0.1", high="0.9"), "0.1", id="min"),
        pytest.param("max", observed("0.5", low="0.1", high="0.9"), "0.9", id="max"),
        pytest.param("latest", observed("0.5", low="0.1", high="0.9"), "0.5", id="latest"),
        pytest.param("min", observed("conv", low="unavailable", high="unavailable"), "conv", id="min falls back"),
        pytest.param("max", observed("conv", low="unavailable", high="unavailable"), "conv", id="max falls back"),
        pytest.param("min", observed("0.5", name="other"), "unavailable", id="another metric"),
        pytest.param("latest", Observation(), "unavailable", id="empty observation"),
        pytest.param("latest", None, "unavailable", id="no observation"),
        pytest.param("latest", observed(""), "unavailable", id="empty text"),
    ],
)
def test_the_strategy_picks_the_reading(strategy: str, reading: Observation | None, text: str) -> None:
    assert objective_text(objective(strategy=strategy), reading) == text


def test_without_an_objective_there_is_no_value() -> None:
    assert objective_text(None, observed("1")) == "unavailable"
    assert not is_available(None, observed("1"))
    assert not reaches_goal(None, 1.0)


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "unavailable", "conv", "1_000", " 1"])
def test_only_finite_numbers_may_be_compared(text: str) -> None:
    assert objective_value(objective(), observed(text)) is None


@pytest.mark.parametrize(("text", "value"), [("1e-3", 0.001), ("+5", 5.0), (".5", 0.5), ("-0", 0.0)])
def test_numbers_are_read_as_programs_print_them(text: str, value: float) -> None:
    assert objective_value(objective(), observed(text)) == value


@pytest.mark.parametrize(
    ("latest", "available"), [("0.1", True), ("conv", True), ("nan", True), ("unavailable", False), ("", False)]
)
def test_an_objective_is_available_when_it_was_read_at_all(latest: str, *, available: bool) -> None:
    assert is_available(objective(), observed(latest)) is available


@pytest.mark.parametrize(
    ("type_", "goal", "value", "reached"),
    [
        pytest.param("minimize", 0.1, 0.1, True, id="minimize, exactly"),
        pytest.param("minimize", 0.1, 0.11, False, id="minimize, above"),
        pytest.param("minimize", 0.0, -1.0, True, id="minimize, zero is a goal"),
        pytest.param("maximize", 0.9, 0.9, True, id="maximize, exactly"),
        pytest.param("maximize", 0.9, 0.89, False, id="maximize, below"),
        pytest.param("maximize", 0.9, None, False, id="no value"),
        pytest.param("maximize", None, 5.0, False, id="no goal"),
    ],
)
def test_the_goal_is_reached_when_the_value_is_as_good(
    type_: str, goal: float | None, value: float | None, *, reached: bool
) -> None:
    assert reaches_goal(objective(type_, goal=goal), value) is reached


def test_smaller_cost_is_better() -> None:
    assert cost(objective("minimize"), 1.0) < cost(objective("minimize"), 2.0)
    assert cost(objective("maximize"), 2.0) < cost(objective("maximize"), 1.0)
