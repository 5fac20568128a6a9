"""Cost of replicas beyond their processes: from creating the job objects until every process has started.

Three sizes: a PyTorchJob of a master and two workers (median of several), one job of 200 replicas, and 50 jobs of 4
replicas at once. For comparison the same processes started with `subprocess`, and the growth of our memory. A process
has started when it has created its file.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.local_jobs import NoMonitors
from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import Key, Kind, ObjectStore
from katib.engine.stores.sql import SqlStore
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.jobs.kinds import JobKinds
from tests.support.local_jobs import home

ROUNDS = 20
PATIENCE_SECONDS = 300.0
PYTORCHJOB = Kind("kubeflow.org/v1", "PyTorchJob")


def command(directory: Path, name: str) -> list[str]:
    return ["sh", "-c", f"touch {directory}/{name}-$RANK; exec sleep 600"]


def job(name: str, workers: int, directory: Path) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "none", "command": command(directory, name)}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    replica = {"restartPolicy": "Never", "template": template}
    return {
        "apiVersion": PYTORCHJOB.api_version,
        "kind": PYTORCHJOB.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "pytorchReplicaSpecs": {"Master": {**replica, "replicas": 1}, "Worker": {**replica, "replicas": workers}}
        },
    }


def wait_for_files(directory: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(1 for _ in directory.iterdir()) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {sum(1 for _ in directory.iterdir())} of {count} processes began")
        time.sleep(0.001)


def ours(
    store: ObjectStore, runner: JobController, jobs: Sequence[dict[str, Any]], directory: Path, count: int
) -> float:
    begin = time.perf_counter()
    for obj in jobs:
        store.create(obj)
    wait_for_files(directory, count)
    took = time.perf_counter() - begin
    for obj in jobs:
        key = Key("default", obj["metadata"]["name"])
        store.delete(PYTORCHJOB, key)
        runner.wait_until_gone(key, PATIENCE_SECONDS)
    return took


def bare(directory: Path, count: int) -> float:
    begin = time.perf_counter()
    processes = [subprocess.Popen(["sh", "-c", f"touch {directory}/{i}; exec sleep 600"]) for i in range(count)]
    wait_for_files(directory, count)
    took = time.perf_counter() - begin
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, numbers = Path(folder), iter(range(10_000))
        kinds = JobKinds()
        with ExitStack() as stack:
            database = stack.enter_context(open_database(root / "objects.db"))
            store = SqlStore(database, set(kinds))
            runner = stack.enter_context(home(root, store=store, monitors=NoMonitors())).runner

            def measured(jobs: int, workers: int) -> tuple[float, float]:
                number, count = next(numbers), jobs * (workers + 1)
                one, other = root / f"ours-{number}", root / f"bare-{number}"
                one.mkdir()
                other.mkdir()
                objects = [job(f"j{number}-{i}", workers, one) for i in range(jobs)]
                return ours(store, runner, objects, one, count), bare(other, count)

            measured(1, 2)
            pairs = [measured(1, 2) for _ in range(ROUNDS)]
            mine, theirs = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
            print(f"1 + 2 replicas: {mine:.0f} ms, bare {theirs:.0f} ms, {mine - theirs:.0f} ms more")
            for jobs, workers in ((1, 199), (50, 3)):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                mine, theirs = measured(jobs, workers)
                grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
                print(
                    f"{jobs} jobs of {workers + 1} replicas: {mine:.2f} s, bare {theirs:.2f} s, "
                    f"{mine - theirs:.2f} s more; memory grew by {grown:.0f} MB"
                )


if __name__ == "__main__":
    main()
