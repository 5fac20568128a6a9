"""Scalars without quotes, in places of text and elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from katib.model.templates.job_schema.check import job_schema
from katib.model.written import TEXT_FIELDS, read_object
from tests.support.experiments import load_experiment

TEXT = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: 007, labels: {version: 1.10, on: off}}
spec:
  objective: {type: minimize, goal: 010, objectiveMetricName: on, additionalMetricNames: [3.10]}
  algorithm: {algorithmName: random, algorithmSettings: [{name: seed, value: 010}, {name: flag, value: Yes}]}
  maxTrialCount: 012
  parameters:
    - {name: no, parameterType: categorical, feasibleSpace: {list: [3.9, 3.10, on, True, 1_000, 0x1F]}}
    - {name: p, parameterType: int, feasibleSpace: {min: 010, max: 012}}
  initialTrials: [{parameterAssignments: [{name: no, value: 3.10}]}]
  trialTemplate:
    retain: true
    primaryPodLabels: {version: 1.0}
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      metadata: {annotations: {release: 3.10}}
      spec:
        backoffLimit: 0
        template:
          spec:
            volumes: [{name: v, configMap: {name: c, defaultMode: 0644}}]
            containers:
              - name: 1
                command: [sleep, 1.0]
                args: [off, 1e3]
                env: [{name: A, value: 3.10}, {name: B, value: yes}, {name: C, value: }]
                resources: {limits: {cpu: 2}}
"""


def test_a_text_gets_to_its_place_as_it_was_written() -> None:
    experiment = load_experiment(TEXT, "x.yaml", "default").experiment
    spec = experiment.spec
    assert spec.objective is not None
    assert spec.algorithm is not None
    assert spec.trial_template is not None
    choice, bounds = (parameter.feasible_space for parameter in spec.parameters)

    assert (experiment.name, experiment.metadata.labels) == ("007", {"version": "1.10", "on": "off"})
    assert (spec.objective.goal, spec.objective.metric_names, spec.max_trial_count) == (10, ("on", "3.10"), 12)
    assert [setting.value for setting in spec.algorithm.algorithm_settings] == ["010", "Yes"]
    assert choice.list == ("3.9", "3.10", "on", "True", "1_000", "0x1F")
    assert (bounds.min, bounds.max) == ("010", "012")
    assert spec.initial_trials[0].parameter_assignments[0].value == "3.10"
    assert spec.trial_template.primary_pod_labels == {"version": "1.0"}


def test_a_job_has_texts_where_kubernetes_has_and_values_elsewhere() -> None:
    template = load_experiment(TEXT, "x.yaml", "default").experiment.spec.trial_template
    assert template is not None
    job: dict[str, Any] = template.trial_spec or {}
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]

    assert job["metadata"]["annotations"] == {"release": "3.10"}
    assert job["spec"]["backoffLimit"] == 0
    assert pod["volumes"][0]["configMap"]["defaultMode"] == 0o644
    assert (container["name"], container["command"], container["args"]) == ("1", ["sleep", "1.0"], ["off", "1e3"])
    assert [variable["value"] for variable in container["env"]] == ["3.10", "yes", None]
    assert container["resources"] == {"limits": {"cpu": 2}}


@pytest.mark.parametrize("kind", ["Experiment", "List"])
def test_json_text_is_read_alike(kind: str) -> None:
    space = '{"list": [3.10, true, 1E3, 7]}'
    experiment = f'{{"kind": "Experiment", "spec": {{"parameters": [{{"name": "p", "feasibleSpace": {space}}}]}}}}'
    text = experiment if kind == "Experiment" else f'{{"kind": "List", "items": [{experiment}]}}'

    read = read_object(text, "x.json")

    [parameter] = (read if kind == "Experiment" else read["items"][0])["spec"]["parameters"]
    assert parameter["feasibleSpace"]["list"] == ["3.10", "true", "1E3", "7"]
    assert json.loads(json.dumps(read)) == read


def test_the_names_of_text_fields_are_those_of_kubernetes() -> None:
    models = job_schema().models
    kinds = [field for model in models.values() for field in model.fields.items() if field[0] in TEXT_FIELDS]

    assert {name for name, _ in kinds} == TEXT_FIELDS
    assert {kind.removeprefix("[]") for _, kind in kinds} - models.keys() == {"text"}
