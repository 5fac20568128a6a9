"""The whole check of a Job: its kind, the fate of every field, and the rules between fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from katib.api.wording import path_to, shown
from katib.errors import FieldError
from katib.local.admission.fields import FIELDS, Effect
from katib.local.admission.host import HostCapacity, Machine
from katib.local.admission.job_rules import check_job_rules
from katib.local.admission.pod_rules import check_pod_rules
from katib.local.admission.values import Findings, is_given, mapping, text
from katib.templates.job_schema import job_schema

SUPPORTED_KIND = ("batch/v1", "Job")


def check_job(
    template: Mapping[str, Any], path: str, *, host: HostCapacity, workspace: Path | None = None
) -> tuple[list[FieldError], list[str]]:
    """Return what keeps a template from running on this machine, and what will be different from a cluster.

    Args:
        template: The object, with or without placeholders; what a placeholder stands for is not judged.
        path: Where it stands, such as `spec.trialTemplate.trialSpec`.
        host: What the machine has.
        workspace: Directory that relative paths start from; None when it is not known, then they are not looked for.

    Returns:
        Errors, and notices of one sentence each. Wrong types and unknown fields are for `check_job_schema`.
    """
    findings = Findings()
    kind = (template.get("apiVersion"), template.get("kind"))
    if kind != SUPPORTED_KIND:
        _refuse_kind(template, path, findings)
        return findings.errors, findings.notices
    _check_fields(template, job_schema().root, path, findings)
    spec = mapping(template.get("spec"))
    check_job_rules(spec, f"{path}.spec", findings)
    pod = mapping(mapping(spec.get("template")).get("spec"))
    check_pod_rules(pod, f"{path}.spec.template.spec", Machine(host, workspace), findings)
    return findings.errors, findings.notices


def _refuse_kind(template: Mapping[str, Any], path: str, findings: Findings) -> None:
    kind, api_version = template.get("kind"), template.get("apiVersion")
    if kind == "Job":
        cause = f"Job of apiVersion {shown(api_version)} is not known here"
        findings.error(f"{path}.apiVersion", cause, "write batch/v1", "job-api-version")
        return
    remedy = "use kind Job of batch/v1, which runs on this machine, or submit the experiment to Kubernetes"
    findings.error(f"{path}.kind", f"kind {text(kind) or shown(kind)} needs a cluster", remedy, "job-kind-unsupported")


def _check_fields(value: Any, model: str, path: str, findings: Findings) -> None:
    """Look up every field that is given, in the table, and go on into those that are supported."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            _check_fields(item, model, f"{path}[{i}]", findings)
        return
    types = job_schema().models[model].fields
    for key, child in mapping(value).items():
        if key not in types or not is_given(child):
            continue
        child_path = path_to(path, key)
        verdict = FIELDS[model][key] if model in FIELDS else None
        if verdict is not None and verdict.effect is Effect.IGNORED:
            findings.notice(child_path, verdict.why)
        elif verdict is not None and verdict.effect is Effect.REFUSED:
            findings.error(child_path, verdict.why, verdict.remedy, "job-field-unsupported")
        elif types[key].removeprefix("[]") in job_schema().models:
            _check_fields(child, types[key].removeprefix("[]"), child_path, findings)
