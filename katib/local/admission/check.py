"""The whole check of a job: its kind, the fate of every field, and the rules between fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from katib.api.job_kinds import misspelt_kind
from katib.api.wording import shown
from katib.errors import FieldError
from katib.local.admission.fields import Effect, Fields, fields_of
from katib.local.admission.host import HostCapacity, Machine
from katib.local.admission.pod_rules import check_card_share, check_pod_rules, check_requests_together
from katib.local.findings import Part
from katib.local.jobs.batch.job import JOB
from katib.local.jobs.kind import Composed, JobKind, KnowsPeers
from katib.local.jobs.kinds import job_kinds, kinds_by_name
from katib.local.jobs.networks import may_be_named
from katib.runtime.objects import Kind
from katib.templates.job_schema import POD_TEMPLATE, check_value, job_schema


def check_job(
    template: Mapping[str, Any],
    path: str,
    *,
    host: HostCapacity,
    workspace: Path | None = None,
    kinds: tuple[JobKind, ...] | None = None,
) -> tuple[list[FieldError], list[str]]:
    """Return what keeps a template from running on this machine, and what will be different from a cluster.

    Args:
        template: The object, with or without placeholders; what a placeholder stands for is not judged.
        path: Where it stands, such as `spec.trialTemplate.trialSpec`.
        host: What the machine has.
        workspace: Directory that relative paths start from; None when it is not known, then they are not looked for.
        kinds: The kinds of jobs that run here, if not those that need nothing that is stored.

    Returns:
        Errors, and notices of one sentence each. Wrong types and unknown fields are for `check_job_schema`.
    """
    job = Part(template, path)
    findings, known = job.findings, kinds_by_name(job_kinds() if kinds is None else kinds)
    kind = known.get(Kind.of(template))
    if kind is None:
        _refuse_kind(job, known)
        return findings.errors, findings.notices
    templates = kind.templates(template)
    are_named = host.names_pods and may_be_named(kind.kind, [pod_template for pod_template, _ in templates.values()])
    addresses = kind.variables_with_addresses(template) if isinstance(kind, KnowsPeers) else ""
    fields = fields_of(host, addresses=addresses, are_named=are_named)
    if kind.kind == JOB:
        _check_fields(job, job_schema().root, fields)
    kind.check(job)
    if isinstance(kind, KnowsPeers) and not are_named:
        kind.check_peer_names(job)
    for place, (pod_template, _) in templates.items():
        pod = Part(pod_template, f"{path}.{place}", findings)
        if kind.kind != JOB:
            findings.errors += check_value(pod_template, POD_TEMPLATE, pod.path)
            _check_fields(pod, POD_TEMPLATE, fields)
        check_card_share(pod["metadata.annotations"], host)
        check_pod_rules(pod["spec"], Machine(host, workspace))
    check_requests_together(list(templates.values()), job["spec"], host)
    if isinstance(kind, Composed):
        findings.move(partial(_written_at, kind, template, f"{path}.", tuple(templates)))
    return findings.errors, findings.notices


def _written_at(kind: Composed, template: Mapping[str, Any], prefix: str, places: Sequence[str], path: str) -> str:
    """Return where the author of a job wrote what was found at a path."""
    place = path.removeprefix(prefix)
    if not place.startswith(tuple(places)) or not places:
        return path
    written = kind.written_at(template, place)
    return f"{prefix}{written}" if written else ""


def _refuse_kind(job: Part, known: Mapping[Kind, JobKind]) -> None:
    kind, api_version = job["kind"], job["apiVersion"]
    if versions := [name.api_version for name in known if name.kind == kind.value]:
        cause = f"{kind.value} of apiVersion {shown(api_version.value)} is not known here"
        api_version.error(cause, f"write {' or '.join(versions)}", "job-api-version")
    elif misspelt := misspelt_kind(job.value, job.path):
        job.findings.errors += misspelt
    else:
        names = list(dict.fromkeys(name.kind for name in known))
        here = "which runs on this machine" if len(names) == 1 else "which run on this machine"
        remedy = f"use {', '.join(names)}, {here}, or submit the experiment to Kubernetes"
        kind.error(f"kind {kind.text or shown(kind.value)} needs a cluster", remedy, "job-kind-unsupported")


def _check_fields(part: Part, model: str, fields: Fields) -> None:
    """Look up every field that is given, in the table, and go on into those that are supported."""
    for item in part.items:
        _check_fields(item, model, fields)
    schema = job_schema().models
    for key, child in part.fields.items():
        if key not in schema[model].fields or not child.is_given:
            continue
        verdict = fields[model][key] if model in fields else None
        type_ = schema[model].fields[key].removeprefix("[]")
        if verdict is not None and verdict.effect is Effect.IGNORED:
            child.notice(verdict.why)
        elif verdict is not None and verdict.effect is Effect.REFUSED:
            child.error(verdict.why, verdict.remedy, "job-field-unsupported")
        elif type_ in schema:
            _check_fields(child, type_, fields)
