"""What a newer version stored survives that an older one reads and writes it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from katib.api.conditions import set_condition
from katib.api.types import Experiment, Resource, Suggestion, Trial
from katib.controllers.kinds import with_status

NEWS = {"fromTheFuture": {"a": [1, None]}}
CONDITIONS = [
    {"type": "Created", "status": "True", "reason": "r", "message": "m", **NEWS},
    {"type": "Running", "status": "True", "reason": "r", "message": "m", **NEWS},
]
METRICS = {"metrics": [{"name": "loss", "latest": "1", **NEWS}], **NEWS}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Trial, {"conditions": CONDITIONS, "observation": METRICS, **NEWS}),
        (Experiment, {"conditions": CONDITIONS, "currentOptimalTrial": {"observation": METRICS, **NEWS}, **NEWS}),
        (Suggestion, {"conditions": CONDITIONS, "suggestions": [{"name": "t", **NEWS}], **NEWS}),
    ],
)
def test_unknown_fields_of_a_status_and_of_its_entries_are_kept_by_a_write(
    kind: type[Resource], status: dict[str, Any]
) -> None:
    read: Any = kind.decode({"metadata": {"name": "a"}, "status": status})
    now = datetime(2030, 1, 1, tzinfo=UTC)
    ended = set_condition(read.status.conditions, "Running", "False", reason="Ended", message="over", now=now)
    written = with_status(read, structs.replace(read.status, conditions=ended))["status"]

    assert {**written, "conditions": []} == {**status, "conditions": []}
    assert [condition["fromTheFuture"] for condition in written["conditions"]] == [NEWS["fromTheFuture"]] * 2
    assert written["conditions"][1]["status"] == "False"
