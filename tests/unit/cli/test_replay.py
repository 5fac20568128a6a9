"""`katib replay`."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from katib.model.metrics import ZERO_TIME, MetricLog
from tests.support.tuning import START, MemoryTuningService, condition, make_experiment, make_trial, patched
from tests.unit.cli.conftest import Katib

CURVES = {"good": (0.5, 0.3, 0.2), "bad": (0.9, 0.8, 0.7), "late": (0.8, 0.6, 0.1)}


def run_demo(service: MemoryTuningService, **spec: Any) -> None:
    """Store an experiment of three trials that ran one after the other, ten seconds apart, a reading a second."""
    experiment = make_experiment("demo", condition("Succeeded"))
    service.put(patched(experiment, spec=spec))
    for index, (name, values) in enumerate(CURVES.items()):
        service.put(make_trial(name, condition("Succeeded"), loss=str(min(values)), index=index))
        for second, value in enumerate(values, 1):
            service.store_readings(name, MetricLog(START + timedelta(seconds=10 * index + second), "loss", str(value)))


@pytest.fixture
def ended(service: MemoryTuningService) -> MemoryTuningService:
    run_demo(service)
    return service


def test_it_shows_whom_an_algorithm_would_have_stopped(katib: Katib, ended: MemoryTuningService) -> None:
    code, out, _ = katib("replay", "demo", "--early-stopping", "asha", "-s", "reduction_factor=2")

    head, bad, late, _, *summary = out.splitlines()
    assert code == 0
    assert head.split() == ["TRIAL", "STATE", "OBJECTIVE", "STOPPED-AT", "SAVED", "REASON"]
    assert bad.split()[:6] == ["bad", "Succeeded", "0.7", "reading", "1", "2/3"]
    assert late.split()[:6] == ["late", "Succeeded", "0.1", "reading", "1", "2/3"]
    assert "2 of 3 trials" in summary[0]
    assert "4 of 9 readings (44%), 8s of 15s" in summary[1]
    assert "late (loss 0.1)" in summary[2]
    assert "good (0.2)" in summary[2]


def test_it_prints_the_same_as_data(katib: Katib, ended: MemoryTuningService) -> None:
    found = json.loads(katib("replay", "demo", "--early-stopping", "asha", "-s", "min_resource=3", "-o", "json").out)

    assert found["stopped"] == []
    assert (found["trials"], found["readings"], found["readingsSaved"], found["secondsSaved"]) == (3, 9, 0, 0)
    assert (found["bestTrial"], found["bestValue"], found["bestSurvives"], found["bestLeft"]) == (
        "late",
        "0.1",
        True,
        "late",
    )


def test_the_experiments_own_early_stopping_is_replayed_with_other_settings(
    katib: Katib, service: MemoryTuningService
) -> None:
    own = [{"name": "bound", "value": "0.75"}, {"name": "step", "value": "9"}]
    run_demo(service, earlyStopping={"algorithmName": "threshold", "algorithmSettings": own})

    assert json.loads(katib("replay", "demo", "-o", "json").out)["stopped"] == []
    stopped = json.loads(katib("replay", "demo", "-s", "step=2", "-o", "json").out)["stopped"]
    assert [(trial["name"], trial["stoppedAt"]) for trial in stopped] == [("bad", "reading 2")]


def test_steps_order_and_name_the_place(katib: Katib, service: MemoryTuningService) -> None:
    service.put(make_experiment("demo", condition("Succeeded")))
    service.put(make_trial("t", condition("EarlyStopped"), loss="0.9"))
    for step in (20, 10, 30):
        service.store_readings("t", MetricLog(ZERO_TIME, "loss", f"0.{step}", step))

    (stopped,) = json.loads(
        katib("replay", "demo", "--early-stopping", "threshold", "-s", "bound=0.15", "-s", "step=20", "-o", "json").out
    )["stopped"]

    assert (stopped["stoppedAt"], stopped["readingsSaved"]) == ("step 20", 1)


@pytest.mark.parametrize(
    ("words", "origin_field"),
    [
        ((), "--early-stopping"),
        (("--early-stopping", "ashaa"), "spec.earlyStopping.algorithmName"),
        (("--early-stopping", "tpe"), "spec.earlyStopping.algorithmName"),
        (("--early-stopping", "asha", "-s", "eta=3"), "spec.earlyStopping.algorithmSettings[0].name"),
        (("--early-stopping", "asha", "-s", "grace=soon"), "spec.earlyStopping.algorithmSettings[0].value"),
        (("--early-stopping", "asha", "-s", "grace"), '"grace"'),
    ],
    ids=["none", "misspelt", "suggestion", "setting", "value", "no-value"],
)
def test_what_cannot_be_replayed_is_said_with_its_field(
    katib: Katib, ended: MemoryTuningService, words: tuple[str, ...], origin_field: str
) -> None:
    code, out, err = katib("replay", "demo", *words)

    assert (code, out) == (2, "")
    assert origin_field in err


def test_an_experiment_without_readings_is_sent_to_why(katib: Katib, service: MemoryTuningService) -> None:
    service.put(make_experiment("demo", condition("Created")))

    code, out, err = katib("replay", "demo", "--early-stopping", "asha")

    assert (code, out) == (0, "")
    assert "katib why demo" in err


def test_all_algorithms_are_compared_and_the_one_that_saves_without_a_loss_is_named(
    katib: Katib, service: MemoryTuningService
) -> None:
    """Of six trials the last two are hopeless from the first reading on; the best turns only at its end."""
    curves = {f"t{i}": [0.5 - 0.05 * i] * 4 for i in range(4)} | {"t4": [9.0] * 4, "t5": [9.0] * 4}
    curves["t3"] = [0.6, 0.6, 0.6, 0.01]
    service.put(make_experiment("demo", condition("Succeeded")))
    for index, (name, values) in enumerate(curves.items()):
        service.put(make_trial(name, condition("Succeeded"), loss=str(min(values)), index=index))
        for second, value in enumerate(values, 1):
            service.store_readings(name, MetricLog(START + timedelta(seconds=10 * index + second), "loss", str(value)))

    code, out, _ = katib("replay", "demo", "--compare")
    found = {one["algorithm"]: one for one in json.loads(katib("replay", "demo", "--compare", "-o", "json").out)}

    assert code == 0
    assert (found["medianstop"]["trials"], found["medianstop"]["lost"], found["medianstop"]["kept"]) == (6, 0, 1)
    assert found["asha"]["lost"] > 0
    assert found["asha"]["kept"] == 0
    best = max((one for one in found.values() if one["lost"] <= 0.01), key=lambda one: one["saved"])
    assert f"`--early-stopping {best['algorithm']}`" in out
    assert out.splitlines()[0].split() == ["ALGORITHM", "STOPPED", "SAVED", "LOST", "BEST-KEPT"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("demo", "other"), "several experiments need --compare"),
        (("demo", "--compare", "-s", "a=1"), "--compare takes all algorithms"),
    ],
)
def test_what_does_not_go_together_is_refused(katib: Katib, options: tuple[str, ...], said: str) -> None:
    code, _, err = katib("replay", *options)

    assert code == 2
    assert said in err


MEAN = {"type": "minimize", "objectiveMetricName": "loss", "metricStrategies": [{"name": "loss", "value": "mean"}]}
LAST = {**MEAN, "metricStrategies": [{"name": "loss", "value": "mean(2)"}]}


@pytest.mark.parametrize(
    ("objective", "least", "best", "left"),
    [
        pytest.param(MEAN, 1, ("good", 1.0 / 3), ("good", 1.0 / 3), id="a cut trial has no mean"),
        pytest.param(LAST, 1, ("good", 0.25), ("good", 0.25), id="the mean of the last ones"),
        pytest.param(LAST, 3, ("good", 0.25), ("good", 0.25), id="nothing is cut"),
    ],
)
def test_the_value_of_a_trial_is_the_mean_where_the_strategy_says_so(
    katib: Katib,
    service: MemoryTuningService,
    objective: dict[str, Any],
    least: int,
    best: tuple[str, float],
    left: tuple[str, float],
) -> None:
    run_demo(service, objective=objective)

    command = ["replay", "demo", "--early-stopping", "asha", "-s", f"min_resource={least}", "-o", "json"]
    found = json.loads(katib(*command).out)

    assert (found["bestTrial"], found["bestLeft"]) == (best[0], left[0])
    assert float(found["bestValue"]) == pytest.approx(best[1])
    assert float(found["bestValueLeft"]) == pytest.approx(left[1])
