"""The calls of a tuning service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from katib.model import types
from katib.model.metrics import MetricLog
from katib.model.types import CAMEL_CASE

if TYPE_CHECKING:
    from katib.model.algorithms import AlgorithmInfo
    from katib.model.loading import FileText
    from katib.model.marks import MarkChanges
    from katib.model.types import Experiment, Resource, Trial
    from katib.service.tuning.offered_templates import OfferedTemplates

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
        outcome: `created`; `updated` when its budget, ConfigMaps or Secrets changed; `resumed` when the same experiment
            was there and was stopped; `unchanged` when it was there otherwise.
        notices: Sentences about what will be done otherwise than on Kubernetes, such as an image that is not run.
    """

    experiment: Experiment
    outcome: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with an experiment that is there already; false when nothing was chosen.

    Attributes:
        restart: Run all of it again; the old one is kept under a name with a number.
        retry_failed: Run the failed trials again, with the same assignments.
        more: How many trials to add to its budget.
    """

    restart: bool = False
    retry_failed: bool = False
    more: int = 0

    def __bool__(self) -> bool:
        return self.restart or self.retry_failed or self.more > 0


NO_CHOICE = Choice()
"""Nothing was chosen."""

LONGEST_COMMAND = 16_384
"""Characters of a command that travels with a document."""


@dataclass(frozen=True, slots=True)
class WaysOn:
    """What may be done with an experiment that has ended and was not run now.

    Attributes:
        changes: What changed since: files of its program, fields of its document.
        lost: How many of its trials ended without a value.
        can_retry: Whether these can run again.
        may_have_more: Whether it can go on with a larger budget.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    changes: tuple[str, ...]
    lost: int
    can_retry: bool
    may_have_more: bool


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What became of an experiment that was to run.

    Attributes:
        submission: The experiment as stored, and what was done with it.
        notes: Sentences about an experiment that runs once more.
        ways: What may be chosen, where it has ended and was left as it is; None otherwise.
    """

    submission: Submission
    notes: tuple[str, ...] = ()
    ways: WaysOn | None = None


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

    documents: Sequence[Mapping[str, Any]]
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
        saved_share: The share of all readings that it saved; None where it is not known.
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
    saved_share: float | None = None


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
        run_spec: The template with these values in it; empty where callers evaluate the trials.
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
            empty. Others hold the same: it is not to be changed.
        cursor: Opaque place in the stream: `changes(since=cursor)` goes on behind it. Empty where one cannot resume,
            as in the middle of the opening listing.
        struct: The decoded document, if the store has read it.
    """

    type: str
    document: Mapping[str, Any]
    cursor: str = ""
    struct: Any = None

    @cached_property
    def object(self) -> Experiment | Trial | None:
        """The Experiment or Trial; None for BOOKMARK."""
        if self.struct is not None or not self.document:
            return self.struct  # type: ignore[no-any-return] # a store decodes these kinds only
        return (types.Trial if self.document.get("kind") == "Trial" else types.Experiment).read(self.document)


DEFAULT_LEASE_SECONDS = 60.0
"""How long a caller is waited for after each sign of life, where it does not say."""


@dataclass(frozen=True)
class GivenTrial:
    """The answer to a caller that asks for a trial.

    Attributes:
        document: The Trial as it is stored; empty when none is free.
        is_over: Whether the experiment has ended, so that none will be.
        reason: Why there is none, a sentence; empty when there is one.
    """

    document: Json
    is_over: bool = False
    reason: str = ""

    @cached_property
    def trial(self) -> Trial | None:
        """The Trial; None when none is free."""
        return types.Trial.read(self.document) if self.document else None


@dataclass(frozen=True, slots=True)
class CallerAnswer:
    """What a caller is to know of a trial that it evaluates.

    Attributes:
        state: Of the trial, such as `Running`.
        stop: Why the caller should stop, a sentence; empty while the trial goes on.
    """

    state: str
    stop: str = ""


@dataclass(frozen=True, slots=True)
class PausedExperiment:
    """An experiment that was paused or resumed.

    Attributes:
        experiment: As stored.
        trials: Names of the trials that were paused or resumed with it.
    """

    experiment: Experiment
    trials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that was evaluated elsewhere.

    Attributes:
        id: What distinguishes it from all others of its experiment, such as its number in a study.
        assignments: Text by name of parameter.
        values: Last readings, as text by name.
        began: When it was begun.
        ended: When it was ended.
        failure: Why it has no value; None when it did not fail.
        stopped: Whether it was stopped before its end.
        readings: What it reported before.
    """

    id: str
    assignments: Mapping[str, str]
    values: Mapping[str, str]
    began: datetime
    ended: datetime
    failure: str | None = None
    stopped: bool = False
    readings: tuple[MetricLog, ...] = ()


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

    def run(
        self,
        document: Document,
        *,
        source: str,
        namespace: str | None = None,
        choice: Choice = NO_CHOICE,
        command: str = "",
    ) -> RunOutcome:
        """Submit an experiment as `submit` does; one of its name that has ended runs once more where that is wanted.

        Without a choice, an experiment that brought nothing usable runs again when its document or its program changed
        since; any other that has ended is left as it is. Experiments of a cluster run once only.

        Args:
            document: The text of the file.
            source: What to call it in errors, such as the file name.
            namespace: Used when the document names none.
            choice: What the user chose.
            command: What a user types to run it, for later explanations.

        Raises:
            InvalidError: Anything wrong with the document, or what was chosen is impossible.
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
        `katib.model.thinning.MIN_POINTS`.
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
            marks: Tags and notes; None leaves all of them as they are.

        Raises:
            InvalidError: The change is not allowed.
        """

    def pause(self, namespace: str, experiment: str, *, paused: bool) -> PausedExperiment:
        """Stop an experiment and pause its trials that run, or let all continue; all or nothing.

        Raises:
            InvalidError: The experiment has ended, or nothing suspends a job of its kind.
            UnavailableError: A trial has had no job for some seconds.
        """

    def mark(self, namespace: str, trial: str, marks: MarkChanges) -> Trial:
        """Set tags and notes of a trial; return it as stored.

        Raises:
            InvalidError: A mark is not valid.
        """

    def suspend(self, namespace: str, trial: str, *, suspended: bool) -> Trial:
        """Suspend the job of a trial, whose pods end then, or let it start again; return the Trial.

        Raises:
            InvalidError: The trial has ended, or nothing suspends a job of its kind.
            UnavailableError: Its job is not there yet, or not any more.
        """

    def ask(
        self,
        namespace: str,
        experiment: str,
        *,
        request_id: str,
        client: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
    ) -> GivenTrial:
        """Give a trial of an experiment without trial template to a caller, which evaluates it.

        Each trial is given to one caller, and the same request gets the same one again. A caller that gives no sign of
        life (`report`, `renew`) until its lease ends has lost the trial. Where none is free, asking has one made.

        Args:
            namespace: Of the experiment.
            experiment: Its name.
            request_id: Of this request, one that no other has: letters, digits, `-`, `_` and `.`, at most 63.
            client: What the caller calls itself, for people.
            lease_seconds: How long it is waited for after each sign of life.
            wait_seconds: How long to wait for a trial where none is free.

        Raises:
            InvalidError: Jobs evaluate the trials of this experiment, or an argument is wrong.
        """

    def report(
        self,
        namespace: str,
        trial: str,
        values: Mapping[str, float | str],
        *,
        step: int | None = None,
        request_id: str = "",
        ask_id: str = "",
    ) -> CallerAnswer:
        """Store readings of a trial that a caller evaluates, and return whether to stop; this is a sign of life.

        Args:
            namespace: Of the trial.
            trial: Its name.
            values: Readings by name: numbers, or their text.
            step: At which step of the training, from 0.
            request_id: Of this request; readings that come twice under one are stored once. Empty: each time.
            ask_id: The request that got the trial; empty: whichever did.

        Raises:
            InvalidError: An argument is wrong, the trial is not given to a caller, its caller has ended it, or it was
                given to another caller meanwhile.
        """

    def tell(
        self,
        namespace: str,
        trial: str,
        values: Mapping[str, float | str],
        *,
        failure: str | None = None,
        stopped: bool = False,
        request_id: str = "",
        ask_id: str = "",
    ) -> CallerAnswer:
        """End a trial that a caller evaluates: it succeeds with these last readings, unless it failed or was stopped.

        The end is stored when this returns, and the state of the trial follows in a moment. The same request may be
        sent again. A trial that was ended otherwise meanwhile, as by the goal of its experiment, stays as it is.

        Args:
            namespace: Of the trial.
            trial: Its name.
            values: Last readings by name; the objective has to be among them, unless it was reported.
            failure: Why there is no value; None when it did not fail.
            stopped: Whether the caller stopped early.
            request_id: Of this request.
            ask_id: The request that got the trial; empty: whichever did.

        Raises:
            InvalidError: An argument is wrong, the trial is not given to a caller, another request has ended it, or it
                was given to another caller meanwhile.
        """

    def renew(self, namespace: str, trial: str, *, ask_id: str = "") -> CallerAnswer:
        """Give a sign of life of the caller that evaluates a trial, and return whether to stop. Raises as `report`."""

    def add_ended_trials(self, namespace: str, experiment: str, trials: Sequence[EndedTrial]) -> int:
        """Take trials that were evaluated elsewhere into an experiment without trial template; return how many are new.

        They are trials of it as any other, and count against its budget. One whose id it has already is left as it is,
        so that the same trials may be sent again. At most 1,000 at once.

        Raises:
            InvalidError: Jobs evaluate the trials of this experiment, it has ended, or a trial is no point of its
                search space, lacks its objective or has a value that is not a number. Then none is taken.
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
