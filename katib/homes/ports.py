"""What the tuning service and the diagnostician need of a home beside its object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from katib.api.metrics import MetricLog
from katib.runtime.objects import Key, Object
from katib.tuning.service import Diagnosis, RecordedEvent


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


class EventReader(Protocol):
    """Reads notable moments. Thread-safe."""

    def events_of(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return the events of an object, oldest first; for an Experiment those of what belongs to it too."""


class TrialOutput(Protocol):
    """Reads what trials print. Thread-safe."""

    def read(
        self, trial: Object, *, follow: Callable[[], bool] | None = None, tail_lines: int | None = None
    ) -> Iterator[bytes]:
        """Yield the output of a trial's primary container in chunks.

        Args:
            trial: The Trial object.
            follow: Tells whether more may come; None: what is there now is all. While a followed trial is silent, an
                empty chunk comes every second or so.
            tail_lines: Only so many last lines of what is there now.

        Raises:
            NotFoundError: There is no output, with what to do about it.
        """


class Explainer(Protocol):
    """Explains objects. Thread-safe."""

    def explain(self, namespace: str, name: str) -> Diagnosis:
        """Explain an experiment, or a trial of that name. Raises NotFoundError when there is neither."""


class Aftermath(Protocol):
    """What is left of an experiment when its objects are gone. Thread-safe."""

    def wait(self, experiment: Key, trials: Sequence[Key], timeout_seconds: float) -> bool:
        """Wait until nothing of the deleted trials runs any more; tell whether that was in time."""

    def forget(self, experiment: Key, trials: Sequence[Key]) -> None:
        """Remove what outlives the objects: events, files. The trials are those whose names are free again."""


class NoAftermath:
    """Nothing is left where the home removes everything together with the objects."""

    def wait(self, _experiment: Key, _trials: Sequence[Key], _timeout_seconds: float) -> bool:
        """Return at once."""
        return True

    def forget(self, _experiment: Key, _trials: Sequence[Key]) -> None:
        """Do nothing."""
