"""Tags and notes that users give experiments and trials, and named views of the page of an experiment.

They are annotations of Experiments and Trials and are copied with them; `kubectl annotate` changes them, too. No
controller reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from katib.errors import FieldError, invalid
from katib.model.names import NOTES_ANNOTATION, TAGS_ANNOTATION, VIEWS_ANNOTATION

LONGEST_TAG, LONGEST_NOTES, MOST_TAGS = 63, 4_000, 30
LONGEST_VIEW, MOST_VIEWS = 2_000, 30


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
    """Changes of marks; None leaves one unchanged, an empty one removes it. Other views than the given ones stay."""

    tags: tuple[str, ...] | None = None
    notes: str | None = None
    views: Mapping[str, str] | None = None


def has_marks(annotations: Mapping[str, str]) -> bool:
    """Return whether the annotations of a trial contain marks; quick, because there may be 100,000 trials."""
    return TAGS_ANNOTATION in annotations or NOTES_ANNOTATION in annotations


def marks_of(annotations: Mapping[str, str]) -> Marks:
    """Return the marks in annotations; any text is accepted."""
    tags = (tag.strip() for tag in _text(annotations, TAGS_ANNOTATION).split(","))
    return Marks(tuple(dict.fromkeys(filter(None, tags))), _text(annotations, NOTES_ANNOTATION))


def views_of(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the queries of views by name; none if the annotation was written by hand and is something else."""
    try:
        found = json.loads(annotations.get(VIEWS_ANNOTATION) or "{}")
    except ValueError:
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: query for name, query in pairs if isinstance(query, str) and query}


def annotations_of(changes: MarkChanges, held: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the annotations that valid changes set; None for removed ones.

    Raises:
        InvalidError: There are too many views.
    """
    found: dict[str, str | None] = {}
    if changes.tags is not None:
        found[TAGS_ANNOTATION] = ",".join(dict.fromkeys(tag.strip() for tag in changes.tags)) or None
    if changes.notes is not None:
        found[NOTES_ANNOTATION] = changes.notes.strip() or None
    if changes.views is not None:
        views = {name: query for name, query in {**views_of(held or {}), **changes.views}.items() if query}
        if len(views) > MOST_VIEWS:
            raise invalid("views", f"{len(views)} views are too many", f"keep at most {MOST_VIEWS}", "views-count")
        found[VIEWS_ANNOTATION] = json.dumps(views) if views else None
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
    for name, query in (changes.views or {}).items():
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_TAG:
            remedy = f"give 1 to {LONGEST_TAG} printable characters"
            yield FieldError("views", f"{name[:LONGEST_TAG]!r} is not a name of a view", remedy, "view-name")
        if len(query) > LONGEST_VIEW or not query.isprintable():
            remedy = f"give the query of its address, at most {LONGEST_VIEW:,} characters"
            yield FieldError(f"views.{name[:LONGEST_TAG]}", "it is not an address", remedy, "view-address")
    if len(changes.notes or "") > LONGEST_NOTES:
        cause = f"{len(changes.notes or ''):,} characters are too many"
        yield FieldError("notes", cause, f"give at most {LONGEST_NOTES:,}", "notes-length")
