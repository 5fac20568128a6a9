"""Speed of the object store for writes, lists and notifications, against bare sqlite3 on the same file system.

    python -m benchmarks.object_store [--objects 2000]

- `sqlite3`: the lower limit of any store: the JSON text of a Trial inserted or updated in one table, one commit each.
- `sql store`: create, status update, metadata update, get and delete of Trials with labels and an owner.
- `list`: 10 Trials of one experiment found among all others by label, and all of them.
- `told`: from the start of a write to the worker that reconciles it, through watch, informer and work queue, when idle.

A write of the store also compares revisions, counts the revision up, keeps labels and owners searchable and looks for
garbage; the target is 0.3 ms for each.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.support import options
from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.controller import DONE, Controller, Manager, ReconcileResult
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.stores.sql import SqlStore

TARGET_MS = 0.3
LABEL = "katib.kubeflow.org/experiment"
EXPERIMENT = Kind("kubeflow.org/v1beta1", "Experiment")
TRIAL = Kind("kubeflow.org/v1beta1", "Trial")
SPEC = {
    "objective": {"type": "minimize", "goal": 0.01, "objectiveMetricName": "loss"},
    "parameterAssignments": [{"name": f"p{number}", "value": "0.12345"} for number in range(5)],
    "runSpec": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"template": {"spec": {"containers": [{"name": "main", "command": ["sh", "-c", "echo loss=1"]}]}}},
    },
}
CONDITION = {"type": "Running", "status": "True", "reason": "TrialRunning", "message": "Trial is running"}


def trial(number: int, owner: Object) -> dict[str, Any]:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": "e", "uid": owner["metadata"]["uid"]}
    labels = {LABEL: f"e-{number // 10}", "team": "research"}
    metadata = {"name": f"t-{number}", "namespace": "default", "labels": labels, "ownerReferences": [reference]}
    return {"apiVersion": TRIAL.api_version, "kind": TRIAL.kind, "metadata": metadata, "spec": SPEC}


def per_call(action: Callable[[int], object], count: int) -> float:
    """Return the median over tenths of the mean time of a call, in ms, which reduces the effect of other load."""
    means = []
    for tenth in range(10):
        numbers = range(tenth * count // 10, (tenth + 1) * count // 10)
        began = time.perf_counter()
        for number in numbers:
            action(number)
        means.append((time.perf_counter() - began) / len(numbers) * 1e3)
    return statistics.median(means)


def measure_sqlite3(path: Path, count: int) -> dict[str, float]:
    text = json.dumps(trial(0, {"apiVersion": "v", "kind": "k", "metadata": {"uid": "u"}}))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("CREATE TABLE objects (name TEXT PRIMARY KEY, body TEXT)")
    figures = {
        "create": per_call(lambda n: connection.execute("INSERT INTO objects VALUES (?, ?)", (f"t-{n}", text)), count),
        "update_status": per_call(
            lambda n: connection.execute("UPDATE objects SET body = ? WHERE name = ?", (f"{text} ", f"t-{n}")), count
        ),
    }
    connection.close()
    return figures


def measure_store(store: ObjectStore, count: int) -> dict[str, float]:
    owner = store.create({"apiVersion": EXPERIMENT.api_version, "kind": EXPERIMENT.kind, "metadata": {"name": "e"}})
    kept: dict[int, Object] = {}

    def create(number: int) -> None:
        kept[number] = store.create(trial(number, owner))

    def update_status(number: int) -> None:
        kept[number] = store.update_status({**kept[number], "status": {"conditions": [CONDITION] * 2}})

    def update(number: int) -> None:
        metadata = {**kept[number]["metadata"], "annotations": {"note": "x"}}
        kept[number] = store.update({**kept[number], "metadata": metadata})

    return {
        "create": per_call(create, count),
        "update_status": per_call(update_status, count),
        "update": per_call(update, count),
        "get": per_call(lambda number: store.get(TRIAL, Key("default", f"t-{number}")), count),
        "list 10 by label": per_call(lambda number: store.list(TRIAL, labels={LABEL: f"e-{number % 20}"}), 200),
        "list all": per_call(lambda _number: store.list(TRIAL), 10),
        "delete": per_call(lambda number: store.delete(TRIAL, Key("default", f"t-{number}")), count),
    }


def measure_latency(store: ObjectStore, count: int) -> list[float]:
    """Return, sorted, the ms from a create to the start of its reconcile."""
    arrived = threading.Event()
    moments: list[float] = []

    def reconcile(_key: Key) -> ReconcileResult:
        moments.append(time.perf_counter())
        arrived.set()
        return DONE

    owner = store.create({"apiVersion": EXPERIMENT.api_version, "kind": EXPERIMENT.kind, "metadata": {"name": "told"}})
    controller = Controller("trials", reconcile)
    informer = Informer(store, TRIAL, lambda obj: obj)
    informer.add_handler(lambda event: controller.queue.add(event.key))
    delays = []
    with Manager([informer], [controller]):
        for number in range(count):
            arrived.clear()
            began = time.perf_counter()
            store.create(trial(number, owner))
            arrived.wait(10)
            delays.append((moments[-1] - began) * 1e3)
    return sorted(delays)


def main() -> None:
    count = options(__doc__, objects=2000).objects
    with tempfile.TemporaryDirectory() as directory:
        bare = measure_sqlite3(Path(directory) / "bare.db", count)
        with open_database(Path(directory) / "store.db") as database:
            store = SqlStore(database, [EXPERIMENT, TRIAL])
            figures = measure_store(store, count)
            delays = measure_latency(store, 300)
    print(f"{'':18}{'store ms':>10}{'sqlite3 ms':>12}{'ratio':>8}{'per second':>12}")
    for name, value in figures.items():
        against = f"{bare[name]:12.3f}{value / bare[name]:8.1f}" if name in bare else f"{'':20}"
        print(f"{name:18}{value:10.3f}{against}{1000 / value:12.0f}")
    print(f"told: median {delays[len(delays) // 2]:.2f} ms, 99 % within {delays[int(len(delays) * 0.99)]:.2f} ms")
    slow = [name for name in ("create", "update_status", "update") if figures[name] > TARGET_MS]
    print(f"target {TARGET_MS} ms for a write: {'missed by ' + ', '.join(slow) if slow else 'met'}")


if __name__ == "__main__":
    main()
