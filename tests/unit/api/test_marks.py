"""What users note on an experiment."""

from __future__ import annotations

import pytest

from katib.api.marks import (
    LONGEST_NOTES,
    LONGEST_TAG,
    MOST_TAGS,
    MarkChanges,
    Marks,
    annotations_of,
    marks_of,
    validate_marks,
)
from katib.api.names import FAVOURITE_ANNOTATION, PROJECT_ANNOTATION, TAGS_ANNOTATION, WORKSPACE_ANNOTATION


def test_marks_are_read_as_they_were_written() -> None:
    changes = MarkChanges(("a", " b ", "a"), "two\nlines", favourite=True, project=" vision ")
    written = {name: text for name, text in annotations_of(changes).items() if text is not None}

    assert marks_of(written) == Marks(("a", "b"), "two\nlines", favourite=True, project="vision")


def test_what_is_left_out_stays_and_what_is_empty_is_taken_away() -> None:
    assert annotations_of(MarkChanges()) == {}
    assert annotations_of(MarkChanges(tags=(), favourite=False)) == {TAGS_ANNOTATION: None, FAVOURITE_ANNOTATION: None}


def test_any_annotation_can_be_read() -> None:
    odd = {TAGS_ANNOTATION: " ,a\u202e,,a\x1b ", PROJECT_ANNOTATION: "one\ntwo", FAVOURITE_ANNOTATION: "maybe"}

    assert marks_of(odd) == Marks(("a",), "", favourite=False, project="one two")


def test_without_a_project_it_is_the_directory_of_the_file() -> None:
    assert marks_of({WORKSPACE_ANNOTATION: "/home/me/vision"}).project == "vision"
    assert marks_of({WORKSPACE_ANNOTATION: "/home/me/vision", PROJECT_ANNOTATION: "nlp"}).project == "nlp"


@pytest.mark.parametrize(
    ("changes", "path", "origin"),
    [
        (MarkChanges(tags=("good", "a,b")), "tags[1]", "tag-text"),
        (MarkChanges(tags=("\u202e",)), "tags[0]", "tag-text"),
        (MarkChanges(tags=("  ",)), "tags[0]", "tag-text"),
        (MarkChanges(tags=("x" * (LONGEST_TAG + 1),)), "tags[0]", "tag-text"),
        (MarkChanges(tags=("x",) * (MOST_TAGS + 1)), "tags", "tags-count"),
        (MarkChanges(project="a\nb"), "project", "project-text"),
        (MarkChanges(notes="x" * (LONGEST_NOTES + 1)), "notes", "notes-length"),
    ],
    ids=["comma", "turned text", "blank", "long tag", "many", "project of two lines", "long notes"],
)
def test_what_cannot_be_noted_is_refused(changes: MarkChanges, path: str, origin: str) -> None:
    assert [(error.path, error.origin) for error in validate_marks(changes)] == [(path, origin)]
