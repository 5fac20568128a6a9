"""Reading a Job that may be malformed or hold placeholders: what is not of the wanted type counts as not given.

The structural check reports wrong types; the rules need not repeat it, and must not stumble over it. For it, text with
a placeholder fits anywhere, since its value is not known yet, and null counts as not given. The batch Jobs and pods
inside of objects of other kinds have the schema of Kubernetes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from katib.errors import FieldError
from katib.model.templates import has_placeholder
from katib.model.templates.job_schema import check_value, job_schema
from katib.model.wording import closest, did_you_mean, path_to, shown


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping, empty when the value is none."""
    return value if isinstance(value, Mapping) else {}


def mapping_at(value: object, place: str) -> Mapping[str, Any]:
    """Return the mapping at a place, such as `template.spec`; empty where there is none."""
    for name in place.split("."):
        value = mapping(value).get(name)
    return mapping(value)


def mappings(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(value, list):
        yield from ((i, item) for i, item in enumerate(value) if isinstance(item, Mapping))


def containers_of(pod: object) -> list[Mapping[str, Any]]:
    """Return the containers in the spec of a pod, those that are mappings."""
    return [container for _, container in mappings(mapping(pod).get("containers"))]


def text(value: object) -> str:
    """Return literal text, empty when the value is none or not known before a trial."""
    return value if isinstance(value, str) and not has_placeholder(value) else ""


def texts(value: object) -> list[str]:
    """Return the texts of a list, placeholders included."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def integer(value: object) -> int | None:
    """Return a whole number, None when the value is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_given(value: object) -> bool:
    """Return whether a field asks for anything: null, false and what is empty do not."""
    return value is not None and value is not False and value not in ("", [], {})


def is_file(path: Path) -> bool:
    """Return whether there is a file that we can see."""
    return os.path.isfile(path)  # noqa: PTH113  # unlike Path.is_file, never fails, whatever the text is


def is_directory(path: Path) -> bool:
    """Return whether there is a directory that we can see."""
    return os.path.isdir(path)  # noqa: PTH112  # as above


def exists(path: Path) -> bool:
    """Return whether there is something that we can see."""
    return os.path.exists(path)  # noqa: PTH110  # as above


_MOST_PATHS = 2
"""As many paths as a line of a terminal can hold."""


@dataclass(slots=True)
class Findings:
    """Collects errors and notices in the order they are found."""

    errors: list[FieldError] = field(default_factory=list)
    _notices: dict[str, list[str]] = field(default_factory=dict)

    def error(self, path: str, cause: str, remedy: str, origin: str) -> None:
        self.errors.append(FieldError(path, cause, remedy, origin))

    def notice(self, path: str, why: str) -> None:
        """Add a notice: a sentence without full stop that says what is different here."""
        self._notices.setdefault(why, []).append(path)

    def move(self, where: Callable[[str], str]) -> None:
        """Say of what was found that it stands elsewhere.

        Args:
            where: Takes a path and returns the one to show; empty: a notice is dropped, an error keeps its path.
        """
        self.errors = [replace(error, path=where(error.path) or error.path) for error in self.errors]
        moved = {why: [path for old in paths if (path := where(old))] for why, paths in self._notices.items()}
        self._notices = {why: paths for why, paths in moved.items() if paths}

    @property
    def notices(self) -> list[str]:
        """Every notice once, as `path, path: sentence`; of many paths the first, and how many more."""
        lines = []
        for why, given in self._notices.items():
            paths = list(dict.fromkeys(given))
            where = ", ".join(paths) if len(paths) <= _MOST_PATHS else f"{paths[0]} and {len(paths) - 1} more"
            lines.append(f"{where}: {why}")
        return lines


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an object that may be malformed or hold placeholders, with its path and what takes the findings.

    Each field below it is a part too, whether it is there or not: one that is missing has no value.
    """

    value: Any
    path: str
    findings: Findings = field(default_factory=Findings)

    def __getitem__(self, place: str) -> Part:
        """Return the part at a place below this one, such as `template.spec`."""
        value, path = self.value, self.path
        for name in place.split("."):
            value, path = mapping(value).get(name), path_to(path, name)
        return Part(value, path, self.findings)

    def __iter__(self) -> Iterator[Part]:
        yield from (item for item in self.items if isinstance(item.value, Mapping))

    @property
    def items(self) -> list[Part]:
        given = self.value if isinstance(self.value, list) else ()
        return [Part(item, f"{self.path}[{i}]", self.findings) for i, item in enumerate(given)]

    @property
    def fields(self) -> dict[str, Part]:
        """The parts of a mapping by the names that its author gives them."""
        given = mapping(self.value).items()
        return {str(key): Part(item, path_to(self.path, str(key)), self.findings) for key, item in given}

    @property
    def words(self) -> list[Part]:
        """The texts of a list, placeholders included."""
        return [item for item in self.items if isinstance(item.value, str)]

    @property
    def text(self) -> str:
        """Literal text; empty when there is none, or it is not known before a trial."""
        return text(self.value)

    @property
    def integer(self) -> int | None:
        """A whole number, None when there is none."""
        return integer(self.value)

    @property
    def is_given(self) -> bool:
        """Whether it asks for anything: null, false and what is empty do not."""
        return is_given(self.value)

    def error(self, cause: str, remedy: str, origin: str) -> None:
        self.findings.error(self.path, cause, remedy, origin)

    def notice(self, why: str) -> None:
        self.findings.notice(self.path, why)

    def require(self, remedy: str, origin: str = "job-field-missing", cause: str = "it is missing") -> bool:
        """Return whether it is given; add an error where it is not."""
        if not self.is_given:
            self.error(cause, remedy, origin)
        return self.is_given

    def refuse(self, cause: str, remedy: str, origin: str) -> None:
        """Add an error where it is given."""
        if self.is_given:
            self.error(cause, remedy, origin)

    def note(self, why: str) -> None:
        """Add a notice where it is given."""
        if self.is_given:
            self.notice(why)

    def below(self, lowest: int) -> None:
        """Add an error for a whole number below the lowest one that the field takes, 0 or 1."""
        if self.integer is not None and self.integer < lowest:
            cause = f"{self.integer} is negative" if self.integer < 0 else f"{self.integer} is less than {lowest}"
            self.error(cause, f"give {lowest} or more", "job-number-negative")

    def at_least(self, **lowest: int) -> None:
        """Add such an error for each field of a mapping that is below its lowest number."""
        for name, number in lowest.items():
            self[name].below(number)

    def choice(self, *choices: str) -> None:
        """Add an error for text that is none of those that the field takes."""
        if self.text and self.value not in choices:
            self.error(f"{shown(self.value)} is not known", f"use {' or '.join(choices)}", "job-choice")

    def spelled(self, choices: Sequence[str], origin: str) -> None:
        """Add an error for text that is none of those that the field takes, with the one that was probably meant."""
        if self.text and self.text not in choices:
            self.error(f"{shown(self.text)} is not known", did_you_mean(self.text, choices), origin)

    def run_by(self, own: str, kind: str) -> None:
        """Add an error for a spec that names another controller, which does not run here; a notice for a suspended one.

        Args:
            own: The controller whose work this machine does.
        """
        manager, suspend = self["managedBy"], self["suspend"]
        if manager.text not in {"", own}:
            cause = f"{shown(manager.text)} does not run on this machine, so nothing would run the {kind}"
            manager.error(cause, "remove it, or submit the experiment to Kubernetes", "job-managed-by")
        if suspend.value is True:
            unless = "unless it names a queue of Kueue, which is not here"
            suspend.notice(f"every trial starts suspended and waits until its {kind} is resumed, {unless}")


# --- the structure of objects of other kinds than Job, and the strict comparison of an object with it -----------------


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
    findings = Findings()
    check_structure(Part(value, "", findings), wanted, "")
    return not findings.errors
