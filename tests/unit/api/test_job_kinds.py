"""Kinds that are almost known: what was meant is said, and nothing that follows from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from katib.api.job_kinds import KNOWN_KINDS, known_kind, misspelt_kind, pod_retry_words
from katib.errors import InvalidError
from katib.local.admission import HostCapacity
from katib.local.jobs.kinds import job_kinds
from katib.local.submission import LocalHome
from katib.runtime.objects import Kind
from katib.tuning.submission import Gate, StoredObjects
from tests.support.experiments import a_job, a_template, an_experiment
from tests.support.gate import CATALOG, admitted

PATH = "spec.trialTemplate.trialSpec.kind"
OTHERS = "Any other kind needs conditions of its own, and a cluster"


def said(api_version: str, kind: object) -> list[str]:
    return [str(error) for error in misspelt_kind({"apiVersion": api_version, "kind": kind}, "t")]


def test_every_kind_that_runs_on_one_machine_is_known_with_its_version() -> None:
    known = {Kind(version, name) for name in KNOWN_KINDS for version in versions_of(name)}

    assert known == {kind.kind for kind in job_kinds()}


def versions_of(name: str) -> tuple[str, ...]:
    found = known_kind({"kind": name, "spec": {"paddleReplicaSpecs": {"Master": {}}}})
    assert found is not None
    return found.api_versions


@pytest.mark.parametrize("meant", KNOWN_KINDS)
def test_a_kind_in_another_case_in_the_plural_or_with_a_letter_missing_or_twice_is_named(meant: str) -> None:
    version = versions_of(meant)[0]
    last_but_one = meant[:-2] + meant[-1]
    wrong = {meant.lower(), meant.upper(), meant.capitalize(), f"{meant}s", meant + meant[-1], last_but_one} - {meant}

    assert all(f"did you mean {meant}? {OTHERS}" in "".join(said(version, kind)) for kind in wrong if len(kind) > 2)


@pytest.mark.parametrize(
    ("api_version", "kind", "meant"),
    [
        ("mlkube.io/v1beta1", "TfJob", "TFJob of apiVersion kubeflow.org/v1"),
        ("kubeflow.org/v1", "PytorchJob", "PyTorchJob"),
        ("kubeflow.org/v1alpha1", "Pytorch", "PyTorchJob of apiVersion kubeflow.org/v1"),
        ("kubeflow.org/v2beta2", "MpiJob", "MPIJob of apiVersion kubeflow.org/v1 or kubeflow.org/v2beta1"),
        ("batch/v1", "job", "Job"),
        ("trainer.kubeflow.org/v1", "TrainingJob", "TrainJob of apiVersion trainer.kubeflow.org/v1alpha1"),
    ],
)
def test_the_version_is_named_where_it_is_another(api_version: str, kind: str, meant: str) -> None:
    assert said(api_version, kind) == [f"t.kind: kind {kind} is not known; did you mean {meant}? {OTHERS}"]


@pytest.mark.parametrize(
    "kind",
    [
        *KNOWN_KINDS,
        "RayJob",
        "MXJob",
        "CronJob",
        "SparkApplication",
        "Workflow",
        "PipelineRun",
        "AIJob",
        "",
        None,
        3,
        ["x"],
    ],
)
def test_a_known_kind_and_one_that_is_no_other_is_left_alone(kind: object) -> None:
    assert said("x/v1", kind) == []


HALF, BOTH = {"successCondition": "a"}, {"successCondition": "a", "failureCondition": "b"}


@pytest.mark.parametrize("api_version", ["kubeflow.org/v1", "mlkube.io/v1"])
@pytest.mark.parametrize(
    ("is_local", "conditions"),
    [(True, {}), (True, HALF), (True, BOTH), (False, {}), (False, HALF)],
    ids=["here", "here with one condition", "here with conditions", "on a cluster", "on a cluster with one condition"],
)
def test_it_is_the_only_error(is_local: bool, conditions: dict[str, str], api_version: str) -> None:
    job = {**a_job(), "apiVersion": api_version, "kind": "TfJob"}
    raw = an_experiment(trialTemplate=a_template() | {"trialSpec": job} | conditions)

    with pytest.raises(InvalidError) as failure:
        admit_here(raw) if is_local else admitted(raw)

    assert [(error.path, error.origin) for error in failure.value.errors] == [(PATH, "job-kind-misspelt")]


def admit_here(raw: dict[str, Any]) -> None:
    gate = Gate(CATALOG, LocalHome(HostCapacity.detect()), StoredObjects(None))
    gate.admit(gate.load(json.dumps(raw), source="file", namespace="default"))


def test_conditions_of_a_kind_that_nobody_knows_are_asked_for() -> None:
    raw = an_experiment(
        trialTemplate=a_template() | {"trialSpec": {**a_job(), "apiVersion": "ray.io/v1", "kind": "RayJob"}}
    )

    with pytest.raises(InvalidError) as failure:
        admitted(raw)

    assert [error.origin for error in failure.value.errors] == ["condition-missing", "condition-missing"]


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({}, {"failed": 2, "active": 1}, "Boom (exit code 1); try 3 of 7"),
        ({"backoffLimit": 3}, {"failed": 1}, "Boom (exit code 1); try 2 of 4"),
        ({"completions": 3}, {"failed": 2}, "Boom (exit code 1)"),
        ({}, {"active": 1}, ""),
        ({"backoffLimit": 0}, {"failed": 1, "conditions": [{"type": "FailureTarget", "status": "True"}]}, ""),
        ({"backoffLimit": 0}, {"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]}, ""),
    ],
)
def test_a_job_of_a_cluster_is_retried_while_its_controller_counts_failures(
    spec: dict[str, Any], status: dict[str, Any], words: str
) -> None:
    template, job = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}, {"status": status}
    failure = "Container main in pod x-1 ended with exit code 1; last output: Boom"

    assert pod_retry_words(template, job, failure) == words
    assert pod_retry_words(template, job, "") == ""
    assert pod_retry_words({**template, "kind": "PyTorchJob"}, job, failure) == ""
