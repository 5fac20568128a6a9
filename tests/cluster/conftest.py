"""Fixtures of the tests that need pods: the cluster, and a namespace for each test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.pod_cluster import GONE_SECONDS, PATIENCE, PodCluster, Room, found_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[PodCluster]:
    """The cluster of KUBECONFIG with the product installed; tests are skipped where there is none."""
    found = found_cluster()
    yield found
    found.connection.close()


@pytest.fixture
def room(cluster: PodCluster) -> Iterator[Room]:
    """A namespace of the test's own, which may hold experiments."""
    room = cluster.make_namespace(f"katib-test-{secrets.token_hex(4)}")
    yield room
    gone = f"--timeout={PATIENCE * GONE_SECONDS}s"
    cluster.run("delete", "experiments.kubeflow.org", "--all", "-n", room.namespace, gone, check=False)
    cluster.run("delete", "namespace", room.namespace, "--wait=false", "--ignore-not-found")
