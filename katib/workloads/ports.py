"""What the local runner of jobs needs from outside: something that reads the output of a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from katib.runtime.objects import Object


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """What a monitor found, once all of it is stored.

    Attributes:
        explanation: One sentence that explains a missing objective metric; empty when it was found.
    """

    explanation: str = ""


class Monitor(Protocol):
    """Follows one primary container of one pod. All methods but `close`'s callback run on the runner's loop thread."""

    def feed(self, data: bytes) -> None:
        """Take a chunk of the container's output, in any cut. Returns fast; storing happens elsewhere."""

    def poll(self) -> None:
        """Look at the files it follows. Called every 0.2 s or so, and once after the container ended."""

    @property
    def backlogged(self) -> bool:
        """True while storing is behind and the runner should not read more output."""

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early; empty while it may go on."""

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Say that no more output comes. `done` is called once, from any thread, when everything read is stored."""


class MonitorFactory(Protocol):
    """Makes monitors for the pods of a job."""

    def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> Monitor | None:
        """Return a monitor for a container that is about to start; None when nobody wants to read it.

        Args:
            job: The job object as stored; its controller owner reference names the Trial.
            pod_labels: Labels of the pod, to tell primary pods from others.
            container: Name of the container, to tell the primary container from others.
            directory: The pod's working directory on disk.
        """

    def discard(self, job: Object) -> None:
        """Forget what an earlier run of this job reported: it was cut off with the engine and starts anew."""
