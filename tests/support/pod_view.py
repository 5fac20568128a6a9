"""`python -m tests.support.pod_view ROOT,OTHERS ...`: the collector, to which children of process ROOT look like a pod.

In a pod whose containers share their processes, the first process of each container has no parent that can be seen, and
nothing of the node can be seen at all. Here the containers are children of the test's process: to the collector their
parent is 0, and only what is below them exists. OTHERS are children that are no containers, such as a SQL server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from katib.local.processes.proc import children
from metrics_collector import container_processes
from metrics_collector.container_processes import PROC, Process

Read = Callable[..., Process | None]


def pod_command(*arguments: str) -> list[str]:
    """Return the command of a collector whose pod is what this process starts from now on."""
    family = ",".join(map(str, [os.getpid(), *children(os.getpid())]))
    return [sys.executable, "-m", "tests.support.pod_view", family, *arguments]


def seen_from_a_pod(read: Read, root: int, others: Sequence[int]) -> Read:
    """Return a reader of processes that shows the children of a process as the containers of a pod, but the others."""

    def read_process(pid: int, proc: Path = PROC) -> Process | None:
        process = read(pid, proc)
        if process is None or not _is_below(read, process, root, others):
            return None
        return process._replace(parent=0) if process.parent == root else process

    return read_process


def _is_below(read: Read, process: Process, root: int, others: Sequence[int]) -> bool:
    while process.parent not in (0, root):
        parent = read(process.parent)
        if parent is None:
            return False
        process = parent
    return process.parent == root and process.pid not in others


if __name__ == "__main__":
    root, *others = map(int, sys.argv[1].split(","))
    container_processes.read_process = seen_from_a_pod(container_processes.read_process, root, others)
    from metrics_collector.__main__ import main

    sys.exit(main(sys.argv[2:]))
