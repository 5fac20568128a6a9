"""The place of the pods of jobs: processes or containers of this machine, or jobs of Slurm.

The controller of jobs knows pods by this protocol only. A place creates pods, starts those of a gang at once or not at
all, follows them to their end, stops them, and lets their monitors read their output. It also keeps notes for the next
engine about pods that outlive this one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from katib.engine.runtime.clock import SteadyTime
from katib.places.machine.pods.loop import Loop, Timer
from katib.places.machine.pods.output import Monitor
from katib.places.machine.pods.plans import PodPlan
from katib.places.machine.pods.records import PodPhase, PodRecord
from katib.places.machine.processes.connection import KeptProcess

if TYPE_CHECKING:
    from katib.places.machine.pods.pulls import PullNews

OpenMonitor = Callable[[dict[str, str], str, Path], Monitor | None]
"""For a pod's labels, a container's name and the pod's directory: a reader of the output; None if it is not read."""


MARKS: Final = re.compile(r"katib-node-of-[a-z0-9-]+\.invalid")
"""Names that stand for the nodes of pods until these have one."""


def node_mark(name: str) -> str:
    """Return the mark for the node of a pod in its own and its peers' variables until it has one.

    Args:
        name: Of the pod, with or without a domain.
    """
    return f"katib-node-of-{name.partition('.')[0]}.invalid"


class PodListener(NamedTuple):
    """The callbacks of a pod.

    Attributes:
        open_monitor: Makes the readers of its main containers' output.
        changed: Called with a pod after every change of its record, and with the record before, from any thread.
        pulled: Called when an image has to be fetched, and when that has ended.
    """

    open_monitor: OpenMonitor
    changed: Callable[[AnyPod, PodRecord], None]
    pulled: Callable[[PullNews], None] = lambda _news: None


class AnyPod(ABC):
    """One pod, wherever it runs: its record, its monitors, and its end.

    It ends in this order: nothing of it runs any more, every monitor has stored its readings, and the record is
    Succeeded or Failed. So its metrics are there when the job is judged. Attributes may be read from any thread;
    methods belong to the loop.

    Attributes:
        is_storing: Whether nothing of it runs any more, and its readings are being stored.
    """

    def __init__(self, plan: PodPlan, listener: PodListener, loop: Loop, steady: SteadyTime) -> None:
        self.plan = plan
        self.record = PodRecord(plan.name, plan.index, role=plan.role, replica=plan.replica)
        self.is_storing = False
        self._listener = listener
        self._loop = loop
        self._steady = steady
        self._monitors: list[Monitor] = []
        self._verdict = ""
        self._kill_timer: Timer | None = None

    def refuse(self, cause: str) -> None:
        """Fail without having started: it can never start."""
        if not self.record.is_finished:
            self._finish(PodPhase.FAILED, cause, cannot_start=cause)

    def stop(self, grace_seconds: float | None = None) -> None:
        """End it politely (SIGTERM), then firmly (SIGKILL after the grace period). Twice is fine."""
        if self.record.stopping or self.record.is_finished or self.is_storing:
            return
        self._note(stopping=True)
        for monitor in self._monitors:
            monitor.hasten()
        self._end_programs(self.plan.grace_seconds if grace_seconds is None else grace_seconds)

    @abstractmethod
    def _end_programs(self, grace_seconds: float) -> None:
        """End the programs that run, and start none again."""

    @abstractmethod
    def _release(self) -> None:
        """Give back the resources; called once, at the end."""

    def _open_monitor(self, container: str) -> Monitor | None:
        """Return a monitor for a main container that is about to start; None if its output is not read."""
        monitor = self._listener.open_monitor(self.plan.labels, container, self.plan.directory)
        if monitor is not None:
            self._monitors.append(monitor)
        return monitor

    def _judge(self) -> None:
        """End the pod when a monitor has decided to stop its trial early."""
        if not self._verdict and not self.record.stopping:
            self._verdict = next((monitor.verdict for monitor in self._monitors if monitor.verdict), "")
            if self._verdict:
                self._note(verdict=self._verdict)
                self.stop()

    def _store(self, conclude: Callable[[str], None]) -> None:
        """Close the monitors, as nothing of the pod runs any more.

        Args:
            conclude: Called with the explanation of missing metrics when all readings are stored.
        """
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self.is_storing = True
        self._listener.changed(self, self.record)
        closed: list[Future[str]] = [Future() for _ in self._monitors]
        for monitor, future in zip(self._monitors, closed, strict=True):
            monitor.close(future.set_result)

        def stored() -> None:
            self._verdict = self._verdict or next((m.verdict for m in self._monitors if m.verdict), "")
            conclude("; ".join(filter(None, (future.result() for future in closed))))

        self._loop.when_all(closed, stored)

    def _finish(self, phase: PodPhase, message: str, *, explanation: str = "", **changes: Any) -> None:
        """Write the end into the record, and into the note of a replica, which outlives the pods of its job."""
        self._release()
        end = {
            "phase": phase,
            "message": message,
            "waiting": "",
            "verdict": self._verdict,
            "explanation": explanation,
            "finished_at": self._steady.now(),
            **changes,
        }
        if self.plan.role or self.plan.replica:
            from katib.places.machine.pods.objects import note_end

            is_measured = self.is_storing and bool(self._monitors) and not explanation
            note_end(self.plan, replace(self.record, **end), self._steady, is_measured=is_measured)
        self._note(**end)

    def _note(self, **changes: Any) -> None:
        before, record = self.record, replace(self.record, **changes)
        if record != before:
            self.record = record
            self._listener.changed(self, before)


class KeptGroup(NamedTuple):
    """Pods of one job that outlived their engine.

    Attributes:
        group: Under which they were kept.
        note: The note of that engine; empty if it left none.
        programs: Their processes on this machine, the oldest first.
    """

    group: str
    note: bytes
    programs: tuple[KeptProcess, ...] = ()


P = TypeVar("P", bound=AnyPod)


class PodPlace(Protocol[P]):
    """The place of pods. `start` and `resume` belong to the loop, all else to the thread that reconciles jobs."""

    @property
    def keeps(self) -> bool:
        """Whether pods can outlive this engine."""

    def close(self) -> None:
        """Come to rest after all pods have ended, or are left to the next engine."""

    def new_pod(self, plan: PodPlan, listener: PodListener) -> P:
        """Return a pod; nothing of it runs before `start`."""

    def start(self, pods: Sequence[P]) -> None:
        """Start pods of a job as soon as their requests are free; those with roles at once or not at all."""

    def kept(self) -> Iterable[KeptGroup]:
        """Return the pods that the engine before has left running, job by job."""

    def resume(self, pods: Sequence[P], kept: KeptGroup, stopped: Collection[str], /) -> None:
        """Go on with the pods of a job that outlived their engine; start those that had not begun."""

    def end(self, groups: Iterable[KeptGroup]) -> None:
        """End pods that belong to no job any more."""

    def is_kept(self, group: str) -> bool:
        """Return whether the pods of a group outlive this engine."""

    def note(self, group: str, data: bytes) -> None:
        """Leave something for the next engine to know about a group of pods, which are kept from now on."""

    def forget(self, group: str) -> None:
        """Keep a group no longer."""
