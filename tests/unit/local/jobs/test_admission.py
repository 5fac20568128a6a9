from __future__ import annotations

import copy
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from katib.model.templates.job_schema import check_job_schema, job_schema
from katib.places.machine.admission import HostCapacity
from katib.places.machine.admission.check import FIELDS, WHOLLY_SUPPORTED, FieldEffect
from katib.places.machine.admission.host import cpu_quotas, memory_limits
from tests.support.admission import HOST, PATH, a_job, a_job_with_volume, check, errors_of, notices_of, places_of
from tests.support.golden import Golden


def test_a_plain_job_runs_without_a_word() -> None:
    assert check(a_job()) == ([], [])


# --- the table ------------------------------------------------------------------------------------------


def reachable_models() -> set[str]:
    """Return every part of a Job that is reached through supported fields."""
    schema = job_schema()
    seen: set[str] = set()
    pending = [schema.root]
    while pending:
        key = pending.pop()
        if key in seen or key not in schema.models:
            continue
        seen.add(key)
        for field, kind in schema.models[key].fields.items():
            if key in WHOLLY_SUPPORTED or FIELDS[key][field].effect is FieldEffect.SUPPORTED:
                pending.append(kind.removeprefix("[]"))
    return seen


def test_every_field_of_a_job_has_a_verdict() -> None:
    schema = job_schema()

    assert {key: set(fields) for key, fields in FIELDS.items()} == {
        key: set(schema.models[key].fields) for key in reachable_models() - WHOLLY_SUPPORTED
    }
    assert reachable_models() >= WHOLLY_SUPPORTED


def test_every_verdict_says_why_and_what_to_do() -> None:
    verdicts = [verdict for fields in FIELDS.values() for verdict in fields.values()]

    assert all(v.why for v in verdicts if v.effect is not FieldEffect.SUPPORTED)
    assert all(bool(v.remedy) == (v.effect is FieldEffect.REFUSED) for v in verdicts)


@pytest.mark.parametrize(
    ("model", "field"),
    [(m, f) for m in ("V1JobSpec", "V1PodSpec", "V1Container") for f, v in FIELDS[m].items()
     if v.effect is not FieldEffect.SUPPORTED],
)  # fmt: skip
def test_what_does_not_work_here_is_never_passed_over(model: str, field: str) -> None:
    kind = job_schema().models[model].fields[field]
    value: Any = [{"a": "b"}] if kind.startswith("[]") else {"a": "b"} if kind[0] in "V{" else "x"
    job = {"V1JobSpec": a_job(spec={field: value}), "V1PodSpec": a_job(pod={field: value})}.get(
        model, a_job(**{field: value})
    )

    errors, notices = check(job)

    assert [said for said in (*map(str, errors), *notices) if f".{field}" in said.split(": ")[0]] != []


@pytest.mark.parametrize(
    ("field", "value"),
    [("hostNetwork", False), ("hostPID", None), ("tolerations", []), ("nodeSelector", {}), ("schedulerName", "")],
)
def test_what_asks_for_nothing_is_not_mentioned(field: str, value: Any) -> None:
    assert check(a_job(pod={field: value})) == ([], [])


def test_a_notice_names_all_its_places_once(golden: Golden) -> None:
    golden(notices_of(a_job(image="train:1", imagePullPolicy="Always")))


# --- kinds ----------------------------------------------------------------------------------------------


def test_a_kind_that_needs_a_cluster_and_another_version_are_refused_by_name(golden: Golden) -> None:
    (error,) = errors_of({"apiVersion": "ray.io/v1", "kind": "RayJob"})

    golden(error)
    golden(errors_of({"apiVersion": "test/v1", "kind": "Job"}))


# --- the Job --------------------------------------------------------------------------------------------

INDEXED = {"completionMode": "Indexed", "completions": 3}
RULE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.mark.parametrize(
    ("spec", "pod", "expected"),
    [
        ({}, {"restartPolicy": None}, [("template.spec.restartPolicy", "job-restart-policy")]),
        ({}, {"restartPolicy": "Always"}, [("template.spec.restartPolicy", "job-restart-policy")]),
        ({}, {"restartPolicy": "OnFailure"}, []),
        ({}, {"restartPolicy": "${trialParameters.x}"}, []),
        ({"completionMode": "Indexed"}, {}, [("completions", "job-indexed-completions")]),
        (INDEXED, {}, []),
        ({"completionMode": "indexed"}, {}, [("completionMode", "job-choice")]),
        ({"backoffLimitPerIndex": 1}, {}, [("backoffLimitPerIndex", "job-indexed-only")]),
        ({"backoffLimitPerIndex": 1, **INDEXED}, {"restartPolicy": "OnFailure"},
         [("backoffLimitPerIndex", "job-never-only")]),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1, **INDEXED}, {}, []),
        ({"maxFailedIndexes": 1, **INDEXED}, {}, [("maxFailedIndexes", "job-max-failed-indexes")]),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 3, **INDEXED}, {}, []),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 4, **INDEXED}, {},
         [("maxFailedIndexes", "job-max-failed-indexes")]),
        ({"parallelism": 100_000, **INDEXED}, {}, []),
        ({"parallelism": 100_001, **INDEXED}, {}, [("parallelism", "job-parallelism")]),
        ({"parallelism": 100_001}, {}, []),
        ({"podFailurePolicy": {"rules": [RULE]}}, {}, []),
        ({"podFailurePolicy": {"rules": [RULE]}}, {"restartPolicy": "OnFailure"},
         [("podFailurePolicy", "job-never-only")]),
        ({"podFailurePolicy": {"rules": [{**RULE, "action": "Fail"}]}}, {},
         [("podFailurePolicy.rules[0].action", "job-choice")]),
        ({"podFailurePolicy": {"rules": [{**RULE, "action": "FailIndex"}]}}, {},
         [("podFailurePolicy.rules[0].action", "job-fail-index")]),
        ({"podFailurePolicy": {"rules": [{"action": "Count"}]}}, {}, [("podFailurePolicy.rules[0]", "job-rule")]),
        ({"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "Is", "values": [1]}}]}}, {},
         [("podFailurePolicy.rules[0].onExitCodes.operator", "job-choice")]),
        ({"podFailurePolicy": {"rules": [{**RULE, "onExitCodes": {"containerName": "x", "operator": "In"}}]}}, {},
         [("podFailurePolicy.rules[0].onExitCodes.containerName", "job-rule-container")]),
        ({"podFailurePolicy": {"rules": [RULE]}, "podReplacementPolicy": "TerminatingOrFailed"}, {},
         [("podReplacementPolicy", "job-pod-replacement")]),
        ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, {}, [("successPolicy", "job-indexed-only")]),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0,2-4"}]}, **INDEXED}, {}, []),
        ({"successPolicy": {"rules": [{"succeededIndexes": "a"}, {}]}, **INDEXED}, {},
         [("successPolicy.rules[0].succeededIndexes", "job-indexes"), ("successPolicy.rules[1]", "job-rule")]),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, {}, [("managedBy", "job-managed-by")]),
        ({"managedBy": "kubernetes.io/job-controller"}, {}, []),
        ({"parallelism": -1}, {}, [("parallelism", "job-number-negative")]),
        ({"ttlSecondsAfterFinished": -1}, {}, [("ttlSecondsAfterFinished", "job-number-negative")]),
        ({}, {"containers": []}, [("template.spec.containers", "pod-containers")]),
        ({}, {"os": {"name": "windows"}}, [("template.spec.os.name", "pod-os")]),
        ({}, {"hostNetwork": True}, [("template.spec.hostNetwork", "job-field-unsupported")]),
        ({}, {"initContainers": [{"name": "s", "command": ["sh"], "restartPolicy": "Always"}]}, []),
        ({}, {"initContainers": [{"name": "s", "command": ["sh"], "restartPolicy": "Never"}]},
         [("template.spec.initContainers[0].restartPolicy", "pod-container-restart")]),
        ({}, {"containers": [{"name": "main", "command": ["sh"], "restartPolicy": "OnFailure", "restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]}]},
         [("template.spec.containers[0].restartPolicyRules", "job-field-unsupported"),
          ("template.spec.containers[0].restartPolicy", "pod-container-restart")]),
        ({}, {"initContainers": [{"name": "training", "command": ["sh"]}]},
         [("template.spec.initContainers[0].name", "pod-name-twice")]),
    ],
)  # fmt: skip
def test_rules_of_a_job(spec: dict[str, Any], pod: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert places_of(a_job(spec=spec, pod=pod)) == [(f"spec.{path}", origin) for path, origin in expected]


@pytest.mark.parametrize(
    "spec",
    [
        {"suspend": True},
        {"parallelism": 0},
        {"completions": 2},
        {"selector": {"matchLabels": {"a": "b"}}},
        {"podFailurePolicy": {"rules": [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}]}},
    ],
    ids=["suspend", "no-parallelism", "completions", "selector", "pod-conditions"],
)  # fmt: skip
def test_what_surprises_is_said(spec: dict[str, Any], golden: Golden) -> None:
    golden(notices_of(a_job(spec=spec)))


def test_checks_leave_the_job_as_it_is() -> None:
    job = a_job(image="x", resources={"limits": {"cpu": 1}})
    before = copy.deepcopy(job)

    check(job)
    check_job_schema(job, PATH)

    assert job == before


# --- What changes when containers run in their images -----------------------------------------------------------------


IMAGES = dataclasses.replace(HOST, runs_images=True, limits=frozenset({"cpu", "memory"}))
CONTAINER = "spec.template.spec.containers[0]"


def notices(job: dict[str, Any], host: Any = IMAGES) -> list[str]:
    errors, found = check(job, host)
    assert errors == []
    return found


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"command": None}, id="only an entry point"),
        pytest.param({"command": ["python3", "/opt/mnist/mnist.py"]}, id="a script of the image"),
        pytest.param({"command": ["/no/such/program"]}, id="a program of the image"),
        pytest.param({"workingDir": "/no/such/directory"}, id="a directory of the image"),
        pytest.param({"imagePullPolicy": "Always"}, id="a pull policy"),
        pytest.param({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, id="limits"),
        pytest.param({"securityContext": {"runAsUser": 7, "runAsGroup": 7, "privileged": True}}, id="rights"),
        pytest.param({"securityContext": {"capabilities": {"add": ["NET_RAW"], "drop": ["ALL"]}}}, id="capabilities"),
        pytest.param({"securityContext": {"readOnlyRootFilesystem": True}}, id="files that cannot be changed"),
        pytest.param({"securityContext": {"runAsUser": 7, "runAsNonRoot": True}}, id="not root"),
    ],
)
def test_what_an_image_brings_needs_nothing_of_this_machine(container: dict[str, Any]) -> None:
    assert notices(a_job(image="train:1", **container)) == []


def test_a_volume_needs_no_mention_where_it_is_mounted() -> None:
    mount = {"name": "v", "mountPath": "/data", "readOnly": True}

    assert notices(a_job_with_volume({"emptyDir": {}}, [mount], {"image": "i"})) == []


def test_an_image_is_needed(golden: Golden) -> None:
    golden(errors_of(a_job(), IMAGES))


@pytest.mark.parametrize(
    ("rights", "field"),
    [
        ({"runAsNonRoot": True}, "runAsNonRoot"),
        ({"runAsNonRoot": True, "runAsUser": 0}, "runAsNonRoot"),
        ({"runAsGroup": 5}, "runAsGroup"),
    ],
)
def test_a_user_that_the_runtime_cannot_take_is_refused(rights: dict[str, Any], field: str) -> None:
    job = a_job(image="i", securityContext=rights)

    assert places_of(job, IMAGES) == [(f"{CONTAINER}.securityContext.{field}", "pod-rights")]


def test_limits_that_the_account_cannot_set_are_a_notice(golden: Golden) -> None:
    host = dataclasses.replace(IMAGES, limits=frozenset({"memory"}))

    (notice,) = notices(a_job(image="i", resources={"limits": {"cpu": "1", "memory": "1Gi"}}), host)

    golden(notice)


def test_the_machine_has_something() -> None:
    host = HostCapacity.detect()

    assert 0 < host.cpus <= (os.cpu_count() or 1)
    assert host.memory_bytes > 2**26
    assert host.gpus >= 0


def test_limits_of_all_groups_above_count(tmp_path: Path) -> None:
    group = tmp_path / "system/engine"
    group.mkdir(parents=True)
    (tmp_path / "system/cpu.max").write_text("150000 100000\n")
    (group / "cpu.max").write_text("max 100000\n")
    (tmp_path / "system/memory.max").write_text("max\n")
    (group / "memory.max").write_text("1048576\n")

    assert cpu_quotas(tmp_path, "/system/engine") == {tmp_path / "system": 1.5}
    assert memory_limits(tmp_path, "/system/engine") == {group: 1048576}
    assert cpu_quotas(tmp_path, "/other") == {}
    assert memory_limits(tmp_path, "/other") == {}


def test_the_first_version_of_control_groups_counts_too(tmp_path: Path) -> None:
    for file, text in (
        ("cpu/cpu.cfs_quota_us", "50000"),
        ("cpu/cpu.cfs_period_us", "100000"),
        ("memory/memory.limit_in_bytes", "9223372036854771712"),
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)

    assert cpu_quotas(tmp_path, "/") == {tmp_path / "cpu": 0.5}
    assert memory_limits(tmp_path, "/") == {}
