"""Watches as WebSockets, as clients in Java ask for them, on the Kubernetes API of one machine."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kube import CONFIG_MAPS, EXPERIMENTS, TOKEN, World, authority_of, config_map, kube_world
from tests.support.waiting import eventually

websocket = pytest.importorskip("websocket", reason="websocket-client is not installed")
pytest.importorskip("websockets", reason="the server takes WebSockets where websockets is installed")

WATCH = f"{CONFIG_MAPS}?watch=true"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BY_PROTOCOL = f"base64url.bearer.authorization.k8s.io.{base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip('=')}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kube_world(tmp_path_factory.mktemp("data"), starts=False) as made:
        yield made


def connect(world: World, path: str, **options: Any) -> Any:
    trusted = {"context": ssl.create_default_context(cadata=authority_of(world.server.kubeconfig))}
    url = world.server.url.replace("https", "wss") + path
    return websocket.create_connection(url, sslopt=trusted, timeout=30, **{"header": BEARER, **options})


def test_each_change_is_a_message(world: World) -> None:
    world.http.post(CONFIG_MAPS, json=config_map("one"))
    socket = connect(world, WATCH, subprotocols=["v4.channel.k8s.io", "other"])
    first = json.loads(socket.recv())
    socket.send("clients send nothing, and what they send is read")
    for name in ("two", "three"):
        world.http.post(CONFIG_MAPS, json=config_map(name))
    rest = [json.loads(socket.recv()) for _ in range(2)]
    protocol = socket.subprotocol
    socket.close()

    assert [change["object"]["metadata"]["name"] for change in (first, *rest)] == ["one", "two", "three"]
    assert {change["type"] for change in (first, *rest)} == {"ADDED"}
    assert protocol == "v4.channel.k8s.io"


def test_a_watch_ends_in_time_and_one_whose_client_left_is_forgotten(world: World) -> None:
    history: Any = world.engine.objects.objects
    left = connect(world, f"{EXPERIMENTS}?watch=true&timeoutSeconds=600")
    ended = connect(world, f"{EXPERIMENTS}?watch=true&timeoutSeconds=1")
    opcode, data = ended.recv_data()
    for socket in (left, ended):
        socket.close()
        socket.shutdown()

    assert (opcode, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1000)
    eventually(
        lambda: not any(kind.kind == "Experiment" and found for kind, found in history._history._watches.items())
    )


@pytest.mark.parametrize(
    ("path", "options", "code"),
    [
        (WATCH, {"origin": "https://example.org"}, 403),
        (WATCH, {"host": "example.org"}, 403),
        (WATCH, {"header": {}}, 401),
        (WATCH, {"header": {"Authorization": "Bearer wrong"}}, 401),
        (WATCH, {"header": {}, "subprotocols": [BY_PROTOCOL]}, 401),
        (CONFIG_MAPS, {}, 400),
        (f"{WATCH}&resourceVersion=abc", {}, 400),
        ("/api/v1/bindings?watch=true", {}, 404),
    ],
)
def test_what_is_not_answered_is_refused_with_a_status(
    world: World, path: str, options: dict[str, Any], code: int
) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        connect(world, path, **options)

    status = json.loads(refused.value.resp_body)
    assert (refused.value.status_code, status["kind"], status["code"]) == (code, "Status", code)


def test_a_token_may_be_among_the_subprotocols(world: World) -> None:
    socket = connect(world, f"{WATCH}&timeoutSeconds=1", header={}, subprotocols=[BY_PROTOCOL, "mine"])
    protocol = socket.subprotocol
    socket.close()

    assert protocol == "mine"
