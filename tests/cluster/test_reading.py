"""What the tuning service reads of real pods through the API server."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import pytest

from katib.engine.runtime.objects import Key
from katib.errors import UnavailableError
from katib.model.types import Trial
from katib.places.cluster.client.configuration import access
from katib.places.cluster.client.port_forward import PortForward
from katib.places.cluster.pods.logs import ClusterOutput, server_logs
from katib.places.cluster.store import KubernetesStore
from katib.service.tuning.ports import Part
from tests.support.pod_cluster import IMAGE, Room, wait_for
from tests.support.tuning import condition, make_trial, patched

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # When the server ends a forwarded port, the client library drops the socket instead of closing it.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect_dropped_sockets() -> Iterator[None]:
    """Have dropped sockets noticed in the test that dropped them."""
    yield
    gc.collect()


def run_pod(room: Room, name: str, command: str, *, trial: str = "") -> None:
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", command]}
    labels = {"katib.kubeflow.org/trial": trial} if trial else {}
    room.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": False,
                "containers": [container],
            },
        }
    )


def trial_of(name: str, namespace: str) -> Trial:
    made = make_trial(name, condition("Running"), namespace=namespace)
    return patched(made, spec={"primaryContainerName": "main"})


def phase_of(room: Room, name: str) -> str:
    pod = room.cluster.find("pod", name, room.namespace) or {}
    return str(pod.get("status", {}).get("phase"))


def test_the_log_of_a_pod_is_followed_byte_for_byte(room: Room) -> None:
    # A pod with a trial's label would be given a collector, for which it has no trial.
    room.cluster.run("label", "namespace", room.namespace, "katib.kubeflow.org/metrics-collector-injection-")
    run_pod(room, "talks", "for i in 1 2 3; do printf 'line %s' $i; sleep 1.2; echo; done; printf end", trial="talks")
    connection = room.cluster.connection
    output = ClusterOutput(KubernetesStore(connection), server_logs(connection))
    trial = trial_of("talks", room.namespace)
    chunks = list(output.read(trial, Part(follow=lambda: phase_of(room, "talks") != "Succeeded")))

    assert b"".join(chunks) == b"line 1\nline 2\nline 3\nend"
    assert b"" in chunks
    assert b"".join(output.read(trial, Part(tail_lines=1))) == b"end"


def test_metrics_of_a_pod_come_through_the_api_server(room: Room) -> None:
    run_pod(room, "listens", "echo hello > /tmp/index.html; exec python3 -m http.server 6789 -d /tmp")
    wait_for(lambda: phase_of(room, "listens") == "Running", "the pod")
    load = access(room.cluster.kubeconfig).configuration

    def answer(address: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(address.removeprefix("unix:"))
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b"".join(iter(lambda: client.recv(4096), b""))

    with PortForward(load, Key(room.namespace, "listens"), 6789) as way:
        wait_for(lambda: answer(way).endswith(b"hello\n"), "the program to listen")
        assert answer(way).endswith(b"hello\n")

    with pytest.raises(UnavailableError, match="not found"), PortForward(load, Key(room.namespace, "ghost"), 6789):
        pass
