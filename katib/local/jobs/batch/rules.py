"""Rules between the fields of a Job's spec, as the API server has them, and what they mean on one machine."""

from __future__ import annotations

import re
from typing import Final

from katib.api.wording import shown
from katib.local.findings import Part
from katib.local.jobs.batch.spec import BUILT_IN_CONTROLLER, INDEXED

_INDEXES: Final = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")


def check_job_rules(job: Part) -> None:
    """Check the spec of a Job."""
    pod = job["template.spec"]
    policy = pod["restartPolicy"]
    allowed = {"", "Never", "OnFailure"}
    if policy.require("write Never or OnFailure", "job-restart-policy") and policy.text not in allowed:
        policy.error(f"a Job cannot have {shown(policy.value)}", "write Never or OnFailure", "job-restart-policy")
    # The API server documents the deadline as positive and takes 0, with which all fail.
    job.at_least(activeDeadlineSeconds=1, backoffLimit=0, backoffLimitPerIndex=0, completions=0, maxFailedIndexes=0)
    job.at_least(parallelism=0, ttlSecondsAfterFinished=0)
    if job["parallelism"].integer == 0:
        job["parallelism"].notice("with 0 no pod is started, so every trial waits forever")
    if (job["completions"].integer or 1) > 1:
        job["completions"].notice("the metrics of all pods go to one trial, in the order they arrive")
    job["completionMode"].choice("NonIndexed", INDEXED)
    job["podReplacementPolicy"].choice("TerminatingOrFailed", "Failed")
    _check_indexed(job)
    if policy.value == "OnFailure":
        for field in ("backoffLimitPerIndex", "podFailurePolicy"):
            remedy = f"set {policy.path} to Never, or remove it"
            job[field].refuse("it needs restartPolicy Never", remedy, "job-never-only")
    _check_failure_policy(job, pod)
    _check_success_policy(job["successPolicy"])
    job.run_by(BUILT_IN_CONTROLLER, "Job")


def _check_success_policy(policy: Part) -> None:
    for rule in policy["rules"]:
        indexes = rule["succeededIndexes"]
        rule.at_least(succeededCount=1)
        if not indexes.is_given and not rule["succeededCount"].is_given:
            rule.error("it has no condition", "give succeededIndexes, succeededCount or both", "job-rule")
        elif indexes.text and not _INDEXES.fullmatch(indexes.text):
            indexes.error(f"{shown(indexes.text)} is not a list of indexes", "write it like 0,2-4", "job-indexes")


def _check_indexed(job: Part) -> None:
    is_indexed = job["completionMode"].value == INDEXED
    if is_indexed:
        cause = "it is missing in an Indexed Job"
        job["completions"].require("give the number of indexes", "job-indexed-completions", cause)
    for field in () if is_indexed else ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        remedy = f"set {job.path}.completionMode to Indexed, or remove it"
        job[field].refuse("only an Indexed Job can have it", remedy, "job-indexed-only")
    if not job["backoffLimitPerIndex"].is_given:
        cause = "it counts only together with backoffLimitPerIndex"
        job["maxFailedIndexes"].refuse(cause, "give both or none", "job-max-failed-indexes")


def _check_failure_policy(job: Part, pod: Part) -> None:
    policy, replacement = job["podFailurePolicy"], job["podReplacementPolicy"]
    if policy.fields and replacement.value == "TerminatingOrFailed":
        cause = "with a podFailurePolicy only Failed is allowed"
        replacement.error(cause, "write Failed, or remove it", "job-pod-replacement")
    names = {c["name"].text for field in ("containers", "initContainers") for c in pod[field]}
    for rule in policy["rules"]:
        action, codes, conditions = rule["action"], rule["onExitCodes"], rule["onPodConditions"]
        action.choice("FailJob", "FailIndex", "Ignore", "Count")
        if action.value == "FailIndex" and not job["backoffLimitPerIndex"].is_given:
            action.error("FailIndex needs backoffLimitPerIndex", "set it, or use FailJob", "job-fail-index")
        conditions.note("nothing evicts pods here, so the rule never matches")
        if bool(codes.fields) == conditions.is_given:
            rule.error("it has no condition, or two", "give onExitCodes or onPodConditions", "job-rule")
        codes["operator"].choice("In", "NotIn")
        name = codes["containerName"]
        if name.text and name.text not in names:
            known = ", ".join(sorted(filter(None, names)))
            name.error(f"there is no container {shown(name.text)}", f"use one of {known}", "job-rule-container")
