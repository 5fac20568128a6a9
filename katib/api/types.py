"""The kinds of `kubeflow.org/v1beta1` and the types they share, field for field as Katib serves them.

Models are frozen values: a change is a copy (`model_copy(update=...)`). Words that Katib spells as strings stay strings
on the model, so that an invalid object can be read and all its errors reported at once; the enums beside them name the
valid ones, and being string enums they compare equal.

Encoding follows Katib's JSON shape: what is empty is dropped, except nullable numbers that were given (`goal: 0`) and
the few objects that are always written.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, Strict
from pydantic.alias_generators import to_camel

GROUP = "kubeflow.org"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"


class ParameterType(StrEnum):
    """What values a parameter takes."""

    DOUBLE = "double"
    INT = "int"
    DISCRETE = "discrete"
    CATEGORICAL = "categorical"
    UNKNOWN = "unknown"


class Distribution(StrEnum):
    """How values of a double or int are spread over the feasible space."""

    UNIFORM = "uniform"
    LOG_UNIFORM = "logUniform"
    NORMAL = "normal"
    LOG_NORMAL = "logNormal"
    UNKNOWN = "unknown"


class ObjectiveType(StrEnum):
    """Direction of the search."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class MetricStrategy(StrEnum):
    """Which reading of a metric stands for the trial."""

    MIN = "min"
    MAX = "max"
    LATEST = "latest"


class ComparisonType(StrEnum):
    """How an early stopping rule compares a reading with its value."""

    EQUAL = "equal"
    LESS = "less"
    GREATER = "greater"


class ResumePolicy(StrEnum):
    """What is kept for raising the budget of a finished experiment."""

    NEVER = "Never"
    LONG_RUNNING = "LongRunning"
    FROM_VOLUME = "FromVolume"


class CollectorKind(StrEnum):
    """Where metrics are read."""

    STDOUT = "StdOut"
    FILE = "File"
    TENSORFLOW_EVENT = "TensorFlowEvent"
    PROMETHEUS_METRIC = "PrometheusMetric"
    CUSTOM = "Custom"
    PUSH = "Push"


class FileSystemKind(StrEnum):
    """What a metrics path points at."""

    FILE = "File"
    DIRECTORY = "Directory"


class FileFormat(StrEnum):
    """How a metrics file is written."""

    TEXT = "TEXT"
    JSON = "JSON"


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ExperimentCondition(StrEnum):
    """Condition types of an Experiment."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class SuggestionCondition(StrEnum):
    """Condition types of a Suggestion."""

    CREATED = "Created"
    DEPLOYMENT_READY = "DeploymentReady"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class TrialCondition(StrEnum):
    """Condition types of a Trial."""

    CREATED = "Created"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    KILLED = "Killed"
    FAILED = "Failed"
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    EARLY_STOPPED = "EarlyStopped"


UNAVAILABLE = "unavailable"
"""Text of a metric that nobody could read."""


def format_time(value: datetime) -> str:
    """Return RFC 3339 text in UTC with whole seconds, the form of every time in an object."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _decimal_text(value: object) -> object:
    """Accept a bare YAML number where Katib wants text: `min: 0.01` means `min: "0.01"`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _plain_text(value: object) -> object:
    """Accept any YAML scalar in a list of choices or a setting: `[1, 2]` means `["1", "2"]`, `true` means `"true"`."""
    if isinstance(value, bool):
        return str(value).lower()
    return _decimal_text(value)


Time = Annotated[datetime, PlainSerializer(format_time)]
DecimalText = Annotated[str, BeforeValidator(_decimal_text)]
PlainText = Annotated[str, BeforeValidator(_plain_text)]
Int32 = Annotated[int, Strict(), Field(ge=-(2**31), lt=2**31)]
"""A count as the wire carries it; `"3"`, `true` and `3.0` are none."""
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]


class Model(BaseModel):
    """Base of all types: camel case on the wire, frozen, foreign fields ignored (they are reported at submission)."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        defer_build=True,  # a process that reads Trials does not pay for compiling an Experiment
    )

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Self:
        """Read the JSON form.

        Raises:
            pydantic.ValidationError: A field has the wrong type.
        """
        return cls.model_validate(obj)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, without what is empty."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


# --- search space -----------------------------------------------------------------------------------------------------


class FeasibleSpace(Model):
    """The values a parameter may take: bounds and step as decimal text, or a list."""

    max: DecimalText = ""
    min: DecimalText = ""
    step: DecimalText = ""
    list: tuple[PlainText, ...] = ()
    distribution: str = ""


class ParameterSpec(Model):
    """One parameter of the search space."""

    name: str = ""
    parameter_type: str = ""
    feasible_space: FeasibleSpace = Field(default_factory=FeasibleSpace)


class GraphConfig(Model):
    """Outline of the network in an architecture search."""

    num_layers: Int32 | None = None
    input_sizes: tuple[Int32, ...] = ()
    output_sizes: tuple[Int32, ...] = ()


class Operation(Model):
    """One operation that a layer may be."""

    operation_type: str = ""
    parameters: tuple[ParameterSpec, ...] = ()


class NasConfig(Model):
    """Search space of an architecture search."""

    graph_config: GraphConfig = Field(default_factory=GraphConfig)
    operations: tuple[Operation, ...] = ()


# --- objective and algorithms -----------------------------------------------------------------------------------------


class MetricStrategySpec(Model):
    """Which reading of one metric counts."""

    name: str = ""
    value: str = ""


class ObjectiveSpec(Model):
    """What to optimise."""

    type: str = ""
    goal: Number | None = None
    objective_metric_name: str = ""
    additional_metric_names: tuple[str, ...] = ()
    metric_strategies: tuple[MetricStrategySpec, ...] = ()

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The objective metric, then the additional ones."""
        return (self.objective_metric_name, *self.additional_metric_names)

    def strategy_of(self, metric: str) -> str:
        """Return the strategy of a metric, empty when it has none."""
        return next((s.value for s in self.metric_strategies if s.name == metric), "")


class AlgorithmSetting(Model):
    """One option of an algorithm."""

    name: str = ""
    value: PlainText = ""


class AlgorithmSpec(Model):
    """A suggestion or early stopping algorithm with its settings."""

    algorithm_name: str = ""
    algorithm_settings: tuple[AlgorithmSetting, ...] = ()


class EarlyStoppingRule(Model):
    """A reading that ends a trial early.

    The rule is met when, from the `start_step`-th reading on, the metric compares so with the value; for the objective
    metric the best reading so far is compared.
    """

    name: str = ""
    value: PlainText = ""
    comparison: str = ""
    start_step: int = 0


class ParameterAssignment(Model):
    """A parameter and its chosen value."""

    name: str = ""
    value: PlainText = ""


# --- metrics ----------------------------------------------------------------------------------------------------------


class Metric(Model):
    """Summary of one metric of a trial. Values keep the text that the trial printed."""

    name: str = ""
    min: str = ""
    max: str = ""
    latest: str = ""


class Observation(Model):
    """Summary of all metrics of a trial."""

    metrics: tuple[Metric, ...] = ()

    def metric(self, name: str) -> Metric | None:
        """Return the summary of one metric."""
        return next((m for m in self.metrics if m.name == name), None)


class FilterSpec(Model):
    """RE2 patterns with two groups, name and value."""

    metrics_format: tuple[str, ...] = ()


class FileSystemPath(Model):
    """Where a metrics file or directory lies."""

    path: str = ""
    kind: str = ""
    format: str = ""


class SourceSpec(Model):
    """What a collector reads."""

    http_get: dict[str, Any] | None = None
    file_system_path: FileSystemPath | None = None
    filter: FilterSpec | None = None


class CollectorSpec(Model):
    """Which collector reads it."""

    kind: str = ""
    custom_collector: dict[str, Any] | None = None


class MetricsCollectorSpec(Model):
    """How metrics of a trial are collected."""

    source: SourceSpec | None = None
    collector: CollectorSpec | None = None


# --- template ---------------------------------------------------------------------------------------------------------


class TrialParameterSpec(Model):
    """A placeholder of the template and what fills it."""

    name: str = ""
    description: str = ""
    reference: str = ""


class ConfigMapSource(Model):
    """A template kept in a ConfigMap."""

    config_map_name: str = ""
    config_map_namespace: str = ""
    template_path: str = ""


class TrialTemplate(Model):
    """What a trial runs as: any object, with placeholders."""

    retain: Flag = False
    trial_spec: dict[str, Any] | None = None
    config_map: ConfigMapSource | None = None
    trial_parameters: tuple[TrialParameterSpec, ...] | None = None
    primary_pod_labels: dict[str, str] = Field(default_factory=dict)
    primary_container_name: str = ""
    success_condition: str = ""
    failure_condition: str = ""


# --- objects ----------------------------------------------------------------------------------------------------------


class OwnerReference(Model):
    """An object that owns this one: when it goes, this one goes."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Model):
    """Metadata of every object, with Kubernetes' meaning. Fields that we do not use survive a round trip."""

    model_config = ConfigDict(extra="allow")

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Condition(Model):
    """One fact about an object now. The list is in order of the last change, so its last element is "the state"."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class Resource(Model):
    """What all three kinds share."""

    api_version: str = Field(default=API_VERSION, exclude=True)
    kind: str = Field(default="", exclude=True)
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """Name within the namespace."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Namespace, never empty for a stored object."""
        return self.metadata.namespace

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, apiVersion and kind first."""
        return {"apiVersion": API_VERSION, "kind": type(self).__name__, **super().encode()}


class OptimalTrial(Model):
    """The best trial so far."""

    best_trial_name: str = ""
    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    observation: Observation = Field(default_factory=Observation)


class ExperimentSpec(Model):
    """One tuning run, as the user asks for it."""

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


class ExperimentStatus(Model):
    """How the run goes. Counts are exact; each list of names holds the newest ones only (`docs/decisions`)."""

    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    conditions: tuple[Condition, ...] = ()
    current_optimal_trial: OptimalTrial = Field(default_factory=OptimalTrial)
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


class Experiment(Resource):
    """A tuning run."""

    spec: ExperimentSpec = Field(default_factory=ExperimentSpec)
    status: ExperimentStatus = Field(default_factory=ExperimentStatus)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, with the objects that Katib writes even when they are empty."""
        obj = super().encode()
        if "status" in obj:
            obj["status"].setdefault("currentOptimalTrial", {}).setdefault("observation", {})
        for parameter in obj.get("spec", {}).get("parameters", ()):
            parameter.setdefault("feasibleSpace", {})
        return obj


class TrialAssignment(Model):
    """An assignment that waits to become a trial."""

    name: str = ""
    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    early_stopping_rules: tuple[EarlyStoppingRule, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)


class SuggestionSpec(Model):
    """What is asked of a suggestion service."""

    algorithm: AlgorithmSpec | None = None
    early_stopping: AlgorithmSpec | None = None
    requests: int = 0
    resume_policy: str = ""


class SuggestionStatus(Model):
    """What the service answered: `suggestion_count` since the start; `suggestions` only those without a trial yet."""

    algorithm_settings: tuple[AlgorithmSetting, ...] = ()
    suggestion_count: int = 0
    suggestions: tuple[TrialAssignment, ...] = ()
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    conditions: tuple[Condition, ...] = ()


class Suggestion(Resource):
    """The conversation with one suggestion service about one experiment."""

    spec: SuggestionSpec = Field(default_factory=SuggestionSpec)
    status: SuggestionStatus = Field(default_factory=SuggestionStatus)


class TrialSpec(Model):
    """One evaluation: the assignments and the rendered job."""

    objective: ObjectiveSpec | None = None
    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    early_stopping_rules: tuple[EarlyStoppingRule, ...] = ()
    run_spec: dict[str, Any] | None = None
    retain_run: bool = False
    metrics_collector: MetricsCollectorSpec = Field(default_factory=MetricsCollectorSpec)
    primary_pod_labels: dict[str, str] = Field(default_factory=dict)
    primary_container_name: str = ""
    success_condition: str = ""
    failure_condition: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class TrialStatus(Model):
    """How the evaluation goes."""

    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    conditions: tuple[Condition, ...] = ()
    observation: Observation | None = None


class Trial(Resource):
    """One evaluation of one set of assignments."""

    spec: TrialSpec = Field(default_factory=TrialSpec)
    status: TrialStatus = Field(default_factory=TrialStatus)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, with the object that Katib writes even when it is empty."""
        obj = super().encode()
        obj.setdefault("spec", {}).setdefault("metricsCollector", {})
        return obj
