"""Replicas of training jobs in their images reach each other by the names that the operators give them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from katib.engine.runtime.objects import Kind
from katib.places.machine.jobs.jobset.jobset import JOB_SET, TRAIN_JOB
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.jobs.replicated.frameworks import PyTorchJob, TFJob
from katib.places.machine.jobs.replicated.mpijob import MPIOperatorJob
from tests.support import podman
from tests.support.boxes import boxes, home_of_boxes, mine
from tests.support.local_jobs import Home
from tests.support.memory_store import MemoryStore
from tests.support.runtimes import WITH_NETWORKS, Installed, installed
from tests.support.waiting import eventually

pytestmark = [pytest.mark.networks, pytest.mark.slow]

MEET = """
import os, re, socket, sys, threading, time

peers = [os.path.expandvars(word) for word in sys.argv[1:]]
peers += re.findall(r'"([\\w.-]+:[0-9]+)"', os.environ.get("TF_CONFIG", ""))
peers = [peer if ":" in peer else peer + ":7000" for peer in peers]
port = int(peers[0].rpartition(":")[2])
server = socket.create_server(("", port), backlog=50)
heard = set()

def listen():
    while len(heard) < len(peers):
        connection, _ = server.accept()
        with connection:
            heard.add(connection.makefile().readline().strip())

listener = threading.Thread(target=listen)
listener.start()
for peer in peers:
    host, _, number = peer.rpartition(":")
    while True:
        try:
            with socket.create_connection((host, int(number)), 5) as connection:
                connection.sendall(f"{socket.gethostname()} called {host}\\n".encode())
            break
        except OSError:
            time.sleep(0.1)
listener.join()
for line in sorted(heard):
    print(line)
"""
"""Calls every peer, itself too, and ends when it was called as often: each replica is called by all, by one name."""


@pytest.fixture(scope="module", params=WITH_NETWORKS)
def runtime(request: pytest.FixtureRequest) -> Installed:
    if not podman.has_python():
        pytest.skip("the image has no Python, since Debian's is not installed here")
    try:
        return installed(request.param)
    except LookupError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def boxed(tmp_path: Path, runtime: Installed) -> Iterator[Home]:
    kinds = {Kind("kubeflow.org/v1", "PyTorchJob"), Kind("kubeflow.org/v1", "TFJob"), MPIOperatorJob.kind}
    store = MemoryStore({JOB_SET, TRAIN_JOB, *kinds})
    with home_of_boxes(tmp_path, runtime, store=store, kinds=JobKinds()) as opened:
        yield opened
        eventually(lambda: not runtime.networks(mine(tmp_path)), "the network is removed")


def meet(*peers: str, name: str = "node") -> dict[str, Any]:
    return boxes("/usr/bin/python3", "-c", MEET, *peers, name=name)


def template(container: dict[str, Any]) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [container]}}}


def an_object(kind: Kind, spec: dict[str, Any], name: str = "t") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def calls(h: Home) -> dict[str, set[str]]:
    """Return by which name the hosts were called, and by whom."""
    found: dict[str, set[str]] = {}
    for path in (h.root / "ns" / "t").glob("*/*.log"):
        for caller, word, name in (line.split() for line in path.read_text().splitlines() if " called " in line):
            assert word == "called"
            found.setdefault(name, set()).add(caller)
    return found


def test_a_master_and_workers_are_called_by_the_names_of_their_services(boxed: Home) -> None:
    peers = ["$(MASTER_ADDR):$(MASTER_PORT)", "t-worker-0.ns:23456", "t-worker-1.ns.svc.cluster.local:23456"]
    container = meet(*peers, name="pytorch")
    replicas = {"Master": {"replicas": 1, **template(container)}, "Worker": {"replicas": 2, **template(container)}}

    end = boxed.run(an_object(PyTorchJob.kind, {"pytorchReplicaSpecs": replicas}))

    assert end["type"] == "Succeeded", end
    all_three = {"t-master-0", "t-worker-0", "t-worker-1"}
    assert calls(boxed) == {
        "t-master-0": all_three,
        "t-worker-0.ns": all_three,
        "t-worker-1.ns.svc.cluster.local": all_three,
    }


def test_names_stay_when_the_job_ends_whose_containers_were_the_first(boxed: Home, tmp_path: Path) -> None:
    container = meet("$(MASTER_ADDR):$(MASTER_PORT)", "t-worker-0.ns:23456", name="pytorch")
    waits = f'echo waits; while [ ! -e {tmp_path}/gate ]; do sleep 0.1; done; exec "$@"'
    later = {**container, "command": ["/bin/sh", "-c", waits, "sh", *container["command"]]}
    first = {**container, "command": ["/bin/sh", "-c", f"while [ ! -e {tmp_path}/end ]; do sleep 0.1; done"]}

    def a_pair(name: str, program: dict[str, Any]) -> dict[str, Any]:
        replicas = {type_: {"replicas": 1, **template(program)} for type_ in ("Master", "Worker")}
        return an_object(PyTorchJob.kind, {"pytorchReplicaSpecs": replicas}, name)

    boxed.submit(a_pair("first", first))
    eventually(lambda: boxed.status("first", PyTorchJob.kind).get("replicaStatuses"), "the first job runs")
    boxed.submit(a_pair("t", later))
    eventually(lambda: [p for p in boxed.log_files("pytorch", "t") if "waits" in p.read_text()][1:], "the other runs")
    (tmp_path / "end").touch()
    assert boxed.wait_for_end("first", PyTorchJob.kind)["type"] == "Succeeded"
    (tmp_path / "gate").touch()

    assert boxed.wait_for_end("t", PyTorchJob.kind)["type"] == "Succeeded"


def test_a_parameter_server_and_workers_are_called_as_tf_config_says(boxed: Home) -> None:
    container = meet(name="tensorflow")
    replicas = {"PS": {"replicas": 1, **template(container)}, "Worker": {"replicas": 2, **template(container)}}

    end = boxed.run(an_object(TFJob.kind, {"tfReplicaSpecs": replicas, "successPolicy": "AllWorkers"}))

    assert end["type"] == "Succeeded", end
    assert set(calls(boxed)) == {"t-ps-0.ns.svc", "t-worker-0.ns.svc", "t-worker-1.ns.svc"}


def test_pods_of_a_jobset_are_called_by_their_host_names_in_its_subdomain(boxed: Home) -> None:
    container = meet("t-a-0-0.t", "t-b-0-0.t.ns.svc", "t-b-0-1.t.ns.svc.cluster.local")
    jobs = [
        {"name": "a", "template": {"spec": template(container)}},
        {"name": "b", "template": {"spec": {"parallelism": 2, "completions": 2, **template(container)}}},
    ]

    end = boxed.run(an_object(JOB_SET, {"replicatedJobs": jobs}))

    assert end["type"] == "Completed", end
    assert set(calls(boxed)) == {"t-a-0-0.t", "t-b-0-0.t.ns.svc", "t-b-0-1.t.ns.svc.cluster.local"}


def test_the_subdomain_of_a_jobset_leads_to_all_of_its_pods(boxed: Home, tmp_path: Path) -> None:
    ask = f"""
import os, socket, time

def found():
    try:
        return {{answer[4][0] for answer in socket.getaddrinfo("mine", 80)}}
    except OSError:
        return ()

while len(found()) < 2:
    time.sleep(0.1)
print("both", flush=True)
while not os.path.exists("{tmp_path}/gate"):
    time.sleep(0.1)
"""
    container = boxes("/usr/bin/python3", "-c", ask, name="node")
    jobs = [{"name": "a", "template": {"spec": {"parallelism": 2, "completions": 2, **template(container)}}}]
    boxed.submit(an_object(JOB_SET, {"replicatedJobs": jobs, "network": {"subdomain": "mine"}}))

    eventually(lambda: [p for p in boxed.log_files("node", "t") if "both" in p.read_text()][1:], "both find both")
    (tmp_path / "gate").touch()

    assert boxed.wait_for_end("t", JOB_SET)["type"] == "Completed"


def test_nodes_of_a_trainjob_meet_at_the_address_that_torchrun_is_told(boxed: Home) -> None:
    container = meet("$PET_MASTER_ADDR:$PET_MASTER_PORT", "t-node-0-1.t:29500")
    trainer = {"numNodes": 2, "image": podman.IMAGE, "command": container["command"]}

    end = boxed.run(an_object(TRAIN_JOB, {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}))

    assert end["type"] == "Complete", end
    both = {"t-node-0-0", "t-node-0-1"}
    assert calls(boxed) == {"t-node-0-0.t": both, "t-node-0-1.t": both}


def test_a_launcher_and_workers_with_work_of_their_own_are_called_by_the_names_of_the_host_file(boxed: Home) -> None:
    container = meet("t-launcher.t", "t-worker-0.t.ns.svc", "t-worker-1.t.ns.svc", name="mpi")
    replicas = {"Launcher": {"replicas": 1, **template(container)}, "Worker": {"replicas": 2, **template(container)}}

    end = boxed.run(an_object(MPIOperatorJob.kind, {"mpiReplicaSpecs": replicas}))

    assert end["type"] == "Succeeded", end
    assert set(calls(boxed)) >= {"t-launcher.t"}
