"""The verbs of a tuning service: each request and its answer, declared once.

`katib.service.tuning.verbs` lists the consequences of a declaration. To add a verb, declare its struct here, list it in
`TuningService`, write its handler in `katib.service.tuning.stored_service`, and show it in the doors that need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import UNSET, Meta, Struct, UnsetType, field

from katib.model.algorithms import AlgorithmInfo
from katib.model.marks import LONGEST_NOTES, LONGEST_TAG, MOST_TAGS
from katib.model.metrics import MetricLog
from katib.model.thinning import MIN_POINTS
from katib.model.types import Experiment, Resource, Trial
from katib.service.tuning.verbs import DOCUMENT, A, Method, Rest, Verb, Way

if TYPE_CHECKING:
    from katib.model.loading import FileText
    from katib.service.tuning.offered_templates import OfferedTemplates

R = TypeVar("R", bound=Resource)
Json = dict[str, Any]
"""An object of another kind, such as a pod, or one of ours as it is stored."""

if TYPE_CHECKING:
    Document: TypeAlias = str | FileText
    """A submitted document: YAML or JSON text, or a file, whose text is then read only once."""
else:
    Document = str

# --- limits -----------------------------------------------------------------------------------------------------------

DEFAULT_NAMESPACE = "default"
INTERVAL_LEVEL = 0.9
"""Probability with which the interval of a confirmed mean holds the true one."""
DEFAULT_LEASE_SECONDS = 60.0
"""How long a caller keeps a trial after each sign of life, by default."""
SHORTEST_LEASE_SECONDS, LONGEST_LEASE_SECONDS = 1.0, 7 * 86_400.0
REQUEST_ID = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""The form of a label's value."""
MOST_VALUES = 1_000
LONGEST_METRIC = 255
LONGEST_COMMAND = 16_384
"""Characters of a command that travels with a document."""
LONGEST_NAME = 253
LONGEST_PATH = 4_096
LONGEST_VALUE = 65_536
MAX_INT = 2**31 - 1
MAX_STEP = 2**63 - 1024
"""The last number of 64 bits that JSON carries everywhere."""
MAX_PAGE = 5_000
MAX_READINGS = 100_000
MAX_LINES = 1_000_000_000
OBJECT_NAME = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z"
"""The form of an object's name."""
_CONTROLS = r"\x00-\x1f\x7f-\x9f"
_NUMBER = (
    r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|"
    r"[iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])$"
)
_TAG = rf"^[^{_CONTROLS},]*[^{_CONTROLS},\s][^{_CONTROLS},]*$"
_METRIC_NAME = {
    "minLength": 1,
    "maxLength": LONGEST_METRIC,
    "pattern": rf"^[^{_CONTROLS}\s]([^{_CONTROLS}]*[^{_CONTROLS}\s])?$",
}


def _said(description: str, *, schema: dict[str, Any] | None = None, **limits: Any) -> Meta:
    """Return the description of a field, its limits, and rules that are described only: the service checks these."""
    return Meta(description=description, extra_json_schema=schema, **limits)


def _rule(**schema: Any) -> Meta:
    """Return a rule that is described only: the service checks it, with a better message."""
    return Meta(extra_json_schema=schema)


def stored(kind: str) -> Meta:
    """Return the description of an object of one of our kinds, as it is stored."""
    return Meta(extra_json_schema={KIND_MARK: kind})


KIND_MARK = "x-kind"
"""Stands for the schema of an object until all schemas are in one place."""

# --- types of fields --------------------------------------------------------------------------------------------------

Namespace = Annotated[str, _said("Namespace of the object.", pattern=OBJECT_NAME, max_length=LONGEST_NAME)]
Name = Annotated[str, _said("Name of the object.", pattern=OBJECT_NAME, max_length=LONGEST_NAME)]
OtherNamespace = Annotated[
    str,
    _said(
        "Used when the document names none.",
        pattern=OBJECT_NAME,
        max_length=LONGEST_NAME,
        schema={"default": DEFAULT_NAMESPACE},
    ),
]
Source = Annotated[
    str,
    _said(
        "What to call the document in errors. The path of a file on the server's machine also makes the "
        "file's directory the one that relative paths of its commands start from.",
        max_length=4096,
    ),
]
SOURCE = "request body"
RequestId = Annotated[
    str,
    _said("Of this request; sent again, it has the same answer.", max_length=63, schema={"pattern": f"^{REQUEST_ID}$"}),
]
AskId = Annotated[str, _said("The `requestId` that got the trial; absent: whichever request did.", max_length=63)]
Values = Annotated[
    Mapping[str, float | Annotated[str, _rule(pattern=_NUMBER)]],
    _said(
        "Numbers by name of the metric, or their text: NaN and infinities need it.",
        max_length=MOST_VALUES,
        schema={"propertyNames": _METRIC_NAME},
    ),
]
Step = Annotated[int, _said("Of the training, from 0.", ge=0, le=MAX_STEP)]
Failure = Annotated[str, _said("Why it has no value; absent: it has one.", max_length=LONGEST_VALUE)]
Stopped = Annotated[bool, _said("Whether it was stopped before its end.")]
Tags = Annotated[
    tuple[Annotated[str, _rule(maxLength=LONGEST_TAG, pattern=_TAG)], ...],
    _said("Words to find it by.", schema={"maxItems": MOST_TAGS}),
]
Notes = Annotated[str, _said("What to remember of it.", schema={"maxLength": LONGEST_NOTES})]
Views = Annotated[dict[str, str], _said("Views of its page: the queries of their addresses by name. Others stay.")]
TrialOrder = Literal["age", "objective", "duration", "name"]
"""Which trial comes first: the oldest, the best, the longest, or the first by name."""
State = Literal["Pending", "Running", "Succeeded", "EarlyStopped", "Failed", "Killed", "MetricsUnavailable"]
ExperimentDocument = Annotated[Mapping[str, Any], stored("Experiment")]
TrialDocument = Annotated[Mapping[str, Any], stored("Trial")]

# --- answers ----------------------------------------------------------------------------------------------------------


class SubmittedExperiment(Struct, frozen=True, rename="camel", dict=True):
    """A submitted experiment.

    Attributes:
        document: The experiment as stored, with defaults.
        outcome: `created`; `updated` if its budget, ConfigMaps or Secrets changed; `resumed` if the same experiment
            was stopped; otherwise `unchanged`.
        notices: Sentences about differences from Kubernetes, such as an image that is not run.
    """

    document: ExperimentDocument = field(name="experiment")
    outcome: Annotated[str, _said("`created`, `resumed`, `updated` or `unchanged`.")]
    notices: tuple[str, ...] = ()

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment."""
        return Experiment.read(self.document)


class Choice(Struct, frozen=True):
    """The choice for an experiment that was run before; false if there is none.

    Attributes:
        restart: Run all of it again; the old one is kept under a name with a number.
        retry_failed: Run the failed trials again, with the same assignments.
        more: Number of trials to add to its budget.
    """

    restart: bool = False
    retry_failed: bool = False
    more: int = 0

    def __bool__(self) -> bool:
        return self.restart or self.retry_failed or self.more > 0


NO_CHOICE = Choice()


class WaysOnward(Struct, frozen=True, rename="camel"):
    """The choices for an experiment that has ended and was left as it is."""

    changes: Annotated[tuple[str, ...], _said("What changed since: files of its program, fields of it.")]
    lost: Annotated[int, _said("How many of its trials ended without a value.")]
    can_retry: Annotated[bool, _said("Whether `retryFailed` is possible.")]
    may_have_more: Annotated[bool, _said("Whether `more` is possible.")]


class RunExperiment(SubmittedExperiment, frozen=True, rename="camel"):
    """An experiment that was submitted to run."""

    notes: Annotated[tuple[str, ...], _said("Sentences about an experiment that runs once more.")] = ()
    ways: Annotated[WaysOnward | None, _said("Where it has ended and was left as it is; null otherwise.")] = None

    @classmethod
    def of(
        cls, submitted: SubmittedExperiment, *, notes: tuple[str, ...] = (), ways: WaysOnward | None = None
    ) -> RunExperiment:
        """Return a submitted experiment with notes on how it was run."""
        return cls(submitted.document, submitted.outcome, submitted.notices, notes, ways)


class StoredRuntime(Struct, frozen=True, rename="camel"):
    """A training runtime as stored.

    Attributes:
        runtime: As stored.
        outcome: `created`; `updated` if another one of that name was stored before; otherwise `unchanged`.
    """

    runtime: Json
    outcome: str


class Preview(Struct, frozen=True, rename="camel"):
    """The first trial of an experiment.

    Attributes:
        assignments: Text by name of parameter.
        run_spec: The template with these values in it; empty if callers evaluate the trials.
    """

    assignments: Mapping[str, str]
    run_spec: Json


class TrialPage(Struct, frozen=True, rename="camel", dict=True):
    """Part of a listing of trials.

    Attributes:
        documents: The trials as they are stored: a listing is passed on without being read.
        cursor: Place of the next page; empty on the last page.
        total: Number of trials on all pages.
    """

    documents: Sequence[TrialDocument] = field(name="items")
    cursor: Annotated[str, _said("Give it back as `cursor` for the next page; empty on the last one.")]
    total: Annotated[int, _said("How many match on all pages.")]

    @cached_property
    def items(self) -> tuple[Trial, ...]:
        """The trials."""
        return tuple(map(Trial.read, self.documents))


class RecordedEvent(Struct, frozen=True, rename="camel"):
    """An event of an object."""

    time: Annotated[datetime, Meta(tz=True)]
    kind: str
    name: str
    warning: bool
    reason: str
    message: str
    count: int = 1


class TrialFile(Struct, frozen=True, rename="camel"):
    """A file that a trial left in its folder, `KATIB_TRIAL_DIR`.

    Attributes:
        path: Below the folder, with slashes.
        size: In bytes.
        modified: When it was last written.
    """

    path: str
    size: int
    modified: Annotated[datetime, Meta(tz=True)]


class Diagnosis(Struct, frozen=True, rename="camel"):
    """The reason why an experiment or trial does not progress, or how it ended.

    Attributes:
        verdict: One sentence: the answer.
        findings: Its grounds, most important first, one sentence each.
        remedies: Actions for the user, one sentence each.
        log_tail: Last lines of the trial's output if they explain the end; otherwise empty.
        savings: Effect of an experiment's early stopping so far, one sentence; empty if there is none.
        saved_share: Share of all readings that it saved; None if unknown.
    """

    kind: str
    name: str
    state: str
    verdict: str
    findings: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()
    savings: str = ""
    saved_share: float | None = None


class ArrivedReadings(Struct, frozen=True, rename="camel"):
    """Readings of all metrics in order of arrival.

    Attributes:
        items: The readings.
        cursor: Opaque place behind the last of them, or the given one if there are none.
    """

    items: tuple[MetricLog, ...]
    cursor: Annotated[str, _said("Give it back as `since` for what arrives later.")]


class PausedExperiment(Struct, frozen=True, rename="camel", dict=True):
    """An experiment that was paused or resumed."""

    document: ExperimentDocument = field(name="experiment")
    trials: Annotated[tuple[str, ...], _said("Names of the trials that were paused or resumed with it.")] = ()

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment."""
        return Experiment.read(self.document)


class TrialForCaller(Struct, frozen=True, rename="camel", dict=True):
    """The answer to a request for a trial."""

    document: Annotated[TrialDocument | None, _said("null when none is free.")] = field(name="trial")
    is_over: Annotated[bool, _said("Whether the experiment has ended, so that none will be.")] = False
    reason: Annotated[str, _said("Why there is none; empty when there is one.")] = ""

    @cached_property
    def trial(self) -> Trial | None:
        """The Trial; None if none is free."""
        return Trial.read(self.document) if self.document else None


class CallerAnswer(Struct, frozen=True, rename="camel"):
    """The state of a trial that a caller evaluates."""

    state: Annotated[str, _said("Of the trial, such as `Running`.")]
    stop: Annotated[str, _said("Why to stop; empty while the trial continues.")] = ""


class ConfirmedConfiguration(Struct, frozen=True, rename="camel"):
    """A configuration that is run again, with the mean of its runs.

    Attributes:
        trial: The trial of the search that had it.
        parameters: Text by name.
        search_value: Value of that trial.
        values: Values of its further runs.
        lost: Names of the runs that ended without a value.
        mean: Mean of the values; None without any.
        low: Lower bound of the interval that holds the true mean with a probability of 90 %; None if unknown.
        high: Upper bound.
        probability: Probability that it is the best of the configurations; None if unknown.
        behind: Probability that the configuration of the best mean is truly better; None for that one itself, and if
            unknown.
    """

    trial: str
    parameters: Mapping[str, str]
    search_value: float
    values: tuple[float, ...] = ()
    lost: tuple[str, ...] = ()
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    probability: float | None = None
    behind: float | None = None


class Confirmation(Struct, frozen=True, rename="camel"):
    """The best configurations of an experiment, run again with other seeds.

    Attributes:
        experiment: The experiment whose configurations these are.
        confirmed_by: The experiment that runs them again; empty if trials of the search had equal parameters by chance.
        state: State of that one.
        metric: The objective, the first of several.
        direction: `minimize` or `maximize`.
        runs: Number of runs that have ended.
        budget: Number of all runs.
        configurations: The best mean first, those without a value last.
        best: Trial of the configuration with the best mean; empty if that is unknown.
        optimism: How much better the best value of the search was than the mean of its configuration; None if unknown.
        verdict: The result in one sentence.
        notes: Further sentences.
    """

    experiment: str
    confirmed_by: str
    state: str
    metric: str
    direction: str
    runs: int
    budget: int
    configurations: tuple[ConfirmedConfiguration, ...]
    best: str
    optimism: float | None
    verdict: str
    notes: tuple[str, ...] = ()


BOOKMARK = "BOOKMARK"
NOW = "now"
"""Cursor behind the newest reading: only later ones are wanted."""


class Change(Struct, frozen=True, dict=True):
    """A change of an experiment or one of its trials.

    Attributes:
        type: `ADDED`, `MODIFIED` or `DELETED`; or `BOOKMARK`: nothing changed, but the place in the stream moved on.
        document: The Experiment or Trial as it is stored after the change; for DELETED its last state, for BOOKMARK
            empty. It is shared: do not change it.
        cursor: Opaque place in the stream, for `since`. Empty if a stream cannot be resumed, as in the middle of the
            opening listing.
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
        return (Trial if self.document.get("kind") == "Trial" else Experiment).read(self.document)


class ChosenValue(Struct, frozen=True):
    """A parameter and its chosen value."""

    name: Annotated[str, Meta(max_length=LONGEST_VALUE)]
    value: Annotated[str, Meta(max_length=LONGEST_VALUE)]


def chosen_values(assignments: Mapping[str, str]) -> tuple[ChosenValue, ...]:
    """Return texts by name of parameter as they are sent."""
    return tuple(ChosenValue(name, value) for name, value in assignments.items())


class EndedTrial(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A trial that was evaluated elsewhere."""

    id: Annotated[str, _said("What no other trial of it has.", min_length=1, max_length=LONGEST_NAME)]
    assignments: Annotated[Mapping[str, str], _said("Text by name of parameter.")]
    began: Annotated[datetime, Meta(tz=True)]
    ended: Annotated[datetime, Meta(tz=True)]
    values: Annotated[
        Mapping[str, Annotated[str, _rule(pattern=_NUMBER)]],
        _said("Last readings, by name.", max_length=MOST_VALUES, schema={"propertyNames": {"minLength": 1}}),
    ] = field(default_factory=dict)
    failure: Failure | None = None
    stopped: Stopped = False
    readings: Annotated[tuple[MetricLog, ...], _said("What it reported before.")] = ()


# --- verbs ------------------------------------------------------------------------------------------------------------

_NS = "namespaces/{namespace}"
_EXPERIMENT, _TRIAL = f"{_NS}/experiments/{{name}}", f"{_NS}/trials/{{name}}"


def _get(*ways: Way, **form: Any) -> Rest:
    return Rest(method="GET", ways=ways, may_change=False, **form)


def _post(*ways: Way, **form: Any) -> Rest:
    return Rest(method="POST", ways=ways, **form)


class _Document(Verb[A], Generic[A], frozen=True, rename="camel", omit_defaults=True):
    document: Document


class OfDocument(_Document[A], Generic[A], frozen=True, kw_only=True):
    """A request with a document."""

    source: Source = SOURCE
    namespace: OtherNamespace | None = None


class Named(Verb[A], Generic[A], frozen=True, rename="camel", omit_defaults=True):
    """A request about one object."""

    namespace: Namespace
    name: Name


class Submit(OfDocument[SubmittedExperiment], frozen=True):
    """Create an experiment, or resume or update the one of that name.

    Raises:
        InvalidError: Anything wrong with it, all errors at once; also if it differs from the stored one in a way that
            cannot be resumed.
    """

    rest = _post(
        Way("submit_experiment", "experiments"),
        Way("submit_experiment_in_namespace", f"{_NS}/experiments"),
        body=DOCUMENT,
    )


class Run(OfDocument[RunExperiment], frozen=True, kw_only=True):
    """Submit an experiment as `katib run` does: one that has ended runs once more if that is wanted.

    Without a choice, an experiment without any usable trial runs again if its document or its program changed; any
    other that has ended is left as it is. Experiments of a cluster run once only.

    Raises:
        InvalidError: Anything wrong with the document, or the choice is impossible.
    """

    restart: Annotated[bool, _said("Run all of it again; the old one is kept as NAME-1.")] = False
    retry_failed: Annotated[bool, _said("Run its failed trials again, with the same values.")] = False
    more: Annotated[int, _said("Add so many trials to its budget.", ge=0, le=MAX_INT)] = 0
    command: Annotated[
        str, _said("What a user types to run it, for later explanations.", max_length=LONGEST_COMMAND)
    ] = ""
    rest = _post(Way("run_experiment", "run"), body=DOCUMENT)


class Validate(OfDocument[tuple[str, ...]], frozen=True):
    """Check a document as submitting it would, and store nothing; return the notices.

    A document of training runtimes alone is checked as storing them would.

    Raises:
        InvalidError: Anything wrong with it, all errors at once.
    """

    rest = _post(
        Way("validate_experiment", "validate"), body=DOCUMENT, holds="notices", answer="Notices", may_change=False
    )


class PreviewTrial(OfDocument[Preview], frozen=True):
    """Return the first trial of an experiment; nothing is stored, and no algorithm is asked.

    Raises:
        InvalidError: Anything wrong with it, all errors at once.
    """

    rest = _post(Way("preview_trial", "preview"), body=DOCUMENT, may_change=False)


class StoreRuntimes(OfDocument[tuple[StoredRuntime, ...]], frozen=True):
    """Store training runtimes, so that TrainJobs can refer to them.

    The document holds TrainingRuntimes and ClusterTrainingRuntimes only.

    Raises:
        InvalidError: Anything wrong with them, all errors at once; then none is stored.
    """

    rest = _post(Way("store_runtimes", "runtimes"), body=DOCUMENT, holds="items", answer="RuntimeList")


class GetObject(Named[Json], frozen=True):
    """Return an object as it is stored. A Suggestion has the name of its experiment."""

    kind: str = ""
    rest = _get(
        Way("get_experiment", _EXPERIMENT, {"kind": "Experiment"}),
        Way("get_trial", _TRIAL, {"kind": "Trial"}),
        Way("get_suggestion", f"{_NS}/suggestions/{{name}}", {"kind": "Suggestion"}),
    )


class ListExperiments(Verb[tuple[Experiment, ...]], frozen=True):
    """List experiments, oldest first; without a namespace, those of all."""

    namespace: Namespace | None = None
    rest = _get(
        Way("list_experiments", "experiments", {"namespace": None}),
        Way("list_experiments_in_namespace", f"{_NS}/experiments"),
        holds="items",
        answer="ExperimentList",
    )


class ListTrials(Named[TrialPage], frozen=True, kw_only=True):
    """List the trials of an experiment in pages.

    Raises:
        InvalidError: The cursor is not that of a page of the same list.
    """

    states: Annotated[tuple[State, ...], _said("Only trials in one of these states.")] = field(name="state", default=())
    order: Annotated[TrialOrder, _said("The oldest, the best, the longest, or the first by name on top.")] = "age"
    limit: Annotated[int, _said("Trials per page.", ge=1, le=MAX_PAGE)] = 500
    cursor: Annotated[str, _said("From the page before.")] = ""
    rest = _get(Way("list_trials", f"{_EXPERIMENT}/trials"))


class GetBestTrial(Named[Trial | None], frozen=True):
    """Return the best Trial so far; None while no trial has a usable objective value.

    Once the experiment is confirmed, the trial of the configuration with the best mean.
    """

    rest = _get(Way("get_best_trial", f"{_EXPERIMENT}/best"))


class GetParetoSet(Named[Annotated[Json, stored("ParetoSet")] | None], frozen=True):
    """Return the trials that no other one beats in all of several objectives: a few, and their number.

    None if there is one objective, or no trial has a usable value of each yet.
    """

    rest = _get(Way("get_pareto_set", f"{_EXPERIMENT}/pareto"))


class GetConfirmation(Named[Confirmation | None], frozen=True):
    """Return what a confirmation of an experiment found so far; None if there is none.

    The name may be that of the experiment which runs the configurations again, too. Of a search that repeats its trials
    and is not confirmed, these are the findings about its best configurations, from its own trials.
    """

    rest = _get(Way("get_confirmation", f"{_EXPERIMENT}/confirmation"))


class ListMetrics(Named[tuple[MetricLog, ...]], frozen=True, kw_only=True):
    """List the readings of a trial in order of steps, then of time."""

    metric: Annotated[str, _said("Only this metric.")] = ""
    limit: Annotated[int, _said("At most so many, the newest ones.", ge=1, le=MAX_READINGS)] = 10_000
    points: (
        Annotated[
            int,
            _said(
                "Instead of the newest ones: the whole curve of one metric, of the objective when none is "
                "named, thinned to at most so many points. The first and the last one and true extremes in between are "
                "kept.",
                ge=MIN_POINTS,
                le=MAX_READINGS,
            ),
        ]
        | None
    ) = None
    rest = _get(Way("list_metrics", f"{_TRIAL}/metrics"), holds="items", answer="ReadingList")


class ListReadings(Named[ArrivedReadings], frozen=True, kw_only=True):
    """List the readings of all metrics of a trial in order of arrival; a long log comes in several answers.

    Raises:
        InvalidError: The cursor is not one of these.
    """

    since: Annotated[
        str,
        _said(
            "Only what arrived behind this cursor of an earlier answer; `now`: nothing yet, only the cursor.",
            max_length=LONGEST_NAME,
            schema={"pattern": "^(now|[0-9]{0,18})$"},
        ),
    ] = ""
    rest = _get(Way("list_new_readings", f"{_TRIAL}/readings"))


class ListPods(Verb[tuple[Json, ...]], frozen=True):
    """List the pods of a trial, or of all trials of an experiment, oldest first, each as Kubernetes has it.

    They go with their job. Of a trial of one machine whose job had several replicas, the last pod of each is returned
    as it ended, as long as the trial's files are kept.
    """

    kind: str
    namespace: Namespace
    name: Name
    rest = _get(
        Way("list_experiment_pods", f"{_EXPERIMENT}/pods", {"kind": "Experiment"}),
        Way("list_trial_pods", f"{_TRIAL}/pods", {"kind": "Trial"}),
        holds="items",
        answer="PodList",
    )


class ListEvents(Verb[tuple[RecordedEvent, ...]], frozen=True):
    """List the events of an object, oldest first; of an experiment those of its trials too."""

    kind: str
    namespace: Namespace
    name: Name
    rest = _get(
        Way("list_experiment_events", f"{_EXPERIMENT}/events", {"kind": "Experiment"}),
        Way("list_trial_events", f"{_TRIAL}/events", {"kind": "Trial"}),
        holds="items",
        answer="EventList",
    )


class ReadLogs(Named[Iterator[bytes]], frozen=True, kw_only=True):
    """Return the output of a trial.

    While a followed trial is silent an empty chunk comes every second or so, so that a reader can leave.

    Raises:
        NotFoundError: There is no such replica or container; the message lists those that there are.
    """

    follow: Annotated[bool, _said("Go on until the trial ends.")] = False
    tail_lines: Annotated[int, _said("Only the last so many lines.", ge=0, le=MAX_LINES)] | None = field(
        name="tail", default=None
    )
    replica: Annotated[
        str,
        _said(
            "Of this pod of the job, such as `worker-1`, or by the pod's name; of the primary one when none is named.",
            max_length=LONGEST_NAME,
        ),
    ] = ""
    container: Annotated[
        str, _said("Of this container of the pod; of the primary one when none is named.", max_length=LONGEST_NAME)
    ] = ""
    rest = _get(Way("read_logs", f"{_TRIAL}/logs"))


class ListFiles(Named[tuple[TrialFile, ...]], frozen=True):
    """List the files in the folder of a trial, `KATIB_TRIAL_DIR`, by path, without its output; at most a few hundred.

    Names that begin with a dot and links are left out. None on Kubernetes, where a folder ends with its pod.
    """

    rest = _get(Way("list_files", f"{_TRIAL}/files"), holds="items", answer="TrialFileList")


class ReadFile(Named[Iterator[bytes]], frozen=True):
    """Return one of the files in the folder of a trial.

    Raises:
        NotFoundError: There is no such file in the list.
    """

    path: Annotated[str, _said("As in the list.", min_length=1, max_length=LONGEST_PATH)]
    rest = _get(Way("read_file", f"{_TRIAL}/file"))


class FollowChanges(Named[Iterator[Change]], frozen=True, kw_only=True):
    """Follow an experiment and its trials: first as they are, then every change.

    The stream ends when the experiment is deleted or the time is up. A missing experiment raises with the first item.
    The changes of one object come in order; those of the experiment may overtake those of its trials.

    Raises:
        ExpiredError: `since` is too old, or later changes are lost, as after a long outage; begin again without.
    """

    timeout_seconds: Annotated[float, _said("End after so long; never if absent.", gt=0)] | None = None
    since: Annotated[str, _said("Go on behind the event of this id.")] = ""
    rest = _get(Way("follow_changes", f"{_EXPERIMENT}/changes"), headers={"since": "last-event-id"})


class ExplainObject(Named[Diagnosis], frozen=True):
    """Explain why an experiment, or a trial of that name, does not progress or how it ended."""

    rest = _get(Way("explain", f"{_NS}/why/{{name}}"))


class AddTrial(Named[int], frozen=True):
    """Run a trial before those that the algorithm proposes next; return how many by hand come before it.

    It counts against the budget.

    Raises:
        InvalidError: The values are not a point of the search space, or the budget has no room for another trial.
    """

    parameter_assignments: Annotated[
        tuple[ChosenValue, ...], _said("One for each parameter.", max_length=10_000, schema={"minItems": 1})
    ]
    rest = _post(
        Way("add_trial", f"{_EXPERIMENT}/trials"), body="ChosenTrial", status=202, holds="before", answer="AddedTrial"
    )


class Confirm(Named[Confirmation], frozen=True, kw_only=True):
    """Run the best configurations of an experiment again, each with other seeds, and return what is known of them.

    They are trials of an experiment of its own, NAME-confirm. The same request again continues it; a larger number of
    configurations or of runs extends it.

    Raises:
        InvalidError: No trial succeeded with a value, the experiment still runs, or its trials cannot be run again.
    """

    top: Annotated[int, _said("How many configurations, the best ones by the search.", ge=1, le=50)] = 3
    repeats: Annotated[int, _said("Runs of each.", ge=1, le=200)] = 5
    parallel: Annotated[int, _said("Runs at once; as in the search if absent.", ge=1, le=MAX_INT)] | None = None
    retry_failed: Annotated[bool, _said("Run those that ended without a value again.")] = False
    command: Annotated[
        str, _said("What a user types to run it, for later explanations.", max_length=LONGEST_COMMAND)
    ] = ""
    rest = _post(Way("confirm_experiment", f"{_EXPERIMENT}/confirmation"), body="ConfirmationRequest")


Count = Annotated[int, Meta(ge=1, le=MAX_INT)] | None
FailedCount = Annotated[int, Meta(ge=0, le=MAX_INT)] | None


class EditExperiment(Named[Experiment], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change the counts of an experiment, stop it, let it continue, or mark it; return it as stored.

    Absent fields stay as they are. null takes a limit away, an empty text or list a mark.

    Raises:
        InvalidError: The change is not allowed.
    """

    max_trial_count: Count | UnsetType = UNSET
    parallel_trial_count: Count | UnsetType = UNSET
    max_failed_trial_count: FailedCount | UnsetType = UNSET
    stopped: Annotated[bool, _said("Whether no further trial starts; those that run continue.")] | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    notes: Notes | UnsetType = UNSET
    views: Views | UnsetType = UNSET
    rest = Rest(method="PATCH", ways=(Way("edit_experiment", _EXPERIMENT),), body="ExperimentEdit")


class EditTrial(Named[Trial], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause the job of a trial, let it start again, or mark it with tags and notes; return the Trial.

    Raises:
        InvalidError: The trial has ended, nothing suspends a job of its kind, or a mark is not valid.
        UnavailableError: Its job does not exist yet, or no longer.
    """

    paused: Annotated[bool, _said("Whether its job is suspended: its pods end, and restart later.")] | UnsetType = (
        field(name="suspended", default=UNSET)
    )
    tags: Tags | UnsetType = UNSET
    notes: Notes | UnsetType = UNSET
    rest = Rest(method="PATCH", ways=(Way("edit_trial", _TRIAL),), body="TrialEdit")


class Pause(Named[PausedExperiment], frozen=True, kw_only=True):
    """Stop an experiment and pause its trials that run, or let all continue; all or nothing.

    Raises:
        InvalidError: The experiment has ended, or nothing suspends a job of its kind.
        UnavailableError: A trial has had no job for some seconds.
    """

    paused: Annotated[bool, _said("Whether it is paused; false: it continues.")]
    rest = _post(Way("pause_experiment", f"{_EXPERIMENT}/pause"), body="Pause")


class Ask(Named[TrialForCaller], frozen=True, kw_only=True):
    """Get a trial of an experiment without trial template, to evaluate it; each is given once.

    The same request gets the same trial again. A caller that gives no sign of life (`report`, `renew`) until its lease
    ends loses the trial. If no trial is free, one is made.

    Raises:
        InvalidError: Jobs evaluate the trials of this experiment, or an argument is wrong.
    """

    request_id: RequestId
    client: Annotated[str, _said("What the caller calls itself.", max_length=LONGEST_NAME)] = ""
    lease_seconds: Annotated[
        float,
        _said(
            "How long it is waited for after each sign of life; 60 if absent.",
            schema={"minimum": SHORTEST_LEASE_SECONDS, "maximum": LONGEST_LEASE_SECONDS},
        ),
    ] = DEFAULT_LEASE_SECONDS
    wait_seconds: Annotated[float, _said("How long to wait for a trial where none is free.", ge=0, le=60)] = 0.0
    rest = _post(Way("ask_for_trial", f"{_EXPERIMENT}/ask"), body="TrialRequest", is_quick=True)


class Report(Named[CallerAnswer], frozen=True):
    """Store readings of a trial that you evaluate, and learn whether to stop; this is a sign of life.

    Raises:
        InvalidError: An argument is wrong, the trial is not given to a caller, its caller has ended it, or it was given
            to another caller meanwhile.
    """

    values: Annotated[Values, _rule(minProperties=1)]
    step: Step | None = None
    request_id: RequestId = ""
    ask_id: AskId = ""
    rest = _post(Way("report_readings", f"{_TRIAL}/report"), body="ReportedReadings", is_quick=True)


class Tell(Named[CallerAnswer], frozen=True):
    """End a trial that you evaluate: with its values, as failed, or as stopped.

    The end is stored when this returns; the state of the trial follows in a moment. The same request may be sent again.
    A trial that was ended otherwise meanwhile, as by the goal of its experiment, stays as it is.

    Raises:
        InvalidError: An argument is wrong, the objective was neither given nor reported, the trial is not given to a
            caller, another request has ended it, or it was given to another caller meanwhile.
    """

    values: Values = field(default_factory=dict)
    failure: Failure | None = None
    stopped: Stopped = False
    request_id: RequestId = ""
    ask_id: AskId = ""
    rest = _post(Way("end_trial", f"{_TRIAL}/tell"), body="TrialEnd", is_quick=True)


class Renew(Named[CallerAnswer], frozen=True, kw_only=True):
    """Give a sign of life for a trial that you evaluate, and learn whether to stop. Raises as `report`."""

    ask_id: AskId = ""
    rest = _post(Way("renew_lease", f"{_TRIAL}/renew"), body="SignOfLife", is_quick=True)


class AddEndedTrials(Named[int], frozen=True):
    """Take trials that were evaluated elsewhere into an experiment without trial template; return how many are new.

    They are trials as any other, and count against its budget. One whose id it already has is left as it is, so that
    the same trials may be sent again.

    Raises:
        InvalidError: Jobs evaluate the trials of this experiment, it has ended, or a trial is not a point of its search
            space, lacks its objective or has a value that is not a number. Then none is taken.
    """

    trials: Annotated[tuple[EndedTrial, ...], Meta(max_length=1_000)]
    rest = _post(
        Way("add_ended_trials", f"{_EXPERIMENT}/ended-trials"),
        body="EndedTrials",
        holds="added",
        answer="AddedEndedTrials",
    )


class Delete(Named[None], frozen=True):
    """Delete an experiment with its trials, their processes, metrics and files; return when they are gone."""

    rest = Rest(method="DELETE", ways=(Way("delete_experiment", _EXPERIMENT),), status=204, has_limit=False)


class ListAlgorithms(Verb[tuple[AlgorithmInfo, ...]], frozen=True):
    """List the algorithms offered, suggestion algorithms first."""

    rest = _get(Way("list_algorithms", "algorithms"), holds="items", answer="AlgorithmList")


class TuningService:
    """One tuning service. Thread-safe. Kinds are `Experiment`, `Trial` and `Suggestion`.

    The JSON form of an object that it returns (`encode`) is the stored one, with fields of newer versions. Every call
    raises NotFoundError for a missing object and UnavailableError if the service cannot be reached.
    """

    submit = Method(Submit)
    run = Method(Run)
    validate = Method(Validate)
    preview = Method(PreviewTrial)
    store_runtimes = Method(StoreRuntimes)
    get_object = Method(GetObject)
    experiments = Method(ListExperiments)
    trials = Method(ListTrials)
    best = Method(GetBestTrial)
    pareto = Method(GetParetoSet)
    confirmation = Method(GetConfirmation)
    metrics = Method(ListMetrics)
    readings = Method(ListReadings)
    pods = Method(ListPods)
    logs = Method(ReadLogs)
    files = Method(ListFiles)
    file = Method(ReadFile)
    events = Method(ListEvents)
    changes = Method(FollowChanges)
    why = Method(ExplainObject)
    add_trial = Method(AddTrial)
    confirm = Method(Confirm)
    edit = Method(EditExperiment)
    edit_trial = Method(EditTrial)
    pause = Method(Pause)
    ask = Method(Ask)
    report = Method(Report)
    tell = Method(Tell)
    renew = Method(Renew)
    add_ended_trials = Method(AddEndedTrials)
    delete = Method(Delete)
    algorithms = Method(ListAlgorithms)

    def call(self, request: Verb[A]) -> A:
        """Return the answer to a request."""
        raise NotImplementedError

    def get(self, kind: type[R], namespace: str, name: str) -> R:
        """Return an object."""
        return kind.read(self.get_object(namespace, name, kind.__name__))

    def curve(self, namespace: str, trial: str, *, points: int, metric: str = "") -> tuple[MetricLog, ...]:
        """Return the curve of a metric, that of the objective when none is named, with at most so many points."""
        return self.metrics(namespace, trial, metric=metric, points=points)


VERBS: tuple[type[Verb[Any]], ...] = tuple(one.kind for one in vars(TuningService).values() if isinstance(one, Method))
"""All verbs, in the order of the methods above."""


@runtime_checkable
class TemplateService(Protocol):
    """An ability of a tuning service: templates to begin an experiment with, and namespaces to put it in."""

    @property
    def templates(self) -> OfferedTemplates:
        """The trial templates that ConfigMaps offer."""

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces that an experiment may be in, as far as the user may know, in order of their names."""
