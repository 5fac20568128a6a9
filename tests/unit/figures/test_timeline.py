from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from katib.api.types import Experiment, ObjectMeta
from katib.figures.data import Choice, ExperimentData
from katib.figures.timeline import draw_timeline, nothing_has_started, running_at_once, slots_of
from katib.figures.trials import STATES
from tests.support.tables import START, large_table, make_data, make_table

NAN = math.nan


def trace(figure: Any, name: str) -> Any:
    [found] = [trace for trace in figure.data if trace.name == name]
    return found


def test_no_two_trials_of_a_slot_run_at_once_and_there_are_as_few_slots_as_can_be() -> None:
    random = np.random.default_rng(1)
    starts = np.sort(random.random(500) * 100)
    ends = starts + random.random(500) * 5
    slots = slots_of(starts, ends)

    for slot in range(slots.max() + 1):
        own = np.flatnonzero(slots == slot)
        assert (starts[own][1:] >= ends[own][:-1]).all()
    at_once = max(int(((starts <= moment) & (ends > moment)).sum()) for moment in starts)
    assert slots.max() + 1 == at_once


def test_bars_stand_where_trials_ran_by_state() -> None:
    table = make_table(
        [1.0, 2.0, NAN],
        ["Succeeded", "EarlyStopped", "Failed"],
        started=[0.0, 0.0, 60.0],
        ended=[60.0, 30.0, 100.0],
    )
    figure = draw_timeline(make_data(table), Choice())

    done, stopped, failed = (trace(figure, state) for state in ("Succeeded", "EarlyStopped", "Failed"))
    assert (list(done.base), list(done.x), list(done.y)) == ([0], [60], [1])
    assert (list(stopped.base), list(stopped.x), list(stopped.y)) == ([0], [30], [2])
    assert (list(failed.base), list(failed.x)) == ([60], [40])
    assert len({bar.marker.pattern.shape for bar in (done, stopped, failed)}) == 3
    assert figure.layout.xaxis.title.text == "seconds since the first trial started"


def test_what_runs_is_drawn_until_now() -> None:
    table = make_table([1.0, NAN], ["Succeeded", "Running"], started=[0.0, 10.0], ended=[10.0, NAN])
    data = ExperimentData(Experiment(metadata=ObjectMeta(name="demo")), table, now=START + 50)

    assert list(trace(draw_timeline(data, Choice()), "Running").x) == [40]


def test_a_bar_too_thin_to_see_is_drawn_wider() -> None:
    table = make_table([1.0, 1.0], started=[0.0, 0.0], ended=[0.0, 600.0])

    assert min(trace(draw_timeline(make_data(table), Choice()), "Succeeded").x) >= 1 / 60


def test_of_many_trials_it_shows_how_many_ran_at_once() -> None:
    figure = draw_timeline(make_data(large_table(100_000, slots=8)), Choice())

    heights = sum(np.asarray(trace.y, dtype=np.float64) for trace in figure.data)
    assert heights[:150] == pytest.approx(8, rel=0.1)
    assert len(figure.to_json()) < 50_000
    assert "100,000 trials" in figure.layout.annotations[0].text


def test_the_time_of_all_trials_is_the_area_of_the_states() -> None:
    random = np.random.default_rng(2)
    starts = random.random(300) * 90
    ends = np.minimum(starts + random.random(300) * 20, 100.0)
    states = random.integers(0, len(STATES), 300)
    counts = running_at_once(states, starts, ends, 0.5)

    for state in range(len(STATES)):
        of_it = states == state
        assert counts[:, state].sum() * 0.5 == pytest.approx((ends - starts)[of_it].sum())


def test_before_the_first_start_there_is_nothing_to_draw() -> None:
    table = make_table([NAN], ["Pending"], started=[NAN], ended=[NAN])

    assert nothing_has_started(make_data(table)) == "No trial has started yet."
