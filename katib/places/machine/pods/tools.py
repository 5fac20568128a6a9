"""The tools of all pods of a controller, and the eviction of a pod that has filled the disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from katib.engine.runtime.clock import Clock, SteadyTime
from katib.model.loadable import Deferred
from katib.places.machine.pods.log_file import LogLimits
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.plans import PodPlan
from katib.places.machine.pods.records import Delays
from katib.places.machine.pods.requests import Capacity
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.peek import PipePeeker

if TYPE_CHECKING:
    from katib.places.machine.pods.pulls import ImagePulls
    from katib.places.machine.pods.tokens import Tokens

LEAST_SHARE = 0.1
"""Of the disk. A pod that wrote less has not filled it, and ending it would free little."""


class Evictable(Protocol):
    """A pod, as far as its use of the disk is concerned.

    Attributes:
        evicted: Why it is being ended; empty while it is not.
    """

    plan: PodPlan
    evicted: str

    @property
    def log_bytes(self) -> int:
        """The size of its output on the disk."""

    def files(self) -> Mapping[Path, int]:
        """Return its other files on the disk and their sizes. For any thread."""

    def evict(self, cause: str) -> None:
        """End it for good."""


class Evictions:
    """Ends pods when the disk is full, one after the other. Lives on the loop.

    Args:
        reserve: A file that reserves room for the record of the end of a pod.

    Attributes:
        running: The pods that have a lease, by uid; they enter and leave by themselves.
    """

    def __init__(self, reserve: Path | None = None) -> None:
        self._reserve = reserve
        self.running: dict[str, Evictable] = {}

    def files(self) -> dict[str, Mapping[Path, int]]:
        """Return the files of all pods by uid, but for their output. For any thread."""
        return {uid: pod.files() for uid, pod in list(self.running.items())}

    def disk_full(self, files: Mapping[str, Mapping[Path, int]] = MappingProxyType({})) -> None:
        """End the pod that has written most, unless none wrote much or one is being ended already.

        Args:
            files: As `files` returns them; without them, output alone counts.
        """
        pods = list(self.running.values())
        if not pods or any(pod.evicted for pod in pods):
            return
        written = {pod.plan.uid: sum(files.get(pod.plan.uid, {}).values()) for pod in pods}
        pod = max(pods, key=lambda pod: pod.log_bytes + written[pod.plan.uid])
        output, others = pod.log_bytes, written[pod.plan.uid]
        try:
            disk = os.statvfs(pod.plan.directory)
        except OSError:
            return
        if output + others < LEAST_SHARE * disk.f_blocks * disk.f_frsize:
            return
        if self._reserve is not None:
            with suppress(OSError):
                self._reserve.unlink()
        name = f"the disk is full, and pod {pod.plan.name} has filled it with"
        if output >= others:
            remedy = "print less, or set containerLogMaxSize and containerLogMaxFiles to less"
            pod.evict(f"{name} {_mebibytes(output)} of output; {remedy}")
        else:
            path, size = max(files[pod.plan.uid].items(), key=lambda item: item[1])
            fate = ", which is removed" if path.is_relative_to(pod.plan.directory) else ""
            named = f"the largest is {path} with {_mebibytes(size)}{fate}"
            pod.evict(f"{name} {_mebibytes(others)} of files; {named}; write less, or to another disk")


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


@dataclass(frozen=True, slots=True)
class PodTools:
    """The tools of every pod of a controller.

    Attributes:
        tokens: Leases them to pods that request any.
        images: Fetches images, and knows their runtime; None: containers are processes.
        log_limits: How much of the output of each container is kept.
        peek: Reads pipes so that nothing is lost when this process is killed; None if the kernel cannot.
        evictions: End the pod that has filled the disk.
    """

    loop: Loop
    processes: Processes
    capacity: Capacity
    tokens: Deferred[Tokens]
    clock: Clock
    steady: SteadyTime
    delays: Delays
    images: ImagePulls | None = None
    log_limits: LogLimits = field(default_factory=LogLimits)
    peek: PipePeeker | None = None
    evictions: Evictions = field(default_factory=Evictions)
