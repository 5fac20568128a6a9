from __future__ import annotations

from datetime import timedelta

import pytest

from katib.cli.run.lines import moment_line
from katib.cli.run.progress import BestChanged, Progress, TrialEnded, TrialStarted
from katib.tuning.service import Change, Json
from tests.support.tuning import START, condition, make_experiment, make_trial

RUNNING = condition("Running")


def see(progress: Progress, obj: Json, type_: str = "MODIFIED") -> list[str]:
    return [moment_line(moment, progress) for moment in progress.observe(Change(type_, obj))]


@pytest.fixture
def progress() -> Progress:
    return Progress(make_experiment(), START)


def test_a_trial_is_told_once_when_it_starts_and_once_when_it_ends(progress: Progress) -> None:
    done = make_trial("t", RUNNING, condition("Succeeded"), loss="0.2", x="1")

    assert see(progress, make_trial("t", condition("Created"), x="1")) == []
    assert see(progress, make_trial("t", RUNNING, x="1")) == ["t started: x=1"]
    assert see(progress, make_trial("t", RUNNING, x="1")) == []
    assert see(progress, done) == ["t succeeded in 5s: loss=0.2, x=1 (1/12)"]
    assert see(progress, done) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("Failed", "t failed in 5s: x=1; exit code 1 (1/12)"),
        ("EarlyStopped", "t was stopped early in 5s: x=1; exit code 1 (1/12)"),
        ("MetricsUnavailable", "t had no metrics in 5s: x=1; exit code 1 (1/12)"),
        ("Killed", "t was stopped in 5s: x=1; exit code 1 (1/12)"),
    ],
)
def test_a_trial_that_did_not_succeed_says_why(progress: Progress, state: str, words: str) -> None:
    assert see(progress, make_trial("t", condition(state, message="exit code 1"), x="1")) == [words]


@pytest.mark.parametrize(
    ("reason", "status", "message"),
    [
        pytest.param("TrialWaiting", "True", "Trial is running: image nosuch:1 cannot be pulled", id="no image"),
        pytest.param("JobKindNotInstalled", "False", "Trial cannot run: there is no such kind", id="no kind"),
    ],
)
def test_what_a_trial_waits_for_is_told_once(progress: Progress, reason: str, status: str, message: str) -> None:
    running = {**condition("Running", reason, message), "status": status}
    trial = make_trial("demo-1", condition("Created"), running)
    told = [line for _ in range(2) for line in see(progress, trial)]

    assert [line for line in told if "has to wait" in line] == [f"demo-1 has to wait: {message.partition(': ')[2]}"]


def test_trials_that_ended_before_this_run_are_counted_and_not_told() -> None:
    progress = Progress(make_experiment(), START + timedelta(hours=1))

    assert see(progress, make_trial("old", condition("Succeeded"), loss="1"), "ADDED") == []
    assert progress.done == 1
    assert progress.seconds_left(10) is None


def test_the_estimate_rests_on_the_trials_of_this_run_only() -> None:
    progress = Progress(make_experiment(), START + timedelta(hours=1))
    see(progress, make_trial("old", condition("Succeeded"), loss="1"), "ADDED")
    see(progress, make_trial("new", condition("Succeeded"), loss="1", index=400))

    assert progress.seconds_left(10) == 100


def test_a_better_trial_is_told_when_the_experiment_says_so(progress: Progress) -> None:
    metrics = [{"name": "loss", "min": "0.1", "max": "0.4", "latest": "0.3"}]
    best = {"bestTrialName": "t", "observation": {"metrics": metrics}}

    assert see(progress, make_experiment("demo", RUNNING, currentOptimalTrial=best)) == ["best so far is t: loss=0.1"]
    assert see(progress, make_experiment("demo", RUNNING, currentOptimalTrial=best)) == []


def test_a_run_is_finished_only_when_nothing_runs_any_more(progress: Progress) -> None:
    see(progress, make_experiment("demo", condition("Succeeded"), trialsRunning=1))
    assert progress.completed
    assert not progress.finished

    see(progress, make_experiment("demo", condition("Succeeded")))
    assert progress.finished


def test_an_end_that_a_larger_budget_has_overtaken_does_not_finish_the_run(progress: Progress) -> None:
    ended = make_experiment("demo", condition("Succeeded", "ExperimentMaxTrialsReached"), trials=2)
    ended["spec"] |= {"maxTrialCount": 3, "resumePolicy": "FromVolume"}
    see(progress, ended, "ADDED")
    assert not progress.finished

    see(progress, {**ended, "status": {**ended["status"], "trials": 3}})
    assert progress.finished


def test_trials_that_the_experiment_counts_but_nobody_saw_are_still_to_come(progress: Progress) -> None:
    see(progress, make_experiment("demo", condition("Succeeded"), trialsSucceeded=1))
    assert not progress.all_told

    see(progress, make_trial("t", condition("Succeeded"), loss="1"))
    assert progress.all_told


def test_a_deleted_experiment_finishes_the_run(progress: Progress) -> None:
    see(progress, make_experiment(), "DELETED")

    assert progress.finished


def test_moments_carry_what_they_are_about(progress: Progress) -> None:
    trial = make_trial("t", RUNNING)

    assert list(progress.observe(Change("ADDED", trial))) == [TrialStarted(trial)]
    assert TrialEnded(trial, 1) != BestChanged("t", "1")
