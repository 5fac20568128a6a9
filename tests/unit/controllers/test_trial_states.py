"""The life of a trial as one word."""

from __future__ import annotations

import pytest

from katib.controllers.trial_states import ACTIVE, ELIGIBLE, TrialState, state_of
from tests.support.planning import holding, trial


@pytest.mark.parametrize("state", [state for state in TrialState if state != TrialState.PENDING])
def test_a_condition_that_holds_is_the_state(state: TrialState) -> None:
    assert state_of(trial("t", "Created", state.value)) is state


@pytest.mark.parametrize("conditions", [(), ("Created",), ("Created", "Unheard")], ids=["none", "created", "foreign"])
def test_without_any_known_condition_a_trial_is_pending(conditions: tuple[str, ...]) -> None:
    assert state_of(trial("t", *conditions)) is TrialState.PENDING


def test_a_condition_that_does_not_hold_says_nothing() -> None:
    assert state_of(trial("t", "Created", holding("Running", status="False"))) is TrialState.PENDING


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        pytest.param(("Running", "EarlyStopped"), TrialState.EARLY_STOPPED, id="a service said early stopped"),
        pytest.param(("Running", "Succeeded"), TrialState.SUCCEEDED, id="running stayed true"),
        pytest.param(("Succeeded", "Killed"), TrialState.KILLED, id="killed counts first"),
        pytest.param(("Succeeded", "Failed"), TrialState.FAILED, id="failed before succeeded"),
        pytest.param(("EarlyStopped", "Succeeded"), TrialState.SUCCEEDED, id="succeeded before early stopped"),
        pytest.param(("MetricsUnavailable", "EarlyStopped"), TrialState.EARLY_STOPPED, id="stopped, no metrics"),
    ],
)
def test_of_several_conditions_one_counts_in_any_order(conditions: tuple[str, ...], state: TrialState) -> None:
    assert state_of(trial("t", *conditions)) is state
    assert state_of(trial("t", *reversed(conditions))) is state


def test_active_and_eligible_states_are_apart() -> None:
    assert not ELIGIBLE & set(ACTIVE)
