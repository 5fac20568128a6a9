"""Repeats: their settings, the race, and the configurations that trials add up to."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import structs

from katib.errors import InvalidError
from katib.model.features.repeats.feature import REPEATS, Repeats
from katib.model.features.repeats.race import Spread, cannot_win, upper_tail
from katib.model.features.repeats.runs import (
    FIRST_RUN_LABEL,
    RepeatedRuns,
    history,
    next_runs,
    ranked,
    sample_of,
    standing_of,
)
from katib.model.types import Experiment, Trial
from tests.support.experiments import an_experiment
from tests.support.tuning import condition, make_trial

SUCCEEDED, FAILED, RUNNING, STOPPED = (condition(type_) for type_ in ("Succeeded", "Failed", "Running", "EarlyStopped"))


def a_run(of: str, number: int, loss: str | None, state: Any = SUCCEEDED) -> Trial:
    """Return a run of a configuration, whose parameter is its name."""
    made = make_trial(of if number == 1 else f"{of}-{number}", state, loss=loss, x=of)
    if number == 1:
        return made
    labels = {**made.metadata.labels, FIRST_RUN_LABEL: of}
    return structs.replace(made, metadata=structs.replace(made.metadata, labels=labels))


def runs(of: str, *losses: str | None) -> list[Trial]:
    return [a_run(of, i, loss, FAILED if loss is None else SUCCEEDED) for i, loss in enumerate(losses, 1)]


def added(*trials: Trial) -> RepeatedRuns:
    tally = RepeatedRuns()
    for trial in trials:
        tally.add(trial)
    return tally


def decided(*trials: Trial, repeats: int = 3, budget: int | None = 30) -> tuple[list[str], float]:
    tally = added(*trials)
    again, room = next_runs(tally, standing_of(tally.configurations, repeats), repeats, budget)
    return [run.name for run in again], room


@pytest.mark.parametrize(
    ("t", "degrees", "probability"),
    [(6.314, 1, 0.05), (2.92, 2, 0.05), (2.353, 3, 0.05), (1.697, 30, 0.05), (0, 7, 0.5)],
)
def test_the_tail_is_that_of_students_tables(t: float, degrees: int, probability: float) -> None:
    assert upper_tail(t, degrees) == pytest.approx(probability, abs=1e-4)


def test_nothing_is_beyond_doubt_without_an_estimate_of_the_noise() -> None:
    assert not cannot_win(sample_of([9.0]), sample_of([1.0]), Spread())


@pytest.mark.parametrize(("value", "is_out"), [(1.0, False), (1.3, False), (2.5, True), (0.5, False)])
def test_a_single_run_is_judged_by_the_noise_of_the_others(value: float, *, is_out: bool) -> None:
    best = sample_of([0.9, 1.0, 1.1, 1.2, 0.8])

    assert cannot_win(sample_of([value]), best, Spread(best.squares, 4)) is is_out


def test_without_noise_any_difference_decides() -> None:
    best = sample_of([1.0, 1.0])

    assert cannot_win(sample_of([1.0 + 1e-6]), best, Spread(0.0, 1))
    assert not cannot_win(sample_of([1.0]), best, Spread(0.0, 1))


def test_a_true_equal_is_seldom_ended() -> None:
    source, ended = random.Random(1), 0
    for _ in range(2_000):
        best = sample_of([source.gauss(0, 1) for _ in range(5)])
        ended += cannot_win(sample_of([source.gauss(0, 1)]), best, Spread(best.squares, 4))

    assert ended / 2_000 < 0.07


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        pytest.param([], ([], 10), id="nothing yet"),
        pytest.param([a_run("a", 1, None, RUNNING)], ([], 9), id="one run at a time"),
        pytest.param(runs("a", "1"), (["a-2"], 9), id="the next run"),
        pytest.param([*runs("a", "1"), *runs("b", "1", "2")], (["b-3", "a-2"], 8), id="the nearest to its end first"),
        pytest.param(runs("a", "1", None), (["a-3"], 9), id="a lost run is no end"),
        pytest.param(runs("a", None), ([], 9), id="a first run that failed is one"),
        pytest.param([*runs("a", "1"), a_run("a", 2, "3", STOPPED)], ([], 9), id="early stopping is one"),
        pytest.param([a_run("a", 3, "1"), a_run("a", 1, "1")], (["a-2"], 9), id="a deleted run is run again"),
        pytest.param([*runs("a", "1", "1.1", "0.9"), *runs("b", "9")], ([], 8), id="it cannot win"),
        pytest.param([*runs("a", "1", "1.1", "0.9"), *runs("b", "1.05")], (["b-2"], 8), id="it may win"),
    ],
)
def test_the_next_runs(trials: list[Trial], wanted: tuple[list[str], float]) -> None:
    assert decided(*trials) == wanted


@pytest.mark.parametrize(
    ("budget", "trials", "wanted"),
    [
        pytest.param(5, runs("a", "1"), (["a-2", "a-3"], 0), id="all at once, as no other one fits"),
        pytest.param(5, runs("a", "1", "2", "3"), (["a-4", "a-5"], 0), id="what is left over repeats the best"),
        pytest.param(5, runs("a", None), ([], 1), id="a failed one leaves room"),
        pytest.param(4, [*runs("a", None), *runs("b", None)], ([], float("inf")), id="without a best one"),
        pytest.param(None, runs("a", "1", "2", "3"), ([], float("inf")), id="without a limit"),
    ],
)
def test_the_budget_is_used_up(budget: int | None, trials: list[Trial], wanted: tuple[list[str], float]) -> None:
    assert decided(*trials, budget=budget) == wanted


def test_the_best_mean_of_all_runs_is_the_best_one_and_a_lucky_run_is_not() -> None:
    trials = [*runs("a", "1", "1.4", "1.2"), *runs("b", "1.1", "1.1", "1.1"), a_run("c", 1, "0.1", STOPPED)]
    standing = standing_of(added(*trials).configurations, 3)

    assert standing.best is not None
    assert standing.best.name == "b"
    assert [trial.name for _, trial in ranked(trials, 3)] == ["b", "a"]


def test_a_run_that_was_stopped_early_counts_only_without_others() -> None:
    stopped = a_run("a", 2, "9", STOPPED)
    alone, beside = (added(*trials).configurations["a"] for trials in ([stopped], [*runs("a", "1"), stopped]))

    assert [run.cost for run in alone.counted()] == [9.0]
    assert [run.cost for run in beside.counted()] == [1.0]
    assert beside.summary().sample == (1.0, 1, 0.0)


def test_the_algorithm_sees_a_pending_trial_until_no_run_is_to_come() -> None:
    tally = added(*runs("a", "1", "2", "6"), *runs("b", "1.5"), *runs("c", None))
    shown = {trial.name: trial for trial in history(tally, standing_of(tally.configurations, 3))}
    states = {name: trial.state.value for name, trial in shown.items()}

    assert states == {"a": "Succeeded", "b": "Running", "c": "Failed"}
    assert shown["a"].status.observation is not None
    assert shown["a"].status.observation.metrics[0].latest == "3"


def test_the_order_of_events_changes_nothing() -> None:
    trials = [*runs("a", "1", "2", "3"), *runs("b", "1.5", "2.5"), *runs("c", "0.5"), *runs("d", None)]
    wanted = decided(*trials)
    for seed in range(20):
        tally, source = added(*trials), random.Random(seed)
        for trial in source.sample(trials, 5):
            tally.remove(trial.name)
            tally.add(trial)
        again, room = next_runs(tally, standing_of(tally.configurations, 3), 3, 30)

        assert ([run.name for run in again], room) == wanted


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "201", "many"])
def test_what_is_no_number_of_runs_is_refused(text: str) -> None:
    assert [error.origin for error in Repeats().errors({REPEATS.name: text})] == ["repeats-count"]
    assert not Repeats().errors(REPEATS.write(200))


@pytest.mark.parametrize(
    ("origin", "spec"),
    [
        ("repeats-budget", {"maxTrialCount": 2}),
        ("repeats-callers", {"trialTemplate": None}),
        (
            "repeats-objectives",
            {"objective": {"objectives": [{"metricName": n, "type": "minimize"} for n in ("loss", "seconds")]}},
        ),
        ("repeats-algorithm", {"nasConfig": {"graphConfig": {"numLayers": 1}}}),
    ],
)
def test_experiments_that_cannot_be_repeated_are_refused(origin: str, spec: dict[str, Any]) -> None:
    made = an_experiment(**spec)
    made["metadata"]["annotations"] = REPEATS.write(3)
    once = an_experiment(**spec)

    assert [error.origin for error in Repeats().misfits(Experiment.decode(made))] == [origin]
    assert not list(Repeats().misfits(Experiment.decode(once)))


def test_the_number_of_runs_cannot_change() -> None:
    assert Repeats().changes(REPEATS.write(3), {}) == {}
    assert Repeats().changes(REPEATS.write(3), REPEATS.write(3)) == {}
    with pytest.raises(InvalidError) as caught:
        Repeats().changes({}, REPEATS.write(3))
    assert [error.origin for error in caught.value.errors] == ["repeats-changed"]
