"""Cost of a container trial beyond `podman run` of the same, in turns, one after the other.

Prints milliseconds per Job of one container that prints a metric, and of the bare command. Needs podman; the image is
that of the tests.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.local_jobs import NoMonitors, by_job
from katib.places.machine.containers import choose
from katib.places.machine.containers.choice import RuntimeChoice
from katib.places.machine.jobs.batch.job import JOB
from tests.support import podman
from tests.support.local_jobs import home
from tests.support.memory_store import MemoryStore

ROUNDS = 15
COMMAND = ["/bin/echo", "loss=1"]


def main() -> int:
    try:
        variables = podman.environment()
    except LookupError as reason:
        print(f"left out: {reason}")
        return 0
    environment = {**os.environ, **variables}
    bare_times, job_times = [], []
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        images = choose(RuntimeChoice.PODMAN, environment, root)
        store = MemoryStore({JOB})
        with home(root, store=store, monitors=NoMonitors(), machine={"images": images}):
            run = by_job(store, container)
            for number in range(ROUNDS):
                begin = time.perf_counter()
                subprocess.run(BARE, env=environment, stdout=subprocess.PIPE, check=True)
                middle = time.perf_counter()
                run(number)
                bare_times.append(1000 * (middle - begin))
                job_times.append(1000 * (time.perf_counter() - middle))
    bare, whole = statistics.median(bare_times), statistics.median(job_times)
    more = statistics.median(job - alone for job, alone in zip(job_times, bare_times, strict=True))
    print(f"podman run {bare:.0f} ms, a Job in its image {whole:.0f} ms, {more:.0f} ms more (medians of {ROUNDS})")
    return 0


BARE = ["podman", "run", "--rm", "--network", "host", "--log-driver", "none", "--init", podman.IMAGE, *COMMAND]


def container() -> dict[str, Any]:
    return {"name": "main", "image": podman.IMAGE, "command": COMMAND}


if __name__ == "__main__":
    sys.exit(main())
