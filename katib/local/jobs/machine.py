"""What jobs run on, and the limits that hold for all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from katib.local.pods.environment import ContainerCommand
from katib.local.pods.images import ImageRun, ImageRuntime
from katib.local.pods.log_file import LogLimits
from katib.local.pods.loop import Loop
from katib.local.pods.place import PodPlace
from katib.local.pods.records import Delays
from katib.local.pods.tokens import Capacity, Table
from katib.local.processes.client import Processes
from katib.runtime.clock import Clock, SteadyTime

SETTLE_SECONDS = 0.1
"""How long a status that is not final must hold before it is worth a write: a tiny trial is over by then, on a machine
that is busy, too. A write costs a turn of every watcher of jobs, and none of them needs it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What pods run on.

    Attributes:
        processes: Starts processes; its owner starts it before the jobs and stops it after them.
        clock: Time.
        capacity: What pods may lease.
        images: Runs containers in their images; None: they are processes of this machine.
        leases: What other engines hold of this machine; None: there are none.
        place: Makes where pods run otherwise than here, from the loop and the time of all pods; None: they run here.
        node_images: There, what a node executes for an image that is to run, our environment and a container of a
            template; None: the command is a process of the node.
    """

    processes: Processes
    clock: Clock
    capacity: Capacity = field(default_factory=Capacity.of_machine)
    images: ImageRuntime | None = None
    leases: Table | None = None
    place: Callable[[Loop, SteadyTime], PodPlace[Any]] | None = None
    node_images: Callable[[ImageRun, Mapping[str, str], Mapping[str, Any]], ContainerCommand] | None = None

    @property
    def runs_images(self) -> bool:
        """Whether containers run in their images."""
        return self.images is not None or self.node_images is not None


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings and limits of all jobs.

    Attributes:
        root: Directory of the pods' directories: `root/<namespace>/<job>/<pod>/`.
        inherited: What the environment of processes starts from.
        visible: Files of ours that a variable of a container may name.
        delays: How long failures make wait.
        log_limits: How much of the output of a container is kept.
        settle_seconds: How long a passing status must hold before it is written.
    """

    root: Path
    inherited: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    visible: tuple[Path, ...] = ()
    delays: Delays = field(default_factory=Delays)
    log_limits: LogLimits = field(default_factory=LogLimits)
    settle_seconds: float = SETTLE_SECONDS
