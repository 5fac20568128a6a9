"""The structure of objects of other kinds than Job, and the strict comparison of an object with it. Pure.

Text with a placeholder fits anywhere, since its value is not known yet, and null counts as not given. The batch Jobs
and pods inside of them have the schema of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from katib.api.wording import closest, shown
from katib.local.findings import Findings, Part
from katib.templates import has_placeholder
from katib.templates.job_schema import check_job_schema

Structure = Mapping[str, Any]
"""Fields of a part: a type, a part, or a list with a part. `ANY_NAME` stands for fields of all names."""

ANY_NAME: Final = "*"

_TYPES: Final = {
    "text": (str, "text"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "map": (Mapping, "a mapping"),
    "list": (list, "a list"),
    "texts": (list, "a list"),
    "any": (object, ""),
    "env": (list, ""),
    "pod": (Mapping, "a mapping"),
    "job": (object, ""),
}
"""Types of fields. `env` is that of a container, `pod` and `job` are templates; `list` is not looked into."""

_CONTAINER: Final = "job.spec.template.spec.containers[0]"


def structure(**fields: Any) -> Structure:
    """Return the fields of a part.

    Args:
        fields: By a type the names of the fields that have it, with spaces between them; by the name of any other
            field the part that it holds, or a list with that part.
    """
    found: dict[str, Any] = {}
    for key, value in fields.items():
        found |= dict.fromkeys(value.split(), key) if key in _TYPES else {key: value}
    return found


def check_structure(part: Part, wanted: Any, of_what: str) -> None:
    """Find unknown fields and values of the wrong type.

    Args:
        part: What is there.
        wanted: What it should be.
        of_what: What to call the object that it is a part of.
    """
    if part.value is None or wanted in ("any", "job") or has_placeholder(part.value):
        return
    if wanted == "env":
        check_in_container("env", part)
    elif isinstance(wanted, Mapping):
        for key, child in part.fields.items() if _has_type(part, "map") else ():
            if key in wanted:
                check_structure(child, wanted[key], of_what)
            elif ANY_NAME not in wanted and not has_placeholder(key):
                close = closest(key, wanted)
                remedy = f"did you mean {close}" if close else f"remove it: a {of_what} has no such field there"
                child.error("unknown field", remedy, "job-field-unknown")
    elif wanted == "texts" or isinstance(wanted, list):
        of_items = "text" if wanted == "texts" else wanted[0]
        for item in part.items if _has_type(part, "list") else ():
            if item.value is None:
                _has_type(item, "text" if wanted == "texts" else "map")
            check_structure(item, of_items, of_what)
    else:
        _has_type(part, wanted)


def _has_type(part: Part, kind: str) -> bool:
    type_, wanted = _TYPES[kind]
    if isinstance(part.value, type_) and not (kind == "integer" and isinstance(part.value, bool)):
        return True
    can_be_quoted = kind == "text" and isinstance(part.value, str | int | float)
    remedy = "write it in quotes" if can_be_quoted else f"give {wanted}"
    part.error(f"{shown(part.value)} is not {wanted}", remedy, "job-field-type")
    return False


def check_in_container(field: str, part: Part) -> None:
    """Check a part as if it were a field of a container."""
    spec = {"template": {"spec": {"containers": [{"name": "node", field: part.value}]}}}
    _check_in_job(spec, f"{_CONTAINER}.{field}", part)


def check_job_template(template: Part) -> None:
    """Check the template of batch Jobs, but for the pod template in it."""
    if template.value is None or not _has_type(template, "map"):
        return
    for key, child in template.fields.items():
        if key not in {"metadata", "spec"}:
            child.error("unknown field", "give metadata and spec, or remove it", "job-field-unknown")
    spec = template["spec"]
    if spec.value is not None and _has_type(spec, "map"):
        pod = {"template": {"spec": {"containers": [{"name": "node"}]}}}
        _check_in_job({**spec.value, **pod}, "job.spec", spec)


def _check_in_job(spec: Mapping[str, Any], place: str, part: Part) -> None:
    """Check the spec of a Job, and take what is found at a place in it as if it stood at the path of a part."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec}
    for error in check_job_schema(job, "job"):
        if error.path.startswith(place):
            path = part.path + error.path.removeprefix(place)
            part.findings.error(path, error.cause, error.remedy, error.origin)


def has_structure(value: object, wanted: Structure) -> bool:
    """Return whether a value has a structure."""
    findings = Findings()
    check_structure(Part(value, "", findings), wanted, "")
    return not findings.errors
