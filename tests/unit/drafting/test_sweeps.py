"""Files of other tuners: sweeps of Weights & Biases as experiments, and files of earlier releases."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from katib.errors import InvalidError
from katib.model.loading import FileText, experiment_of
from katib.places.machine import validate_document
from katib.service.drafting.sweeps import experiment_of_sweep
from katib.service.tuning.earlier_files import with_earlier_trials
from tests.support.experiments import a_double, an_experiment, load_experiment
from tests.support.golden import Golden
from tests.support.refusals import refused

SWEEP = """
program: train.py
method: bayes
name: My sweep
run_cap: 6
metric: {name: loss, goal: minimize, target: 0.1}
parameters:
  lr: {distribution: log_uniform_values, min: 0.0001, max: 0.1}
  momentum: {min: 0.5, max: 0.9}
  layers: {min: 1, max: 4}
  drop: {distribution: q_uniform, min: 0.0, max: 0.5, q: 0.1}
  batch: {values: [16, 32]}
  opt: {values: [adam, sgd]}
  epochs: {value: 3}
early_terminate: {type: hyperband, min_iter: 3, eta: 2}
command: ["${env}", "${interpreter}", "${program}", "${args}"]
"""


def test_a_sweep_is_an_experiment() -> None:
    experiment = experiment_of_sweep(SWEEP, "sweep.yaml")
    spec = experiment["spec"]

    assert experiment["metadata"]["name"] == "my-sweep"
    assert spec["objective"] == {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.1}
    assert (spec["algorithm"]["algorithmName"], spec["maxTrialCount"]) == ("gp", 6)
    assert {one["name"]: (one["parameterType"], one["feasibleSpace"]) for one in spec["parameters"]} == {
        "lr": ("double", {"min": "0.0001", "max": "0.1", "distribution": "logUniform"}),
        "momentum": ("double", {"min": "0.5", "max": "0.9"}),
        "layers": ("int", {"min": "1", "max": "4"}),
        "drop": ("double", {"min": "0.0", "max": "0.5", "step": "0.1"}),
        "batch": ("discrete", {"list": ["16", "32"]}),
        "opt": ("categorical", {"list": ["adam", "sgd"]}),
    }
    assert spec["earlyStopping"] == {
        "algorithmName": "asha",
        "algorithmSettings": [{"name": "min_resource", "value": "3"}, {"name": "reduction_factor", "value": "2"}],
    }
    [container] = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["python", "train.py", "--lr=${trialParameters.lr}"]
    assert container["command"][-1] == "--epochs=3"
    validate_document(yaml.safe_dump(experiment), source="sweep.yaml")


def test_everything_that_has_no_counterpart_is_said_at_once() -> None:
    text = """
    method: annealing
    parameters:
      a: {distribution: beta, min: 0.0, max: 1.0}
      b: {parameters: {c: {value: 1}}}
      d: {mu: 0, sigma: 1, distribution: normal}
    """
    with pytest.raises(InvalidError) as caught:
        experiment_of_sweep(text, "sweep.yaml")

    assert [error.path for error in caught.value.errors] == [
        "metric.name",
        "method",
        "parameters.a.distribution",
        "parameters.d.distribution",
    ]
    with refused("sweep"):
        experiment_of_sweep("a: 1", "sweep.yaml")


def test_what_is_written_wrong_is_said_at_once(golden: Golden) -> None:
    text = """
    command: python train.py
    metric: {name: loss, goal: minimise}
    run_cap: ten
    early_terminate: {min_iter: x}
    parameters:
      a: [1, 2]
      b: 3
    """
    with pytest.raises(InvalidError) as caught:
        experiment_of_sweep(text, "sweep.yaml")

    golden(caught.value.errors)


def test_nested_parameters_have_dots_in_their_names_and_values_their_text() -> None:
    text = """
    program: train.py
    metric: {name: loss}
    parameters:
      python: {values: [3.9, 3.10]}
      amp: {values: [true, on]}
      optimizer:
        parameters:
          lr: {min: 1e-3, max: 1e-1}
          inner: {parameters: {steps: {value: 010}}}
    """
    experiment = experiment_of_sweep(text, "sweep.yaml")
    spaces = {one["name"]: one["feasibleSpace"] for one in experiment["spec"]["parameters"]}
    [container] = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]

    assert spaces == {
        "python": {"list": ["3.9", "3.10"]},
        "amp": {"list": ["True", "on"]},
        "optimizer.lr": {"min": "0.001", "max": "0.1"},
    }
    assert container["command"][-2:] == [
        "--optimizer.lr=${trialParameters.optimizer.lr}",
        "--optimizer.inner.steps=010",
    ]
    validate_document(yaml.safe_dump(experiment), source="sweep.yaml")


def sweep_of(**fields: Any) -> dict[str, Any]:
    base = {"program": "train.py", "metric": "loss", "parameters": {"lr": {"values": [0.1, 0.2]}}}
    experiment = experiment_of_sweep(yaml.safe_dump({**base, **fields}), "sweep.yaml")
    validate_document(yaml.safe_dump(experiment), source="sweep.yaml")
    return dict(experiment["spec"])


def test_a_whole_q_makes_whole_numbers_all_multiples_of_it() -> None:
    spaces = {
        "batch": {"distribution": "q_log_uniform_values", "q": 8, "min": 32, "max": 260},
        "width": {"distribution": "q_uniform", "q": 5, "min": 1, "max": 100},
        "drop": {"distribution": "q_uniform", "q": 0.1, "min": 0.05, "max": 0.3},
    }

    assert {
        one["name"]: (one["parameterType"], one["feasibleSpace"]) for one in sweep_of(parameters=spaces)["parameters"]
    } == {
        "batch": ("int", {"min": "32", "max": "256", "distribution": "logUniform", "step": "8"}),
        "width": ("int", {"min": "5", "max": "100", "step": "5"}),
        "drop": ("double", {"min": "0.1", "max": "0.3", "step": "0.1"}),
    }


@pytest.mark.parametrize("q", [0, -1, "ten", 10])
def test_a_q_of_which_nothing_is_a_multiple_is_refused(q: Any, golden: Golden) -> None:
    with pytest.raises(InvalidError) as refused:
        sweep_of(parameters={"width": {"distribution": "q_uniform", "q": q, "min": 3, "max": 4}})

    golden(refused.value)


def test_a_grid_without_a_cap_ends_with_its_last_point() -> None:
    assert "maxTrialCount" not in sweep_of(method="grid")
    assert sweep_of(method="grid", run_cap=2)["maxTrialCount"] == 2
    assert sweep_of(method="random")["maxTrialCount"] == 20


def test_the_brackets_of_max_iter_begin_with_the_first() -> None:
    stop = sweep_of(early_terminate={"type": "hyperband", "s": 2, "eta": 3, "max_iter": 27})["earlyStopping"]

    assert {one["name"]: one["value"] for one in stop["algorithmSettings"]} == {
        "min_resource": "3",
        "reduction_factor": "3",
    }
    assert sweep_of(early_terminate="hyperband")["earlyStopping"] == {"algorithmName": "asha"}


def test_variables_of_the_environment_have_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", "/data")
    spec = sweep_of(command=["python", "${program}", "--data=${envvar:DATA}/x", "${args}"])
    [container] = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]

    assert container["command"][2] == "--data=/data/x"
    monkeypatch.delenv("DATA")
    with refused("sweep"):
        sweep_of(command=["python", "${envvar:DATA}"])


EXPERIMENT = an_experiment(parameters=[a_double("lr"), a_double("momentum")])


def trials_of(table: str, raw: dict[str, Any] = EXPERIMENT) -> list[tuple[dict[str, str], dict[str, str]]]:
    file = with_earlier_trials(FileText(json.dumps(raw), "e.yaml"), table, "t.csv")
    start = experiment_of(file.documents, "e.yaml", "default").experiment.spec.warm_start
    assert start is not None
    return [
        ({a.name: a.value for a in t.parameter_assignments}, {m.name: m.value for m in t.metrics}) for t in start.trials
    ]


def refusal(table: str) -> str:
    with pytest.raises(InvalidError) as refused:
        trials_of(table)
    (error,) = refused.value.errors
    return str(error)


def test_a_table_has_a_column_for_each_parameter_and_metric() -> None:
    found = trials_of("lr,momentum,loss\n0.05,0.02,1.5\n0.06,0.03,1.2\n")

    assert found == [
        ({"lr": "0.05", "momentum": "0.02"}, {"loss": "1.5"}),
        ({"lr": "0.06", "momentum": "0.03"}, {"loss": "1.2"}),
    ]

    assert trials_of('number, lr ,loss,note\n0,0.05,,"a, b"\n\n') == [({"lr": "0.05"}, {})]

    rows = [{"lr": 0.05, "momentum": 1e-2, "loss": 2, "done": True}, {"lr": None, "loss": "0.5"}]

    assert trials_of(json.dumps(rows)) == [({"lr": "0.05", "momentum": "0.01"}, {"loss": "2"}), ({}, {"loss": "0.5"})]


def test_trials_as_the_command_line_prints_them_are_read() -> None:
    trial = {
        "kind": "Trial",
        "spec": {
            "objective": {
                "type": "minimize",
                "objectiveMetricName": "loss",
                "metricStrategies": [{"name": "loss", "value": "min"}],
            },
            "parameterAssignments": [{"name": "lr", "value": "0.05"}],
        },
        "status": {"observation": {"metrics": [{"name": "loss", "min": "1", "max": "3", "latest": "2"}]}},
    }

    assert trials_of(json.dumps({"items": [trial]})) == [({"lr": "0.05"}, {"loss": "1"})]


def test_trials_that_the_file_lists_itself_stay() -> None:
    own = {"parameterAssignments": [{"name": "lr", "value": "0.07"}], "metrics": [{"name": "loss", "value": "1"}]}
    raw = {**EXPERIMENT, "spec": {**EXPERIMENT["spec"], "warmStart": {"experiments": ["a"], "trials": [own]}}}

    assert [lr for lr, _ in trials_of("lr,loss\n0.05,2\n", raw)] == [{"lr": "0.07"}, {"lr": "0.05"}]


def test_a_file_with_companions_keeps_them() -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
    text = f"{json.dumps(config_map)}\n---\n{json.dumps(EXPERIMENT)}"

    file = with_earlier_trials(FileText(text, "e.yaml"), "lr,loss\n0.05,2\n", "t.csv")
    found = experiment_of(file.documents, "e.yaml", "default")

    assert [companion["metadata"]["name"] for companion in found.companions] == ["c"]
    assert load_experiment(str(file), "e.yaml", "default") == found  # as a server gets it


REFUSED = {
    "empty": "",
    "no parameter": "x,loss\n1,2\n",
    "no objective": "lr,accuracy\n1,2\n",
    "a cell too few": "lr,loss\n0.5,1\n0.5\n",
    "a column twice": "lr,loss,lr\n1,2,3\n",
    "no JSON": "[{",
    "no object": "[1]",
}


@pytest.mark.parametrize("table", REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_be_used_is_refused(table: str, golden: Golden) -> None:
    golden(refusal(table))
