"""The processes of a pod with a shared process namespace, from /proc.

Process 1 is Kubernetes' own. The first process of each container has no visible parent: its parent is 0.

The guard of one machine has its own reader (`katib.places.machine.processes.proc`): it asks the kernel for the children
of one process, whereas this one takes a snapshot of all, and it is loaded without any other file of ours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

_KUBERNETES_OWN = 1


class ContainerProcess(NamedTuple):
    """A process. Its number may be reused; number and start time together are its identity."""

    pid: int
    parent: int
    started: int


def read_process(pid: int, proc: Path = PROC) -> ContainerProcess | None:
    try:
        # The command's name is in parentheses and may itself contain blanks and parentheses.
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else ContainerProcess(pid, int(fields[1]), int(fields[19]))


def all_processes(proc: Path = PROC) -> dict[int, ContainerProcess]:
    """Return all running processes by number, except this one."""
    try:
        pids = [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - a third of the cost
    except OSError:
        return {}
    found = (read_process(pid, proc) for pid in pids if pid != os.getpid())
    return {process.pid: process for process in found if process is not None}


def command_line(pid: int, proc: Path = PROC) -> bytes:
    """Return the arguments of a process, each terminated by a zero byte; empty if it has ended or is the kernel's."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def wrappers(processes: Mapping[int, ContainerProcess], text: bytes, proc: Path = PROC) -> list[ContainerProcess]:
    """Return the processes whose command line contains a text, without their children that also match."""
    found = {pid for pid in processes if text in command_line(pid, proc)}
    return [processes[pid] for pid in sorted(found) if processes[pid].parent not in found]


def descendants(processes: Mapping[int, ContainerProcess], ancestor: int) -> list[ContainerProcess]:
    """Return all descendants, parents before children."""
    children: dict[int, list[ContainerProcess]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(ancestor, ()))
    for process in found:  # the list grows during the loop
        found += children.get(process.pid, ())
    return found


def other_containers(proc: Path = PROC) -> list[ContainerProcess]:
    """Return the first process of each running container, except Kubernetes' own and ours."""
    ours: set[int] = set()
    process = read_process(os.getpid(), proc)
    while process is not None and process.pid not in ours:
        ours.add(process.pid)
        process = read_process(process.parent, proc)
    firsts = [process for process in all_processes(proc).values() if process.parent == 0]
    return [process for process in firsts if process.pid != _KUBERNETES_OWN and process.pid not in ours]
