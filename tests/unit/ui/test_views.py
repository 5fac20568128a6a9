"""What pages say of experiments."""

from __future__ import annotations

import ast
import json
import shlex
from datetime import timedelta

import yaml

from katib.ui.views import action_fields, copies_of, experiment_head, progress_parts, time_words, typed_assignments
from tests.support.tuning import START, condition, make_experiment, make_pareto_experiment, patched

NOW = START + timedelta(seconds=100)


def test_what_is_copied_is_read_back_as_it_was() -> None:
    values = {"lr": 0.001, "layers": 3, "optimizer": 'it\'s a "test"\n', "when": "no"}
    copies = copies_of(values)

    assert yaml.safe_load(copies["YAML"]) == values
    assert json.loads(copies["JSON"]) == values
    assert ast.literal_eval(copies["Python"]) == values
    assert shlex.split(copies["Command line"])[0] == "--lr=0.001"
    assert len(shlex.split(copies["Command line"])) == len(values)


def test_numbers_are_numbers_and_choices_are_text() -> None:
    experiment = make_experiment()
    kinds = {"lr": "double", "layers": "int", "size": "discrete", "width": "categorical"}
    experiment = patched(
        experiment, spec={"parameters": [{"name": name, "parameterType": kind} for name, kind in kinds.items()]}
    )
    typed = typed_assignments(experiment, {"lr": "1e-3", "layers": "3", "size": "16", "width": "32", "other": "1"})

    assert typed == {"lr": 0.001, "layers": 3, "size": 16, "width": "32", "other": "1"}


def test_a_bar_tells_apart_how_trials_ended() -> None:
    experiment = make_experiment(trialsSucceeded=5, trialsFailed=2, trialsEarlyStopped=1, trialsRunning=2)

    assert progress_parts(experiment_head(experiment, NOW)) == [
        ("Succeeded", 5),
        ("EarlyStopped", 1),
        ("Failed", 2),
        ("Running", 2),
        ("to come", 2),
    ]


def test_the_time_left_follows_from_the_pace_so_far() -> None:
    experiment = make_experiment("demo", condition("Running"), trialsSucceeded=4)

    assert time_words(experiment, NOW) == "running for 100s, about 3m20s left"
    assert time_words(make_experiment("demo", condition("Running")), NOW) == "running for 100s"
    assert time_words(patched(experiment, status=None), NOW) == ""


def test_an_ended_experiment_took_its_time() -> None:
    ended = make_experiment("demo", condition("Succeeded"), completionTime="2030-01-01T12:01:00Z")

    assert time_words(ended, NOW) == "took 60s"


def test_a_stopped_experiment_says_so_and_promises_no_end() -> None:
    stopped = {**condition("Running", "ExperimentStopped", "Experiment is stopped"), "status": "False"}
    experiment = make_experiment("demo", condition("Created", message="Experiment is created"), stopped)
    head = experiment_head(experiment, NOW)

    assert (head["state"], head["reason"], head["time"]) == ("Stopped", "Experiment is stopped", "began 100s ago")


def test_several_objectives_have_a_pareto_set() -> None:
    assert "3 trials that no other beats" in experiment_head(make_pareto_experiment(), NOW)["pareto"]
    assert experiment_head(make_experiment(), NOW)["pareto"] == ""


def test_a_trial_by_hand_begins_with_the_values_of_the_best_one() -> None:
    experiment = make_experiment(
        currentOptimalTrial={"bestTrialName": "demo-1", "parameterAssignments": [{"name": "lr", "value": "0.5"}]}
    )
    space = {"min": "0.1", "max": "1", "step": "0.1"}
    experiment = patched(
        experiment,
        spec={
            "parameters": [
                {"name": "lr", "parameterType": "double", "feasibleSpace": space},
                {"name": "optimizer", "parameterType": "categorical", "feasibleSpace": {"list": ["adam", "sgd"]}},
            ]
        },
    )
    lr, optimizer = action_fields(experiment)

    assert (lr.value, lr.hint) == ("0.5", "double from 0.1 to 1, step 0.1")
    assert (optimizer.value, optimizer.choices) == ("adam", ("adam", "sgd"))
