from __future__ import annotations

from typing import Any

import pytest

from katib.tuning.companions import has_content


def runtime(**policy: Any) -> dict[str, Any]:
    return {"kind": "TrainingRuntime", "metadata": {"name": "mine"}, "spec": {"mlPolicy": policy, "jobs": [{"a": 1}]}}


@pytest.mark.parametrize(
    ("stored", "same"),
    [
        (runtime(numNodes=2), True),
        (runtime(numNodes=2, torch={"numProcPerNode": "auto"}), True),
        (runtime(numNodes=3), False),
        ({**runtime(numNodes=2), "spec": {"mlPolicy": {"numNodes": 2}, "jobs": []}}, False),
        ({**runtime(numNodes=2), "spec": {}}, False),
    ],
    ids=["the same", "with defaults of the server", "another number", "a shorter list", "nothing"],
)
def test_a_stored_runtime_is_compared_with_the_submitted_one(stored: dict[str, Any], *, same: bool) -> None:
    assert has_content(stored, runtime(numNodes=2)) is same
