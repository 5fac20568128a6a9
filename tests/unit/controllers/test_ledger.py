"""What trials add up to; the law behind it all is in tests/property/test_ledger.py."""

from __future__ import annotations

import threading
from random import Random

import pytest
from msgspec import structs

from katib.engine.controllers.ledger import LISTED_NAMES, TrialCounts, TrialLedger, creation_second
from katib.engine.controllers.pareto_set import SHOWN_TRIALS, ParetoSet
from katib.engine.runtime.objects import Key
from katib.model.types import Observation, Trial, TrialState
from tests.support.planning import KnownLedger, objective, observed, readings, trial, two_objectives

DEMO = Key("default", "demo")


def ledger_of(*trials: Trial) -> TrialLedger:
    ledger = KnownLedger()
    for made in trials:
        ledger.apply(None, made)
    return ledger


def best_of(*trials: Trial) -> str | None:
    best = ledger_of(*trials).counts(DEMO).best
    return best.name if best else None


def test_an_experiment_without_trials_has_an_empty_tally() -> None:
    assert KnownLedger().counts(DEMO) == TrialCounts()


def test_names_list_the_newest_hundred_and_counts_stay_exact() -> None:
    counts = ledger_of(*(trial(f"t{i:03d}", "Succeeded") for i in range(LISTED_NAMES + 20))).counts(DEMO)

    assert counts.count(TrialState.SUCCEEDED) == counts.total == LISTED_NAMES + 20
    assert counts.names[TrialState.SUCCEEDED] == tuple(f"t{i:03d}" for i in range(20, LISTED_NAMES + 20))


def test_all_active_names_are_listed_however_many() -> None:
    counts = ledger_of(*(trial(f"t{i:03d}") for i in range(LISTED_NAMES + 20))).counts(DEMO)

    assert len(counts.active) == LISTED_NAMES + 20


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_of_equal_values_the_earlier_trial_is_the_best(direction: str) -> None:
    spec = objective(direction)

    assert best_of(*(trial(name, "Succeeded", value="0.5", objective_spec=spec) for name in "zab")) == "z"


def test_a_trial_keeps_its_place_while_it_changes() -> None:
    first, second = trial("first", "Running"), trial("second", "Running")
    ledger = ledger_of(first, second)
    ledger.apply(second, trial("second", "Succeeded", value="0.5"))
    ledger.apply(first, trial("first", "Succeeded", value="0.5"))
    counts = ledger.counts(DEMO)

    assert counts.best is not None
    assert counts.best.name == "first"
    assert counts.names[TrialState.SUCCEEDED] == ("first", "second")


def test_where_the_store_knows_only_seconds_a_restart_finds_the_same_whatever_came_first() -> None:
    spec = objective()
    trials = [trial(name, "Succeeded", value="0.5", objective_spec=spec) for name in "bca"]

    def counts(order: list[Trial]) -> TrialCounts:
        ledger = KnownLedger(creation_second)
        for made in order:
            ledger.apply(None, made)
        return ledger.counts(DEMO)

    assert counts(trials) == counts(trials[::-1])
    assert counts(trials).names[TrialState.SUCCEEDED] == ("a", "b", "c")


@pytest.mark.parametrize(("direction", "winner"), [("minimize", "low"), ("maximize", "high"), ("", "low")])
def test_the_direction_decides(direction: str, winner: str) -> None:
    spec = objective(direction)
    low = trial("low", "Succeeded", value="-3", objective_spec=spec)

    assert best_of(low, trial("high", "Succeeded", value="1e2", objective_spec=spec)) == winner


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


@pytest.mark.parametrize(("strategy", "best"), [("mean", "a"), ("mean(2)", "b")])
def test_the_mean_of_a_trial_that_was_stopped_early_is_of_fewer_readings(strategy: str, best: str) -> None:
    def made(name: str, state: str, mean: str) -> Trial:
        one = trial(name, state, value=mean, objective_spec=objective(strategy=strategy))
        observation = one.status.observation
        assert observation is not None
        metric = structs.replace(observation.metrics[0], mean=mean)
        return structs.replace(one, status=structs.replace(one.status, observation=Observation(metrics=(metric,))))

    assert best_of(made("a", "Succeeded", "0.2"), made("b", "EarlyStopped", "0.1")) == best


def test_an_early_stopped_trial_may_be_the_best() -> None:
    assert best_of(trial("a", "Succeeded", value="0.2"), trial("b", "EarlyStopped", value="0.1")) == "b"


def test_when_the_best_trial_goes_the_next_one_takes_its_place() -> None:
    first = trial("a", "Succeeded", value="0.1")
    ledger = ledger_of(first, trial("b", "Succeeded", value="0.2"))
    ledger.apply(first, None)
    best = ledger.counts(DEMO).best

    assert best is not None
    assert best.name == "b"


def test_a_better_observation_of_the_same_trial_replaces_the_old_one() -> None:
    old = trial("a", "Succeeded", value="0.1")
    ledger = ledger_of(old, trial("b", "Succeeded", value="0.2"))
    ledger.apply(old, trial("a", "Succeeded", value="0.3"))
    best = ledger.counts(DEMO).best

    assert best is not None
    assert best.name == "b"


def test_the_metric_strategy_picks_the_reading_that_is_compared() -> None:
    spec = objective("minimize", strategy="min")
    steady = trial("steady", "Succeeded", objective_spec=spec)
    swinging = trial("swinging", "Succeeded", objective_spec=spec)
    trials = [
        structs.replace(t, status=structs.replace(t.status, observation=o))
        for t, o in ((steady, observed("0.3")), (swinging, observed("0.9", low="0.1")))
    ]

    assert best_of(*trials) == "swinging"


def test_after_the_last_trial_is_gone_nothing_is_kept() -> None:
    made = trial("a", "Succeeded", value="1")
    ledger = ledger_of(made)
    ledger.apply(made, None)

    assert ledger.counts(DEMO) == TrialCounts()
    assert not ledger._accounts


def test_a_tally_may_be_read_while_another_thread_writes() -> None:
    ledger = KnownLedger()

    def write() -> None:
        for i in range(300):
            ledger.apply(None, trial(f"t{i}", "Running"))

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while writer.is_alive():
        counts = ledger.counts(DEMO)
        seen.append(counts.total == len(counts.active))
    writer.join()

    assert all(seen)
    assert ledger.counts(DEMO).total == 300


# --- several objectives -----------------------------------------------------------------------------------------------


def measured(name: str, accuracy: float, seconds: float, **more: str) -> Trial:
    observation = readings(accuracy=str(accuracy), seconds=str(seconds), **more)
    made = trial(name, "Succeeded", objective_spec=two_objectives(latency=30.0 if more else None))
    return structs.replace(made, status=structs.replace(made.status, observation=observation))


def test_a_large_set_is_named_in_part_counted_whole_and_found_once() -> None:
    ledger = ledger_of(*(measured(f"t{i:04d}", i / 1000, i * i / 1e6) for i in range(1000)))

    counts = ledger.counts(DEMO)

    assert counts.pareto is not None
    assert (counts.pareto.count, len(counts.pareto.names)) == (1000, SHOWN_TRIALS)
    assert counts.pareto_trials[0].name == counts.best.name == "t0999"  # type: ignore[union-attr]
    assert counts.pareto_trials[-1].name == "t0000"
    assert ledger.counts(DEMO).pareto_trials is counts.pareto_trials


def test_a_trial_outside_the_constraints_is_counted_and_never_best() -> None:
    ledger = ledger_of(measured("slow", 0.9, 1, latency="31"), measured("unread", 0.9, 1, latency="nan"))
    counts = ledger.counts(DEMO)

    assert (counts.infeasible, counts.best, counts.pareto) == (2, None, None)

    ledger.apply(None, measured("fast", 0.1, 9, latency="30"))

    assert ledger.counts(DEMO).best.name == "fast"  # type: ignore[union-attr]


def test_with_one_objective_there_is_no_set() -> None:
    counts = ledger_of(trial("t1", "Succeeded", value="0.5")).counts(DEMO)

    assert (counts.pareto, counts.pareto_trials) == (None, ())


# --- The set of an experiment's best trials, kept current trial by trial ----------------------------------------------


@pytest.mark.parametrize("objectives", [2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_what_it_says_is_what_a_new_one_says_of_the_same_trials(seed: int, objectives: int) -> None:
    random, kept = Random(seed), ParetoSet()
    trials: dict[str, tuple[int, tuple[float, ...]]] = {}
    for _ in range(80):
        name = f"t{random.randrange(40)}"
        kept.remove(name)
        if name in trials and random.random() < 0.3:
            del trials[name]
        else:
            order = trials[name][0] if name in trials else len(name) + random.randrange(100)
            trials[name] = order, tuple(float(random.randrange(12)) for _ in range(objectives))
            kept.add(name, *trials[name])
        fresh = ParetoSet()
        for other, place in sorted(trials.items(), key=lambda _: random.random()):
            fresh.add(other, *place)

        assert kept.summary() == fresh.summary()


def test_a_trial_that_is_written_again_changes_nothing() -> None:
    """As its status is when its job is removed: what the set is summed up to is not computed anew."""
    kept = ParetoSet()
    for i, point in enumerate([(0.0, 3.0), (1.0, 1.0), (3.0, 0.0), (4.0, 4.0)]):
        kept.add(f"t{i}", i, point)
    summary = kept.summary()

    for i, point in [(1, (1.0, 1.0)), (3, (4.0, 4.0))]:
        kept.remove(f"t{i}")
        kept.add(f"t{i}", i, point)

        assert kept.summary() is summary
