"""Experiments of v1alpha3, converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.errors import InvalidError
from katib.places.machine import validate_document
from katib.service.drafting.old_experiments import experiments_of_v1alpha3
from tests.support.cli import katib_here
from tests.support.refusals import refused

JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: {{.Trial}}
  namespace: {{.NameSpace}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: {{.Trial}}
        image: none
        command:
        - echo
"""
BLOCK = """        {{- with .HyperParameters}}
        {{- range .}}
        - "{{.Name}}={{.Value}}"
        {{- end}}
        {{- end}}
"""


def an_old_experiment(text: str, **spec: Any) -> dict[str, Any]:
    space = {"min": "0.1", "max": "1"}
    return {
        "apiVersion": "kubeflow.org/v1alpha3",
        "kind": "Experiment",
        "metadata": {"name": "old", "uid": "1", "annotations": {"a": "b"}},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "--lr"},
            "algorithm": {"algorithmName": "random"},
            "maxTrialCount": 2,
            "parallelTrialCount": 1,
            "parameters": [
                {"name": "--lr", "parameterType": "double", "feasibleSpace": space},
                {"name": "--n", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "4"}},
            ],
            "trialTemplate": {"retain": True, "goTemplate": {"rawTemplate": text}},
            **spec,
        },
        "status": {"trials": 2},
    }


def converted(text: str, **spec: Any) -> dict[str, Any]:
    [experiment] = experiments_of_v1alpha3(json.dumps(an_old_experiment(text, **spec)), "old.json")
    return experiment


def words_of(experiment: dict[str, Any]) -> list[str]:
    pod = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    return list(pod["containers"][0]["command"])[1:]


TEMPLATES = {
    "a loop of lines": (BLOCK, ["--lr=${trialParameters.lr}", "--n=${trialParameters.n}"]),
    "a loop within a text": (
        '        - "run {{- with .HyperParameters}} {{- range .}} {{.Name}} {{.Value}} {{- end}} {{- end}}"\n',
        ["run --lr ${trialParameters.lr} --n ${trialParameters.n}"],
    ),
    "a choice by name": (
        """        {{- range .HyperParameters}}
        {{- if eq .Name "--lr"}}
        - "a={{.Value}}"
        {{- else}}
        - "b={{ .Value }}"
        {{- end}}
        {{- end}}
""",
        ["a=${trialParameters.lr}", "b=${trialParameters.n}"],
    ),
    "by place": (
        "        - '{{ (index .HyperParameters 1).Value }}'\n        - {{(index .HyperParameters 0).Value}}\n",
        ["${trialParameters.n}", "${trialParameters.lr}"],
    ),
    "the trial and a comment": (
        "        {{- /* all of it */}}\n        - /logs/{{.Trial}}\n" + BLOCK,
        ["/logs/${trialParameters.trial}", "--lr=${trialParameters.lr}", "--n=${trialParameters.n}"],
    ),
}


@pytest.mark.parametrize(("command", "words"), TEMPLATES.values(), ids=TEMPLATES)
def test_placeholders_take_the_place_of_values(command: str, words: list[str]) -> None:
    experiment = converted(JOB + command)
    template = experiment["spec"]["trialTemplate"]

    assert words_of(experiment) == words
    assert (
        template["primaryContainerName"] == template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["name"]
    )
    assert "metadata" not in template["trialSpec"]
    assert template["retain"] is True
    assert experiment["metadata"] == {"name": "old", "annotations": {"a": "b"}}
    assert "status" not in experiment
    validate_document(yaml.safe_dump(experiment), source="new.yaml")


@pytest.mark.parametrize("action", ["printf .Name", "end", "with .HyperParameters", "index .HyperParameters 0"])
def test_an_action_that_has_no_counterpart_is_named(action: str) -> None:
    with pytest.raises(InvalidError) as failure:
        converted(f"{JOB}        - {{{{{action}}}}}\n")

    [error] = failure.value.errors
    assert error.origin == "old-template"
    assert action in error.cause


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [("enas", ["architecture", "nn_config"]), ("darts", ["algorithm-settings", "search-space", "num-layers"])],
)
def test_trials_of_an_architecture_search_get_its_own_parameters(algorithm: str, names: list[str]) -> None:
    search: dict[str, Any] = {
        "parameters": None,
        "algorithm": {"algorithmName": algorithm},
        "nasConfig": {"operations": []},
    }
    experiment = converted(JOB + BLOCK, **search)

    assert [entry["reference"] for entry in experiment["spec"]["trialTemplate"]["trialParameters"]] == names


@pytest.mark.parametrize("name", ["hyperopt_tpe", "hyperopt-tpe", "tpe"])
def test_algorithms_have_their_names_of_today(name: str) -> None:
    assert converted(JOB + BLOCK, algorithm={"algorithmName": name})["spec"]["algorithm"] == {"algorithmName": "tpe"}


def test_a_template_of_a_config_map_is_taken_from_the_same_file() -> None:
    source = {"templateSpec": {"configMapName": "templates", "templatePath": "job"}}
    experiment = an_old_experiment("", trialTemplate={"goTemplate": source})
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "templates"},
        "data": {"job": JOB + BLOCK},
    }

    both = experiments_of_v1alpha3(json.dumps(config_map) + "\n---\n" + json.dumps(experiment), "old.yaml")

    assert both[0] == config_map
    assert words_of(both[1]) == ["--lr=${trialParameters.lr}", "--n=${trialParameters.n}"]

    with refused("old-template-missing"):
        experiments_of_v1alpha3(json.dumps(experiment), "old.yaml")


def test_the_command_that_a_refusal_names_makes_a_file_that_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(an_old_experiment(JOB + BLOCK)))
    refused = katib_here("validate", "old.yaml", cwd=tmp_path)
    (tmp_path / "new.yaml").write_text(katib_here("convert", "old.yaml", cwd=tmp_path).stdout)

    assert "`katib convert FILE`" in refused.stderr
    assert katib_here("validate", "new.yaml", cwd=tmp_path).returncode == 0
