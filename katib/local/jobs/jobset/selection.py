"""Whether labels select a pod of a JobSet, as far as that is known before it starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from katib.api.wording import shown
from katib.local.findings import Findings, integer, mapping, mappings, text
from katib.local.jobs.batch.job import INDEX_ANNOTATION
from katib.local.jobs.jobset.spec import PREFIX, REPLICATED_JOB_LABEL, job_template
from katib.runtime.objects import Object
from katib.templates import has_placeholder

_JOB_INDEX: Final = f"{PREFIX}/job-index"
_SET_LATER: Final = (f"{PREFIX}/", "batch.kubernetes.io/", "job-name", "controller-uid")
"""Labels that controllers set to what is known only when a job runs."""


def check_pod_labels(jobset: Object, labels: Mapping[str, str], path: str, findings: Findings) -> None:
    """Find that labels select no pod of a JobSet.

    Args:
        jobset: The JobSet; may be malformed or hold placeholders.
        labels: What is to select pods.
        path: Where they stand.
        findings: Takes what is found.
    """
    jobs = [job for _, job in mappings(mapping(jobset.get("spec")).get("replicatedJobs"))]
    if not labels or any(map(has_placeholder, labels.values())) or any(_has(job, labels) for job in jobs):
        return
    names = ", ".join(name for job in jobs if (name := text(job.get("name"))))
    if names:
        given = ", ".join(f"{name}: {value}" for name, value in labels.items())
        cause = f"no pod has the labels {shown(given)}, so no metrics would be read"
        remedy = f"write {REPLICATED_JOB_LABEL} with one of {names}"
        findings.error(path, cause, remedy, "primary-pod-labels")


def _has(job: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    spec = job_template(job)
    own = mapping(mapping(mapping(spec.get("template")).get("metadata")).get("labels"))
    known = {**own, REPLICATED_JOB_LABEL: job.get("name")}
    numbers = {
        INDEX_ANNOTATION: integer(spec.get("completions", 1)),
        _JOB_INDEX: integer(job.get("replicas", 1)),
    }
    return all(_fits(name, value, known, numbers) for name, value in labels.items())


def _fits(name: str, value: str, known: Mapping[str, Any], numbers: Mapping[str, int | None]) -> bool:
    if name in numbers:
        count = numbers[name]
        return count is None or (value.isdecimal() and int(value) < count)
    if name in known:
        return has_placeholder(known[name]) or str(known[name]) == value
    return name.startswith(_SET_LATER)
