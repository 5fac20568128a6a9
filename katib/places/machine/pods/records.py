"""Values that pods share with their makers: the record of a pod, and its pauses after failures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from katib.errors import Backoff
from katib.model.failure_text import pod_title

PREEMPTED, ALLOCATION_ENDED = "Preempted", "AllocationEnded"
UNCOUNTED = frozenset({PREEMPTED, ALLOCATION_ENDED})
"""Reasons of a pod that had to make room for others: no failure, however often it happens."""

RESUMED = UNCOUNTED | {"DeadlineExceeded", "NodeLost"}
"""Reasons after which a trial continues from the checkpoint that it keeps for its algorithm."""


class PodPhase(StrEnum):
    """The phase of a pod, in Kubernetes' words."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    def __init__(self, word: str) -> None:
        self.is_final = word in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """The end of one container: its exit code, also in words (`exited with 3`).

    Attributes:
        lost: It ended with the guard that had started it, through no fault of its own.
        out_of_memory: It was killed because it took more memory than its limit.
    """

    container: str
    code: int
    text: str
    lost: bool = False
    out_of_memory: bool = False


class EarlierEnd(NamedTuple):
    """The end of the process of a container before it was started again.

    Attributes:
        began: When it had started, on the monotonic clock.
        output: The last line that it printed; empty when it did not fail.
    """

    exit: ContainerExit
    began: float
    ended: float | None
    output: str


class ContainerState(NamedTuple):
    """A container at one moment. Times are of the monotonic clock; None: not yet.

    Attributes:
        name: In the template.
        is_main: Whether it is one of the pod's main containers, and no init container or sidecar.
        pid: Of its process that runs or ran last; 0 while it has had none.
        restarts: How often it was started again.
        began: When its last process started.
        ended: When that one ended; None while it runs.
        exit: How a process of it ended last.
        is_over: Whether it will not run any more.
        earlier: How the process before the last restart ended, or the one after which it is to be started again.
    """

    name: str
    is_main: bool
    pid: int
    restarts: int
    began: float | None
    ended: float | None
    exit: ContainerExit | None
    is_over: bool
    earlier: EarlierEnd | None = None

    @property
    def is_running(self) -> bool:
        return self.began is not None and self.ended is None


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod at one moment.

    Attributes:
        name: Unique within the job.
        index: Completion index or replica index; None when its job does not number its pods.
        phase: Succeeded and Failed are final: no process is left and all metrics are stored.
        stopping: It was ended by the job and not by itself.
        restarts: How often containers were started again in place.
        restart_due: Whether a container of it failed and waits for its restart.
        failures: How often in a row a container failed that is started again in place, without a long run between.
        started_at: When its first process started, in steady time.
        finished_at: When it became Succeeded or Failed, in steady time.
        exits: How its containers ended last, those that did.
        message: Which container ended how; the reason why a pod failed.
        last_output: The last line that the container printed which `message` speaks of first.
        address_in_use: A container that failed said that its port is taken.
        cannot_start: Why no further pod of the job could start either, such as a missing command; empty otherwise.
        evicted: Why it was ended, if it took resources from others, and would again; empty otherwise.
        reason: The outside cause of its end, as one word such as `NodeLost`; empty otherwise.
        verdict: Why its trial is stopped early; empty otherwise.
        explanation: The monitor's explanation of missing metrics; empty if no metric is missing.
        waiting: The reason for waiting before its start; empty if it does not wait.
        place: Its node and cards, such as `on GPU 0`; empty if there is no choice.
        pulling: The image that is fetched for it now; empty when none is.
        role: Replica type, or name of the replicated job; empty if all pods of a job are alike.
        replica: Its name if its job has several pods, as `worker-1`; empty if it is alone.
        containers: How each of its containers is; empty until the first one has run.
    """

    name: str
    index: int | None = None
    phase: PodPhase = PodPhase.PENDING
    stopping: bool = False
    restarts: int = 0
    restart_due: bool = False
    failures: int = 0
    finished_at: datetime | None = None
    exits: tuple[ContainerExit, ...] = ()
    message: str = ""
    last_output: str = ""
    address_in_use: bool = False
    cannot_start: str = ""
    evicted: str = ""
    reason: str = ""
    verdict: str = ""
    explanation: str = ""
    waiting: str = ""
    place: str = ""
    pulling: str = ""
    role: str = ""
    replica: str = ""
    containers: tuple[ContainerState, ...] = ()
    started_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process of it runs now; a container that waits to be started again does not run."""
        return not self.is_finished and any(container.is_running for container in self.containers)

    @property
    def retries(self) -> int:
        """How often a container of it failed that is started again in place."""
        return self.restarts + self.restart_due

    @property
    def title(self) -> str:
        """Its name in texts about a failure."""
        return pod_title(self.name, self.replica)

    if TYPE_CHECKING:

        @property
        def is_finished(self) -> bool:
            """Whether nothing more happens to it."""

    else:  # the same, without a frame of the interpreter
        is_finished = property(attrgetter("phase.is_final"))


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
