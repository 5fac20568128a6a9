"""From the status of a pod to the message of its trial."""

from __future__ import annotations

from typing import Any

import pytest

from katib.api.failure_text import failure_cause
from katib.cluster.pods.reading import facts_of


def a_pod(collector: str = "", **ended: Any) -> dict[str, Any]:
    """Return a pod whose program ended, with what its collector left."""
    statuses = [{"name": "main", "state": {"terminated": {"finishedAt": "2026-01-01T00:00:00Z", **ended}}}]
    if collector:
        left = {"exitCode": 0, "message": collector}
        statuses.append({"name": "metrics-logger-and-collector", "state": {"terminated": left}})
    return {"metadata": {"name": "x-1", "namespace": "team"}, "status": {"containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        pytest.param(
            a_pod("last output: KeyError: 3", exitCode=1, reason="Error"),
            "KeyError: 3 (exit code 1)",
            id="an exception",
        ),
        pytest.param(a_pod(exitCode=1), "its program ended with exit code 1", id="no output"),
        pytest.param(
            a_pod("last output: epoch 7", exitCode=137, reason="OOMKilled"),
            "its program was killed because it ran out of memory; raise its memory limit; last output: epoch 7",
            id="out of memory",
        ),
    ],
)
def test_the_cause_of_a_failure_comes_before_how_the_container_ended(pod: dict[str, Any], cause: str) -> None:
    assert failure_cause(facts_of(pod).failure) == cause
