"""`batch/v1` Job as a kind of job: its plan, and the names, labels and variables of its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from katib.local.findings import Findings, Part, integer, mapping, mapping_at
from katib.local.jobs.batch.plan import FAILURES, IGNORED_FAILURES, plan
from katib.local.jobs.batch.rules import check_job_rules
from katib.local.jobs.batch.spec import INDEXED, JobSpec
from katib.local.jobs.kind import (
    LabelValues,
    NewPod,
    PodLabels,
    PodStart,
    Wiring,
    container_names,
    template_labels,
)
from katib.runtime.objects import Kind, Object

JOB = Kind("batch/v1", "Job")
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
OWNER_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
TEMPLATE_PATH = "spec.template"


class BatchJob:
    """The kind Job. Fits `katib.local.jobs.kind.JobKind`."""

    kind = JOB

    plan = staticmethod(plan)

    def pod(self, job: Object, start: PodStart, _wiring: Wiring) -> NewPod:
        """Describe a pod: all are alike but for their index."""
        return batch_pod(job, start)

    def check(self, job: Object, path: str, findings: Findings) -> None:
        """Find what keeps a Job from running here, but for its pod template."""
        check_job_rules(Part(job, path, findings)["spec"])

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the one template; the pods of a Job need not run together, so it counts once."""
        return {TEMPLATE_PATH: (mapping_at(job, "spec.template"), 1)}

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        """Return the labels of its pods."""
        return (batch_labels(mapping(job.get("spec"))),)


def batch_pod(job: Object, start: PodStart) -> NewPod:
    """Return a pod of a Job, as the Job controller makes it."""
    index, spec = start.index, JobSpec.of(job)
    metadata, template = job["metadata"], job["spec"]["template"]
    name, uid = metadata["name"], metadata.get("uid", "")
    stem = name if index is None else f"{name}-{index}"
    marks = {} if index is None else {INDEX_ANNOTATION: str(index)}
    variables = {} if index is None else {INDEX_VARIABLE: str(index)}
    owner = {label: uid if label.endswith("controller-uid") else name for label in OWNER_LABELS}
    return NewPod(
        name=f"{stem}-",
        template=template,
        path=TEMPLATE_PATH,
        labels={**owner, **marks},
        annotations={**marks, **(_failure_annotations(start) if start.details else {})},
        hostname="" if index is None else stem,
        variables=dict.fromkeys(container_names(template, init=True), variables) if variables else {},
        restarts_on_failure=spec.restart_policy == "OnFailure" and spec.backoff_limit > 0,  # or no try is left
    )


def batch_labels(spec: Mapping[str, Any]) -> PodLabels:
    """Return the labels of the pods of a Job, given its spec, which may be malformed or hold placeholders."""
    own: dict[str, LabelValues] = dict(template_labels(mapping(spec.get("template"))))
    if spec.get("completionMode") == INDEXED:
        completions = integer(spec.get("completions"))
        own[INDEX_ANNOTATION] = range(completions) if completions and completions > 0 else None
    return PodLabels(own, dict.fromkeys(OWNER_LABELS))


def _failure_annotations(start: PodStart) -> dict[str, str]:
    """Return how often the index of a pod failed before; nothing without a limit per index."""
    failures, ignored = start.details.get(FAILURES), start.details.get(IGNORED_FAILURES)
    found = {} if failures is None else {FAILURES_ANNOTATION: str(failures)}
    return {**found, IGNORED_FAILURES_ANNOTATION: str(ignored)} if ignored else found
