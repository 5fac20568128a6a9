"""The calls of a tuning service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from katib.api import types
from katib.api.metrics import MetricLog
from katib.api.types import CAMEL_CASE

if TYPE_CHECKING:
    from katib.api.algorithms import AlgorithmInfo
    from katib.api.loading import FileText
    from katib.api.marks import MarkChanges
    from katib.api.types import Experiment, Resource, Trial
    from katib.tuning.offered_templates import OfferedTemplates

R = TypeVar("R", bound="Resource")
Json = dict[str, Any]
"""An object of another kind, such as a pod, or one of ours as it is stored."""

Document: TypeAlias = "str | FileText"
"""What users submit: YAML or JSON text, or a file, whose text is then read only once."""

DEFAULT_NAMESPACE = "default"

TrialOrder = Literal["age", "objective", "duration", "name"]
"""Which trial comes first: the oldest, the best, the longest, or the first by name."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What became of a submitted experiment.

    Attributes:
        experiment: As stored, with defaults.
        outcome: `created`; `resumed` when the same experiment was there, unfinished; `updated` when its budget,
            ConfigMaps or Secrets changed; `unchanged` when it was there and is finished.
        notices: Sentences about what will be done otherwise than on Kubernetes, such as an image that is not run.
    """

    experiment: Experiment
    outcome: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRuntime:
    """What became of a training runtime.

    Attributes:
        runtime: As stored.
        outcome: `created`; `updated` when another one of that name was there; `unchanged` when it was there.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    runtime: Json
    outcome: str


@dataclass(frozen=True)
class Page:
    """Part of a listing of trials.

    Attributes:
        documents: The trials as they are stored: a listing is passed on without being read.
        cursor: Where to go on; empty on the last page.
        total: How many trials there are on all pages.
    """

    documents: tuple[Json, ...]
    cursor: str
    total: int

    @cached_property
    def items(self) -> tuple[Trial, ...]:
        """The trials."""
        return tuple(map(types.Trial.read, self.documents))


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A notable moment of an object."""

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    time: datetime
    kind: str
    name: str
    warning: bool
    reason: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why an experiment or trial does not progress, or how it ended.

    Attributes:
        verdict: One sentence: the answer.
        findings: What it rests on, most important first, one sentence each.
        remedies: What the user can do, one sentence each.
        log_tail: Last lines of the trial's output where they explain the end; empty otherwise.
        savings: What the early stopping of an experiment saved so far, one sentence; empty where there is none.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    kind: str
    name: str
    state: str
    verdict: str
    findings: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()
    savings: str = ""


NOW = "now"
"""Cursor behind what is there at the moment: only what comes later is wanted."""


@dataclass(frozen=True, slots=True)
class NewReadings:
    """Readings of a trial that arrived behind a cursor.

    Attributes:
        items: Of all metrics, in order of arrival.
        cursor: Opaque place behind the last of them, or the one that was given where there are none.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    items: tuple[MetricLog, ...]
    cursor: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What the first trial of an experiment would run.

    Attributes:
        assignments: Text by name of parameter.
        run_spec: The template with these values in it.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    assignments: Mapping[str, str]
    run_spec: Json


BOOKMARK = "BOOKMARK"


@dataclass(frozen=True)
class Change:
    """A change of an experiment or one of its trials.

    Attributes:
        type: `ADDED`, `MODIFIED` or `DELETED`; or `BOOKMARK`: nothing changed, but the place in the stream moved on.
        document: The Experiment or Trial as it is stored after the change; for DELETED its last state, for BOOKMARK
            empty.
        cursor: Opaque place in the stream: `changes(since=cursor)` goes on behind it. Empty where one cannot resume,
            as in the middle of the opening listing.
    """

    type: str
    document: Json
    cursor: str = ""

    @cached_property
    def object(self) -> Experiment | Trial | None:
        """The Experiment or Trial; None for BOOKMARK."""
        if not self.document:
            return None
        return (types.Trial if self.document.get("kind") == "Trial" else types.Experiment).read(self.document)


class TuningService(Protocol):
    """One tuning service. Thread-safe. Kinds are `Experiment`, `Trial` and `Suggestion`.

    The JSON form of an object that it returns (`encode`) is what is stored, with fields of newer versions. Every call
    raises NotFoundError for a missing object and UnavailableError when the service cannot be reached.
    """

    def submit(self, document: Document, *, source: str, namespace: str | None = None) -> Submission:
        """Create an experiment from YAML or JSON text, or resume or update the one of that name.

        Args:
            document: The text of the file.
            source: What to call it in errors, such as the file name.
            namespace: Used when the document names none.

        Raises:
            InvalidError: Anything wrong with it, all errors at once; also when it differs from the stored one in a
                way that cannot be resumed.
        """

    def validate(self, document: Document, *, source: str, namespace: str | None = None) -> Sequence[str]:
        """Check a document as `submit` would, store nothing, and return the notices that `submit` would give.

        A document of training runtimes alone is checked as `store_runtimes` would.

        Raises:
            InvalidError: Anything wrong with it, all errors at once.
        """

    def preview(self, document: Document, *, source: str, namespace: str | None = None) -> Preview:
        """Check a document as `submit` would, store nothing, and return what its first trial would run.

        Raises:
            InvalidError: Anything wrong with it, all errors at once.
        """

    def store_runtimes(
        self, document: Document, *, source: str, namespace: str | None = None
    ) -> Sequence[StoredRuntime]:
        """Store training runtimes, so that TrainJobs can refer to them; return what became of each, in order.

        Args:
            document: The text of a file of TrainingRuntimes and ClusterTrainingRuntimes, nothing else.
            source: What to call it in errors, such as the file name.
            namespace: Used for a TrainingRuntime that names none.

        Raises:
            InvalidError: Anything wrong with them, all errors at once; then none is stored.
        """

    def get(self, kind: type[R], namespace: str, name: str) -> R:
        """Return an object."""

    def experiments(self, namespace: str | None = None) -> Sequence[Experiment]:
        """Return all experiments, oldest first; None: of every namespace."""

    def trials(
        self,
        namespace: str,
        experiment: str,
        *,
        states: Sequence[str] = (),
        order: TrialOrder = "age",
        limit: int = 500,
        cursor: str = "",
    ) -> Page:
        """Return trials of an experiment, those in one of the states (`Running`, `Succeeded`, ...) if any is given.

        Raises:
            InvalidError: The cursor is none of a page of the same list.
        """

    def best(self, namespace: str, experiment: str) -> Trial | None:
        """Return the best Trial so far; None when no trial has a usable objective value."""

    def metrics(self, namespace: str, trial: str, *, metric: str = "", limit: int = 100_000) -> Sequence[MetricLog]:
        """Return readings of a trial in order of steps, then of time, of one metric or of all.

        At most `limit`, the newest ones.
        """

    def curve(self, namespace: str, trial: str, *, points: int, metric: str = "") -> Sequence[MetricLog]:
        """Return the curve of a metric, that of the objective when none is named, with at most so many points.

        A longer one keeps its first and last reading and true extremes in between. `points` is at least
        `katib.api.thinning.MIN_POINTS`.
        """

    def readings(self, namespace: str, trial: str, *, since: str = "") -> NewReadings:
        """Return what a trial reported behind a cursor, at once; a long log comes in several answers.

        Args:
            namespace: Of the trial.
            trial: Its name.
            since: Cursor of the last answer; empty: from the first reading on; NOW: none yet, only the cursor.

        Raises:
            InvalidError: The cursor is not one of these.
        """

    def pods(self, kind: str, namespace: str, name: str) -> Sequence[Json]:
        """Return the pods of a Trial, or of all trials of an Experiment, oldest first.

        They go with their job. Of a trial of one machine whose job had several replicas, the last pod of each is
        returned as it ended, for as long as the trial's files are there.
        """

    def logs(
        self,
        namespace: str,
        trial: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        replica: str = "",
        container: str = "",
    ) -> Iterator[bytes]:
        """Yield the output of a trial in chunks; with `follow`, until it ends.

        While a followed trial is silent an empty chunk comes every second or so, so that a reader can leave.

        Args:
            namespace: Of the trial.
            trial: Its name.
            follow: Whether to go on until the trial ends.
            tail_lines: Only so many last lines of what is there now.
            replica: Which pod of its job, as `worker-1` or by the pod's name; empty: the primary one.
            container: Which container of the pod; empty: the primary one.

        Raises:
            NotFoundError: There is no such replica or container, with those that there are.
        """

    def events(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return the notable moments of an object, oldest first; for an Experiment those of its trials too."""

    def changes(
        self, namespace: str, experiment: str, *, timeout_seconds: float | None = None, since: str = ""
    ) -> Iterator[Change]:
        """Yield the experiment and its trials as they are, then every change, until it is deleted or the time is up.

        A missing experiment raises with the first item. The changes of one object come in order; those of the
        experiment may overtake those of its trials.

        Args:
            namespace: Of the experiment.
            experiment: Its name.
            timeout_seconds: End after so long; None: never.
            since: Cursor of the last change seen; the opening listing is left out and the stream goes on behind it.

        Raises:
            ExpiredError: `since` is too old, or what follows it is lost, as after a long outage; begin again without.
        """

    def why(self, namespace: str, name: str) -> Diagnosis:
        """Explain an experiment, or a trial of that name."""

    def add_trial(self, namespace: str, experiment: str, assignments: Mapping[str, str]) -> int:
        """Have a trial run before those that the algorithm proposes next; return how many by hand come before it.

        Raises:
            InvalidError: The assignments are no point of the search space, or the budget has no room for another trial.
        """

    def edit(
        self,
        namespace: str,
        experiment: str,
        *,
        counts: Mapping[str, int | None],
        stopped: bool | None = None,
        marks: MarkChanges | None = None,
    ) -> Experiment:
        """Change the counts of an experiment, stop it, let it go on, or mark it; return it as stored.

        Args:
            namespace: Of the experiment.
            experiment: Its name.
            counts: `maxTrialCount`, `parallelTrialCount` or `maxFailedTrialCount`; None takes a limit away.
            stopped: Whether it makes no further trial, while those that run go on; None leaves that as it is.
            marks: Tags, notes, project and favourite; None leaves all of them as they are.

        Raises:
            InvalidError: The change is not allowed.
        """

    def suspend(self, namespace: str, trial: str, *, suspended: bool) -> Trial:
        """Suspend the job of a trial, whose pods end then, or let it start again; return the Trial.

        Raises:
            InvalidError: The trial has ended, or nothing suspends a job of its kind.
            UnavailableError: Its job is not there yet, or not any more.
        """

    def delete(self, namespace: str, experiment: str) -> None:
        """Delete an experiment with its trials, their processes, metrics and files; returns when they are gone."""

    def algorithms(self) -> Sequence[AlgorithmInfo]:
        """Return the algorithms offered."""


@runtime_checkable
class TemplateService(Protocol):
    """What a tuning service may offer beside: templates to begin an experiment with, and namespaces to put it in."""

    @property
    def templates(self) -> OfferedTemplates:
        """The trial templates that ConfigMaps offer."""

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces that an experiment may be in, as far as the user may know, in order of their names."""
