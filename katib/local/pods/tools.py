"""What all pods of a controller use."""

from __future__ import annotations

from dataclasses import dataclass, field

from katib.local.pods.evictions import Evictions
from katib.local.pods.images import ImageRuntime
from katib.local.pods.log_file import LogLimits
from katib.local.pods.loop import Loop
from katib.local.pods.peek import Peek
from katib.local.pods.pulls import ImagePulls
from katib.local.pods.records import Delays
from katib.local.pods.tokens import Tokens
from katib.local.processes.client import Processes
from katib.runtime.clock import Clock, SteadyTime


@dataclass(frozen=True, slots=True)
class Logs:
    """How the output of containers is kept.

    Attributes:
        limits: Of each container.
        evictions: End the pod whose output has filled the disk.
        peek: Reads pipes so that nothing is lost when this process is killed; None where the kernel cannot.
    """

    limits: LogLimits = field(default_factory=LogLimits)
    evictions: Evictions = field(default_factory=Evictions)
    peek: Peek | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """What runs images and fetches them."""

    runtime: ImageRuntime
    pulls: ImagePulls


@dataclass(frozen=True, slots=True)
class PodTools:
    """What every pod of a controller uses."""

    loop: Loop
    processes: Processes
    tokens: Tokens
    clock: Clock
    steady: SteadyTime
    delays: Delays
    images: Images | None = None
    logs: Logs = field(default_factory=Logs)
