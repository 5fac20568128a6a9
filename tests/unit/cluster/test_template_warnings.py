from __future__ import annotations

import json
from typing import Any

import pytest

from katib.api.defaults import with_defaults
from katib.api.types import ExperimentSpec
from katib.cluster.template_warnings import template_errors, template_warnings
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


def errors_of(source: dict[str, Any], collector: str = "StdOut") -> list[str]:
    """Return the lines of what is wrong with an object whose primary container is `main`."""
    template = {**a_template(), "primaryContainerName": "main"}
    spec = spec_of(trialTemplate=template, metricsCollectorSpec={"collector": {"kind": collector}})
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


SILENT_POD = {"spec": {"containers": [{"name": "main", "image": "x", "args": ["a"]}, {"name": "side", "image": "y"}]}}
"""A pod whose primary container runs what its image says."""

TORCH = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}


def test_a_primary_container_without_command_is_pointed_out_where_an_operator_may_add_one() -> None:
    source = {"apiVersion": "example.com/v1", "kind": "Gizmo", "spec": {"template": SILENT_POD}}

    assert errors_of(source) == []
    assert paths(warnings_of(source)) == ["spec.template.spec.containers[0].command"]


@pytest.mark.parametrize("collector", ["StdOut", "File", "TensorFlowEvent"])
def test_a_job_whose_primary_container_has_no_command_is_refused(collector: str) -> None:
    source = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": SILENT_POD}}

    (line,) = errors_of(source, collector)

    assert line == (
        f"{PATH}.spec.template.spec.containers[0].command: it is missing; the {collector} collector has to know it, "
        "which the image's entrypoint is not; write the entrypoint of the image as command"
    )
    assert warnings_of(source) == []


@pytest.mark.parametrize("collector", ["Push", "Custom", "PrometheusMetric"])
def test_a_collector_that_wraps_no_command_needs_none(collector: str) -> None:
    assert errors_of({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": SILENT_POD}}, collector) == []


@pytest.mark.parametrize(
    ("roles", "refused"),
    [
        ({"Master": SILENT_POD, "Worker": SILENT_POD}, ["Master", "Worker"]),
        ({"Master": POD, "Worker": SILENT_POD}, []),
        ({"Worker": SILENT_POD}, ["Worker"]),
    ],
)
def test_a_training_job_is_refused_if_no_role_has_a_command(roles: dict[str, Any], refused: list[str]) -> None:
    replicas = {role: {"template": pod} for role, pod in roles.items()}
    found = errors_of({**TORCH, "spec": {"pytorchReplicaSpecs": replicas}})

    where = "spec.pytorchReplicaSpecs.{}.template.spec.containers[0].command"
    assert sorted(paths(found)) == [where.format(role) for role in refused]


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
        *warnings_of({"spec": {"template": SILENT_POD}}),
        *warnings_of({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}),
    ]

    assert len(lines) == 4
    assert max(map(len, lines)) <= 256
