"""From the text of a file to an experiment that can run on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.api.loading import Submission
from katib.engine.submission import WORKSPACE_ANNOTATION, Admitted, Gate
from katib.errors import InvalidError
from katib.services.catalog import Catalog
from katib.workloads.local.admission import HostCapacity
from tests.support.experiments import a_job, a_template, an_experiment

STORED = {"templates": {"trial.yaml": yaml.safe_dump(a_job())}}


def gate(told: list[str] | None = None) -> Gate:
    tell = told.append if told is not None else lambda _name: None
    return Gate(Catalog(), HostCapacity.detect(), lambda _namespace, name: STORED.get(name), tell)


def load(raw: dict[str, Any] | list[dict[str, Any]], source: str = "demo.yaml") -> Submission:
    documents = raw if isinstance(raw, list) else [raw]
    return gate().load(yaml.safe_dump_all(documents), source=source, namespace="default")


def admit(raw: dict[str, Any] | list[dict[str, Any]], source: str = "demo.yaml") -> Admitted:
    return gate().admit(load(raw, source))


def refusals(raw: dict[str, Any] | list[dict[str, Any]]) -> dict[str, str]:
    with pytest.raises(InvalidError) as caught:
        admit(raw)
    return {error.path: error.origin for error in caught.value.errors}


def from_config_map(name: str) -> dict[str, Any]:
    reference = {"configMapName": name, "configMapNamespace": "default", "templatePath": "trial.yaml"}
    return a_template(trialSpec=None, configMap=reference, successCondition="a", failureCondition="b")


def test_a_valid_experiment_gets_its_defaults_and_a_notice_for_what_is_done_differently() -> None:
    admitted = admit(an_experiment())

    assert admitted.experiment.spec.resume_policy == "Never"
    assert any("image" in notice for notice in admitted.notices)
    assert len(set(admitted.notices)) == len(admitted.notices)


def test_the_directory_of_a_file_becomes_the_workspace(tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text(yaml.safe_dump(an_experiment()))
    loaded = gate().load(file.read_text(), source=str(file), namespace="default")

    assert loaded.experiment.metadata.annotations[WORKSPACE_ANNOTATION] == str(tmp_path)


def test_a_workspace_that_the_user_names_stays(tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    raw = an_experiment()
    raw["metadata"]["annotations"] = {WORKSPACE_ANNOTATION: "/srv/data"}
    file.write_text("")

    assert load(raw, str(file)).experiment.metadata.annotations[WORKSPACE_ANNOTATION] == "/srv/data"


@pytest.mark.parametrize("source", ["standard input", "demo", "/nowhere/demo.yaml"])
def test_what_is_no_file_has_no_workspace(source: str) -> None:
    assert WORKSPACE_ANNOTATION not in load(an_experiment(), source).experiment.metadata.annotations


def test_the_algorithm_is_told_of_as_soon_as_it_is_read_even_if_the_rest_is_wrong() -> None:
    told: list[str] = []
    gate(told).load(yaml.safe_dump(an_experiment(maxTrialCount=-3)), source="x", namespace="default")

    assert told == ["random"]


def test_companions_of_the_file_come_along() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"key": "x"}}
    admitted = admit([an_experiment(), secret])

    assert [(c["kind"], c["metadata"]["name"]) for c in admitted.companions] == [("Secret", "token")]


def test_a_template_may_be_stored_or_in_the_same_file() -> None:
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mine", "namespace": "default"},
        "data": {"trial.yaml": yaml.safe_dump(a_job())},
    }

    assert admit(an_experiment(trialTemplate=from_config_map("templates")))
    assert admit([an_experiment(trialTemplate=from_config_map("mine")), config_map])
    assert any("configMap" in path for path in refusals(an_experiment(trialTemplate=from_config_map("missing"))))


def test_all_that_is_wrong_is_told_at_once_with_its_place() -> None:
    template = a_template(successCondition="status.conditions.#(type")
    template["trialSpec"]["spec"]["backoffLimit"] = "many"
    template["trialSpec"]["spec"]["tempalte"] = {}
    template["trialSpec"]["spec"]["template"]["spec"]["hostNetwork"] = True
    found = refusals(an_experiment(trialTemplate=template, maxTrialCount=0, failureCondition=None))

    job = "spec.trialTemplate.trialSpec.spec"
    assert "spec.maxTrialCount" in found
    assert "spec.trialTemplate.successCondition" in found
    assert f"{job}.backoffLimit" in found
    assert any("tempalte" in path for path in found)
    assert f"{job}.template.spec.hostNetwork" in found


def test_a_template_of_another_kind_is_refused() -> None:
    template = a_template()
    template["trialSpec"] = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": {}}

    assert any(path.startswith("spec.trialTemplate") for path in refusals(an_experiment(trialTemplate=template)))


@pytest.mark.parametrize("kind", ["TensorFlowEvent", "PrometheusMetric", "Custom"])
def test_collectors_that_do_not_run_here_are_refused(kind: str) -> None:
    found = refusals(an_experiment(metricsCollectorSpec={"collector": {"kind": kind}}))

    assert found["spec.metricsCollectorSpec.collector.kind"] == "collector-not-offered"


def test_an_algorithm_that_is_not_offered_is_refused() -> None:
    found = refusals(an_experiment(algorithm={"algorithmName": "hyperband"}))

    assert any(path.startswith("spec.algorithm") for path in found)


def test_only_the_budget_of_a_stored_experiment_may_change() -> None:
    stored = admit(an_experiment()).experiment

    assert gate().admit_update(load(an_experiment(maxTrialCount=9)), stored).spec.max_trial_count == 9
    with pytest.raises(InvalidError, match="algorithm"):
        gate().admit_update(load(an_experiment(algorithm={"algorithmName": "tpe"})), stored)
