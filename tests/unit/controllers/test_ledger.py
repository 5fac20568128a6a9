"""What trials add up to; the law behind it all is in tests/property/test_ledger.py."""

from __future__ import annotations

import threading

import pytest

from katib.api.types import Trial
from katib.controllers.experiment.ledger import LISTED_NAMES, Tally, TrialLedger, creation_second
from katib.controllers.trial_states import TrialState
from katib.runtime.objects import Key
from tests.support.planning import objective, observed, trial

DEMO = Key("default", "demo")


def ledger_of(*trials: Trial) -> TrialLedger:
    ledger = TrialLedger()
    for made in trials:
        ledger.apply(None, made)
    return ledger


def best_of(*trials: Trial) -> str | None:
    best = ledger_of(*trials).tally(DEMO).best
    return best.name if best else None


def test_an_experiment_without_trials_has_an_empty_tally() -> None:
    assert TrialLedger().tally(DEMO) == Tally()


def test_names_list_the_newest_hundred_and_counts_stay_exact() -> None:
    tally = ledger_of(*(trial(f"t{i:03d}", "Succeeded") for i in range(LISTED_NAMES + 20))).tally(DEMO)

    assert tally.count(TrialState.SUCCEEDED) == tally.total == LISTED_NAMES + 20
    assert tally.names[TrialState.SUCCEEDED] == tuple(f"t{i:03d}" for i in range(20, LISTED_NAMES + 20))


def test_all_active_names_are_listed_however_many() -> None:
    tally = ledger_of(*(trial(f"t{i:03d}") for i in range(LISTED_NAMES + 20))).tally(DEMO)

    assert len(tally.active) == LISTED_NAMES + 20


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_of_equal_values_the_earlier_trial_is_the_best(direction: str) -> None:
    spec = objective(direction)

    assert best_of(*(trial(name, "Succeeded", value="0.5", objective_spec=spec) for name in "zab")) == "z"


def test_a_trial_keeps_its_place_while_it_changes() -> None:
    first, second = trial("first", "Running"), trial("second", "Running")
    ledger = ledger_of(first, second)
    ledger.apply(second, trial("second", "Succeeded", value="0.5"))
    ledger.apply(first, trial("first", "Succeeded", value="0.5"))
    tally = ledger.tally(DEMO)

    assert tally.best is not None
    assert tally.best.name == "first"
    assert tally.names[TrialState.SUCCEEDED] == ("first", "second")


def test_where_the_store_knows_only_seconds_a_restart_finds_the_same_whatever_came_first() -> None:
    spec = objective()
    trials = [trial(name, "Succeeded", value="0.5", objective_spec=spec) for name in "bca"]

    def tally(order: list[Trial]) -> Tally:
        ledger = TrialLedger(creation_second)
        for made in order:
            ledger.apply(None, made)
        return ledger.tally(DEMO)

    assert tally(trials) == tally(trials[::-1])
    assert tally(trials).names[TrialState.SUCCEEDED] == ("a", "b", "c")


@pytest.mark.parametrize(("direction", "winner"), [("minimize", "low"), ("maximize", "high"), ("", "low")])
def test_the_direction_decides(direction: str, winner: str) -> None:
    spec = objective(direction)
    low = trial("low", "Succeeded", value="-3", objective_spec=spec)
    high = trial("high", "Succeeded", value="1e2", objective_spec=spec)

    assert best_of(low, high) == winner


@pytest.mark.parametrize("bad", ["nan", "NaN", "inf", "-inf", "unavailable", ""])
def test_what_is_no_finite_number_is_never_the_best(bad: str) -> None:
    assert best_of(trial("bad", "Succeeded", value=bad)) is None
    assert best_of(trial("bad", "Succeeded", value=bad), trial("good", "Succeeded", value="9")) == "good"


def test_of_texts_the_newest_stands_and_any_number_beats_it() -> None:
    texts = [trial("old", "Succeeded", value="conv3"), trial("new", "Succeeded", value="conv5")]

    assert best_of(*texts) == "new"
    assert best_of(*texts, trial("number", "Succeeded", value="7")) == "number"


@pytest.mark.parametrize("state", ["Running", "Failed", "Killed", "MetricsUnavailable"])
def test_only_trials_that_ended_well_may_be_the_best(state: str) -> None:
    assert best_of(trial("t", state, value="0.1")) is None


def test_an_early_stopped_trial_may_be_the_best() -> None:
    assert best_of(trial("a", "Succeeded", value="0.2"), trial("b", "EarlyStopped", value="0.1")) == "b"


def test_when_the_best_trial_goes_the_next_one_takes_its_place() -> None:
    first = trial("a", "Succeeded", value="0.1")
    ledger = ledger_of(first, trial("b", "Succeeded", value="0.2"))
    ledger.apply(first, None)
    best = ledger.tally(DEMO).best

    assert best is not None
    assert best.name == "b"


def test_a_better_observation_of_the_same_trial_replaces_the_old_one() -> None:
    old = trial("a", "Succeeded", value="0.1")
    ledger = ledger_of(old, trial("b", "Succeeded", value="0.2"))
    ledger.apply(old, trial("a", "Succeeded", value="0.3"))
    best = ledger.tally(DEMO).best

    assert best is not None
    assert best.name == "b"


def test_the_metric_strategy_picks_the_reading_that_is_compared() -> None:
    spec = objective("minimize", strategy="min")
    steady = trial("steady", "Succeeded", objective_spec=spec)
    swinging = trial("swinging", "Succeeded", objective_spec=spec)
    trials = [
        t.model_copy(update={"status": t.status.model_copy(update={"observation": o})})
        for t, o in ((steady, observed("0.3")), (swinging, observed("0.9", low="0.1")))
    ]

    assert best_of(*trials) == "swinging"


def test_after_the_last_trial_is_gone_nothing_is_kept() -> None:
    made = trial("a", "Succeeded", value="1")
    ledger = ledger_of(made)
    ledger.apply(made, None)

    assert ledger.tally(DEMO) == Tally()
    assert not ledger._accounts
    assert not ledger._order


def test_a_tally_may_be_read_while_another_thread_writes() -> None:
    ledger = TrialLedger()

    def write() -> None:
        for i in range(300):
            ledger.apply(None, trial(f"t{i}", "Running"))

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while writer.is_alive():
        tally = ledger.tally(DEMO)
        seen.append(tally.total == len(tally.active))
    writer.join()

    assert all(seen)
    assert ledger.tally(DEMO).total == 300
