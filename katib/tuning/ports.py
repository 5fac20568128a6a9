"""What the tuning service and the diagnostician need of a home beside its object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from katib.runtime.objects import Key, Object
from katib.tuning.service import Diagnosis, RecordedEvent


class EventReader(Protocol):
    """Reads notable moments. Thread-safe."""

    def events_of(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return the events of an object, oldest first; for an Experiment those of what belongs to it too."""


class TrialOutput(Protocol):
    """Reads what trials print. Thread-safe."""

    def read(
        self,
        trial: Object,
        *,
        follow: Callable[[], bool] | None = None,
        tail_lines: int | None = None,
        replica: str = "",
        container: str = "",
    ) -> Iterator[bytes]:
        """Yield the output of one container of a trial in chunks.

        Args:
            trial: The Trial object.
            follow: Tells whether more may come; None: what is there now is all. While a followed trial is silent, an
                empty chunk comes every second or so.
            tail_lines: Only so many last lines of what is there now.
            replica: Which pod, as `worker-1` or by its name; empty: a primary one.
            container: Which container of it; empty: the primary one.

        Raises:
            NotFoundError: There is no output, with what to do about it.
        """

    def past_pods(self, trial: Object) -> Sequence[Object]:
        """Return what is kept of the pods of a trial whose job is gone, the oldest first; often nothing."""


Explain = Callable[[str, str], Diagnosis]
"""Explains an experiment, or a trial of that name. Takes a namespace; raises NotFoundError when there is neither."""


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
