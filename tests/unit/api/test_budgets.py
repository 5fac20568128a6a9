"""Budgets as users write them, and what jobs of all kinds request."""

from __future__ import annotations

from typing import Any

import pytest

from katib.api.budgets import (
    budget_errors,
    budget_of,
    changed_budget,
    doubled,
    holds_of,
    holds_text,
    read_holds,
)
from katib.api.names import BUDGET_ANNOTATION, PRICES_ANNOTATION
from katib.errors import InvalidError

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
    budget = budget_of({BUDGET_ANNOTATION: text, PRICES_ANNOTATION: "gpu=2.50"})

    assert budget is not None
    assert budget.limits == pytest.approx(limits)
    assert budget.prices == {"gpu": 2.5}
    assert budget_of({BUDGET_ANNOTATION: doubled(text), PRICES_ANNOTATION: "gpu=1"}).limits == pytest.approx(  # type: ignore[union-attr]
        {unit: 2 * limit for unit, limit in limits.items()}
    )


@pytest.mark.parametrize(
    "text", ["", "8", "8 parsecs", "-1h", "0h", "1e3h", "8h,", "20 tpu-hours", "50$", "1" * 400 + "h"]
)
def test_what_is_no_budget_is_named_with_what_is(text: str) -> None:
    errors = budget_errors({BUDGET_ANNOTATION: text})

    assert budget_of({BUDGET_ANNOTATION: text}) is None
    assert [error.origin for error in errors] == ["budget-format"]
    assert errors[0].path == f'metadata.annotations["{BUDGET_ANNOTATION}"]'
    assert "20 gpu-hours" in errors[0].remedy


@pytest.mark.parametrize("prices", ["", "gpu", "gpu=x", "disk=1"])
def test_money_needs_prices(prices: str) -> None:
    errors = budget_errors({BUDGET_ANNOTATION: "$5", PRICES_ANNOTATION: prices})

    assert [error.origin for error in errors] == ["budget-prices"]


def test_a_budget_that_is_changed_is_checked_together_with_what_is_stored() -> None:
    stored = {BUDGET_ANNOTATION: "8h", PRICES_ANNOTATION: "gpu=1"}

    assert changed_budget(stored, {}) == {}
    assert changed_budget(stored, {"other": "x", BUDGET_ANNOTATION: "8h"}) == {}
    assert changed_budget(stored, {BUDGET_ANNOTATION: "$5"}) == {BUDGET_ANNOTATION: "$5"}
    with pytest.raises(InvalidError, match="needs prices"):
        changed_budget({}, {BUDGET_ANNOTATION: "$5"})


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
    assert read_holds(holds_text(holds)) == holds
