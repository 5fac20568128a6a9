"""Cost of the controller on a real API server, without pods: a stand-in ends jobs at once.

    KUBEBUILDER_ASSETS=... python -m benchmarks.cluster                  all of it
    KUBEBUILDER_ASSETS=... python -m benchmarks.cluster --only restart   one part: pace, crowd, size, restart or large
    KUBECONFIG=... python -m benchmarks.cluster --only pod               a trial in a real pod

The physical limit is the time of the API server itself for the same writes, sent by as many threads as the controller
has workers, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Self

from benchmarks.support import memory_mb, processor_seconds
from katib.engine.controllers.trial.jobs import job_of
from katib.engine.runtime.objects import Kind, Object, Watch
from katib.model.types import Trial
from katib.places.cluster.client import open_connection
from katib.places.cluster.store import KubernetesStore
from tests.support.api_server import LocalApiServer
from tests.support.control_plane import (
    EXPERIMENT,
    SUGGESTION,
    TRIAL,
    ControllerProcess,
    ControlPlane,
    ended,
)
from tests.support.pod_cluster import Room, experiment, found_cluster, is_true, python_job
from tests.support.stores import STAND_IN

PACE_TRIALS, PACE_PARALLEL, WINDOW = 500, 50, 100
CROWD, CROWD_TRIALS = 20, 25
SIZE_TRIALS, SIZE_PODS = 5_000, 1_000
RESTART_TRIALS = 2_000
LARGE_TRIALS, LARGE_BYTES = 5_000, 20_000
WRITE_VERBS = ("create", "update", "patch", "delete")
JOB = Kind("batch/v1", "Job")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*PARTS, "pod"])
    only = parser.parse_args().only
    if only == "pod":
        return pod()
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        print("skipped: set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver", file=sys.stderr)
        return 0
    for name, part in PARTS.items():
        if only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                server = LocalApiServer(Path(assets), Path(folder))
                try:
                    server.start_all()
                    with ControlPlane(server, Path(folder)) as plane:
                        part(plane)
                finally:
                    server.close()
    return 0


# --- parts ------------------------------------------------------------------------------------------------------------


def pace(plane: ControlPlane) -> None:
    """500 trials, 50 at once: trials per second, writes per trial, first hundred against last hundred."""
    namespace = plane.namespace("pace")
    bare = bare_writes(plane, namespace)
    controller = started(plane, "pace")
    before = writes_of(controller)
    processes = {"controller": controller.pid, "jobs' stand-ins": os.getpid()}
    processes |= {name: process.pid for name, process in plane.server.processes.items()}
    busy = {name: processor_seconds(pid) for name, pid in processes.items()}
    began = time.perf_counter()
    plane.submit("pace", namespace, maxTrialCount=PACE_TRIALS, parallelTrialCount=PACE_PARALLEL)
    plane.wait_for_end("pace", namespace, 600)
    seconds = time.perf_counter() - began
    writes = (writes_of(controller) - before) / PACE_TRIALS
    moments = plane.stand_ins.moments
    rate = (len(moments) - 1) / (moments[-1] - moments[0])
    first, last = moments[WINDOW - 1] - moments[0], moments[-1] - moments[-WINDOW]
    print(f"trials a second             {rate:.1f}  ({PACE_TRIALS} trials in {seconds:.1f} s with the start)")
    print(f"API writes per trial        {writes:.1f}")
    print(f"last hundred / first hundred {last / first:.2f}")
    print(f"bare writes a second        {bare:.0f}; the controller's share of them {rate * writes / bare:.2f}")
    spent = {name: (processor_seconds(pid) - busy[name]) / PACE_TRIALS * 1000 for name, pid in processes.items()}
    print(f"processor time per trial    {', '.join(f'{name} {ms:.1f}' for name, ms in spent.items())} ms")
    print(f"memory                      {memory_mb(controller.pid):.0f} MB")


def crowd(plane: ControlPlane) -> None:
    """20 experiments at once, one of them with a service that never answers, against 19 without it."""
    with SilentService() as silent:
        plane.add_service("silent", silent.address)
        controller = started(plane, "crowd")
        alone = crowd_seconds(plane, plane.namespace("alone"), ["random"] * (CROWD - 1))
        with_one = crowd_seconds(plane, plane.namespace("mixed"), ["silent", *["random"] * (CROWD - 1)])
        print(f"19 experiments of {CROWD_TRIALS} trials   {alone:.1f} s alone, {with_one:.1f} s beside one that hangs")
        print(f"ratio                       {with_one / alone:.2f}")
        controller.stop()


def size(plane: ControlPlane) -> None:
    """5,000 trials and 1,000 watched pods: size of the objects, memory of the controller."""
    namespace = plane.namespace("size")
    controller = started(plane, "size")
    for number in range(SIZE_PODS):
        plane.store.create(a_pod(namespace, number))
    plane.submit("size", namespace, maxTrialCount=SIZE_TRIALS, parallelTrialCount=PACE_PARALLEL)
    plane.wait_for_end("size", namespace, 1200)
    for kind in (EXPERIMENT, SUGGESTION):
        (found,) = plane.store.list(kind, namespace).items
        print(f"{kind.kind:<11} of {SIZE_TRIALS} trials {len(json.dumps(found)) / 1000:.1f} KB")
    moments = plane.stand_ins.moments
    first, last = moments[WINDOW - 1] - moments[0], moments[-1] - moments[-WINDOW]
    print(f"trials a second             {(len(moments) - 1) / (moments[-1] - moments[0]):.1f}")
    print(f"last hundred / first hundred {last / first:.2f}")
    print_memory("memory", controller)


def restart(plane: ControlPlane) -> None:
    """Restart with 2,000 finished trials: seconds until the controller is idle, and its writes."""
    namespace = plane.namespace("restart")
    first = started(plane, "before")
    plane.submit("restart", namespace, maxTrialCount=RESTART_TRIALS, parallelTrialCount=PACE_PARALLEL)
    plane.wait_for_end("restart", namespace, 900)
    until_quiet(first)
    first.stop()
    began = time.perf_counter()
    second = started(plane, "after")
    caches = time.perf_counter() - began
    quiet = until_quiet(second) - began
    print(f"controllers at work after   {caches:.1f} s with {RESTART_TRIALS} trials")
    print(f"last request after          {quiet:.1f} s")
    print(f"writes                      {writes_of(second)}")


def large(plane: ControlPlane) -> None:
    """5,000 trials of 20 KB, every second one running: memory of a controller after its start, and after an expiry."""
    namespace = plane.namespace("large")
    plane.stand_ins.outcome = lambda _job: None
    owner = plane.submit("large", namespace, maxTrialCount=LARGE_TRIALS, parallelTrialCount=LARGE_TRIALS)
    in_threads(range(LARGE_TRIALS), lambda number: create_large_trial(plane, owner, number))
    began = time.perf_counter()
    controller = started(plane, "large")
    quiet = until_quiet(controller) - began
    print(f"at rest after               {quiet:.1f} s with {LARGE_TRIALS} trials of {LARGE_BYTES // 1000} KB")
    print(f"writes                      {writes_of(controller)}")
    print_memory("memory after the start", controller)
    lists = requests_of(controller, "list")
    plane.server.expire()
    plane.store.create(a_pod(namespace, 0))  # a watch from before a compaction notices it
    while requests_of(controller, "list") == lists:
        time.sleep(0.2)
    until_quiet(controller)
    print_memory("memory after an expiry", controller)


def pod(rounds: int = 10) -> int:
    """A trial that prints one line, against the bare Job on the same node: from creation to the end, in turns."""
    if not os.environ.get("KUBECONFIG"):
        print("skipped: set KUBECONFIG to a cluster in which the product is installed", file=sys.stderr)
        return 0
    cluster = found_cluster()
    room = cluster.make_namespace("katib-benchmark")
    store = KubernetesStore(open_connection(os.environ["KUBECONFIG"]))
    bare, trials = [], []
    try:
        for number in range(rounds):
            bare.append(bare_job_seconds(store, room.namespace, number))
            trials.append(trial_seconds(store, room, number))
    finally:
        cluster.run("delete", "namespace", room.namespace, "--wait=false")
    more = statistics.median(trials) - statistics.median(bare)
    print(f"bare Job                    {statistics.median(bare):.1f} s median of {rounds}, from created to Complete")
    print(f"Trial                       {statistics.median(trials):.1f} s, from created to Succeeded")
    print(f"more than the bare Job      {more:.1f} s")
    return 0


def bare_job_seconds(store: KubernetesStore, namespace: str, number: int) -> float:
    job = python_job("print('loss=1')")
    listed = store.list(JOB, namespace)
    with store.watch(JOB, listed.resource_version) as watch:
        began = time.perf_counter()
        store.create({**job, "metadata": {"name": f"bare-{number}", "namespace": namespace}})
        return seconds_until(watch, f"bare-{number}", "Complete", began)


def trial_seconds(store: KubernetesStore, room: Room, number: int) -> float:
    """Return the seconds from the creation of an experiment's only trial to its end."""
    name = f"e{number}"
    listed = store.list(TRIAL, room.namespace)
    with store.watch(TRIAL, listed.resource_version) as watch:
        room.apply(experiment(name, python_job("print('loss=1')"), trials=1, parallel=1))
        while (event := watch.next(60)) is not None:
            if event.object["metadata"]["name"].startswith(f"{name}-"):
                break
        else:
            raise SystemExit("no trial was created")
        began = time.perf_counter()
        return seconds_until(watch, event.object["metadata"]["name"], "Succeeded", began)


def seconds_until(watch: Watch, name: str, condition: str, began: float) -> float:
    while (event := watch.next(120)) is not None:
        if event.object["metadata"]["name"] == name and is_true(dict(event.object), condition):
            return time.perf_counter() - began
    raise SystemExit(f"nothing became {condition}")


PARTS: dict[str, Callable[[ControlPlane], None]] = {
    "pace": pace,
    "crowd": crowd,
    "size": size,
    "restart": restart,
    "large": large,
}


# --- measuring --------------------------------------------------------------------------------------------------------


def started(plane: ControlPlane, name: str) -> ControllerProcess:
    controller = plane.controller(name).start()
    while not controller.works():
        if not controller.is_alive:
            raise SystemExit(f"the controller ended:\n{controller.log.read_text()[-2000:]}")
        time.sleep(0.02)
    return controller


def requests_of(controller: ControllerProcess, *verbs: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{controller.metrics_port}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'katib_api_requests_total\{[^}]*resource="([a-z/]+)"[^}]*verb="(\w+)"\} ([\d.e+]+)', text)
    return sum(int(float(number)) for resource, verb, number in found if verb in verbs and resource != "leases")


def writes_of(controller: ControllerProcess) -> int:
    return requests_of(controller, *WRITE_VERBS)


def until_quiet(controller: ControllerProcess, quiet_seconds: float = 2.0) -> float:
    """Return the time of the last write or list, once there was none for a while."""
    seen, since = -1, time.perf_counter()
    while time.perf_counter() - since < quiet_seconds:
        now = requests_of(controller, *WRITE_VERBS, "list")
        if now != seen:
            seen, since = now, time.perf_counter()
        time.sleep(0.05)
    return since


def print_memory(when: str, controller: ControllerProcess) -> None:
    print(f"{when:<27} {memory_mb(controller.pid):.0f} MB, {memory_mb(controller.pid, 'VmHWM'):.0f} MB at its peak")


def in_threads(numbers: Iterable[int], act: Callable[[int], None], threads: int = 8) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(act, numbers):
            pass


def create_large_trial(plane: ControlPlane, owner: Object, number: int) -> None:
    """Create a trial as the controller would; every second one has ended, the others have a running job."""
    made = plane.store.create(large_trial(owner, number))
    if number % 2:
        plane.store.update_status({**made, "status": running()})
        plane.store.create(dict(job_of(Trial.decode(made))))
    else:
        plane.store.update_status({**made, "status": succeeded(f"0.{number}")})


def large_trial(owner: Object, number: int) -> dict[str, Any]:
    raw = owner["spec"]["trialTemplate"]
    reference = {
        "apiVersion": EXPERIMENT.api_version,
        "kind": EXPERIMENT.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    variables = [{"name": f"VARIABLE_{i}", "value": f"value {i} of trial {number}"} for i in range(LARGE_BYTES // 66)]
    return {
        "apiVersion": TRIAL.api_version,
        "kind": TRIAL.kind,
        "metadata": {
            "name": f"large-{number:08}",
            "namespace": owner["metadata"]["namespace"],
            "labels": {"katib.kubeflow.org/experiment": owner["metadata"]["name"]},
            "finalizers": ["clean-metrics-in-db"],
            "ownerReferences": [reference],
        },
        "spec": {
            "objective": owner["spec"]["objective"],
            "parameterAssignments": [{"name": "lr", "value": f"0.{number}"}],
            "runSpec": {**raw["trialSpec"], "spec": {"lr": f"0.{number}", "env": variables}},
            "metricsCollector": {"collector": {"kind": "StdOut"}},
            "primaryContainerName": "main",
            "successCondition": raw["successCondition"],
            "failureCondition": raw["failureCondition"],
        },
    }


def condition(type_: str, status: str = "True") -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    return {"type": type_, "status": status, "reason": f"Trial{type_}", "message": f"Trial is {type_.lower()}", **times}


def running() -> dict[str, Any]:
    created = condition("Created")
    return {"startTime": created["lastUpdateTime"], "conditions": [created, condition("Running")]}


def succeeded(value: str) -> dict[str, Any]:
    end = condition("Succeeded")
    return {
        **running(),
        "completionTime": end["lastUpdateTime"],
        "conditions": [condition("Created"), condition("Running", "False"), end],
        "observation": {"metrics": [{"name": "loss", "min": value, "max": value, "latest": value}]},
    }


def bare_writes(plane: ControlPlane, namespace: str, threads: int = 8, each: int = 60) -> float:
    """Return the writes per second of the API server: objects created, given a status, deleted."""
    numbers = count()
    took: list[float] = []

    def work() -> None:
        for _ in range(each):
            made = plane.store.create(
                {
                    "apiVersion": STAND_IN.api_version,
                    "kind": STAND_IN.kind,
                    "metadata": {"name": f"bare-{next(numbers)}", "namespace": namespace},
                    "spec": {"lr": "0.1"},
                    "status": {},
                }
            )
            began = time.perf_counter()
            plane.store.update({**made, "spec": {"lr": "0.2"}})
            took.append(time.perf_counter() - began)

    plane.stand_ins.outcome = lambda _job: None
    began = time.perf_counter()
    in_threads(range(threads), lambda _number: work(), threads)
    rate = threads * each * 2 / (time.perf_counter() - began)
    print(f"bare write                  {statistics.median(took) * 1000:.1f} ms median, {threads} threads")
    plane.stand_ins.outcome = lambda _job: "0.5"
    plane.stand_ins.moments.clear()
    return rate


def crowd_seconds(plane: ControlPlane, namespace: str, algorithms: list[str]) -> float:
    """Return the seconds until all experiments except those of the silent service have ended."""
    began = time.perf_counter()
    waiting = []
    for number, algorithm in enumerate(algorithms):
        name = f"e{number}"
        plane.submit(
            name,
            namespace,
            maxTrialCount=CROWD_TRIALS,
            parallelTrialCount=5,
            algorithm={"algorithmName": algorithm},
        )
        if algorithm != "silent":
            waiting.append(name)
    for name in waiting:
        if ended(plane.wait_for_end(name, namespace, 300)) != "ExperimentMaxTrialsReached":
            raise SystemExit(f"{name} did not run to its end")
    return time.perf_counter() - began


class SilentService:
    """A suggestion service that accepts connections and never answers."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)


def a_pod(namespace: str, number: int) -> dict[str, object]:
    """Return a trial's pod of realistic size."""
    container = {
        "name": "main",
        "image": "example/training:1",
        "command": ["python", "train.py"],
        "args": [f"--flag-{i}=value-{i}" for i in range(20)],
        "env": [{"name": f"VARIABLE_{i}", "value": f"value {i}"} for i in range(20)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": namespace,
            "labels": {"katib.kubeflow.org/trial": f"other-{number}", "katib.kubeflow.org/experiment": "other"},
            "annotations": {"written": datetime.now(UTC).isoformat()},
        },
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


if __name__ == "__main__":
    sys.exit(main())
