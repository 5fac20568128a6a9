from __future__ import annotations

import pytest

from katib.cluster.version import native_sidecars_work, number_of


@pytest.mark.parametrize(
    ("server", "oldest", "works"),
    [
        pytest.param((1, 20), (1, 20), False, id="old-cluster"),
        pytest.param((1, 36), (1, 36), True, id="new-cluster"),
        pytest.param((1, 31), (1, 28), False, id="old-node"),
        pytest.param((1, 28), (1, 29), False, id="old-server"),
        pytest.param((1, 29), (1, 29), True, id="first"),
        pytest.param((1, 31), None, False, id="unknown-nodes-may-be-older"),
        pytest.param((1, 32), None, True, id="no-node-can-be-older"),
        pytest.param((2, 0), (1, 40), True, id="two"),
    ],
)
def test_native_sidecars_work_where_the_server_and_every_node_have_them(
    server: tuple[int, int], oldest: tuple[int, int] | None, *, works: bool
) -> None:
    assert native_sidecars_work(server, oldest) is works


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("v1.29.3", (1, 29)),
        ("v1.28.5+k3s1", (1, 28)),
        ("1.31.0-eks-1", (1, 31)),
        ("", (0, 0)),
        ("fake", (0, 0)),
    ],
)
def test_a_version_is_read_as_kubelets_write_it(text: str, number: tuple[int, int]) -> None:
    assert number_of(text) == number
