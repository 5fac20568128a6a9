from __future__ import annotations

import json
from typing import Any

import pytest

from katib.model.defaults import with_defaults
from katib.model.types import ExperimentSpec
from katib.places.cluster.template_warnings import template_errors, template_warnings
from tests.support.experiments import a_template, an_experiment, load_experiment

PATH = "spec.trialTemplate.trialSpec"
POD = {"spec": {"containers": [{"name": "main", "image": "x", "command": ["train"]}]}}


def spec_of(**fields: Any) -> ExperimentSpec:
    raw = an_experiment(**fields)
    raw["spec"]["trialTemplate"]["trialSpec"] = {"kind": "Job"}
    return with_defaults(load_experiment(json.dumps(raw), "x", "default").experiment).spec


def warnings_of(source: dict[str, Any], *, primary: str = "main", **template: Any) -> list[str]:
    spec = spec_of(trialTemplate={**a_template(), **template, "primaryContainerName": primary})
    return template_warnings(source, PATH, spec)


def errors_of(source: dict[str, Any]) -> list[str]:
    """Return the lines of what is wrong with an object whose primary container is `main`."""
    spec = spec_of(trialTemplate={**a_template(), "primaryContainerName": "main"})
    return [str(error) for error in template_errors(source, PATH, spec)]


def paths(lines: list[str]) -> list[str]:
    return [line.partition(": ")[0].removeprefix(f"{PATH}.") for line in lines]


def a_training_job(kind: str, field: str, *, policy: dict[str, Any] | None = None, **replica: Any) -> dict[str, Any]:
    replicas = {"Worker": {"template": POD, **replica}}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "spec": {field: replicas, "runPolicy": policy or {}}}


def test_a_job_as_it_should_be_makes_no_warning() -> None:
    assert warnings_of({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": POD}}) == []


@pytest.mark.parametrize(
    ("source", "primary"),
    [
        pytest.param({"spec": {"pipelineSpec": {"tasks": [{"taskSpec": {"steps": []}}]}}}, "step-a", id="no step"),
        pytest.param({"kind": "TrainJob", "spec": {"runtimeRef": {"name": "torch"}}}, "node", id="no container"),
        pytest.param({"spec": {"steps": [{"name": "train", "image": "x", "script": "y"}]}}, "step-train", id="Tekton"),
        pytest.param({"spec": {"templates": [{"container": {"image": "x", "command": ["y"]}}]}}, "main", id="Argo"),
        pytest.param(
            {"template": {"containers": [{"name": "${trialParameters.a}", "image": "x"}]}}, "b", id="named late"
        ),
    ],
)
def test_a_primary_container_that_may_be_there_makes_no_warning(source: dict[str, Any], primary: str) -> None:
    assert warnings_of(source, primary=primary) == []


def test_a_primary_container_that_no_container_is_named_like_is_pointed_out() -> None:
    source = {"spec": {"steps": [{"name": "train", "image": "x", "script": "y"}]}}

    (line,) = warnings_of(source, primary="train")

    assert line.startswith("spec.trialTemplate.primaryContainerName: ")
    assert "step-train" in line


def test_an_unknown_rule_is_refused_where_the_webhook_of_pods_would() -> None:
    rule = {"action": "Reboot", "exitCodes": {"operator": "In", "values": [3]}}
    main = {**POD["spec"]["containers"][0], "restartPolicy": "Never", "restartPolicyRules": [rule]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": [main]}}}}

    (line,) = errors_of(job)
    rule["action"] = "${trialParameters.action}"

    assert line.startswith(f"{PATH}.spec.template.spec.containers[0].restartPolicyRules[0].action: ")
    assert errors_of(job) == []


@pytest.mark.parametrize(
    ("kind", "field", "replica", "policy", "is_endless"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs", {}, {}, True),
        ("PyTorchJob", "pytorchReplicaSpecs", {}, {"backoffLimit": 0}, False),
        ("PyTorchJob", "pytorchReplicaSpecs", {"restartPolicy": "Never"}, {}, False),
        ("PaddleJob", "paddleReplicaSpecs", {}, {}, True),
        ("TFJob", "tfReplicaSpecs", {}, {}, False),
        ("TFJob", "tfReplicaSpecs", {"restartPolicy": "OnFailure"}, {}, True),
        ("TFJob", "tfReplicaSpecs", {"restartPolicy": "OnFailure"}, {"backoffLimit": 3}, False),
    ],
)
def test_training_that_is_restarted_forever_is_pointed_out(
    kind: str, field: str, replica: dict[str, Any], policy: dict[str, Any], is_endless: bool
) -> None:
    found = paths(warnings_of(a_training_job(kind, field, policy=policy, **replica), primaryPodLabels={"a": "b"}))

    assert found == ([f"spec.{field}.Worker.restartPolicy"] if is_endless else [])


def test_a_kind_whose_primary_pod_is_not_known_needs_labels() -> None:
    source = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": []}}

    assert paths(warnings_of(source)) == ["spec.trialTemplate.primaryPodLabels"]
    assert warnings_of(source, primaryPodLabels={"a": "b"}) == []


@pytest.mark.parametrize("seconds", [0, 1])
def test_an_object_that_vanishes_when_it_ends_is_pointed_out(seconds: int) -> None:
    job = {"spec": {"template": POD, "ttlSecondsAfterFinished": seconds}}
    training = a_training_job("TFJob", "tfReplicaSpecs", policy={"ttlSecondsAfterFinished": seconds})

    assert paths(warnings_of(job)) == (["spec.ttlSecondsAfterFinished"] if seconds == 0 else [])
    assert paths(warnings_of(training)) == (["spec.runPolicy.ttlSecondsAfterFinished"] if seconds == 0 else [])


@pytest.mark.parametrize(
    "source", [{}, {"spec": None}, {"spec": [1]}, {"kind": "TFJob", "apiVersion": "kubeflow.org/v1"}]
)
def test_an_object_of_any_shape_can_be_looked_at(source: dict[str, Any]) -> None:
    assert warnings_of(source) == []


def test_a_warning_fits_into_a_header() -> None:
    lines = [
        *warnings_of(a_training_job("PyTorchJob", "pytorchReplicaSpecs", policy={"ttlSecondsAfterFinished": 0})),
        *warnings_of({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}),
    ]

    assert len(lines) == 3
    assert max(map(len, lines)) <= 256
