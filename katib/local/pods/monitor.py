"""What reads the output of a container, for its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """What a monitor found, once all of it is stored.

    Attributes:
        explanation: One sentence that explains a missing objective metric; empty when it was found.
    """

    explanation: str = ""


class Monitor(Protocol):
    """Follows one primary container of one pod. All methods but `close`'s callback run on the runner's loop thread.

    None of them raises: what keeps it from reading is in its report.
    """

    def feed(self, data: bytes) -> None:
        """Take a chunk of the container's output, in any cut. Returns fast; storing happens elsewhere."""

    def poll(self) -> None:
        """Look at the files it follows. Called every 0.2 s or so, and once after the container ended."""

    def hasten(self) -> None:
        """Say that the container is about to be ended: what goes with it is to be read now. Does not wait."""

    @property
    def backlogged(self) -> bool:
        """True while storing is behind and the runner should not read more output."""

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early; empty while it may go on."""

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Say that no more output comes. `done` is called once, from any thread, when everything read is stored."""
