"""The three kinds, with their metadata, specs and statuses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self

from msgspec import ValidationError, convert, field

from katib.model.types.blocks import (
    AlgorithmSetting,
    AlgorithmSpec,
    EarlyStoppingRule,
    InitialTrial,
    MetricsCollectorSpec,
    MetricValue,
    NasConfig,
    ObjectiveSpec,
    Observation,
    ParameterAssignment,
    ParameterSpec,
    TrialTemplate,
    WarmStartSpec,
)
from katib.model.types.fitting import fitted
from katib.model.types.model import Int32, Model, Number, OpenModel, Time
from katib.model.types.words import API_VERSION, TRIAL_RANKS, TRIAL_STATES, TrialState

_WRITTEN = "written"
"""Attribute with the JSON form of an object that was read. A changed copy does not have it."""


class OwnerReference(Model, frozen=True):
    """An object that owns this one: deleting it deletes this one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(OpenModel, frozen=True):
    """Metadata of every object, with Kubernetes' meaning."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Condition(OpenModel, frozen=True):
    """One current fact about an object. Lists are in order of the last change, so the last element is "the state"."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class Resource(Model, frozen=True, dict=True, gc=True):
    """Base of all kinds."""

    api_version: str = API_VERSION
    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    always_written: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Objects that Katib writes even if they are empty."""

    if TYPE_CHECKING:

        @property
        def name(self) -> str:
            """Name within the namespace."""

        @property
        def namespace(self) -> str:
            """Namespace, never empty for a stored object."""

    else:  # the same, read dozens of times a trial without an interpreter frame
        name = property(attrgetter("metadata.name"))
        namespace = property(attrgetter("metadata.namespace"))

    @classmethod
    def read(cls, obj: Mapping[str, Any]) -> Self:
        """Read a stored object, regardless of its writer: values of the wrong type are left out.

        Its JSON form is kept: `encode` returns it as it was written, with unknown fields.
        """
        try:
            found = cls.decode(obj)
        except ValidationError:
            found = convert(fitted(obj, cls, []), cls)
        found.__dict__[_WRITTEN] = obj
        return found

    def encode(self) -> dict[str, Any]:
        """Return the JSON form: as it was read, else with apiVersion and kind first."""
        written: Mapping[str, Any] | None = self.__dict__.get(_WRITTEN)
        if written is not None:
            return dict(written)
        obj = {"apiVersion": self.api_version, "kind": type(self).__name__, **super().encode()}
        for name in ("metadata", "spec", "status"):
            if obj.get(name) == {}:
                del obj[name]
        for part, name in self.always_written:
            obj.setdefault(part, {}).setdefault(name, {})
        return obj


class OptimalTrial(OpenModel, frozen=True):
    """The best trial so far."""

    best_trial_name: str = ""
    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    observation: Observation = field(default_factory=Observation)


class DefaultTrial(OpenModel, frozen=True):
    """The ended trial of the defaults.

    Attributes:
        trial_name: Its name.
        state: Its final state.
        parameter_assignments: The defaults, as they were tried.
        observation: Its metrics; None if there are none.
        comparison: The best trial, compared with it, as a clause.
    """

    trial_name: str = ""
    state: str = ""
    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    observation: Observation | None = None
    comparison: str = ""


class ParetoSet(OpenModel, frozen=True):
    """The nondominated trials of several objectives.

    `trials` holds a few of them, in the order of the first objective and spread over all; `trial_count` counts all. The
    `hypervolume` is that of all of them, measured from `reference_point`.
    """

    trials: tuple[OptimalTrial, ...] = ()
    trial_count: int = 0
    hypervolume: Number | None = None
    reference_point: tuple[MetricValue, ...] = ()


class BudgetUsage(OpenModel, frozen=True):
    """Use of one limit of a budget. Amounts are numbers as text, in units of `unit`.

    Attributes:
        unit: `hours`, `$`, or a resource, `gpu`, `cpu` or `trial`: then in hours of it.
        used: Used amount when the status was written.
        limit: Maximum amount.
    """

    unit: str = ""
    used: str = ""
    limit: str = ""


class ExperimentSpec(Model, frozen=True):
    """One tuning run, as specified by the user."""

    parameters: tuple[ParameterSpec, ...] = ()
    objective: ObjectiveSpec | None = None
    algorithm: AlgorithmSpec | None = None
    early_stopping: AlgorithmSpec | None = None
    trial_template: TrialTemplate | None = None
    parallel_trial_count: Int32 | None = None
    max_trial_count: Int32 | None = None
    max_failed_trial_count: Int32 | None = None
    metrics_collector_spec: MetricsCollectorSpec | None = None
    nas_config: NasConfig | None = None
    resume_policy: str = ""
    warm_start: WarmStartSpec | None = None
    initial_trials: tuple[InitialTrial, ...] = ()
    parameter_constraints: tuple[str, ...] = ()


class ExperimentStatus(OpenModel, frozen=True):
    """State of the run. Counts are exact; each list of names holds the newest ones only (`docs/decisions`)."""

    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    conditions: tuple[Condition, ...] = ()
    current_optimal_trial: OptimalTrial = field(default_factory=OptimalTrial)
    pareto_set: ParetoSet | None = None
    default_trial: DefaultTrial | None = None
    running_trial_list: tuple[str, ...] = ()
    pending_trial_list: tuple[str, ...] = ()
    failed_trial_list: tuple[str, ...] = ()
    succeeded_trial_list: tuple[str, ...] = ()
    killed_trial_list: tuple[str, ...] = ()
    early_stopped_trial_list: tuple[str, ...] = ()
    metrics_unavailable_trial_list: tuple[str, ...] = ()
    trials: int = 0
    trials_succeeded: int = 0
    trials_failed: int = 0
    trials_killed: int = 0
    trials_pending: int = 0
    trials_running: int = 0
    trials_early_stopped: int = 0
    trial_metrics_unavailable: int = 0
    trials_infeasible: int = 0
    trials_completed: int = 0
    run_seconds: float | None = None
    budget_usage: tuple[BudgetUsage, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, with the object that Katib writes even if it is empty."""
        status = super().encode()
        status.setdefault("currentOptimalTrial", {}).setdefault("observation", {})
        return status


class Experiment(Resource, frozen=True):
    """A tuning run."""

    spec: ExperimentSpec = field(default_factory=ExperimentSpec)
    status: ExperimentStatus = field(default_factory=ExperimentStatus)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, with the objects that Katib writes even if they are empty."""
        obj = super().encode()
        if _WRITTEN in self.__dict__:
            return obj
        if "status" in obj:
            obj["status"] = self.status.encode()
        for parameter in obj.get("spec", {}).get("parameters", ()):
            parameter.setdefault("feasibleSpace", {})
        return obj


class TrialAssignment(OpenModel, frozen=True):
    """An assignment without a trial yet."""

    name: str = ""
    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    early_stopping_rules: tuple[EarlyStoppingRule, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)


class SuggestionSpec(Model, frozen=True):
    """Requests to a suggestion service."""

    algorithm: AlgorithmSpec | None = None
    early_stopping: AlgorithmSpec | None = None
    requests: int = 0
    resume_policy: str = ""
    initial_trials: tuple[InitialTrial, ...] = ()


class EarlierTrialsStatus(OpenModel, frozen=True):
    """Use of the earlier trials of a warm start."""

    used: int = 0
    left_out: int = 0
    reason: str = ""

    def __str__(self) -> str:
        """Return it as a sentence."""
        total = self.used + self.left_out
        if not total:
            return "There is no earlier trial to learn from"
        said = f"{self.used} of {total} earlier trials are learned from"
        return f"{said}; others do not fit, such as {self.reason}" if self.left_out else said


class SuggestionStatus(OpenModel, frozen=True):
    """Replies of the service.

    `suggestion_count` counts since the start, initial trials included; `suggestions` holds only those without a trial
    yet, and `explanation` is a sentence on the service's choice and its reason.
    """

    algorithm_settings: tuple[AlgorithmSetting, ...] = ()
    suggestion_count: int = 0
    suggestions: tuple[TrialAssignment, ...] = ()
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    conditions: tuple[Condition, ...] = ()
    explanation: str = ""
    initial_trials_given: int = 0
    earlier_trials: EarlierTrialsStatus | None = None


class Suggestion(Resource, frozen=True):
    """The exchange with one suggestion service about one experiment."""

    spec: SuggestionSpec = field(default_factory=SuggestionSpec)
    status: SuggestionStatus = field(default_factory=SuggestionStatus)


class TrialSpec(Model, frozen=True):
    """One evaluation: the assignments and the rendered job."""

    objective: ObjectiveSpec | None = None
    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    early_stopping_rules: tuple[EarlyStoppingRule, ...] = ()
    run_spec: dict[str, Any] | None = None
    retain_run: bool = False
    metrics_collector: MetricsCollectorSpec = field(default_factory=MetricsCollectorSpec)
    primary_pod_labels: dict[str, str] = field(default_factory=dict)
    primary_container_name: str = ""
    success_condition: str = ""
    failure_condition: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class TrialStatus(OpenModel, frozen=True):
    """State of the evaluation."""

    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    run_seconds: float | None = None
    conditions: tuple[Condition, ...] = ()
    observation: Observation | None = None


class Trial(Resource, frozen=True):
    """One evaluation of one set of assignments."""

    spec: TrialSpec = field(default_factory=TrialSpec)
    status: TrialStatus = field(default_factory=TrialStatus)

    always_written = (("spec", "metricsCollector"),)

    @cached_property
    def state(self) -> TrialState:
        """The state; computed once, because it is read dozens of times a trial."""
        rank = len(TRIAL_STATES) - 1
        for condition in self.status.conditions:
            if condition.status == "True":
                rank = min(rank, TRIAL_RANKS.get(condition.type, rank))
        return TRIAL_STATES[rank]
