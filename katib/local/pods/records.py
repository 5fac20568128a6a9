"""Values that pods share with those who make them: what is known about a pod, and how long failures make it wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from katib.backoff import Backoff


class Phase(StrEnum):
    """Where a pod stands, in Kubernetes' words."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """The end of one container: its exit code, and in words what happened (`exited with 3`).

    Attributes:
        lost: It ended with the guard that had started it, through no fault of its own.
    """

    container: str
    code: int
    text: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod at one moment.

    Attributes:
        name: Unique within the job.
        index: Completion index or replica index; None when its job does not number its pods.
        phase: Succeeded and Failed are final: no process is left and all metrics are stored.
        stopping: It was told to end, by the job and not by itself.
        restarts: How often containers were started again in place.
        failures: How often in a row a container failed that is started again in place, without a long run between.
        finished_at: When it became Succeeded or Failed, in steady time.
        exits: How its containers ended last, those that did.
        message: Which container ended how; the reason why a pod failed.
        last_output: The last line that the container printed which `message` speaks of first.
        address_in_use: A container that failed said that somebody else has its port.
        cannot_start: Why no further pod of the job could start either, such as a missing command; empty otherwise.
        verdict: Why its trial is stopped early; empty otherwise.
        explanation: What the monitor says about missing metrics; empty when there are none missing.
        waiting: What it waits for before it can start; empty when it does not wait.
        role: Replica type, or name of the replicated job; empty where all pods of a job are alike.
    """

    name: str
    index: int | None = None
    phase: Phase = Phase.PENDING
    stopping: bool = False
    restarts: int = 0
    failures: int = 0
    finished_at: datetime | None = None
    exits: tuple[ContainerExit, ...] = ()
    message: str = ""
    last_output: str = ""
    address_in_use: bool = False
    cannot_start: str = ""
    verdict: str = ""
    explanation: str = ""
    waiting: str = ""
    role: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more happens to it."""
        return self.phase in {Phase.SUCCEEDED, Phase.FAILED}


@dataclass(frozen=True, slots=True)
class Delays:
    """The back-off of Kubernetes: of the Job controller for new pods, of the kubelet for restarts in place.

    Attributes:
        recreate: Before a new pod, by failures in a row.
        restart: Before a restart, by the restarts that were made already: the first is immediate.
        restart_reset_seconds: A container that ran for so long has its restarts forgiven.
    """

    recreate: Backoff = Backoff(10.0, 600.0)
    restart: Backoff = Backoff(10.0, 300.0)
    restart_reset_seconds: float = 600.0
