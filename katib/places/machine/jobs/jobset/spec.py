"""A JobSet's spec with its defaults, and the batch Jobs that it is made of. Pure."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from katib.engine.runtime.objects import Object
from katib.places.machine.findings import mapping, mapping_at

API_VERSION = "jobset.x-k8s.io/v1alpha2"
MANAGER = "jobset.sigs.k8s.io/jobset-controller"
PREFIX = "jobset.sigs.k8s.io"
REPLICATED_JOB_LABEL = f"{PREFIX}/replicatedjob-name"

READY, COMPLETE = "Ready", "Complete"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A replicated job that must be Ready or Complete before another one starts."""

    name: str
    status: str


@dataclass(frozen=True, slots=True)
class ReplicatedJob:
    """One kind of Jobs of a JobSet.

    Attributes:
        name: Its name.
        position: In the list of the spec.
        replicas: How many Jobs.
        template: The Job template: metadata and spec.
        depends_on: What must be reached before its Jobs start.
        first: How many Jobs the replicated jobs before it have.
        group: Its group; empty when it has none.
    """

    name: str
    position: int
    replicas: int
    template: Mapping[str, Any]
    depends_on: tuple[Dependency, ...]
    first: int
    group: str = ""

    @property
    def path(self) -> str:
        """Where the pod template of its Jobs stands in the JobSet."""
        return f"spec.replicatedJobs[{self.position}].template.spec.template"

    def roles(self) -> list[str]:
        """Return the roles of the pods of its Jobs, in order."""
        return [f"{self.name}-{i}" for i in range(self.replicas)]


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What to do about failed Jobs for certain reasons. Empty fields fit every one."""

    action: str
    reasons: frozenset[str]
    patterns: tuple[str, ...]
    targets: frozenset[str]

    def fits(self, replicated_job: str, reason: str, message: str) -> bool:
        """Return whether it speaks of a Job of a replicated job that failed so."""
        return (
            (not self.targets or replicated_job in self.targets)
            and (not self.reasons or reason in self.reasons)
            and (not self.patterns or any(re.search(pattern, message) for pattern in self.patterns))
        )


@dataclass(frozen=True, slots=True)
class JobSetSpec:
    """What a JobSet asks for.

    Attributes:
        failure_rules: None without a failurePolicy: the first failed Job fails the JobSet.
    """

    replicated_jobs: tuple[ReplicatedJob, ...]
    success_operator: str
    success_targets: frozenset[str]
    failure_rules: tuple[FailureRule, ...] | None
    max_restarts: int
    in_order: bool
    suspend: bool
    ttl_seconds_after_finished: int | None
    managed_elsewhere: bool

    @classmethod
    def of(cls, jobset: Object) -> JobSetSpec:
        """Read the spec of a JobSet that passed admission."""
        spec: Mapping[str, Any] = jobset.get("spec", {})
        success, failure = spec.get("successPolicy", {}), spec.get("failurePolicy")
        in_order = spec.get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder"
        return cls(
            replicated_jobs=tuple(_replicated_jobs(spec.get("replicatedJobs", []), in_order=in_order)),
            success_operator=success.get("operator", "All"),
            success_targets=frozenset(success.get("targetReplicatedJobs", ())),
            failure_rules=None if failure is None else tuple(map(_failure_rule, failure.get("rules", []))),
            max_restarts=(failure or {}).get("maxRestarts", 0),
            in_order=in_order,
            suspend=spec.get("suspend", False),
            ttl_seconds_after_finished=spec.get("ttlSecondsAfterFinished"),
            managed_elsewhere=spec.get("managedBy", MANAGER) != MANAGER,
        )

    def replicated_job(self, role: str) -> tuple[ReplicatedJob, int]:
        """Return the replicated job and the index of the Job that pods of a role belong to."""
        name, _, index = role.rpartition("-")
        return next(job for job in self.replicated_jobs if job.name == name), int(index)


def _replicated_jobs(items: Sequence[Mapping[str, Any]], *, in_order: bool) -> Iterator[ReplicatedJob]:
    first, before = 0, ""
    for position, item in enumerate(items):
        replicas = item.get("replicas", 1)
        depends_on = tuple(Dependency(d["name"], d.get("status", READY)) for d in item.get("dependsOn", ()))
        if in_order and before and not depends_on:
            depends_on = (Dependency(before, READY),)
        yield ReplicatedJob(
            item["name"], position, replicas, item.get("template", {}), depends_on, first, item.get("groupName", "")
        )
        first, before = first + replicas, item["name"]


def _failure_rule(rule: Mapping[str, Any]) -> FailureRule:
    return FailureRule(
        action=rule.get("action", "RestartJobSet"),
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


def child_job(jobset: Object, replicated_job: ReplicatedJob, index: int, *, suspend: bool = False) -> dict[str, Any]:
    """Return a Job of a JobSet."""
    metadata = jobset["metadata"]
    name = f"{metadata['name']}-{replicated_job.name}-{index}"
    uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{metadata.get('uid', '')}/{name}"))
    own = replicated_job.template.get("metadata", {})
    spec = job_template({"template": replicated_job.template})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**own, "name": name, "namespace": metadata.get("namespace", ""), "uid": uid},
        "spec": {**spec, "suspend": suspend},
    }


def job_labels(jobset: Object, replicated_job: ReplicatedJob, index: int, attempt: int) -> dict[str, str]:
    """Return the labels, and annotations, of a Job of a JobSet and of its pods."""
    metadata, spec = jobset["metadata"], JobSetSpec.of(jobset)
    key = f"{metadata.get('namespace', '')}/{metadata['name']}-{replicated_job.name}-{index}"
    found = {
        "jobset-name": metadata["name"],
        "jobset-uid": metadata.get("uid", ""),
        "replicatedjob-name": replicated_job.name,
        "replicatedjob-replicas": str(replicated_job.replicas),
        "global-replicas": str(sum(job.replicas for job in spec.replicated_jobs)),
        "job-index": str(index),
        "job-global-index": str(replicated_job.first + index),
        "job-key": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
        "restart-attempt": str(attempt),
    }
    if replicated_job.group:
        found["group-name"] = replicated_job.group
    if coordinator := coordinator_of(jobset):
        found["coordinator"] = coordinator
    return {f"{PREFIX}/{name}": value for name, value in found.items()}


def coordinator_of(jobset: Object) -> str:
    """Return the name of the pod that a JobSet says leads it, as on a cluster; empty when it says none."""
    given = jobset.get("spec", {}).get("coordinator")
    if not given:
        return ""
    name = host_name(jobset, given.get("replicatedJob", ""), given.get("jobIndex", 0), given.get("podIndex", 0))
    return f"{name}.{subdomain_of(jobset)}"


def host_name(jobset: Object, replicated_job: str, job_index: int, pod_index: int) -> str:
    """Return the host name of a pod of an Indexed Job."""
    return f"{jobset['metadata']['name']}-{replicated_job}-{job_index}-{pod_index}"


def subdomain_of(jobset: Object) -> str:
    """Return the network name that its pods share on a cluster."""
    given: str = jobset.get("spec", {}).get("network", {}).get("subdomain", "") or jobset["metadata"]["name"]
    return given
