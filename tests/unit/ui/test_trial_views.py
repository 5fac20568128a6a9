"""What the page of a trial shows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from katib.doors.ui.trial_views import (
    distance_words,
    event_rows,
    job_yaml,
    lineage_rows,
    metric_names,
    neighbours,
    parameter_rows,
    replica_rows,
    trial_summary,
)
from katib.doors.ui.words import trial_sentence
from katib.model.names import GENERATION_LABEL, PARENT_LABEL
from katib.model.types import Experiment
from katib.service.tuning.service import RecordedEvent
from tests.support.golden import Golden
from tests.support.tuning import START, Json, condition, make_experiment, make_pod, make_trial, patched

DONE = condition("Succeeded", "TrialSucceeded", "Trial has succeeded")


def experiment(value: str = "0.2", trial: str = "demo-best", **assignments: str) -> Experiment:
    """Return an experiment whose best trial has this loss."""
    best = {
        "bestTrialName": trial,
        "parameterAssignments": [{"name": name, "value": text} for name, text in assignments.items()],
        "observation": {"metrics": [{"name": "loss", "min": value, "max": value, "latest": value}]},
    }
    return make_experiment("demo", currentOptimalTrial=best)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        pytest.param("0.25", "0.05 (25.00%) above the best, 0.2", id="worse"),
        pytest.param("0.2", "the same as the best, 0.2", id="equal"),
        pytest.param("0.15", "0.05 (25.00%) below the best, 0.2: better", id="better"),
        pytest.param("nan", "", id="no number"),
        pytest.param(None, "", id="none yet"),
    ],
)
def test_a_trial_says_how_far_it_is_from_the_best(loss: str | None, words: str) -> None:
    assert distance_words(make_trial("demo-1", DONE, loss=loss), experiment()) == words


def test_the_best_trial_says_so_and_one_alone_is_shown(golden: Golden) -> None:
    trial = make_trial("demo-best", DONE, loss="0.2")

    golden(distance_words(trial, experiment()))
    assert trial_summary(trial, experiment())["isBest"]

    summary = trial_summary(make_trial("demo-1", DONE, loss="0.25"), None)

    assert (summary["state"], summary["best"], summary["distance"]) == ("Succeeded", "", "")
    assert parameter_rows(make_trial("demo-1", x="1"), None)[0]["best"] == {"text": "", "exact": ""}


def test_parameters_that_differ_from_the_best_are_told_apart_in_words() -> None:
    trial = make_trial("demo-1", lr="0.1", layers="3", optimizer="adam", only="1", same="5")
    rows = parameter_rows(trial, experiment(lr="0.01", layers="4", optimizer="sgd", same="5", other="2"))

    assert {row["name"]: row["change"] for row in rows} == {
        "lr": "10 \u00d7 higher",
        "layers": "1.3 \u00d7 lower",
        "optimizer": "different",
        "only": "only here",
        "same": "",
        "other": "only in the best",
    }
    assert [row["name"] for row in rows if not row["differs"]] == ["same"]


def test_metrics_and_failures_are_named_by_what_says_most() -> None:
    failed = condition("Failed", "TrialFailed", "Trial has failed. Job message: exit code 3")

    assert "exit code 3" in trial_sentence(make_trial("demo-1", failed))

    trial = patched(make_trial("demo-1", DONE, loss="1"), spec={"objective": {"additionalMetricNames": ["accuracy"]}})

    assert metric_names(trial, ["speed", "loss"]) == ["loss", "accuracy", "speed"]


def test_events_come_newest_first_and_users_containers_before_the_collector() -> None:
    pod = make_pod("demo-1-a", "demo-1", replica="worker-1", code=3)
    pod["spec"]["containers"].insert(0, {"name": "metrics-logger-and-collector"})
    [row] = replica_rows([pod])

    assert (row["name"], row["state"], row["exit"]) == ("worker-1", "Error", "3")
    assert row["containers"] == ["main", "metrics-logger-and-collector"]

    events = [
        RecordedEvent(START + timedelta(seconds=n), "Trial", "demo-1", n % 2 == 1, "Reason", str(n)) for n in range(300)
    ]
    rows = event_rows(events)

    assert len(rows) == 200
    assert [row["message"] for row in rows[:2]] == ["299", "298"]
    assert [row["kind"] for row in rows[:2]] == ["Warning", "Normal"]


def test_lineage_needs_a_parent() -> None:
    labels = {PARENT_LABEL: "demo-1", GENERATION_LABEL: "1"}
    child, parent = patched(make_trial("demo-2"), metadata={"labels": labels}), make_trial("demo-1", DONE, loss="0.5")

    assert [(row["name"], row["generation"], row["value"]) for row in lineage_rows([child, parent])] == [
        ("demo-2", "1", "unavailable"),
        ("demo-1", "0", "0.5"),
    ]
    assert lineage_rows([parent]) == []


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        pytest.param("a", {"previous": "", "next": "b", "place": 1, "total": 3}, id="first"),
        pytest.param("b", {"previous": "a", "next": "c", "place": 2, "total": 3}, id="between"),
        pytest.param("c", {"previous": "b", "next": "", "place": 3, "total": 3}, id="last"),
        pytest.param("ghost", {"previous": "", "next": "", "place": 0, "total": 3}, id="unknown"),
    ],
)
def test_the_trials_beside_one_are_those_created_before_and_after(name: str, beside: Json) -> None:
    assert neighbours(["a", "b", "c"], name) == beside


def test_a_job_is_yaml_in_the_order_of_its_fields() -> None:
    trial = patched(make_trial("demo-1"), spec={"runSpec": {"kind": "Job", "apiVersion": "batch/v1"}})

    assert job_yaml(trial) == "kind: Job\napiVersion: batch/v1\n"
    assert job_yaml(make_trial("demo-2")) == ""
