"""V26, V27 and V34: a template in a ConfigMap of the same file."""

from __future__ import annotations

import pytest
import yaml

from katib.errors import InvalidError
from tests.support.experiments import a_job, a_template, an_experiment, load_experiment
from tests.support.gate import admit_submission

SOURCE = {"configMapName": "templates", "configMapNamespace": "default", "templatePath": "job.yaml"}


def lines_of(template: str | None, *, key: str = "job.yaml", name: str = "templates") -> list[str]:
    raw = an_experiment(
        trialTemplate=a_template(trialSpec=None, configMap=SOURCE, successCondition="ok", failureCondition="bad")
    )
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: template}}
    text = yaml.safe_dump_all([config_map, raw])
    try:
        admit_submission(load_experiment(text, "exp.yaml", "default"))
    except InvalidError as error:
        return str(error).split("\n")
    return []


def test_a_template_of_the_same_file_is_found() -> None:
    assert lines_of(yaml.safe_dump(a_job())) == []


def test_a_missing_config_map_is_named() -> None:
    [line] = lines_of(yaml.safe_dump(a_job()), name="others")

    assert line.startswith("spec.trialTemplate.configMap.configMapName: ConfigMap default/templates is not found; ")


def test_a_missing_key_is_named_with_those_that_exist() -> None:
    [line] = lines_of(yaml.safe_dump(a_job()), key="pod.yaml")

    assert line.startswith("spec.trialTemplate.configMap.templatePath: ")
    assert line.endswith("pod.yaml")


@pytest.mark.parametrize("template", ["", "- ${trialParameters.learningRate}", "a: b: ${trialParameters.learningRate}"])
def test_a_template_that_is_no_object_is_refused(template: str) -> None:
    assert any(line.startswith("spec.trialTemplate.configMap") for line in lines_of(template))
