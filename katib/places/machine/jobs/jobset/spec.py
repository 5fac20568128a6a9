"""The spec of a JobSet with its defaults, the gang that it is, and its batch Jobs. Pure."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from katib.engine.runtime.objects import Object
from katib.places.machine.findings import mapping, mapping_at
from katib.places.machine.jobs.conditions import Reason
from katib.places.machine.jobs.gang.spec import (
    READY,
    RESTART,
    Dependency,
    Gang,
    GangGroup,
    JobFailureRule,
    JobFailures,
    Reasons,
    Success,
)

API_VERSION = "jobset.x-k8s.io/v1alpha2"
MANAGER = "jobset.sigs.k8s.io/jobset-controller"
PREFIX = "jobset.sigs.k8s.io"
REPLICATED_JOB_LABEL = f"{PREFIX}/replicatedjob-name"


Json = dict[str, Any]


def replicated_job(jobset: Object, role: str) -> tuple[int, Json]:
    """Return the position and the replicated job of a role in a JobSet that passed admission."""
    name, items = role.rpartition("-")[0], jobset["spec"]["replicatedJobs"]
    return next((position, item) for position, item in enumerate(items) if item["name"] == name)


def gang_of(jobset: Object) -> Gang:
    spec: Mapping[str, Any] = jobset.get("spec", {})
    policy, failures = spec.get("successPolicy", {}), spec.get("failurePolicy")
    rules = None if failures is None else tuple(map(_failure_rule, failures.get("rules", [])))
    groups = tuple(_groups(spec.get("replicatedJobs", ()), in_order=is_in_order(spec)))
    named = policy.get("targetReplicatedJobs", ())
    targets = [role for group in groups if not named or group.name in named for role in group.roles]
    return Gang(
        groups=groups,
        success=Success(tuple((role, None) for role in targets), needs_all=policy.get("operator", "All") == "All"),
        failures=JobFailures(rules, (failures or {}).get("maxRestarts", 0)),
        reasons=Reasons("AllJobsCompleted", "FailedJobs", Reason.DEADLINE_EXCEEDED),
        success_message="jobset completed successfully",
        suspend=spec.get("suspend", False),
        ttl_seconds_after_finished=spec.get("ttlSecondsAfterFinished"),
        managed_elsewhere=spec.get("managedBy", MANAGER) != MANAGER,
    )


def is_in_order(spec: Mapping[str, Any]) -> bool:
    """Return whether each replicated job starts when the one before is ready."""
    return bool(spec.get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder")


def _groups(items: Iterable[Mapping[str, Any]], *, in_order: bool) -> Iterator[GangGroup]:
    before = ""
    for item in items:
        name, depends_on = (
            item["name"],
            [Dependency(d["name"], d.get("status", READY)) for d in item.get("dependsOn", ())],
        )
        if in_order and before and not depends_on:
            depends_on = [Dependency(before, READY)]
        roles = tuple(f"{name}-{i}" for i in range(item.get("replicas", 1)))
        yield GangGroup(name, job_template(item), roles, tuple(depends_on))
        before = name


def _failure_rule(rule: Mapping[str, Any]) -> JobFailureRule:
    return JobFailureRule(
        action=rule.get("action", RESTART),
        reasons=frozenset(rule.get("onJobFailureReasons", ())),
        patterns=tuple(rule.get("onJobFailureMessagePatterns", ())),
        targets=frozenset(rule.get("targetReplicatedJobs", ())),
    )


# --- the Jobs ---------------------------------------------------------------------------------------------------------


def job_template(replicated_job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the Jobs of a replicated job with the defaults that a JobSet gives; it may be malformed."""
    spec = dict(mapping_at(replicated_job, "template.spec"))
    spec.setdefault("completionMode", "Indexed")
    if "parallelism" not in spec and "completions" not in spec:
        spec |= {"parallelism": 1, "completions": 1}
    template = mapping(spec.get("template"))
    spec["template"] = {**template, "spec": {"restartPolicy": "OnFailure", **mapping(template.get("spec"))}}
    spec.pop("ttlSecondsAfterFinished", None)  # Jobs of a JobSet go with it
    return spec


def child_job(jobset: Object, role: str) -> Json:
    metadata, (_, item) = jobset["metadata"], replicated_job(jobset, role)
    name = f"{metadata['name']}-{role}"
    uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{metadata.get('uid', '')}/{name}"))
    own = mapping_at(item, "template.metadata")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**own, "name": name, "namespace": metadata.get("namespace", ""), "uid": uid},
        "spec": job_template(item),
    }


def job_labels(jobset: Object, role: str, attempt: int) -> dict[str, str]:
    """Return the labels, and annotations, of the Job of a role and of its pods."""
    metadata, (position, item) = jobset["metadata"], replicated_job(jobset, role)
    replicas = [each.get("replicas", 1) for each in jobset["spec"]["replicatedJobs"]]
    index, key = role.rpartition("-")[2], f"{metadata.get('namespace', '')}/{metadata['name']}-{role}"
    found = {
        "jobset-name": metadata["name"],
        "jobset-uid": metadata.get("uid", ""),
        "replicatedjob-name": item["name"],
        "replicatedjob-replicas": str(replicas[position]),
        "global-replicas": str(sum(replicas)),
        "job-index": index,
        "job-global-index": str(sum(replicas[:position]) + int(index)),
        "job-key": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
        "restart-attempt": str(attempt),
        "group-name": item.get("groupName", ""),
        "coordinator": coordinator_of(jobset),
    }
    return {f"{PREFIX}/{name}": value for name, value in found.items() if value or name.startswith("jobset")}


def coordinator_of(jobset: Object) -> str:
    """Return the name of the pod that a JobSet says leads it, as on a cluster; empty when it says none."""
    given = jobset.get("spec", {}).get("coordinator")
    if not given:
        return ""
    name = host_name(jobset, given.get("replicatedJob", ""), given.get("jobIndex", 0), given.get("podIndex", 0))
    return f"{name}.{subdomain_of(jobset)}"


def host_name(jobset: Object, replicated_job: str, job_index: int, pod_index: int) -> str:
    return f"{jobset['metadata']['name']}-{replicated_job}-{job_index}-{pod_index}"


def subdomain_of(jobset: Object) -> str:
    """Return the network name that its pods share on a cluster."""
    given: str = jobset.get("spec", {}).get("network", {}).get("subdomain", "") or jobset["metadata"]["name"]
    return given
