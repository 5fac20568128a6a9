"""Cost of a Job beyond its command: one after the other, from creating the object to its Complete condition.

Prints milliseconds per job of `sh -c 'echo loss=1'` in memory and in SQLite, beside a bare loop of the same command.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import Object, ObjectStore
from katib.engine.stores.sql import SqlStore
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.conditions import end_of
from tests.support.local_jobs import Monitors, home
from tests.support.memory_store import MemoryStore

ROUNDS = 300
COMMAND = ["sh", "-c", "echo loss=1"]


class NoMonitors(Monitors):
    """Ignores the output."""

    def open(self, _job: Object, _labels: dict[str, str], _container: str, _directory: Path) -> None:
        """Return nothing."""


def process() -> dict[str, Any]:
    return {"name": "main", "command": COMMAND}


def job(number: int, container: dict[str, Any]) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [container]}
    metadata = {"name": f"job-{number}", "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def by_job(store: ObjectStore, container: Callable[[], dict[str, Any]] = process) -> Callable[[int], None]:
    watch = store.watch(JOB, store.list(JOB).resource_version)

    def run(number: int) -> None:
        store.create(job(number, container()))
        while (event := watch.next(10)) is not None and end_of(event.object.get("status") or {}) is None:
            pass

    return run


def bare(_number: int) -> None:
    subprocess.run(COMMAND, stdout=subprocess.PIPE, check=True)


def measure(name: str, run: Callable[[int], None]) -> None:
    times = []
    own = time.process_time()
    for number in range(ROUNDS):
        begin = time.perf_counter()
        run(number)
        times.append(1000 * (time.perf_counter() - begin))
    own = 1000 * (time.process_time() - own) / ROUNDS
    print(
        f"{name}: median {statistics.median(times):.2f} ms, mean {statistics.mean(times):.2f} ms, own CPU {own:.2f} ms"
    )


def main() -> None:
    measure("bare loop", bare)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        memory = MemoryStore({JOB})
        with home(root / "memory", store=memory, monitors=NoMonitors()):
            measure("in memory", by_job(memory))
        with open_database(root / "objects.db") as database:
            sql = SqlStore(database, {JOB})
            with home(root / "sql", store=sql, monitors=NoMonitors()):
                measure("in SQLite", by_job(sql))


if __name__ == "__main__":
    main()
