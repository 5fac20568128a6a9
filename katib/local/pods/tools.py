"""What all pods of a controller use: among it what ends the pod whose output has filled the disk."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Protocol

from katib.local.pods.log_file import LogLimits
from katib.local.pods.loop import Loop
from katib.local.pods.objects import PodPlan
from katib.local.pods.pulls import ImagePulls
from katib.local.pods.records import Delays
from katib.local.pods.tokens import Tokens
from katib.local.processes.client import Processes
from katib.local.processes.peek import Peek
from katib.runtime.clock import Clock, SteadyTime

LEAST_SHARE = 0.1
"""Of the disk. A pod that printed less has not filled it, and ending it would free little."""


class Evictable(Protocol):
    """A pod, as far as its output is concerned.

    Attributes:
        plan: Of the pod.
        evicted: Why it is being ended; empty while it is not.
    """

    plan: PodPlan
    evicted: str

    @property
    def log_bytes(self) -> int:
        """What its output takes on the disk."""

    def evict(self, cause: str) -> None:
        """End it for good."""


class Evictions:
    """Ends pods when the disk is full, one after the other. Lives on the loop.

    Attributes:
        running: The pods that have a lease, by uid; they enter and leave by themselves.
    """

    def __init__(self) -> None:
        self.running: dict[str, Evictable] = {}

    def disk_full(self) -> None:
        """End the pod that has printed most, unless none printed much or one is being ended already."""
        pods = list(self.running.values())
        if not pods or any(pod.evicted for pod in pods):
            return
        pod = max(pods, key=lambda pod: pod.log_bytes)
        try:
            disk = os.statvfs(pod.plan.directory)
        except OSError:
            return
        if pod.log_bytes >= LEAST_SHARE * disk.f_blocks * disk.f_frsize:
            mebibytes = f"{pod.log_bytes / 2**20:.1f} MiB"
            pod.evict(
                f"the disk is full, and pod {pod.plan.name} has filled it with {mebibytes} of output; "
                "print less, or set containerLogMaxSize and containerLogMaxFiles to less"
            )


@dataclass(frozen=True, slots=True)
class PodTools:
    """What every pod of a controller uses.

    Attributes:
        images: Fetches images, and knows what runs them; None: containers are processes.
        log_limits: How much of the output of each container is kept.
        peek: Reads pipes so that nothing is lost when this process is killed; None where the kernel cannot.
        evictions: End the pod whose output has filled the disk.
    """

    loop: Loop
    processes: Processes
    tokens: Tokens
    clock: Clock
    steady: SteadyTime
    delays: Delays
    images: ImagePulls | None = None
    log_limits: LogLimits = field(default_factory=LogLimits)
    peek: Peek | None = None
    evictions: Evictions = field(default_factory=Evictions)
