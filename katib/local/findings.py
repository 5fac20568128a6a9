"""Reading a Job that may be malformed or hold placeholders: what is not of the wanted type counts as not given.

The structural check reports wrong types; the rules here need not repeat it, and must not stumble over it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from katib.api.wording import shown
from katib.errors import FieldError
from katib.templates import has_placeholder


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping, empty when the value is none."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the mappings of a list with their places."""
    if isinstance(value, list):
        yield from ((i, item) for i, item in enumerate(value) if isinstance(item, Mapping))


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
        """Add an error."""
        self.errors.append(FieldError(path, cause, remedy, origin))

    def below(self, lowest: int, value: object, path: str) -> None:
        """Add an error where a whole number is below the lowest one that its field takes, 0 or 1."""
        number = integer(value)
        if number is not None and number < lowest:
            cause = f"{number} is negative" if number < 0 else f"{number} is less than {lowest}"
            self.error(path, cause, f"give {lowest} or more", "job-number-negative")

    def all_below(self, lowest: Mapping[str, int], given: Mapping[str, Any], path: str) -> None:
        """Do so for several fields of a mapping, by their names."""
        for field_, number in lowest.items():
            self.below(number, given.get(field_), f"{path}.{field_}")

    def choice(self, value: object, choices: Sequence[str], path: str) -> None:
        """Add an error where a text is none of those that its field takes."""
        if text(value) and value not in choices:
            self.error(path, f"{shown(value)} is not known", f"use {' or '.join(choices)}", "job-choice")

    def managed_by(self, manager: object, own: str, path: str, kind: str) -> None:
        """Add an error for a job that another controller is to run, which does not run here."""
        if text(manager) and manager != own:
            cause = f"{shown(manager)} does not run on this machine, so nobody would run the {kind}"
            self.error(path, cause, "remove it, or submit the experiment to Kubernetes", "job-managed-by")

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
