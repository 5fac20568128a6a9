"""Capacity of this machine for trials."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from katib.places.machine.pods.environment import provided_commands
from katib.places.machine.pods.requests import Capacity, Limit

GIB = 2**30

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 2**60
"""Version 1 of control groups represents "no limit" by a number near 2**63."""


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """Maximum of what can be requested.

    Attributes:
        cpus: Cores that this process may use.
        memory_bytes: Memory that this process may use.
        search_path: Search path of commands without a slash, as in `PATH`.
        provided: Commands that are always available.
        names_pods: Whether pods of a job can then have names in a network of their own.
        limits: Which of `cpu` and `memory` are then limited.
        is_scheduled: Whether the scheduler of a cluster decides about requests, and not this machine.
    """

    cpus: float
    memory_bytes: int
    gpus: int = 0
    user_id: int = 0
    group_id: int = 0
    search_path: str = os.defpath
    provided: frozenset[str] = frozenset()
    runs_images: bool = False
    names_pods: bool = False
    limits: frozenset[str] = frozenset()
    is_scheduled: bool = False

    @classmethod
    def detect(cls) -> HostCapacity:
        """Detect this machine's capacity, within the limits of its container or service manager."""
        capacity, group = Capacity.of_machine(), _own_cgroup()
        cores, memory = float(capacity.cpu), int(capacity.memory)
        return cls(
            cpus=min([cores, *cpu_quotas(_CGROUP, group).values()]),
            memory_bytes=min([memory, *memory_limits(_CGROUP, group).values()]),
            gpus=len(capacity.gpus),
            user_id=os.geteuid(),
            group_id=os.getegid(),
            search_path=os.environ.get("PATH", os.defpath),
            provided=provided_commands(os.environ),
        )


def of_slurm(host: HostCapacity) -> HostCapacity:
    """Return the capacity for trials that run as jobs of Slurm, seen from a login node."""
    return replace(host, gpus=0, limits=frozenset({"cpu", "memory"}), is_scheduled=True)


@dataclass(frozen=True, slots=True)
class CommandEnvironment:
    """Environment of the commands of a container.

    Attributes:
        workspace: Directory of relative paths; None if unknown.
        is_settled: Whether the container will find the present files; an init container may add some.
    """

    capacity: HostCapacity
    workspace: Path | None = None
    is_settled: bool = True


def group_limits() -> tuple[Limit, ...]:
    """Return the limits of this process's control groups, which apply to all their members, such as another engine."""
    group = _own_cgroup()
    found: list[Limit] = []
    for resource, limits in (("cpu", cpu_quotas(_CGROUP, group)), ("memory", memory_limits(_CGROUP, group))):
        for directory, amount in limits.items():
            place = directory.stat()  # its path may differ in another container
            found.append(Limit(f"{place.st_dev}:{place.st_ino}", resource, Decimal(str(amount))))
    return tuple(found)


def cpu_quotas(root: Path, group: str) -> dict[Path, float]:
    """Return the limits in cores of the control groups above and at `group`, without unlimited ones."""
    found: dict[Path, float | None] = {}
    for directory in _with_parents(root, group):
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        found[directory] = _ratio(quota, period)
    quota, period = _read(root / "cpu/cpu.cfs_quota_us"), _read(root / "cpu/cpu.cfs_period_us")
    found[root / "cpu"] = _ratio(quota, period)
    return {directory: limit for directory, limit in found.items() if limit}


def memory_limits(root: Path, group: str) -> dict[Path, int]:
    """Return the limits in bytes of the control groups above and at `group`, without unlimited ones."""
    texts = {directory: _read(directory / "memory.max") for directory in _with_parents(root, group)}
    texts[root / "memory"] = _read(root / "memory/memory.limit_in_bytes")
    return {path: int(text) for path, text in texts.items() if text.isdigit() and int(text) < _UNLIMITED}


def _with_parents(root: Path, group: str) -> list[Path]:
    directory = root / group.lstrip("/")
    return [directory, *(parent for parent in directory.parents if parent.is_relative_to(root))]


def _own_cgroup() -> str:
    lines = _read(Path("/proc/self/cgroup")).splitlines()
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")


def _ratio(quota: str, period: str) -> float | None:
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""
