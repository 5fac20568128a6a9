"""Findings of a confirmation, from the trials of the experiment that makes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from katib.model.names import CONFIRMED_ANNOTATION, CONFIRMS_LABEL, GENERATION_LABEL
from katib.model.types import Experiment, Trial
from katib.service.tuning.confirmations import equal_trials_of, found_by, share_text, told_by_equal
from katib.service.tuning.service import Confirmation
from tests.support.controllers import new_store
from tests.support.tuning import condition, make_experiment, make_trial

SUCCEEDED, FAILED, RUNNING = condition("Succeeded"), condition("Failed"), condition("Running")


def confirming(*conditions: Any, budget: int = 4, direction: str = "minimize") -> Experiment:
    encoded = make_experiment("demo-confirm", *conditions).encode()
    searched = [
        {"trial": f"demo-{i}", "value": value, "parameters": {"x": x}}
        for i, (x, value) in enumerate((("1", 0.1), ("2", 0.2)))
    ]
    text = json.dumps({"uid": "u", "trials": searched})
    encoded["metadata"] |= {"labels": {CONFIRMS_LABEL: "demo"}, "annotations": {CONFIRMED_ANNOTATION: text}}
    encoded["spec"] |= {"maxTrialCount": budget, "objective": {**encoded["spec"]["objective"], "type": direction}}
    return Experiment.read(encoded)


def a_run(name: str, x: str, loss: str | None, *conditions: Any) -> Trial:
    return make_trial(name, *(conditions or (SUCCEEDED,)), x=x, loss=loss)


def found(*runs: Trial, **experiment: Any) -> Confirmation:
    return found_by(confirming(RUNNING, **experiment), runs)


def test_means_are_those_of_each_configuration_and_lost_runs_are_named() -> None:
    one = found(
        *(a_run(f"a{i}", "1", loss) for i, loss in enumerate(("0.5", "0.7"))),
        *(a_run(f"b{i}", "2", loss) for i, loss in enumerate(("0.3", "0.4", "nan"))),
        a_run("b3", "2", None, FAILED),
        a_run("b4", "2", None, RUNNING),
    )
    first, second = one.configurations

    assert (first.trial, second.trial) == (one.best, "demo-0") == ("demo-1", "demo-0")
    assert first.lost == ("b2", "b3")
    assert first.mean == pytest.approx(0.35)
    assert second.mean == pytest.approx(0.6)
    assert one.optimism == pytest.approx(0.5)  # of demo-0, the best of the search
    assert first.behind is None
    assert second.behind is not None


def test_with_an_objective_to_maximize_the_interval_is_in_order() -> None:
    runs = [a_run(f"{x}{i}", x, loss) for x in "12" for i, loss in enumerate((f"0.{x}", f"0.{x}5"))]

    one = found(*runs, direction="maximize")
    first = one.configurations[0]

    assert one.best == "demo-1"
    assert first.low is not None
    assert first.mean is not None
    assert first.high is not None
    assert first.low < first.mean < first.high
    assert one.optimism == pytest.approx(0.1 - 0.125)


def test_while_a_configuration_has_not_run_no_other_one_is_called_the_best() -> None:
    runs = (a_run("a", "1", "0.5"), a_run("b", "1", "0.6"))

    half, whole = found(*runs), found_by(confirming(condition("Succeeded", "ExperimentMaxTrialsReached")), runs)

    assert (half.best, half.configurations[0].probability) == ("", None)
    assert half.configurations[0].low is not None
    assert (whole.best, whole.configurations[0].probability) == ("demo-0", 1.0)


def told(best: str, *runs: Trial) -> Confirmation | None:
    return told_by_equal(make_experiment("demo", currentOptimalTrial={"bestTrialName": best}), runs)


def test_equal_trials_of_a_search_tell_how_lucky_the_best_value_is() -> None:
    often = [a_run(f"a{i}", "1", loss) for i, loss in enumerate(("0.9", "1", "1.1", "0.2"))]
    one = told("a3", *often, a_run("b", "2", "2"), a_run("c", "3", None, FAILED))
    assert one is not None
    first, second = one.configurations

    assert (one.best, first.trial, first.search_value, len(first.values)) == ("a3", "a3", 0.2, 4)
    assert (second.trial, len(second.values)) == ("b", 1)
    assert first.mean == pytest.approx(0.8)
    assert one.optimism == pytest.approx(0.8)  # three further runs have a mean of 1
    assert "0.4082 in loss" in one.verdict


def test_a_lucky_trial_is_less_probably_the_best_than_equal_ones_with_a_good_mean() -> None:
    good = [a_run(f"a{i}", "1", f"{1 + i % 2}") for i in range(8)]
    bad = [a_run(f"b{i}", "2", f"{4 + 2 * (i % 2)}") for i in range(6)]
    one = told("b6", *good, *bad, a_run("b6", "2", "0.9"))
    alone = told("c", *good, *bad, a_run("c", "3", "0.9"))
    assert one is not None
    assert alone is not None

    assert one.best == "a0"
    assert any("a0" in note for note in one.notes)
    assert alone.optimism is None
    assert any("c ran once" in note for note in alone.notes)


def test_trials_tell_nothing_without_noise_or_if_they_continue_others() -> None:
    equal = [a_run(f"a{i}", "1", "0.3") for i in range(3)]
    unequal = [a_run("a", "1", "0.3"), a_run("b", "2", "0.4")]
    going_on = [
        structs.replace(run, metadata=structs.replace(run.metadata, labels={GENERATION_LABEL: "1"}))
        for run in (a_run("a", "1", "0.3"), a_run("b", "1", "0.2"))
    ]

    assert told("a0", *equal) is told("a", *unequal) is told("b", *going_on) is told("gone", *equal) is None


def test_more_equal_trials_than_a_page_can_wait_for_are_not_read() -> None:
    store = new_store()
    for i in range(2):
        trial = a_run(f"a{i}", "1", f"0.{i + 1}").encode()
        store.update_status({**store.create(trial), "status": trial["status"]})
    few, many = (make_experiment(trials=n, currentOptimalTrial={"bestTrialName": "a0"}) for n in (1_000, 1_001))

    assert equal_trials_of(store, few) is not None
    assert equal_trials_of(store, many) is None


def test_no_probability_looks_certain_that_is_not() -> None:
    assert [share_text(share) for share in (0.0, 0.001, 0.5, 0.999, 1.0)] == [
        "0%",
        "below 1%",
        "50%",
        "over 99%",
        "100%",
    ]
