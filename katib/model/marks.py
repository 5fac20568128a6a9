"""What users note for themselves and their colleagues: tags, notes, a favourite, and the project of an experiment.

It is kept in annotations of Experiments and Trials, so it goes where they go, and `kubectl annotate` changes it, too.
No controller reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from katib.errors import FieldError
from katib.model.names import (
    FAVOURITE,
    FAVOURITE_ANNOTATION,
    NOTES_ANNOTATION,
    PROJECT_ANNOTATION,
    TAGS_ANNOTATION,
    WORKSPACE_ANNOTATION,
)

_OF_TRIALS = frozenset({TAGS_ANNOTATION, NOTES_ANNOTATION, FAVOURITE_ANNOTATION})
LONGEST_TAG, LONGEST_NOTES, MOST_TAGS = 63, 4_000, 30


@dataclass(frozen=True, slots=True)
class Marks:
    """What is noted on an experiment.

    Attributes:
        tags: In the order in which they were given, without duplicates.
        notes: Text of several lines.
        favourite: Whether it is kept at hand.
        project: What it belongs to; without one that was given, the directory of its file.
    """

    tags: tuple[str, ...] = ()
    notes: str = ""
    favourite: bool = False
    project: str = ""


@dataclass(frozen=True, slots=True)
class MarkChanges:
    """What to note on an experiment; None leaves a mark as it is, and an empty one takes it away."""

    tags: tuple[str, ...] | None = None
    notes: str | None = None
    favourite: bool | None = None
    project: str | None = None


def has_marks(annotations: Mapping[str, str]) -> bool:
    """Return whether annotations of a trial note anything; quick, because there may be 100,000 trials."""
    return not _OF_TRIALS.isdisjoint(annotations)


def marks_of(annotations: Mapping[str, str]) -> Marks:
    """Return what annotations of an Experiment say; whatever they hold can be read."""
    tags = (tag.strip() for tag in _text(annotations, TAGS_ANNOTATION).split(","))
    project = " ".join(_text(annotations, PROJECT_ANNOTATION).split())
    return Marks(
        tags=tuple(dict.fromkeys(filter(None, tags))),
        notes=_text(annotations, NOTES_ANNOTATION),
        favourite=annotations.get(FAVOURITE_ANNOTATION) == FAVOURITE,
        project=project or PurePath(_text(annotations, WORKSPACE_ANNOTATION)).name,
    )


def annotations_of(changes: MarkChanges) -> dict[str, str | None]:
    """Return the annotations that changes set; None: taken away. The changes are valid."""
    found: dict[str, str | None] = {}
    if changes.tags is not None:
        found[TAGS_ANNOTATION] = ",".join(dict.fromkeys(tag.strip() for tag in changes.tags)) or None
    if changes.notes is not None:
        found[NOTES_ANNOTATION] = changes.notes.strip() or None
    if changes.favourite is not None:
        found[FAVOURITE_ANNOTATION] = FAVOURITE if changes.favourite else None
    if changes.project is not None:
        found[PROJECT_ANNOTATION] = changes.project.strip() or None
    return found


def _text(annotations: Mapping[str, str], name: str) -> str:
    """Return an annotation without what a terminal or a page would not show as text, such as marks that turn it."""
    return "".join(one for one in annotations.get(name, "") if one.isprintable() or one in "\n\t")


def validate_marks(changes: MarkChanges) -> list[FieldError]:
    """Return what is wrong with changes."""
    return list(_errors(changes))


def _errors(changes: MarkChanges) -> Iterator[FieldError]:
    tags = changes.tags or ()
    if len(tags) > MOST_TAGS:
        yield FieldError("tags", f"{len(tags)} tags are too many", f"give at most {MOST_TAGS}", "tags-count")
    for index, tag in enumerate(tags):
        if not tag.strip() or "," in tag or not tag.isprintable() or len(tag) > LONGEST_TAG:
            remedy = f"give 1 to {LONGEST_TAG} printable characters without a comma"
            yield FieldError(f"tags[{index}]", f"{tag[:LONGEST_TAG]!r} is not a tag", remedy, "tag-text")
    project = changes.project or ""
    if not project.isprintable() or len(project) > LONGEST_TAG:
        remedy = f"give at most {LONGEST_TAG} printable characters"
        yield FieldError("project", f"{project[:LONGEST_TAG]!r} is not the name of a project", remedy, "project-text")
    if len(changes.notes or "") > LONGEST_NOTES:
        cause = f"{len(changes.notes or ''):,} characters are too many"
        yield FieldError("notes", cause, f"give at most {LONGEST_NOTES:,}", "notes-length")
