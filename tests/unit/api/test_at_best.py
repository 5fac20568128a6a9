"""What further metrics were at the best reading of the objective."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.summary import observation_of, reading_at, with_at_best
from katib.model.types import MetricConstraint, MetricStrategySpec, MetricValue, ObjectiveSpec, ObjectiveTerm

START = datetime(2024, 5, 1, tzinfo=UTC)


def curve(name: str, *readings: tuple[float, str] | tuple[float, str, int]) -> list[MetricLog]:
    return [MetricLog(START + timedelta(seconds=time), name, value, *step) for time, value, *step in readings]


def numbered(name: str, *values: str) -> list[MetricLog]:
    """Return readings without a time of their own."""
    return [MetricLog(ZERO_TIME, name, value) for value in values]


@pytest.mark.parametrize(
    ("objective", "other", "expected"),
    [
        pytest.param(
            curve("loss", (5, "1", 3)), curve("acc", (1, "a", 2), (9, "b", 3), (9, "c", 4)), "b", id="its step"
        ),
        pytest.param(curve("loss", (5, "1", 3)), curve("acc", (5, "a", 0), (6, "b", 10)), "a", id="the step before"),
        pytest.param(curve("loss", (5, "1", 3)), curve("acc", (5, "a", 5), (6, "b", 10)), "a", id="the first step"),
        pytest.param(
            curve("loss", (5, "1", 3)), curve("acc", (4, "a"), (5, "b"), (6, "c")), "b", id="one has no steps"
        ),
        pytest.param(curve("loss", (5, "1")), curve("acc", (4, "a"), (5, "b"), (6, "c")), "b", id="its time"),
        pytest.param(curve("loss", (5, "1")), curve("acc", (4, "a"), (5.1, "b")), "b", id="the nearest, printed after"),
        pytest.param(
            curve("loss", (5, "1")), curve("acc", (4.9, "a"), (6, "b")), "a", id="the nearest, printed before"
        ),
        pytest.param(
            curve("loss", (5, "1")), curve("acc", (4, "a"), (4, "b"), (6, "c")), "b", id="as near: the earlier"
        ),
        pytest.param(curve("loss", (5, "1")), curve("acc", (8, "a"), (9, "b")), "a", id="only later ones"),
        pytest.param(curve("loss", (5, "1")), curve("acc", (2, "a"), (3, "b")), "b", id="only earlier ones"),
        pytest.param(curve("loss", (5, "1")), [], None, id="none"),
    ],
)
def test_which_reading_belongs_to_the_best_one(
    objective: list[MetricLog], other: list[MetricLog], expected: str | None
) -> None:
    found = reading_at(objective, 0, other)

    assert (found.value if found else None) == expected


@pytest.mark.parametrize(("place", "expected"), [(0, "a"), (2, "c"), (4, "c")])
def test_readings_of_one_time_belong_together_by_their_place(place: int, expected: str) -> None:
    found = reading_at(numbered("loss", *"12345"), place, numbered("acc", *"abc"))

    assert found is not None
    assert found.value == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param((1, 3, 5), "b", id="each after the objective's, as of one line"),
        pytest.param((-1, 1, 3), "b", id="each before it"),
        pytest.param((-9, -8, 2), "c", id="one of them is outside of its neighbours"),
    ],
)
def test_of_equally_many_readings_the_second_belongs_to_the_second(times: tuple[int, int, int], expected: str) -> None:
    """Readings of one burst are a microsecond apart: the one before is as near as the one after."""
    others = curve("acc", *zip(times, "abc", strict=True))

    found = reading_at(curve("loss", (0, "3"), (2, "1"), (4, "2")), 1, others)

    assert found is not None
    assert found.value == expected


READINGS = {"loss": numbered("loss", "0.3", "0.10", "0.1", "nan", "0.5"), "acc": numbered("acc", *"76543")}


def at_best(**objective: Any) -> tuple[MetricValue, ...]:
    spec = ObjectiveSpec(
        **{"type": "minimize", "objective_metric_name": "loss", "additional_metric_names": ("acc",), **objective}
    )
    pairs = [(name, reading.value) for name, readings in READINGS.items() for reading in readings]
    found = with_at_best(spec, observation_of(spec.metric_names, pairs), lambda name: READINGS.get(name, []))
    assert found is not None
    return found.at_best


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param("min", "6", id="the first of equal ones"),
        pytest.param("max", "3", id="the largest"),
        pytest.param("latest", "3", id="the latest"),
    ],
)
def test_the_best_reading_is_that_of_the_strategy(strategy: str, expected: str) -> None:
    strategies = (MetricStrategySpec(name="loss", value=strategy),)

    assert at_best(metric_strategies=strategies) == (MetricValue(name="acc", value=expected),)


def test_a_metric_that_was_not_read_is_left_out_and_so_are_those_that_decide() -> None:
    strategies = (MetricStrategySpec(name="loss", value="min"),)
    several = (ObjectiveTerm(name="loss", type="minimize"), ObjectiveTerm(name="acc", type="maximize"))

    assert at_best(metric_strategies=strategies, additional_metric_names=("f1",)) == ()
    assert at_best(metric_strategies=strategies, constraints=(MetricConstraint(metric_name="acc", max=8),)) == ()
    assert at_best(metric_strategies=strategies, objectives=several) == ()
    assert at_best(metric_strategies=strategies, additional_metric_names=()) == ()
