"""ASHA: trials pause at rungs that nothing waits for, and the best of them continue."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from suggestion_services.base.algorithm import PastTrial, Problem, TrialOutcome
from tests.support.golden import Golden
from tests.support.halving import Run, ends_as, halving_problem, measured


def a_problem() -> Problem:
    """Return a search of forty trials on four rungs."""
    return halving_problem("asha", max_trial_count=40, r_l=27)


def label(trial: PastTrial, kind: str) -> str:
    prefix = next(name for name in trial.labels if name.endswith("/rung")).removesuffix("/rung")
    return trial.labels.get(f"{prefix}/{kind}", "")


@pytest.mark.parametrize("parallel", [1, 4, 20])
def test_no_slot_is_ever_empty_and_no_trial_goes_on_twice(parallel: int) -> None:
    run = Run(a_problem(), "asha", parallel=parallel).to_the_end()
    by_name = {trial.name: trial for trial in run.trials}
    parents = [label(trial, "parent") for trial in run.trials if label(trial, "parent")]

    assert (len(run.trials), run.waits) == (40, 0)
    assert parents
    assert max(Counter(parents).values()) == 1
    for trial in run.trials:
        if parent := by_name.get(label(trial, "parent")):
            same = {key: value for key, value in parent.assignments.items() if key != "epochs"}
            assert {**trial.assignments, **same} == trial.assignments
            assert int(trial.assignments["epochs"]) == 3 * int(parent.assignments["epochs"])


def test_a_quarter_of_the_first_rung_goes_on_and_half_of_the_others() -> None:
    """The best of each rung; a first rung of all new trials says less than a later one."""
    run = Run(a_problem(), "asha")
    while run.step():
        *before, newest = run.trials
        if parent := label(newest, "parent"):
            rung = [t for t in before if label(t, "rung") == label(run.trials[int(parent[1:])], "rung")]
            ranked = sorted(rung, key=lambda trial: trial.objective)
            share = 4 if label(run.trials[int(parent[1:])], "rung") == "0" else 2
            assert parent in [trial.name for trial in ranked[: math.floor(len(rung) / share)]]

    assert [count for _, count in sorted(run.rungs().items())] == [26, 8, 4, 2]


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_restart_at_any_moment_changes_nothing(parallel: int) -> None:
    runs = [Run(a_problem(), "asha", parallel=parallel, restarts=restarts).to_the_end() for restarts in (False, True)]

    assert runs[0].trials == runs[1].trials


def test_a_controller_that_drops_labels_gets_the_same_rungs() -> None:
    runs = [Run(a_problem(), "asha", keeps_labels=keeps_labels).to_the_end() for keeps_labels in (True, False)]
    epochs = [Counter(trial.assignments["epochs"] for trial in run.trials) for run in runs]

    assert epochs[0] == epochs[1]


@pytest.mark.parametrize("outcome", [TrialOutcome.BAD, TrialOutcome.SILENT])
def test_a_rung_with_failures_only_ends_there_and_others_go_on(outcome: TrialOutcome) -> None:
    """All that trains for three epochs fails; every configuration has had its chance, and no slot is empty."""

    def end(trial: PastTrial) -> PastTrial:
        return ends_as(outcome)(trial) if trial.assignments["epochs"] == "3" else measured(trial)

    run = Run(a_problem(), "asha", parallel=2, end=end).to_the_end()

    assert len(run.trials) == 40
    assert {trial.assignments["epochs"] for trial in run.trials} == {"1", "3"}


@pytest.mark.parametrize("value", [1.0, -1e300], ids=["constant", "huge"])
def test_values_that_say_nothing_are_survived(value: float) -> None:
    def end(trial: PastTrial) -> PastTrial:
        return replace(trial, outcome=TrialOutcome.MEASURED, objective=value)

    run = Run(a_problem(), "asha", parallel=3, end=end).to_the_end()

    assert len(run.trials) == 40
    assert run.rungs()["0", "1", "3"] > 1


def test_a_progress_is_explained_by_its_rungs(golden: Golden) -> None:
    run = Run(a_problem(), "asha", parallel=2)
    for _ in range(20):
        run.step()

    golden(run.algorithm.explain())
    assert "at epochs=1" in run.algorithm.explain()
