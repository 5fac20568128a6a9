"""Where the pods of jobs run: as processes or containers of this machine, or as jobs of Slurm.

The controller of jobs knows pods by this protocol only. A place creates pods, starts those of a gang at once or not at
all, follows them to their end, stops them, and has their monitors read their output. It also keeps what the next engine
needs to know about pods that outlive this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from katib.places.machine.pods.objects import PodPlan
from katib.places.machine.pods.output import Monitor
from katib.places.machine.pods.pulls import PullNews
from katib.places.machine.pods.records import PodRecord
from katib.places.machine.processes.connection import KeptProcess

OpenMonitor = Callable[[dict[str, str], str, Path], Monitor | None]
"""For a pod's labels, a container's name and the pod's directory: what reads the output; None when nothing does."""


MARKS: Final = re.compile(r"katib-node-of-[a-z0-9-]+\.invalid")
"""Names that stand for the nodes of pods until these have one."""


def node_mark(name: str) -> str:
    """Return what stands for the node of a pod in its own and its peers' variables until it has one.

    Args:
        name: Of the pod, with or without a domain.
    """
    return f"katib-node-of-{name.partition('.')[0]}.invalid"


class PodListener(NamedTuple):
    """What a pod calls.

    Attributes:
        open_monitor: Makes the readers of its main containers' output.
        changed: Called with a pod after every change of its record, and with what that was before, from any thread.
        pulled: Called when an image has to be fetched, and when that has ended.
    """

    open_monitor: OpenMonitor
    changed: Callable[[AnyPod, PodRecord], None]
    pulled: Callable[[PullNews], None] = lambda _news: None


class AnyPod(Protocol):
    """One pod, wherever it runs. Its attributes may be read from any thread, its methods belong to the loop.

    Attributes:
        plan: What was decided about it.
        record: How it is.
        is_storing: Whether nothing of it runs any more, and its readings are being stored.
    """

    plan: PodPlan
    record: PodRecord
    is_storing: bool

    def refuse(self, cause: str) -> None:
        """Fail without having started: it can never start."""

    def stop(self, grace_seconds: float | None = None) -> None:
        """End it politely (SIGTERM), then firmly (SIGKILL after the grace period). Twice is fine."""


class KeptGroup(NamedTuple):
    """Pods of one job that outlived their engine.

    Attributes:
        group: Under which they were kept.
        note: What that engine left for us to know; empty when it left nothing.
        programs: Their processes on this machine, the oldest first.
    """

    group: str
    note: bytes
    programs: tuple[KeptProcess, ...] = ()


P = TypeVar("P", bound=AnyPod)


class PodPlace(Protocol[P]):
    """Where pods run. `start` and `resume` belong to the loop, everything else to the thread that reconciles jobs."""

    @property
    def keeps(self) -> bool:
        """Whether pods can outlive this engine."""

    def close(self) -> None:
        """Come to rest after all pods have ended, or are left to the next engine."""

    def new_pod(self, plan: PodPlan, listener: PodListener) -> P:
        """Return a pod; nothing of it runs before `start`."""

    def start(self, pods: Sequence[P]) -> None:
        """Start pods of a job as soon as what they request is free; those with roles at once or not at all."""

    def kept(self) -> Iterable[KeptGroup]:
        """Return what the engine before has left running, job by job."""

    def resume(self, pods: Sequence[P], kept: KeptGroup, stopped: Collection[str], /) -> None:
        """Go on with the pods of a job that outlived their engine; start those that had not begun.

        Args:
            pods: All that it had.
            kept: What is known of them.
            stopped: Names of pods that the job has ended.
        """

    def end(self, groups: Iterable[KeptGroup]) -> None:
        """End pods that belong to no job any more."""

    def is_kept(self, group: str) -> bool:
        """Return whether the pods of a group outlive this engine."""

    def note(self, group: str, data: bytes) -> None:
        """Leave something for the next engine to know about a group of pods, which are kept from now on."""

    def forget(self, group: str) -> None:
        """Keep a group no longer."""
