"""The machines themselves fail: the API server for half a minute, and the kubelet of the only node.

Only in the toolkit's cluster, whose processes are this machine's, and where they may be started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.pod_cluster import PodCluster, Room, experiment, is_true, python_job, wait_for
from tools.cluster_tests import BINARIES, STATE, TOOLKIT

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = """
import os, time
for step in range(10):
    print('loss=' + str(float(os.environ['lr']) + 1 / (step + 1)))
    time.sleep(1)
"""


@pytest.fixture(autouse=True)
def _of_this_machine(cluster: PodCluster) -> None:
    ours = (STATE / "kubeconfig").exists() and cluster.kubeconfig.resolve() == (STATE / "kubeconfig").resolve()
    if not ours or not TOOLKIT.exists() or os.geteuid() != 0:
        pytest.skip("the processes of this cluster are not this machine's")


def end(process: str) -> None:
    """Kill a process of the cluster."""
    os.kill(int((STATE / "run" / f"{process}.pid").read_text()), signal.SIGKILL)


def start_again() -> None:
    """Start whatever of the cluster does not run."""
    binaries = os.environ.get("KUBE_BIN", str(BINARIES))
    environment = {**os.environ, "KUBE_BIN": binaries, "KUBE_DIR": str(STATE)}
    log = Path(STATE / "log" / "again.log")
    with log.open("wb") as output:
        subprocess.run([TOOLKIT, "node"], env=environment, stdout=output, stderr=output, check=True, timeout=200)


def started(room: Room, name: str) -> None:
    room.apply(experiment(name, python_job(STEPS, backoffLimit=4), trials=4, parallel=2))
    wait_for(lambda: sum(is_true(t, "Running") for t in room.trials(name)) == 2, "two trials to run", 90, room.picture)


def test_an_api_server_that_is_away_for_half_a_minute_costs_no_trial(room: Room) -> None:
    started(room, "outage")
    end("apiserver")
    time.sleep(30)
    start_again()

    assert room.ended("outage", 240)["status"]["trialsSucceeded"] == len(room.trials("outage")) == 4


def test_a_kubelet_that_is_away_for_a_while_costs_no_trial(room: Room) -> None:
    started(room, "nodeless")
    end("kubelet")
    time.sleep(20)
    start_again()

    assert room.ended("nodeless", 240)["status"]["trialsSucceeded"] == len(room.trials("nodeless")) == 4
