"""The tuning service of a cluster over a real API server: rights, outages, and the command line.

A stand-in works on the objects; real pods are for tests/cluster.
"""

from __future__ import annotations

import contextlib
import gc
import json
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from katib.doors.cli import main
from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.objects import Key
from katib.errors import (
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KindNotInstalledError,
    NotFoundError,
    UnavailableError,
)
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.places.cluster.access.connect import connect
from katib.places.cluster.access.tuning_service import OpenCluster, open_cluster
from katib.service.tuning.service import Change, TuningService
from katib.service.tuning.states import state_of
from katib.wire.rpc.db_manager import serve_db_manager
from tests.support.api_server import ApiServer
from tests.support.cli import process_state_kept
from tests.support.cluster import ClusterWorld, server_world
from tests.support.gateway import rules_of_the_server
from tests.support.observations import MemoryObservationLog
from tests.support.server_kinds import install_kind, remove_kind
from tests.support.training_jobs import RUNTIMES
from tests.support.tuning import document
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = [
    pytest.mark.cluster,
    # When the server goes away, the client library drops the socket instead of closing it.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect_dropped_sockets() -> Iterator[None]:
    """Have dropped sockets noticed in the test that dropped them."""
    yield
    gc.collect()


NS = "team"
KATIB_RULES = [{"apiGroups": ["kubeflow.org"], "resources": ["experiments", "trials", "suggestions"], "verbs": ["*"]}]


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
    server.await_rights(name, rules, within=NS)
    try:
        with open_cluster(kubeconfig) as opened:
            yield opened.service
    finally:
        server.admin.request("DELETE", f"{rbac}/rolebindings/{name}")
        server.admin.request("DELETE", f"{rbac}/roles/{name}")
        server.forget_user(name)


def next_of(changes: Iterator[Change], name: str, state: str) -> Change:
    return next(change for change in changes if change.object.name == name and state_of(change.object) == state)


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
    monkeypatch.setattr("katib.places.cluster.access.connect.API_VERSION", "kubeflow.org/v0")

    with pytest.raises(KindNotInstalledError, match="kubectl apply -k manifests/installs/standalone"):
        connect(api_server.kubeconfig)


def test_an_unknown_context_is_answered_with_those_there_are(api_server: ApiServer) -> None:
    with pytest.raises(InvalidError, match="has no context 'elsewhere'; choose one of: "):
        connect(api_server.kubeconfig, "elsewhere")


def test_an_api_server_that_does_not_answer_is_named(api_server: ApiServer, tmp_path: Path) -> None:
    text = api_server.kubeconfig.read_text()
    (tmp_path / "config").write_text(text.replace(api_server.admin.host, "https://127.0.0.1:1"))

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
                opening = next(changes)  # after the restart it may show the end already
                opened.set()
                seen.append(state_of(next_of(chain([opening], changes), "demo", "Succeeded").object))
                return

    reader = threading.Thread(target=follow)
    reader.start()
    assert opened.wait(60)
    api_server.stop()
    time.sleep(6)  # long enough for every attempt within the connection to be over
    api_server.start()
    world.stand_in.play(NS, "demo")
    reader.join(PATIENCE_SECONDS)

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
        with process_state_kept():
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


def test_a_job_for_kubectl_is_tuned_in_the_cluster(katib: Any, world: ClusterWorld, tmp_path: Path) -> None:
    container = {"name": "training", "image": "mine", "command": ["train", "--lr", "0.5"]}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "demo"}, "spec": spec}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    player = threading.Thread(target=_play_when_there, args=(world, "default", "demo"))
    player.start()
    line = ("tune", "-p", "lr=0.1..0.9", "--minimize", "loss", "--trials", "3", str(tmp_path / "job.yaml"))
    code, out, err = katib(*line)
    player.join()
    again = katib(*line)

    assert code == 0, err
    assert "note: lr takes the place of the value in --lr 0.5" in err
    assert "Best trial: demo-0002" in out
    assert "demo had ended before" in again[1] + again[2]
    assert "a cluster has neither this program nor its files" in katib(*line[:-1], "train.sh")[2]


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


@pytest.fixture
def _runtimes(api_server: ApiServer) -> Iterator[None]:
    version, scopes = "trainer.kubeflow.org/v1alpha1", {"Training": "Namespaced", "ClusterTraining": "Cluster"}
    for word, scope in scopes.items():
        install_kind(api_server, version, f"{word}Runtime", scope=scope)
    yield
    for word in scopes:
        remove_kind(api_server, version, f"{word}Runtime")


@pytest.mark.usefixtures("world", "_runtimes")
def test_a_file_of_training_runtimes_is_stored_with_the_rights_that_the_server_has(
    api_server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, user = tmp_path / "runtimes.yaml", api_server.user("runtimes", rules_of_the_server())
    command = ["apply", str(file), "--kubeconfig", str(user), "--namespace", NS]

    def applied(nodes: str) -> tuple[int, list[str]]:
        file.write_text(RUNTIMES.replace("NODES", nodes))
        code, told = main(command), capsys.readouterr()
        return code, [*told.out.splitlines(), *told.err.splitlines()]

    answers = [applied(nodes) for nodes in ("2", "2", "3")]
    api_server.forget_user("runtimes")

    mine, shared = "trainingruntime/mine", "clustertrainingruntime/shared"
    assert answers == [
        (0, [f"{mine} created", f"{shared} created"]),
        (0, [f"{mine} unchanged", f"{shared} unchanged"]),
        (0, [f"{mine} configured", f"{shared} unchanged"]),
    ]


def _play_when_there(world: ClusterWorld, namespace: str, name: str) -> None:
    def is_there() -> bool:
        with contextlib.suppress(NotFoundError):
            world.stand_in.store.get(EXPERIMENT, Key(namespace, name))
            return True
        return False

    eventually(is_there, "the experiment")
    world.stand_in.play(namespace, name)
