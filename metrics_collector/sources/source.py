"""What every source is able to do, for the sidecar of a pod and for the monitor of one machine.

What a source does unless it says otherwise is the body of the method here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from katib.model.metrics import MetricLog


class Evidence(Protocol):
    """What a source came across, for an explanation of a metric that was not found."""

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing at all."""

    def seen(self) -> str:
        """Return what there was, and where, such as `12 lines in metrics.log`."""

    def hint(self, metric: str) -> str:
        """Return what of it looks most like this metric, beginning with `; `; empty when nothing does."""

    def refused(self, metric: str) -> str:
        """Return which values of this metric were not taken, as a sentence without an end; empty when all were."""
        del metric
        return ""  # values are numbers where they come from

    def remedies(self, metric: str) -> list[str]:
        """Return how this metric would be read, each as half a sentence in the imperative, found to work here."""
        del metric
        return []

    def drop(self) -> None:
        """Forget what only `hint` needs: every metric was found."""
        return


class Position(NamedTuple):
    """How far a source has been read, for a collector that is started again and goes on from there.

    Attributes:
        device: Of what is read.
        inode: Of what is read; it and the device identify it.
        size: Bytes read of it.
        length: Bytes that it has.
        beginnings: How often reading began at a start.
        is_ordered: Whether reading once more gives the same readings in the same order.
    """

    device: int
    inode: int
    size: int
    length: int
    beginnings: int = 1
    is_ordered: bool = True


class Source(Evidence, Protocol):
    """A place that is asked again and again. Not thread-safe; no call waits for a program, a disk or a network."""

    @property
    def problem(self) -> str:
        """Why nothing can be read now, as an unfinished sentence about it; empty when all is well."""

    @property
    def position(self) -> Position | None:
        """How far it has been read; None while there is nothing to read, or where reading again means nothing."""

    def poll(self) -> Iterator[list[MetricLog]]:
        """Yield what is new, in parts of bounded size; a caller that stops early finds the rest next time."""

    def hasten(self) -> None:
        """Note that the program is about to be ended: read now what disappears with it."""
        return

    def end(self) -> None:
        """Note that the program has ended; the next polls find what is new then."""
        return

    @property
    def is_over(self) -> bool:
        """Whether, after `end`, nothing more will come."""

    def finish(self) -> list[MetricLog]:
        """Return what the end of the program completes, such as a last line without line end."""

    def settle(self, then: Callable[[], None]) -> None:
        """Ask for nothing more, and call back, from any thread, when nothing is under way any more."""
        then()

    def close(self) -> None:
        """Release what is open."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `2 lines`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
