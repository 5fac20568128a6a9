"""The structure of objects of other kinds than Job, and the strict comparison of an object with it. Pure.

Text with a placeholder fits anywhere, since its value is not known yet, and null counts as not given. The batch Jobs
and pods inside of them have the schema of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from katib.api.wording import closest
from katib.local.findings import Findings, Part
from katib.templates import has_placeholder
from katib.templates.job_schema import check_value, job_schema

Structure = Mapping[str, Any]
"""Fields of a part: a type, a part, or a list with a part. `ANY_NAME` stands for fields of all names."""

ANY_NAME: Final = "*"

_KINDS: Final = {
    "text": "text",
    "integer": "integer",
    "boolean": "boolean",
    "any": "any",
    "map": "{}any",
    "list": "[]any",
    "texts": "[]text",
    "env": "[]V1EnvVar",
    "pod": "{}any",
    "job": "any",
}
"""Types of fields as the schema of a Job has them. `pod` and `job` are templates, which have checks of their own."""


def structure(**fields: Any) -> Structure:
    """Return the fields of a part.

    Args:
        fields: By a type the names of the fields that have it, with spaces between them; by the name of any other
            field the part that it holds, or a list with that part.
    """
    found: dict[str, Any] = {}
    for key, value in fields.items():
        found |= dict.fromkeys(value.split(), key) if key in _KINDS else {key: value}
    return found


def check_structure(part: Part, wanted: Any, of_what: str) -> None:
    """Find unknown fields and values of the wrong type.

    Args:
        part: What is there.
        wanted: What it should be.
        of_what: What to call the object that it is a part of.
    """
    if isinstance(wanted, str):
        _check_value(part, _KINDS[wanted])
    elif part.value is None or has_placeholder(part.value):
        return
    elif isinstance(wanted, list):
        if _check_value(part, "[]{}any"):
            for item in part.items:
                check_structure(item, wanted[0], of_what)
    elif _check_value(part, "{}any"):
        for key, child in part.fields.items():
            if key in wanted:
                check_structure(child, wanted[key], of_what)
            elif ANY_NAME not in wanted and not has_placeholder(key):
                close = closest(key, wanted)
                remedy = f"did you mean {close}" if close else f"remove it: a {of_what} has no such field there"
                child.error("unknown field", remedy, "job-field-unknown")


def _check_value(part: Part, kind: str) -> bool:
    """Find what does not fit a type; return whether nothing was found."""
    errors = check_value(part.value, kind, part.path)
    part.findings.errors += errors
    return not errors


def check_in_container(field: str, part: Part) -> None:
    """Check a part as if it were a field of a container."""
    _check_value(part, job_schema().models["V1Container"].fields[field])


def check_job_template(template: Part) -> None:
    """Check the template of batch Jobs, but for the pod template in it."""
    _check_value(template, "{}any")
    for key, child in template.fields.items():
        if key not in {"metadata", "spec"}:
            child.error("unknown field", "give metadata and spec, or remove it", "job-field-unknown")
    spec = template["spec"]
    if _check_value(spec, "{}any") and isinstance(spec.value, Mapping):
        pod = {"template": {"spec": {"containers": [{"name": "node"}]}}}
        spec.findings.errors += check_value({**spec.value, **pod}, "V1JobSpec", spec.path)


def has_structure(value: object, wanted: Structure) -> bool:
    """Return whether a value has a structure."""
    findings = Findings()
    check_structure(Part(value, "", findings), wanted, "")
    return not findings.errors
