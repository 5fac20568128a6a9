"""Which version the nodes have, asked of a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from katib.cluster import version
from katib.cluster.version import NativeSidecars, oldest_node
from katib.errors import NotFoundError
from katib.runtime.clock import SystemClock
from tests.support.api_server import ApiServer

pytestmark = pytest.mark.cluster

PATH = "/api/v1/nodes"
VERSIONS = {"katib-test-a": "v1.31.2-eks-94953ac", "katib-test-b": "v1.9.7+k3s1", "katib-test-c": ""}


@pytest.fixture
def server(api_server: ApiServer) -> Iterator[ApiServer]:
    yield api_server
    for name in VERSIONS:
        with suppress(NotFoundError):
            api_server.admin.request("DELETE", f"{PATH}/{name}")


def add(server: ApiServer, name: str) -> None:
    server.admin.request("POST", PATH, body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    status = {"status": {"nodeInfo": {"kubeletVersion": VERSIONS[name]}}}
    server.admin.request("PATCH", f"{PATH}/{name}/status", body=status, content_type="application/merge-patch+json")


def test_the_oldest_node_is_found_page_by_page_without_reading_whole_nodes(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_PAGE_SIZE", 1)
    before = oldest_node(server.admin)
    add(server, "katib-test-c")  # has not said yet what it is
    unknown = oldest_node(server.admin)
    add(server, "katib-test-a")
    add(server, "katib-test-b")

    assert unknown == before
    assert oldest_node(server.admin) == (1, 9)


def test_nodes_that_may_not_be_read_are_not_known(server: ApiServer) -> None:
    add(server, "katib-test-b")
    kubeconfig = server.user("katib-test-no-nodes", [])
    try:
        with server.connect(kubeconfig) as connection:
            assert oldest_node(connection) is None
    finally:
        server.forget_user("katib-test-no-nodes")


def test_a_node_that_joins_later_counts(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "NATIVE_SIDECARS", (1, 0))
    monkeypatch.setattr(version, "_SKEW", 0)
    sidecars = NativeSidecars(server.admin, SystemClock())
    assert not sidecars()
    sidecars.look()
    before = sidecars()
    monkeypatch.setattr(version, "NATIVE_SIDECARS", (1, 10))
    sidecars.look()
    add(server, "katib-test-b")
    with_newer_alone = sidecars()
    sidecars.look()

    assert (before, with_newer_alone, sidecars()) == (True, True, False)
