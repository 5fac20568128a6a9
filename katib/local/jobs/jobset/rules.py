"""Rules between the fields of a JobSet's spec, and what they mean on one machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from katib.api.wording import did_you_mean, shown
from katib.local.findings import Findings, integer, is_given, mapping, mappings, text, texts
from katib.local.jobs.batch.rules import check_job_rules
from katib.local.jobs.jobset.plan import ACTIONS
from katib.local.jobs.jobset.spec import COMPLETE, MANAGER, READY, job_template
from katib.local.jobs.jobset.structure import JOB_SET_SPEC, check_job_template, check_structure
from katib.templates import has_placeholder

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"

_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
_STRATEGIES: Final = ("Recreate", "BlockingRecreate")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CLUSTER = "submit the experiment to Kubernetes"


def check_jobset_rules(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    """Check a JobSet's spec.

    Args:
        spec: The spec; may be malformed.
        path: Where it stands.
        findings: Takes what is found.
    """
    check_structure(spec, JOB_SET_SPEC, path, findings, "JobSet")
    _check_replicated_jobs(spec, path, findings)
    names = [text(item.get("name")) for _, item in mappings(spec.get("replicatedJobs"))]
    _check_dependencies(spec, path, findings)
    success, place = mapping(spec.get("successPolicy")), f"{path}.successPolicy"
    findings.choice(success.get("operator"), ("All", "Any"), f"{place}.operator")
    _check_targets(success.get("targetReplicatedJobs"), f"{place}.targetReplicatedJobs", names, findings)
    _check_failure(mapping(spec.get("failurePolicy")), f"{path}.failurePolicy", names, findings)
    order = mapping(spec.get("startupPolicy")).get("startupPolicyOrder")
    findings.choice(order, ("AnyOrder", "InOrder"), f"{path}.startupPolicy.startupPolicyOrder")
    findings.below(0, spec.get("ttlSecondsAfterFinished"), f"{path}.ttlSecondsAfterFinished")
    findings.all_below({"jobIndex": 0, "podIndex": 0}, mapping(spec.get("coordinator")), f"{path}.coordinator")
    _check_surroundings(spec, path, findings)


def check_peers(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    """Find names of other pods that a JobSet's containers spell out and that are no hosts here.

    Args:
        spec: The spec; may be malformed.
        path: Where it stands.
        findings: Takes what is found.
    """
    jobs = list(mappings(spec.get("replicatedJobs")))
    names = [re.escape(name) for _, item in jobs if (name := text(item.get("name")))]
    pattern = re.compile(rf"-((?:{'|'.join(names)})-\d+-\d+)\b")
    for i, item in jobs if names else ():
        pod = mapping(mapping(job_template(item).get("template")).get("spec"))
        place = f"{path}.replicatedJobs[{i}].template.spec.template.spec"
        for list_ in ("initContainers", "containers"):
            for j, container in mappings(pod.get(list_)):
                if found := spelled_out(container, pattern):
                    field, name = found
                    cause = f"the host name of a pod, as in {shown(name)}, leads nowhere on this machine"
                    remedy = f"use 127.0.0.1, or {_CLUSTER}"
                    findings.error(f"{place}.{list_}[{j}].{field}", cause, remedy, "jobset-peer-name")


def spelled_out(container: Mapping[str, Any], pattern: re.Pattern[str]) -> tuple[str, str] | None:
    """Return which field of a container holds what a pattern's group finds, and what; None when none does."""
    values = [value for _, entry in mappings(container.get("env")) if isinstance(value := entry.get("value"), str)]
    for field, words in (
        ("command", texts(container.get("command"))),
        ("args", texts(container.get("args"))),
        ("env", values),
    ):
        if match := next(filter(None, map(pattern.search, words)), None):
            return field, match.group(1)
    return None


def _check_replicated_jobs(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    jobs = list(mappings(spec.get("replicatedJobs")))
    if not jobs and not has_placeholder(spec.get("replicatedJobs")):
        findings.error(f"{path}.replicatedJobs", "it is missing or empty", "give at least one", "jobset-empty")
    seen: set[str] = set()
    for i, item in jobs:
        place, name = f"{path}.replicatedJobs[{i}]", text(item.get("name"))
        if not is_given(item.get("name")):
            findings.error(f"{place}.name", "it is missing", "name the replicated job", "job-field-missing")
        elif name and not _NAME.fullmatch(name):
            cause = f"{shown(name)} is not a valid DNS label"
            findings.error(f"{place}.name", cause, "use lower case letters, digits and hyphens", "jobset-name")
        elif name in seen:
            cause = f"{shown(name)} is used twice"
            findings.error(f"{place}.name", cause, "give it a name of its own", "jobset-name")
        seen.add(name)
        findings.below(0, item.get("replicas"), f"{place}.replicas")
        check_job_template(item.get("template"), f"{place}.template", findings)
        if not is_given(mapping(mapping(item.get("template")).get("spec")).get("template")):
            cause = "it is missing"
            findings.error(f"{place}.template.spec.template", cause, "give the pod template", "job-field-missing")
            continue
        rules = job_template(item)
        if (integer(rules.get("completions")) or 1) > 1:
            rules["completions"] = 1  # whose metrics count is for the labels of primary pods to say
        check_job_rules(rules, f"{place}.template.spec", findings)
        job = mapping(item.get("template"))
        parts = (job, mapping(mapping(job.get("spec")).get("template")))
        if any(EXCLUSIVE in mapping(mapping(part.get("metadata")).get("annotations")) for part in parts):
            cause = "a Job cannot have a part of this machine to itself"
            remedy = f"remove the annotation {EXCLUSIVE}, or {_CLUSTER}"
            findings.error(f"{place}.template.metadata.annotations", cause, remedy, "jobset-unsupported")


def _check_dependencies(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    in_order = mapping(spec.get("startupPolicy")).get("startupPolicyOrder") == "InOrder"
    earlier: list[str] = []
    for i, item in mappings(spec.get("replicatedJobs")):
        for j, dependency in mappings(item.get("dependsOn")):
            place, name = f"{path}.replicatedJobs[{i}].dependsOn[{j}]", text(dependency.get("name"))
            if in_order:
                remedy = "remove it, or the startupPolicy"
                findings.error(place, "startupPolicy InOrder already says the order", remedy, "jobset-depends-on")
            if name and name not in earlier:
                cause = f"no replicated job before this one is named {shown(name)}"
                remedy = did_you_mean(name, earlier) if earlier else "remove it: the first one cannot depend on others"
                findings.error(f"{place}.name", cause, remedy, "jobset-depends-on")
            findings.choice(dependency.get("status"), (READY, COMPLETE), f"{place}.status")
        earlier.append(text(item.get("name")))


def _check_failure(policy: Mapping[str, Any], path: str, names: list[str], findings: Findings) -> None:
    findings.below(0, policy.get("maxRestarts"), f"{path}.maxRestarts")
    if policy.get("restartStrategy") == "InPlaceRestart":
        cause = "pods are not restarted in place here"
        findings.error(f"{path}.restartStrategy", cause, "use Recreate", "jobset-unsupported")
    else:
        findings.choice(policy.get("restartStrategy"), _STRATEGIES, f"{path}.restartStrategy")
    for i, rule in mappings(policy.get("rules")):
        place = f"{path}.rules[{i}]"
        if not is_given(rule.get("action")):
            remedy = f"give one of {', '.join(ACTIONS)}"
            findings.error(f"{place}.action", "it is missing", remedy, "job-field-missing")
        findings.choice(rule.get("action"), ACTIONS, f"{place}.action")
        _check_targets(rule.get("targetReplicatedJobs"), f"{place}.targetReplicatedJobs", names, findings)
        for j, reason in enumerate(texts(rule.get("onJobFailureReasons"))):
            findings.choice(reason, _REASONS, f"{place}.onJobFailureReasons[{j}]")
        for j, pattern in enumerate(texts(rule.get("onJobFailureMessagePatterns"))):
            if not _is_pattern(pattern):
                remedy = "write a regular expression"
                cause = f"{shown(pattern)} is not a valid regular expression"
                findings.error(f"{place}.onJobFailureMessagePatterns[{j}]", cause, remedy, "jobset-pattern")


def _is_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return has_placeholder(pattern)
    return True


def _check_targets(value: object, path: str, names: list[str], findings: Findings) -> None:
    for i, name in enumerate(texts(value)):
        if text(name) and name not in names:
            cause = f"there is no replicated job {shown(name)}"
            findings.error(f"{path}[{i}]", cause, did_you_mean(name, names), "jobset-target")


def _check_surroundings(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    findings.managed_by(spec.get("managedBy"), MANAGER, f"{path}.managedBy", "JobSet")
    if is_given(spec.get("volumeClaimPolicies")):
        remedy = f"use an emptyDir or a path of this machine, or {_CLUSTER}"
        cause = "volumes are not claimed on this machine"
        findings.error(f"{path}.volumeClaimPolicies", cause, remedy, "jobset-unsupported")
    if spec.get("suspend") is True:
        findings.notice(f"{path}.suspend", "every trial starts suspended and waits until its JobSet is resumed")
    if is_given(spec.get("network")):
        findings.notice(f"{path}.network", "there is no cluster network here, so pods have no names in it")
