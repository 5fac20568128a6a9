"""Kinds that are almost known: what was meant is said, and nothing that follows from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from katib.engine.runtime.objects import Kind
from katib.errors import InvalidError
from katib.model.container_restarts import runs_again, unknown_rules
from katib.model.job_kinds import KNOWN_KINDS, known_kind, misspelt_kind, retry_words
from katib.places.machine.admission import HostCapacity
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.submission import LocalHome
from katib.service.tuning.submission import Gate, StoredObjects
from tests.support.experiments import a_job, a_template, an_experiment
from tests.support.gate import CATALOG, admitted
from tests.support.golden import Golden
from tests.support.refusals import refused

PATH = "spec.trialTemplate.trialSpec.kind"
OTHERS = "Any other kind needs conditions of its own, and a cluster"


def said(api_version: str, kind: object) -> list[str]:
    return [str(error) for error in misspelt_kind({"apiVersion": api_version, "kind": kind}, "t")]


def test_every_kind_that_runs_on_one_machine_is_known_with_its_version() -> None:
    assert {Kind(version, name) for name in KNOWN_KINDS for version in versions_of(name)} == set(JobKinds())


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
def test_the_version_is_named_where_it_is_another(api_version: str, kind: str, meant: str, golden: Golden) -> None:
    golden(said(api_version, kind))


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

    with refused("condition-missing", "condition-missing"):
        admitted(raw)


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

    assert retry_words(job, template, failure) == words
    assert retry_words(job, template, "") == ""
    assert retry_words(job, {**template, "kind": "PyTorchJob"}, failure) == ""


def rule(operator: str, *values: int, action: str = "Restart") -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


ALL = rule("In", 88, action="RestartAllContainers")


@pytest.mark.parametrize(
    ("own", "rules", "policy", "again"),
    [
        (None, [], "Never", set()),
        (None, [], "OnFailure", {3, 4, 88}),
        (None, [], "Always", {0, 3, 4, 88}),
        ("OnFailure", [], "Never", {3, 4, 88}),
        ("Always", [], "Never", {0, 3, 4, 88}),
        ("Never", [], "OnFailure", set()),
        ("Never", [], "Always", set()),
        ("Never", [rule("In", 3)], "Never", {3}),
        ("Never", [rule("NotIn", 3)], "Never", {0, 4, 88}),
        ("Never", [rule("In", 3), rule("In", 4)], "OnFailure", {3, 4}),
        ("Never", [ALL], "Never", {88}),
        ("OnFailure", [rule("In", 0)], "Never", {0, 3, 4, 88}),
        (None, [rule("In", 3)], "Never", set()),  # rules need a policy of the container
        ("Never", [{"action": "Restart"}], "Never", set()),
    ],
)
def test_what_counts(own: str | None, rules: list[dict[str, Any]], policy: str, again: set[int]) -> None:
    container = {"name": "main", "restartPolicyRules": rules, **({"restartPolicy": own} if own else {})}

    assert {code for code in (0, 3, 4, 88) if runs_again(container, policy, code)} == again


@pytest.mark.parametrize(
    ("rules", "of_program", "of_another"),
    [
        ([rule("In", 3), ALL], [], []),
        ([rule("In", 3, action="Reboot")], ["[0].action"], ["[0].action"]),
        ([ALL, rule("Between", 3, 5)], ["[1].exitCodes.operator"], []),
        ([{"action": "Restart", "signals": ["SIGKILL"]}], ["[0].signals"], []),
        ([{"exitCodes": {}}], ["[0].action", "[0].exitCodes.operator"], ["[0].action"]),
        (["x"], [], []),
        ("x", [], []),
    ],
)
def test_rules_that_nobody_knows_are_named(rules: Any, of_program: list[str], of_another: list[str]) -> None:
    found = [
        [
            error.path.removeprefix("c.restartPolicyRules")
            for error in unknown_rules(container, "c", is_program=is_program)
        ]
        for container in ({"restartPolicyRules": rules},)
        for is_program in (True, False)
    ]

    assert found == [of_program, of_another]


def test_a_misspelt_action_gets_the_one_that_was_meant(golden: Golden) -> None:
    (error,) = unknown_rules({"restartPolicyRules": [rule("In", 3, action="Restrat")]}, "spec.c[0]", is_program=True)

    golden(error)
