"""What is remembered of the kinds of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from katib.errors import KindNotInstalledError, UnavailableError
from katib.places.cluster.client.discovery import ASK_AGAIN_SECONDS, Discovery

KINDS = [("jobs", "Job", True), ("jobs/status", "Job", True), ("nodes", "Node", False)]
JOBS = {"resources": [{"name": name, "kind": kind, "namespaced": namespaced} for name, kind, namespaced in KINDS]}


class Cluster:
    """Answers questions about API versions, and counts them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.seconds = 0.0
        self.is_away = False
        self.discovery = Discovery(self._fetch, lambda: self.seconds)

    def _fetch(self, path: str) -> Mapping[str, Any]:
        self.asked.append(path)
        if self.is_away:
            raise UnavailableError(path)
        if path != "/apis/batch/v1":
            raise KindNotInstalledError(path)
        return JOBS

    def ask(self, api_version: str) -> None:
        with pytest.raises(KindNotInstalledError, match=f"{api_version} Job: the cluster has no such kind; install it"):
            self.discovery.resource(api_version, "Job")


def test_a_known_kind_is_asked_for_once() -> None:
    cluster = Cluster()
    cluster.is_away = True
    with pytest.raises(UnavailableError):
        cluster.discovery.resource("batch/v1", "Job")
    cluster.is_away = False
    for _ in range(3):
        job, node = (cluster.discovery.resource("batch/v1", kind) for kind in ("Job", "Node"))
        cluster.seconds += 100

    assert (job.path("team", "a", "status"), job.has_status) == ("/apis/batch/v1/namespaces/team/jobs/a/status", True)
    assert (node.path("team", "a"), node.has_status) == ("/apis/batch/v1/nodes/a", False)
    assert cluster.asked == ["/apis/batch/v1"] * 2


def test_a_kind_that_was_taken_back_is_asked_for_at_once() -> None:
    """It may be there all the same, and have changed; nobody is to hear meanwhile that it is not installed."""
    cluster = Cluster()
    found = cluster.discovery.resource("batch/v1", "Job")
    cluster.discovery.forget(found)

    assert cluster.discovery.resource("batch/v1", "Job") == found
    assert cluster.asked == ["/apis/batch/v1"] * 2


def test_a_missing_kind_is_asked_for_again_after_a_while() -> None:
    cluster = Cluster()
    cluster.ask("other/v1")
    cluster.seconds += ASK_AGAIN_SECONDS - 0.1
    cluster.ask("other/v1")
    cluster.seconds += 0.1
    cluster.ask("other/v1")

    assert cluster.asked == ["/apis/other/v1"] * 2


def test_of_versions_that_nobody_asks_for_any_more_nothing_is_kept() -> None:
    """Templates of users name them: there may be any number."""
    cluster = Cluster()
    for number in range(2000):
        cluster.ask(f"group-{number}/v1")
        cluster.seconds += 1

    assert sum(len(value) for value in vars(cluster.discovery).values() if isinstance(value, dict | tuple)) < 40
