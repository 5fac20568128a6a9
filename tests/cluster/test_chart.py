"""The Helm chart takes over an installation, changes it, goes and comes back, while experiments run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.helm import INSTALLS, Json, helm, needs_helm
from tests.support.pod_cluster import CORE, PodCluster, Room, experiment, is_true, python_job, wait_for
from tools.cluster_tests import INSTALL

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(900), needs_helm]

TRIALS = 12
STEPS = """
import os, time
for step in range(6):
    print('loss=' + str(float(os.environ['lr']) + (5 - step)))
    time.sleep(1)
"""
VALUES = INSTALLS[INSTALL.name]
CHANGED: Json = {
    **VALUES,
    "controller": {"resources": {"requests": {"memory": "130Mi"}}},
    "dbManager": {"resources": {"requests": {"memory": "98Mi"}}},
    "server": {**VALUES.get("server", {}), "replicas": 2},
}


@pytest.fixture(autouse=True)
def _as_before(cluster: PodCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the installation as it was, for other tests."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    yield
    helm("uninstall", "--ignore-not-found", "--wait")
    cluster.run("apply", "-k", str(INSTALL))
    for name in ("katib-db-manager", "katib-controller", "katib-server"):
        cluster.run("rollout", "status", f"deployment/{name}", "-n", CORE, "--timeout=300s")


def do(command: str, *options: str, values: Json | None = None) -> str:
    done = helm(command, "--timeout=5m", *options, values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def started(room: Room, name: str) -> None:
    room.apply(experiment(name, python_job(STEPS), trials=TRIALS, parallel=2))
    wait_for(lambda: any(is_true(t, "Running") for t in room.trials(name)), "a trial to run", 90, room.picture)


def has_all_values(room: Room, name: str) -> bool:
    """Wait for the end of an experiment; return whether each trial has the values that its program printed."""
    room.ended(name, 300)
    found = []
    for trial in room.trials(name):
        (lr,) = [float(one["value"]) for one in trial["spec"]["parameterAssignments"]]
        (loss,) = trial["status"]["observation"]["metrics"]
        found.append([float(loss[key]) for key in ("max", "min", "latest")] == [lr + 5, lr, lr])
    return found == [True] * TRIALS


def test_experiments_outlive_a_takeover_an_upgrade_and_an_uninstall(cluster: PodCluster, room: Room) -> None:
    started(room, "upgraded")
    do("install", "--take-ownership", "--wait", values=VALUES)
    assert not is_true(room.experiment("upgraded"), "Succeeded"), "it has to run while it is upgraded"
    do("upgrade", "--force-conflicts", "--wait", values=CHANGED)  # kubectl owns the fields as well
    server = cluster.find("deployment", "katib-server", CORE)

    assert server is not None
    assert server["status"]["readyReplicas"] == 2
    assert has_all_values(room, "upgraded")

    started(room, "orphaned")
    do("uninstall", "--wait")

    assert cluster.find("deployment", "katib-controller", CORE) is None
    assert not is_true(room.experiment("orphaned"), "Succeeded")
    assert len(room.trials("upgraded")) == TRIALS
    do("install", "--wait", values=VALUES)
    assert has_all_values(room, "orphaned")

    output = do("test", "--logs")
    assert "Phase:          Succeeded" in output
    assert "2 trials" in output
    assert cluster.find("namespace", f"{CORE}-katib-test") is None
