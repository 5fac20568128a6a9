"""The tuning service of a cluster over a real API server: rights, outages, and the command line.

A stand-in works on the objects; where the cluster has a node, real pods are read, too.
"""

from __future__ import annotations

import contextlib
import gc
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from katib.api.metrics import ZERO_TIME, MetricLog
from katib.cli import main
from katib.cluster.connect import connect
from katib.cluster.logs import ClusterOutput, ServerLogs
from katib.cluster.port_forward import PortForward
from katib.cluster.tuning_service import OpenCluster, open_cluster
from katib.controllers.kinds import EXPERIMENT
from katib.errors import (
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KindNotInstalledError,
    NotFoundError,
    UnavailableError,
)
from katib.kube.configuration import access
from katib.observations.memory import MemoryObservationLog
from katib.rpc.db_manager import serve_db_manager
from katib.runtime.objects import Key, Kind
from katib.stores.kubernetes import KubernetesStore
from katib.tuning.reading import name_of, state_of
from katib.tuning.service import Change, TuningService
from tests.support.api_server import ApiServer, await_that
from tests.support.cluster import ClusterWorld, said, server_world
from tests.support.tuning import document

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    # When the server ends a forwarded port or goes away, the client library drops the socket instead of closing it.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect_dropped_sockets() -> Iterator[None]:
    """Have dropped sockets noticed in the test that dropped them."""
    yield
    gc.collect()


NS = "team"
POD = Kind("v1", "Pod")
KATIB_RULES = [
    {"apiGroups": ["kubeflow.org"], "resources": ["experiments", "trials", "suggestions"], "verbs": ["*"]},
]
PODS = f"tuning-pods-{secrets.token_hex(3)}"
"""A namespace of this run: one that is being deleted takes a while to go."""

IMAGE = "docker.io/library/python:3.11-slim"


@pytest.fixture
def world(api_server: ApiServer) -> Iterator[ClusterWorld]:
    with server_world(api_server) as made:
        yield made


@pytest.fixture
def cluster(world: ClusterWorld, api_server: ApiServer) -> Iterator[OpenCluster]:
    """The cluster as its admin opens it."""
    with open_cluster(api_server.kubeconfig) as opened:
        yield opened


@contextlib.contextmanager
def as_member(server: ApiServer, name: str, rules: list[dict[str, Any]]) -> Iterator[TuningService]:
    """Open the cluster as somebody who has rights in one namespace only."""
    kubeconfig = server.user(name, [])
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}"
    server.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    server.create(f"{rbac}/rolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    try:
        with open_cluster(kubeconfig) as opened:
            yield opened.service
    finally:
        server.admin.request("DELETE", f"{rbac}/rolebindings/{name}")
        server.admin.request("DELETE", f"{rbac}/roles/{name}")
        server.forget_user(name)


def next_of(changes: Iterator[Change], name: str, state: str) -> Change:
    return next(change for change in changes if name_of(change.object) == name and state_of(change.object) == state)


def test_rights_in_one_namespace_are_enough(api_server: ApiServer, world: ClusterWorld) -> None:
    with as_member(api_server, "member", KATIB_RULES) as service:
        service.submit(document("demo", namespace=NS), source="demo.yaml")
        changes = service.changes(NS, "demo", timeout_seconds=30)
        next(changes)
        world.stand_in.play(NS, "demo")

        assert next_of(changes, "demo", "Succeeded")
        assert service.trials(NS, "demo").total == 3
        service.delete(NS, "demo")
        assert list(service.experiments(NS)) == []


def test_a_missing_right_is_named(api_server: ApiServer, world: ClusterWorld) -> None:
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["experiments"], "verbs": ["get"]}]
    with as_member(api_server, "guest", rules) as service, pytest.raises(ForbiddenError) as caught:
        service.submit(document("demo", namespace=NS), source="demo.yaml")

    rule = '{apiGroups: ["kubeflow.org"], resources: ["experiments"], verbs: ["create"]} in namespace team'
    assert rule in str(caught.value)


def test_what_the_definitions_refuse_is_told_by_field(world: ClusterWorld, cluster: OpenCluster) -> None:
    with pytest.raises(InvalidError) as caught:
        cluster.service.submit(document("demo").replace('"minimize"', '"most"'), source="demo.yaml")

    assert [error.path for error in caught.value.errors] == ["spec.objective.type"]


def test_a_cluster_without_katib_says_how_to_install_it(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("katib.cluster.connect.API_VERSION", "kubeflow.org/v0")

    with pytest.raises(KindNotInstalledError, match="kubectl apply -k manifests/installs/standalone"):
        connect(api_server.kubeconfig)


def test_an_unknown_context_is_answered_with_those_there_are(api_server: ApiServer) -> None:
    with pytest.raises(InvalidError, match="has no context 'elsewhere'; choose one of: "):
        connect(api_server.kubeconfig, "elsewhere")


def test_an_api_server_that_does_not_answer_is_named(api_server: ApiServer, tmp_path: Path) -> None:
    text = api_server.kubeconfig.read_text()
    host = api_server.admin.host
    (tmp_path / "config").write_text(text.replace(host, "https://127.0.0.1:1"))

    with pytest.raises(UnavailableError, match=r"no answer from https://127\.0\.0\.1:1"):
        connect(tmp_path / "config")


def test_a_stream_survives_an_api_server_that_restarts(
    api_server: ApiServer, world: ClusterWorld, cluster: OpenCluster
) -> None:
    cluster.service.submit(document("demo", namespace=NS), source="demo.yaml")
    seen: list[str] = []
    opened = threading.Event()

    def follow() -> None:
        """Follow as `katib run` does: a server that was restarted may not know what was changed before."""
        while True:
            with contextlib.suppress(ExpiredError):
                changes = cluster.service.changes(NS, "demo", timeout_seconds=90)
                next(changes)
                opened.set()
                seen.append(state_of(next_of(changes, "demo", "Succeeded").object))
                return

    reader = threading.Thread(target=follow)
    reader.start()
    assert opened.wait(10)
    api_server.stop()
    time.sleep(6)  # long enough for every attempt within the connection to be over
    api_server.start()
    world.stand_in.play(NS, "demo")
    reader.join(60)

    assert seen == ["Succeeded"]


def test_a_cursor_that_the_server_forgot_is_expired(
    api_server: ApiServer, world: ClusterWorld, cluster: OpenCluster
) -> None:
    cluster.service.submit(document("demo", namespace=NS), source="demo.yaml")
    opening = list(cluster.service.changes(NS, "demo", timeout_seconds=0.3))
    world.stand_in.play(NS, "demo")
    api_server.expire()

    with pytest.raises(ExpiredError):
        list(cluster.service.changes(NS, "demo", timeout_seconds=10, since=opening[-1].cursor))


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def katib(
    api_server: ApiServer, world: ClusterWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Run the command line against the API server, with a DB manager of this machine."""
    log = MemoryObservationLog()
    log.report("demo-0000", [MetricLog(ZERO_TIME, "loss", "0.5")])
    server = serve_db_manager(log, "127.0.0.1:0")
    monkeypatch.setenv("KATIB_DB_MANAGER_ADDRESS", server.address)

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--kubeconfig", str(api_server.kubeconfig)])
        return code, *capsys.readouterr()

    yield run
    server.stop(0)


def test_a_run_is_submitted_followed_and_summed_up(katib: Any, world: ClusterWorld, tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(document("demo"))
    player = threading.Thread(target=_play_when_there, args=(world, "default", "demo"))
    player.start()
    code, out, err = katib("run", str(tmp_path / "demo.yaml"))
    player.join()

    assert (code, err) == (0, "")
    assert "demo succeeded: all 3 trials of its budget are done." in out
    assert "Best trial: demo-0002" in out


def test_every_reading_command_works(katib: Any, world: ClusterWorld) -> None:
    world.service.submit(document("demo"), source="demo.yaml")
    world.stand_in.play("default", "demo")

    assert "demo" in katib("get")[1]
    assert "demo-0002" in katib("best", "demo")[1]
    assert katib("trials", "demo")[1].count("demo-000") == 3
    assert "0.5" in katib("metrics", "demo-0000")[1]
    assert "JobSucceeded" in katib("describe", "demo")[1]
    assert "demo succeeded" in katib("why", "demo")[1]
    assert katib("delete", "demo")[1] == "experiment/demo deleted\n"
    assert katib("why", "demo")[0] == 2


def _play_when_there(world: ClusterWorld, namespace: str, name: str) -> None:
    def is_there() -> bool:
        with contextlib.suppress(NotFoundError):
            world.stand_in.store.get(EXPERIMENT, Key(namespace, name))
            return True
        return False

    await_that(is_there, "the experiment")
    world.stand_in.play(namespace, name)


# --- real pods --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pods(api_server: ApiServer) -> Iterator[KubernetesStore]:
    """A namespace on a cluster that runs pods."""
    nodes = api_server.admin.request("GET", "/api/v1/nodes").get("items") or ()
    if not nodes:
        pytest.skip("needs a cluster that runs pods: set KUBECONFIG")
    api_server.namespace(PODS)
    yield KubernetesStore(api_server.admin)
    api_server.delete_namespace(PODS)


def run_pod(store: KubernetesStore, name: str, command: str, *, trial: str = "") -> None:
    labels = {"katib.kubeflow.org/trial": trial} if trial else {}
    main_container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command],
    }
    store.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": PODS, "labels": labels},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": False,
                "containers": [main_container],
            },
        }
    )


def trial_object(name: str) -> dict[str, Any]:
    return {
        "apiVersion": EXPERIMENT.api_version,
        "kind": "Trial",
        "metadata": {"name": name, "namespace": PODS},
        "spec": {"primaryContainerName": "main"},
        "status": {"conditions": [said("Running")]},
    }


def phase_of(store: KubernetesStore, name: str) -> str:
    status = store.get(POD, Key(PODS, name)).get("status") or {}
    return str(status.get("phase"))


def test_the_log_of_a_real_pod_is_followed_byte_for_byte(pods: KubernetesStore) -> None:
    run_pod(pods, "talks", "for i in 1 2 3; do printf 'line %s' $i; sleep 1.2; echo; done; printf end", trial="talks")
    output = ClusterOutput(pods, ServerLogs(pods.connection))
    chunks = list(output.read(trial_object("talks"), follow=lambda: phase_of(pods, "talks") != "Succeeded"))

    assert b"".join(chunks) == b"line 1\nline 2\nline 3\nend"
    assert b"" in chunks
    assert b"".join(output.read(trial_object("talks"), tail_lines=1)) == b"end"


def test_metrics_of_a_real_pod_come_through_the_api_server(pods: KubernetesStore, api_server: ApiServer) -> None:
    run_pod(pods, "listens", "echo hello > /tmp/index.html; exec python3 -m http.server 6789 -d /tmp")
    await_that(lambda: phase_of(pods, "listens") == "Running", "the pod")
    import socket

    def answer(address: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(address.removeprefix("unix:"))
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b"".join(iter(lambda: client.recv(4096), b""))

    with PortForward(access(api_server.kubeconfig).load, Key(PODS, "listens"), 6789) as way:
        await_that(lambda: answer(way.address).endswith(b"hello\n"), "the program to listen")
        assert answer(way.address).endswith(b"hello\n")

    with (
        pytest.raises(UnavailableError, match="not found"),
        PortForward(access(api_server.kubeconfig).load, Key(PODS, "ghost"), 6789),
    ):
        pass
