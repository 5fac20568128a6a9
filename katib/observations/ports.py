"""What readers of the log may ask beyond what the controllers need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from katib.api.metrics import MetricLog


class ObservationReader(Protocol):
    """Reads the log of a trial. Thread-safe. Raises UnavailableError when the log cannot be reached."""

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> tuple[Sequence[MetricLog], str]:
        """Return readings in order of time, those of one time in the order in which they were reported.

        Args:
            trial_name: Whose; an unknown trial has an empty log.
            metric_name: Of which metric; empty: of all.
            start: From when on, inclusive.
            end: Until when, inclusive.
            limit: At most so many.
            cursor: What the previous call of this log returned, with the same other arguments.

        Returns:
            The readings, and a cursor to go on from; the cursor is empty when there are no more.

        Raises:
            InvalidError: The cursor is none of this log's.
        """
