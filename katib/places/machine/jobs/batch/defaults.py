"""The fields of a new Job that an API server fills in, and clients rely on: `kubectl logs job/NAME` finds pods by them.

Differs from an API server: the back-off limit is 0, and fields of the pod that mean nothing here are not filled in.
"""

from __future__ import annotations

from typing import Any

from katib.engine.runtime.objects import Object
from katib.places.machine.findings import mapping
from katib.places.machine.jobs.batch.job import NAME_LABELS, UID_LABELS
from katib.places.machine.jobs.batch.spec import DEFAULT_BACKOFF_LIMIT, UNLIMITED

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
