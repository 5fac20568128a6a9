"""Sweeps of Weights & Biases as experiments."""

from __future__ import annotations

import pytest
import yaml

from katib.errors import InvalidError
from katib.local import validate_document
from katib.tuning.sweeps import experiment_of_sweep

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
        "parameters.b",
        "parameters.d",
    ]
    with pytest.raises(InvalidError, match=r"sweep\.yaml: it has no parameters"):
        experiment_of_sweep("a: 1", "sweep.yaml")
