"""`batch/v1` Job as a kind of job: its pods, and the rules that the API server has for its spec."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from katib.engine.runtime.objects import Kind, Object
from katib.model.wording import shown
from katib.places.machine.findings import Part, integer, mapping
from katib.places.machine.jobs.batch.plan import FAILURES, IGNORED_FAILURES, plan
from katib.places.machine.jobs.batch.spec import BUILT_IN_CONTROLLER, DEFAULT_BACKOFF_LIMIT, INDEXED, UNLIMITED, JobSpec
from katib.places.machine.jobs.kind import (
    LabelValues,
    NewPod,
    PodLabels,
    PodStart,
    Wiring,
    container_names,
    template_labels,
)

JOB = Kind("batch/v1", "Job")
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
TEMPLATE_PATH = "spec.template"


class BatchJob:
    """The kind Job. Fits `katib.places.machine.jobs.kind.JobKind`."""

    kind = JOB

    plan = staticmethod(plan)

    def pod(self, job: Object, start: PodStart, _wiring: Wiring) -> NewPod:
        """Describe a pod as the Job controller makes it: all are alike but for their index."""
        index, spec, details = start.index, JobSpec.of(job), start.details
        metadata, template = job["metadata"], job["spec"]["template"]
        name, uid = metadata["name"], metadata.get("uid", "")
        stem = name if index is None else f"{name}-{index}"
        marks = {} if index is None else {INDEX_ANNOTATION: str(index)}
        variables = {} if index is None else {INDEX_VARIABLE: str(index)}
        failed = {} if details.get(FAILURES) is None else {FAILURES_ANNOTATION: str(details[FAILURES])}
        if details.get(IGNORED_FAILURES):
            failed[IGNORED_FAILURES_ANNOTATION] = str(details[IGNORED_FAILURES])
        return NewPod(
            name=f"{stem}-",
            template=template,
            path=TEMPLATE_PATH,
            labels={**dict.fromkeys(UID_LABELS, uid), **dict.fromkeys(NAME_LABELS, name), **marks},
            annotations={**marks, **failed},
            hostname="" if index is None else stem,
            variables=dict.fromkeys(container_names(template, init=True), variables) if variables else {},
            restarts_on_failure=spec.restart_policy == "OnFailure" and spec.backoff_limit > 0,  # or no try is left
        )

    def check(self, job: Part) -> None:
        """Find obstacles for a Job on this machine, but for its pod template."""
        check_job_rules(job["spec"])

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the one template; the pods of a Job need not run together, so it counts once."""
        return {TEMPLATE_PATH: (mapping(mapping(job.get("spec")).get("template")), 1)}

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        spec = mapping(job.get("spec"))
        own: dict[str, LabelValues] = dict(template_labels(mapping(spec.get("template"))))
        if spec.get("completionMode") == INDEXED:
            completions = integer(spec.get("completions"))
            own[INDEX_ANNOTATION] = range(completions) if completions and completions > 0 else None
        return (PodLabels(own, dict.fromkeys((*UID_LABELS, *NAME_LABELS))),)


MOST_INDEXES: Final = 100_000
_INDEXES: Final = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")


def check_job_rules(job: Part) -> None:
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
        if (job["parallelism"].integer or 0) > MOST_INDEXES:
            cause = f"an Indexed Job can have at most {MOST_INDEXES}"
            job["parallelism"].error(cause, "write a smaller number", "job-parallelism")
    failed, completions = job["maxFailedIndexes"], job["completions"].integer
    if is_indexed and completions is not None and (failed.integer or 0) > completions:
        failed.error(f"it is above completions {completions}", "write at most that number", "job-max-failed-indexes")
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


# The fields of a new Job that an API server fills in, and clients rely on: `kubectl logs job/NAME` finds pods by them.
#
# Differs from an API server: the back-off limit is 0, and fields of the pod that mean nothing here are not filled in.

Json = dict[str, Any]


def with_defaults(job: Object) -> Json:
    """Return a new Job, which has its uid, with the fields that were left out."""
    metadata, spec = job["metadata"], mapping(job.get("spec"))
    template = mapping(spec.get("template"))
    inside = mapping(template.get("metadata"))
    labels = dict(mapping(inside.get("labels")))
    given = {name: value for name, value in spec.items() if value is not None}
    defaults: Json = {
        "backoffLimit": UNLIMITED if "backoffLimitPerIndex" in given else DEFAULT_BACKOFF_LIMIT,
        "completionMode": "NonIndexed",
        "parallelism": 1,
        "podReplacementPolicy": "Failed" if given.get("podFailurePolicy") else "TerminatingOrFailed",
        "suspend": False,
    }
    if not {"completions", "parallelism"} & set(given):
        defaults["completions"] = 1
    if not spec.get("manualSelector"):
        defaults["selector"] = {"matchLabels": {UID_LABELS[0]: metadata["uid"]}}
        own = {**dict.fromkeys(UID_LABELS, metadata["uid"]), **dict.fromkeys(NAME_LABELS, metadata["name"])}
        labels = {**labels, **own}
        given["template"] = {**template, "metadata": {**inside, "labels": labels}}
    if not metadata.get("labels") and labels:
        metadata = {**metadata, "labels": labels}
    return {**job, "metadata": metadata, "spec": {**defaults, **given}}
