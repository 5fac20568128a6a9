"""Budgets, tags and notes as users write them, and what jobs of all kinds request."""

from __future__ import annotations

from typing import Any

import pytest

from katib.errors import InvalidError
from katib.model.features.budgets.amounts import doubled, holds_of, read_budget
from katib.model.features.budgets.annotations import LIMITS, PRICES, amounts_text, read_amounts
from katib.model.features.budgets.feature import Budgets
from katib.model.marks import (
    LONGEST_NOTES,
    LONGEST_TAG,
    LONGEST_VIEW,
    MOST_TAGS,
    MOST_VIEWS,
    MarkChanges,
    Marks,
    annotations_of,
    has_marks,
    marks_of,
    validate_marks,
    views_of,
)
from katib.model.names import TAGS_ANNOTATION, VIEWS_ANNOTATION
from tests.support.refusals import refused

ONE_GPU = {"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "4"}, "requests": {"cpu": "500m"}}}
POD = {"spec": {"containers": [ONE_GPU], "initContainers": [ONE_GPU]}}


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("8h", {"hours": 8}),
        ("90m", {"hours": 1.5}),
        ("36s", {"hours": 0.01}),
        ("2d", {"hours": 48}),
        ("1.5 hours", {"hours": 1.5}),
        ("20 gpu-hours", {"gpu": 20}),
        ("1 cpu-hour, 3h, 2h", {"cpu": 1, "hours": 2}),
        ("$50", {"$": 50}),
    ],
)
def test_a_budget_is_read(text: str, limits: dict[str, float]) -> None:
    budget, twice = read_budget(text, "gpu=2.50")[0], read_budget(doubled(text), "gpu=1")[0]

    assert budget is not None
    assert budget.limits == pytest.approx(limits)
    assert budget.prices == {"gpu": 2.5}
    assert twice is not None
    assert twice.limits == pytest.approx({unit: 2 * limit for unit, limit in limits.items()})


@pytest.mark.parametrize(
    "text", ["", "8", "8 parsecs", "-1h", "0h", "1e3h", "8h,", "20 tpu-hours", "50$", "1" * 400 + "h"]
)
def test_what_is_no_budget_is_named_with_what_is(text: str) -> None:
    errors = Budgets().errors({LIMITS.name: text})

    assert read_budget(text, "")[0] is None
    assert [error.origin for error in errors] == ["budget-format"]
    assert errors[0].path == f'metadata.annotations["{LIMITS.name}"]'
    assert "20 gpu-hours" in errors[0].remedy


@pytest.mark.parametrize("prices", ["", "gpu", "gpu=x", "disk=1"])
def test_money_needs_prices(prices: str) -> None:
    assert [error.origin for error in Budgets().errors({LIMITS.name: "$5", PRICES.name: prices})] == ["budget-prices"]


def test_a_budget_that_is_changed_is_checked_together_with_what_is_stored() -> None:
    stored = {LIMITS.name: "8h", PRICES.name: "gpu=1"}

    assert Budgets().changes(stored, {}) == {}
    assert Budgets().changes(stored, {"other": "x", LIMITS.name: "8h"}) == {}
    assert Budgets().changes(stored, {LIMITS.name: "$5"}) == {LIMITS.name: "$5"}
    with pytest.raises(InvalidError, match="needs prices"):
        Budgets().changes({}, {LIMITS.name: "$5"})


@pytest.mark.parametrize(
    ("job", "holds"),
    [
        pytest.param(None, {"trial": 1}, id="evaluated by a caller"),
        pytest.param({"spec": {"template": POD}}, {"trial": 1, "gpu": 1, "cpu": 0.5}, id="Job"),
        pytest.param(
            {"spec": {"parallelism": 3, "template": POD}}, {"trial": 1, "gpu": 3, "cpu": 1.5}, id="three pods"
        ),
        pytest.param(
            {"spec": {"tfReplicaSpecs": {"PS": {"template": POD}, "Worker": {"replicas": 4, "template": POD}}}},
            {"trial": 1, "gpu": 5, "cpu": 2.5},
            id="TFJob",
        ),
        pytest.param(
            {"spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 2, "template": POD}}}]}},
            {"trial": 1, "gpu": 4, "cpu": 2},
            id="JobSet",
        ),
        pytest.param(
            {"spec": {"trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"amd.com/gpu": "8"}}}}},
            {"trial": 1, "gpu": 16},
            id="TrainJob",
        ),
        pytest.param(
            {"spec": {"resources": {"limits": {"cpu": "many", "memory": "1Gi"}, "requests": 3}, "parallelism": "x"}},
            {"trial": 1},
            id="malformed",
        ),
    ],
)
def test_a_trial_has_what_all_its_pods_request(job: dict[str, Any] | None, holds: dict[str, float]) -> None:
    assert holds_of(job) == holds
    assert read_amounts(amounts_text(holds)) == holds


def test_marks_are_read_as_they_were_written_and_what_is_empty_is_taken_away() -> None:
    changes = MarkChanges(("a", " b ", "a"), "two\nlines")
    written = {name: text for name, text in annotations_of(changes).items() if text is not None}

    assert marks_of(written) == Marks(("a", "b"), "two\nlines")

    assert annotations_of(MarkChanges()) == {}
    assert "katib.kubeflow.org/views" not in written
    assert annotations_of(MarkChanges(tags=())) == {TAGS_ANNOTATION: None}


def test_views_are_added_to_those_that_are_kept_and_an_empty_one_is_taken_away() -> None:
    held = {VIEWS_ANNOTATION: '{"old": "tab=trials", "gone": "tab=yaml"}'}
    changes = MarkChanges(views={"gone": "", "new": "tab=analysis&scatter.axis=lr"})
    [text] = annotations_of(changes, held).values()

    assert views_of({VIEWS_ANNOTATION: text or ""}) == {"old": "tab=trials", "new": "tab=analysis&scatter.axis=lr"}
    assert annotations_of(MarkChanges(views={"old": "", "gone": ""}), held) == {VIEWS_ANNOTATION: None}
    assert views_of({VIEWS_ANNOTATION: "[1]"}) == views_of({VIEWS_ANNOTATION: "{"}) == views_of({}) == {}
    with refused("views-count"):
        annotations_of(MarkChanges(views={str(n): "tab=trials" for n in range(MOST_VIEWS)}), held)


def test_any_annotation_can_be_read_and_those_of_earlier_versions_are_ignored() -> None:
    odd = {
        TAGS_ANNOTATION: " ,a\u202e,,a\x1b ",
        "katib.kubeflow.org/project": "x",
        "katib.kubeflow.org/favourite": "true",
    }

    assert marks_of(odd) == Marks(("a",), "")
    assert not has_marks({"katib.kubeflow.org/favourite": "true"})


@pytest.mark.parametrize(
    ("changes", "path", "origin"),
    [
        (MarkChanges(tags=("good", "a,b")), "tags[1]", "tag-text"),
        (MarkChanges(tags=("\u202e",)), "tags[0]", "tag-text"),
        (MarkChanges(tags=("  ",)), "tags[0]", "tag-text"),
        (MarkChanges(tags=("x" * (LONGEST_TAG + 1),)), "tags[0]", "tag-text"),
        (MarkChanges(tags=("x",) * (MOST_TAGS + 1)), "tags", "tags-count"),
        (MarkChanges(views={" ": "tab=trials"}), "views", "view-name"),
        (MarkChanges(views={"a": "x" * (LONGEST_VIEW + 1)}), "views.a", "view-address"),
        (MarkChanges(notes="x" * (LONGEST_NOTES + 1)), "notes", "notes-length"),
    ],
    ids=["comma", "turned text", "blank", "long tag", "many", "blank view", "long view", "long notes"],
)
def test_what_cannot_be_noted_is_refused(changes: MarkChanges, path: str, origin: str) -> None:
    assert [(error.path, error.origin) for error in validate_marks(changes)] == [(path, origin)]
