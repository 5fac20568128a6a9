"""Rules between the fields of a Job's spec, as the API server has them, and what they mean on one machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from katib.api.wording import shown
from katib.local.findings import Findings, integer, is_given, mapping, mappings, text

BUILT_IN_CONTROLLER: Final = "kubernetes.io/job-controller"
INDEXED: Final = "Indexed"

_LOWEST: Final = {
    "activeDeadlineSeconds": 1,
    "backoffLimit": 0,
    "backoffLimitPerIndex": 0,
    "completions": 0,
    "maxFailedIndexes": 0,
    "parallelism": 0,
    "ttlSecondsAfterFinished": 0,
}
"""As the API server has them, but for the deadline: it documents that as positive and takes 0, with which all fail."""

_CHOICES = {
    "completionMode": ("NonIndexed", INDEXED),
    "podReplacementPolicy": ("TerminatingOrFailed", "Failed"),
}
_ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")
_OPERATORS = ("In", "NotIn")
_INDEXES = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")


def check_job_rules(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    """Check a Job's spec.

    Args:
        spec: The spec; may be malformed.
        path: Where it stands.
        findings: Takes what is found.
    """
    pod = mapping(mapping(spec.get("template")).get("spec"))
    policy, place = pod.get("restartPolicy"), f"{path}.template.spec.restartPolicy"
    if not is_given(policy):
        findings.error(place, "it is missing", "write Never or OnFailure", "job-restart-policy")
    elif text(policy) and policy not in {"Never", "OnFailure"}:
        findings.error(place, f"a Job cannot have {shown(policy)}", "write Never or OnFailure", "job-restart-policy")
    findings.all_below(_LOWEST, spec, path)
    if integer(spec.get("parallelism")) == 0:
        findings.notice(f"{path}.parallelism", "with 0 no pod is started, so every trial waits forever")
    if spec.get("suspend") is True:
        findings.notice(f"{path}.suspend", "every trial starts suspended and waits until its Job is resumed")
    if (integer(spec.get("completions")) or 1) > 1:
        findings.notice(f"{path}.completions", "the metrics of all pods go to one trial, in the order they arrive")
    for field, choices in _CHOICES.items():
        findings.choice(spec.get(field), choices, f"{path}.{field}")
    _check_indexed(spec, path, findings)
    for field in ("backoffLimitPerIndex", "podFailurePolicy") if policy == "OnFailure" else ():
        if is_given(spec.get(field)):
            remedy = f"set {place} to Never, or remove it"
            findings.error(f"{path}.{field}", "it needs restartPolicy Never", remedy, "job-never-only")
    _check_failure_policy(spec, pod, path, findings)
    _check_success_policy(spec, path, findings)
    findings.managed_by(spec.get("managedBy"), BUILT_IN_CONTROLLER, f"{path}.managedBy", "Job")


def _check_indexed(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    is_indexed = spec.get("completionMode") == INDEXED
    if is_indexed and not is_given(spec.get("completions")):
        remedy = "give the number of indexes"
        findings.error(f"{path}.completions", "it is missing in an Indexed Job", remedy, "job-indexed-completions")
    for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if is_given(spec.get(field)) and not is_indexed:
            remedy = f"set {path}.completionMode to Indexed, or remove it"
            findings.error(f"{path}.{field}", "only an Indexed Job can have it", remedy, "job-indexed-only")
    if is_given(spec.get("maxFailedIndexes")) and not is_given(spec.get("backoffLimitPerIndex")):
        cause = "it counts only together with backoffLimitPerIndex"
        findings.error(f"{path}.maxFailedIndexes", cause, "give both or none", "job-max-failed-indexes")


def _check_failure_policy(spec: Mapping[str, Any], pod: Mapping[str, Any], path: str, findings: Findings) -> None:
    policy = mapping(spec.get("podFailurePolicy"))
    if policy and spec.get("podReplacementPolicy") == "TerminatingOrFailed":
        cause = "with a podFailurePolicy only Failed is allowed"
        findings.error(f"{path}.podReplacementPolicy", cause, "write Failed, or remove it", "job-pod-replacement")
    names = {
        text(item.get("name")) for field in ("containers", "initContainers") for _, item in mappings(pod.get(field))
    }
    for i, rule in mappings(policy.get("rules")):
        rule_path = f"{path}.podFailurePolicy.rules[{i}]"
        findings.choice(rule.get("action"), _ACTIONS, f"{rule_path}.action")
        if rule.get("action") == "FailIndex" and not is_given(spec.get("backoffLimitPerIndex")):
            cause = "FailIndex needs backoffLimitPerIndex"
            findings.error(f"{rule_path}.action", cause, "set it, or use FailJob", "job-fail-index")
        codes = mapping(rule.get("onExitCodes"))
        if is_given(rule.get("onPodConditions")):
            findings.notice(f"{rule_path}.onPodConditions", "nothing evicts pods here, so the rule never matches")
        if bool(codes) == is_given(rule.get("onPodConditions")):
            findings.error(rule_path, "it has no condition, or two", "give onExitCodes or onPodConditions", "job-rule")
        findings.choice(codes.get("operator"), _OPERATORS, f"{rule_path}.onExitCodes.operator")
        name = text(codes.get("containerName"))
        if name and name not in names:
            known = ", ".join(sorted(filter(None, names)))
            cause = f"there is no container {shown(name)}"
            findings.error(f"{rule_path}.onExitCodes.containerName", cause, f"use one of {known}", "job-rule-container")


def _check_success_policy(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    for i, rule in mappings(mapping(spec.get("successPolicy")).get("rules")):
        rule_path = f"{path}.successPolicy.rules[{i}]"
        findings.below(1, rule.get("succeededCount"), f"{rule_path}.succeededCount")
        indexes = text(rule.get("succeededIndexes"))
        if not is_given(rule.get("succeededIndexes")) and not is_given(rule.get("succeededCount")):
            remedy = "give succeededIndexes, succeededCount or both"
            findings.error(rule_path, "it has no condition", remedy, "job-rule")
        elif indexes and not _INDEXES.fullmatch(indexes):
            cause = f"{shown(indexes)} is not a list of indexes"
            findings.error(f"{rule_path}.succeededIndexes", cause, "write it like 0,2-4", "job-indexes")
