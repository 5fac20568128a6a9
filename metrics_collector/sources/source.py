"""The interface of sources, for the sidecar of a pod and for the monitor of one machine.

The method bodies here are the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from katib.model.metrics import MetricLog


class SourceEvidence(Protocol):
    """Observations of a source, for the explanation of a missing metric."""

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing at all."""

    def seen(self) -> str:
        """Return the amount and place of its input, such as `12 lines in metrics.log`."""

    def hint(self, metric: str) -> str:
        """Return the part most similar to this metric, starting with `; `; empty if there is none."""

    def refused(self, metric: str) -> str:
        """Return the refused values of this metric, as a sentence without an end; empty if all were accepted."""
        del metric
        return ""  # the values of most sources are numbers

    def remedies(self, metric: str) -> list[str]:
        """Return changes that would make this metric readable, as tested clauses in the imperative."""
        del metric
        return []

    def drop(self) -> None:
        """Discard data that only `hint` needs: every metric was found."""
        return


class ReadPosition(NamedTuple):
    """Read position of a source, for a restarted collector.

    Attributes:
        inode: Inode of the file; together with the device its identity.
        size: Bytes read of it.
        length: Its length in bytes.
        beginnings: How often reading started at a beginning.
        is_ordered: Whether reading again gives the same readings in the same order.
    """

    device: int
    inode: int
    size: int
    length: int
    beginnings: int = 1
    is_ordered: bool = True


class MetricSource(SourceEvidence, Protocol):
    """A place that is polled. Not thread-safe; no call waits for a program, a disk or a network."""

    @property
    def problem(self) -> str:
        """The reason why nothing can be read now, as an unfinished sentence about it; empty if there is none."""

    @property
    def position(self) -> ReadPosition | None:
        """Read position; None if there is nothing to read, or reading again is meaningless."""

    def poll(self) -> Iterator[list[MetricLog]]:
        """Yield new readings, in parts of bounded size; a caller that stops early gets the rest next time."""

    def hasten(self) -> None:
        """Note that the program is about to be ended: read data now that disappears with it."""
        return

    def end(self) -> None:
        """Note that the program has ended; the next polls are complete."""
        return

    @property
    def is_over(self) -> bool:
        """Whether, after `end`, no more readings will follow."""

    def finish(self) -> list[MetricLog]:
        """Return the readings that the end of the program completes, such as a last line without line end."""

    def settle(self, then: Callable[[], None]) -> None:
        """Stop requesting, and call back, from any thread, when no request is in progress."""
        then()

    def close(self) -> None:
        """Release open resources."""


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
