"""Tags and notes that users give experiments and trials.

They are annotations of Experiments and Trials and are copied with them; `kubectl annotate` changes them, too. No
controller reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from katib.errors import FieldError
from katib.model.names import NOTES_ANNOTATION, TAGS_ANNOTATION

LONGEST_TAG, LONGEST_NOTES, MOST_TAGS = 63, 4_000, 30


@dataclass(frozen=True, slots=True)
class Marks:
    """Tags and notes of an experiment or a trial.

    Attributes:
        tags: In the given order, without duplicates.
        notes: Text of several lines.
    """

    tags: tuple[str, ...] = ()
    notes: str = ""


@dataclass(frozen=True, slots=True)
class MarkChanges:
    """Changes of marks; None leaves one unchanged, an empty one removes it."""

    tags: tuple[str, ...] | None = None
    notes: str | None = None


def has_marks(annotations: Mapping[str, str]) -> bool:
    """Return whether the annotations of a trial contain marks; quick, because there may be 100,000 trials."""
    return TAGS_ANNOTATION in annotations or NOTES_ANNOTATION in annotations


def marks_of(annotations: Mapping[str, str]) -> Marks:
    """Return the marks in annotations; any text is accepted."""
    tags = (tag.strip() for tag in _text(annotations, TAGS_ANNOTATION).split(","))
    return Marks(tuple(dict.fromkeys(filter(None, tags))), _text(annotations, NOTES_ANNOTATION))


def annotations_of(changes: MarkChanges) -> dict[str, str | None]:
    """Return the annotations that valid changes set; None for removed ones."""
    found: dict[str, str | None] = {}
    if changes.tags is not None:
        found[TAGS_ANNOTATION] = ",".join(dict.fromkeys(tag.strip() for tag in changes.tags)) or None
    if changes.notes is not None:
        found[NOTES_ANNOTATION] = changes.notes.strip() or None
    return found


def _text(annotations: Mapping[str, str], name: str) -> str:
    """Return an annotation without characters that do not display as text, such as bidirectional controls."""
    return "".join(one for one in annotations.get(name, "") if one.isprintable() or one in "\n\t")


def validate_marks(changes: MarkChanges) -> list[FieldError]:
    return list(_errors(changes))


def _errors(changes: MarkChanges) -> Iterator[FieldError]:
    tags = changes.tags or ()
    if len(tags) > MOST_TAGS:
        yield FieldError("tags", f"{len(tags)} tags are too many", f"give at most {MOST_TAGS}", "tags-count")
    for index, tag in enumerate(tags):
        if not tag.strip() or "," in tag or not tag.isprintable() or len(tag) > LONGEST_TAG:
            remedy = f"give 1 to {LONGEST_TAG} printable characters without a comma"
            yield FieldError(f"tags[{index}]", f"{tag[:LONGEST_TAG]!r} is not a tag", remedy, "tag-text")
    if len(changes.notes or "") > LONGEST_NOTES:
        cause = f"{len(changes.notes or ''):,} characters are too many"
        yield FieldError("notes", cause, f"give at most {LONGEST_NOTES:,}", "notes-length")
