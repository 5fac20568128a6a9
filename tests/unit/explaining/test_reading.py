"""What is shown of objects (`katib.tuning.reading`)."""

from __future__ import annotations

import pytest

from katib.api.types import Experiment
from katib.tuning.reading import format_duration, format_run, is_completed, objective_value, state_of, time_of
from tests.support.tuning import condition, make_experiment, make_trial


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (3600, "1h"),
        (18_720, "5h12m"),
        (86_400, "1d"),
        (273_600, "3d4h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "<1s"),
        (0.04, "<1s"),
        (0.2, "0.2s"),
        (1.0, "1s"),
        (4.66, "4.7s"),
        (9.96, "9s"),
        (10.4, "10s"),
        (200.5, "3m20s"),
    ],
)
def test_short_runs_have_a_decimal(seconds: float, text: str) -> None:
    assert format_run(seconds) == text


def test_the_state_is_the_last_condition_that_holds() -> None:
    gone = {**condition("Running"), "status": "False"}

    assert state_of(make_experiment("demo", condition("Created"), gone)) == "Created"
    assert state_of(make_trial("t", condition("Created"))) == "Pending"
    assert state_of(make_trial("t", condition("Created"), condition("Running"))) == "Running"


def test_an_object_without_status_is_not_completed() -> None:
    assert not is_completed(Experiment())
    assert state_of(Experiment()) == "Created"


def test_a_trial_without_observation_has_no_value() -> None:
    assert objective_value(make_trial("t")) is None


@pytest.mark.parametrize("text", [None, "", "yesterday", 3], ids=["none", "empty", "words", "number"])
def test_what_is_no_time_is_none(text: object) -> None:
    assert time_of(text) is None
