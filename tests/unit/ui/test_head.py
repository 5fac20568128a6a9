"""The large figures above an experiment."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from katib.figures.trials import Objective, TrialTable
from katib.ui.head import HEIGHT, WIDTH, head_figures
from tests.support.tables import make_table
from tests.support.tuning import START, condition, make_experiment, make_pareto_experiment


def figures(table: TrialTable | None, seconds: float = 100, **status: Any) -> dict[str, Any]:
    running = make_experiment("demo", condition("Running"), startTime="2030-01-01T12:00:00Z", **status)
    return head_figures(running, table, START + timedelta(seconds=seconds))


def points(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, _, y in (point.partition(",") for point in line.split())]


@pytest.mark.parametrize("maximize", [True, False])
def test_the_line_of_the_best_goes_to_the_better_side_within_its_picture(maximize: bool) -> None:
    line = points(figures(make_table([5.0, 7.0, 3.0, 4.0, 9.0, 1.0], maximize=maximize))["spark"])
    heights = [y for _, y in line]

    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line)
    assert heights == sorted(heights, reverse=maximize)
    assert heights[0] != heights[-1]
    assert [x for x, _ in line] == sorted(x for x, _ in line)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [math.nan, math.nan]])
def test_without_an_improvement_there_is_no_line(values: list[float]) -> None:
    assert figures(make_table(values))["spark"] == ""


def test_the_line_of_many_trials_is_short() -> None:
    assert len(figures(make_table(np.linspace(1, 0, 50_000).tolist()))["spark"]) < 2_500


@pytest.mark.parametrize(
    ("values", "maximize", "expected"),
    [
        ([*[1.0] * 18, 0.75, 0.9], False, "-0.25 over the last tenth of the trials"),
        ([*[1.0] * 18, 1.25, 0.9], True, "+0.25 over the last tenth of the trials"),
        ([*[1.0] * 18, 2.0, 3.0], False, "no better over the last tenth of the trials"),
        ([1.0, 0.5], False, ""),
    ],
)
def test_the_best_value_has_its_change_over_the_last_tenth(values: list[float], maximize: bool, expected: str) -> None:
    assert figures(make_table(values, maximize=maximize))["change"] == expected


@pytest.mark.parametrize(
    ("done", "seconds", "expected"),
    [(1, 10, ""), (40, 10, "4 a second"), (10, 120, "5 a minute"), (3, 7_200, "1.5 an hour"), (2, 172_800, "1 a day")],
)
def test_the_rate_has_the_unit_in_which_it_can_be_read(done: int, seconds: float, expected: str) -> None:
    assert figures(None, seconds, trialsSucceeded=done)["rate"] == expected


def test_what_needs_the_trials_is_empty_while_they_are_read() -> None:
    found = figures(None, trialsFailed=2, trialMetricsUnavailable=1)

    assert (found["spark"], found["change"]) == ("", "")
    assert (found["lost"], found["strategy"]) == (3, "min")


def test_the_front_of_several_objectives_grows_and_what_is_feasible_is_counted() -> None:
    objectives = (Objective("loss", maximize=False), Objective("speed", maximize=True))
    values = [*range(20, 1, -1), 0.5]
    table = make_table(values, more={"speed": list(range(20))}, objectives=objectives)
    experiment = make_pareto_experiment("demo", condition("Running"), trialsSucceeded=20, trialsInfeasible=4)
    found = head_figures(experiment, table, START)
    flat = head_figures(experiment, make_table([2.0] * 20, more={"speed": [1.0] * 20}, objectives=objectives), START)

    assert found["front"] == {"count": 3, "volume": 12.5}
    assert points(found["spark"])[-1] == (WIDTH - 2, 2.0)  # on top
    assert found["change"].startswith("+")
    assert (found["feasible"], found["measured"], found["constraints"]) == (16, 20, "memory <= 8")
    assert (flat["spark"], flat["change"]) == ("", "no more over the last tenth of the trials")
