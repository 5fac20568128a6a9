"""Interfaces that a home provides to the tuning service and the diagnostician."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.controllers.trial.plan import TrialEvent
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import NotFoundError
from katib.model.metrics import ObservationLog, ObservationReader
from katib.model.types import Trial
from katib.service.tuning.service import DEFAULT_NAMESPACE, Diagnosis, RecordedEvent, TrialFile


class EventReader(Protocol):
    """Reads notable moments. Thread-safe."""

    def events_of(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return the events of an object, oldest first; for an Experiment those of its objects too."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of the output of a trial is wanted.

    Attributes:
        follow: Returns whether more may come; None: only the present output. While a followed trial is silent, an
            empty chunk comes every second or so.
        tail_lines: Number of last lines of the present output.
        replica: Of which pod, as `worker-1` or by its name; empty: a primary one.
        container: Of which container of it; empty: the primary one.
    """

    follow: Callable[[], bool] | None = None
    tail_lines: int | None = None
    replica: str = ""
    container: str = ""


ALL = Part()
"""Output of the primary container until now."""


class TrialOutput(Protocol):
    """Reads the output of trials. Thread-safe."""

    def read(self, trial: Trial, part: Part = ALL) -> Iterator[bytes]:
        """Yield the output of one container of a trial in chunks.

        Raises:
            NotFoundError: There is no output; the message has a remedy.
        """

    def past_pods(self, trial: Trial) -> Sequence[Object]:
        """Return the kept pods of a trial whose job is gone, oldest first; often none."""

    def files(self, trial: Trial) -> Sequence[TrialFile]:
        """Return the files in the folder of a trial, by path; none if they are not kept."""

    def read_file(self, trial: Trial, path: str) -> Iterator[bytes]:
        """Yield one of these files in chunks.

        Raises:
            NotFoundError: There is no such file.
        """


@dataclass(frozen=True, slots=True)
class TimedLines:
    """Which lines of an output are wanted.

    Attributes:
        since: Only lines that came at this moment or later; None: all of them.
        shows: Whether the time stands before each line.
        previous: Those from before the last restart of the container, as they are now.
    """

    since: datetime | None = None
    shows: bool = False
    previous: bool = False


class TimedOutput(TrialOutput, Protocol):
    """Output of which it is known when its lines came."""

    def read_timed(self, trial: Trial, lines: TimedLines, part: Part = ALL) -> Iterator[bytes]:
        """Yield some lines of a part of the output of one container.

        Raises:
            InvalidError: No times are kept of this output.
            NotFoundError: As `read`.
        """


def no_file(trial: Trial, path: str) -> NotFoundError:
    """Return the error for a file that a trial has not left."""
    return NotFoundError(f'trial "{trial.name}" has no file "{path}" in its folder')


def _ignore(_trial: Trial) -> None:
    pass


def do_nothing() -> None:
    """Settle nothing: the status of an experiment follows by itself."""


def _ignore_end(_trial: Trial, _event: TrialEvent) -> None:
    pass


@dataclass(frozen=True, slots=True)
class CallersLog:
    """The log of a home for the readings of callers.

    Attributes:
        on_report: Called with a trial of which readings were stored.
        on_end: Called with a trial that its caller ended, as it is stored, and the event to record.
        settle: Called before an experiment is read: returns when its status holds the trials that their callers ended.
    """

    log: ObservationLog
    on_report: Callable[[Trial], None] = _ignore
    on_end: Callable[[Trial, TrialEvent], None] = _ignore_end
    settle: Callable[[], None] = do_nothing


class Attributes(Protocol):
    """Keeps named texts beside objects; those of an object go with it. Thread-safe."""

    def put(self, uid: str, attributes: Iterable[tuple[str, str, str]]) -> None:
        """Keep attributes of an object, each kind, name and value; all or none. One of the same name is replaced.

        Raises:
            NotFoundError: There is no object of this uid.
        """

    def of(self, uid: str) -> Iterator[tuple[str, str, str]]:
        """Yield kind, name and value of the attributes of an object, in the order in which they were first put."""

    def of_owned(self, owner_uid: str) -> Iterator[tuple[str, str, str, str]]:
        """Yield uid, kind, name and value of the attributes of all objects of an owner, in the same order."""


@dataclass(frozen=True, slots=True)
class Records:
    """Stores of a home.

    Attributes:
        events: Notable moments.
        callers: Takes readings of callers; None: they can only tell the end of a trial.
    """

    store: ObjectStore
    observations: ObservationReader
    events: EventReader
    output: Callable[[], TrialOutput]
    callers: CallersLog | None = None


class Namespaces:
    """The namespaces of a home, and the objects in each. In this home every user may see all of them. Thread-safe.

    Args:
        default: Namespace of a document that names none and is given none.
    """

    def __init__(self, store: ObjectStore, default: str = DEFAULT_NAMESPACE) -> None:
        self._store = store
        self.default = default

    def names(self) -> Sequence[str]:
        """Return the namespaces that an experiment may be in, as far as the user may know, in order of their names."""
        return sorted({self.default, *(Key.of(obj).namespace for obj in self._store.list(EXPERIMENT).items)})

    def store_of(self, _namespace: str) -> ObjectStore:
        """Return the store as seen through one namespace: all that the changes of an experiment need to watch."""
        return self._store


Explain = Callable[[str, str], Diagnosis]
"""Explains an experiment, or a trial of that name. Takes a namespace; raises NotFoundError when there is neither."""


class Aftermath(Protocol):
    """Traces of an experiment after its objects are gone. Thread-safe."""

    def wait(self, experiment: Key, trials: Sequence[Key], timeout_seconds: float) -> bool:
        """Wait until nothing of the deleted trials runs any more; return whether that was in time."""

    def forget(self, experiment: Key, trials: Sequence[Key]) -> None:
        """Remove events and files, which outlive the objects. The trials are those whose names are free again."""


class NoAftermath:
    """For a home that removes everything together with the objects."""

    def wait(self, _experiment: Key, _trials: Sequence[Key], _timeout_seconds: float) -> bool:
        """Return at once."""
        return True

    def forget(self, _experiment: Key, _trials: Sequence[Key]) -> None:
        """Do nothing."""
