"""The building blocks of a spec, shared by the three kinds."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from msgspec import field

from katib.model.types.model import DecimalText, Flag, Int32, Model, Number, OpenModel, PlainText
from katib.model.types.words import CollectorKind

_TERM_NAME, _BOUNDED_NAME = attrgetter("name"), attrgetter("metric_name")

# --- search space -----------------------------------------------------------------------------------------------------


class FeasibleSpace(Model, frozen=True):
    """The values a parameter may take: bounds and step as decimal text, or a list."""

    max: DecimalText = ""
    min: DecimalText = ""
    step: DecimalText = ""
    list: tuple[PlainText, ...] = ()
    distribution: str = ""


class ParameterCondition(Model, frozen=True):
    """Condition for a parameter to have a value: another parameter has one of these values."""

    parameter: str = ""
    values: tuple[PlainText, ...] = ()


class ParameterPrior(Model, frozen=True):
    """A belief about the best value of a parameter: a center with a distance, or weights of listed values."""

    center: DecimalText = ""
    factor: DecimalText = ""
    width: DecimalText = ""
    weights: dict[str, Number] = field(default_factory=dict)

    def __hash__(self) -> int:  # of a parameter, which is a key of a cache
        return hash((self.center, self.factor, self.width, *self.weights.items()))


class ParameterSpec(Model, frozen=True):
    """One parameter of the search space."""

    name: str = ""
    parameter_type: str = ""
    feasible_space: FeasibleSpace = field(default_factory=FeasibleSpace)
    when: ParameterCondition | None = None
    default: DecimalText | None = None
    """The value in use today, without the search."""
    prior: ParameterPrior | None = None


class GraphConfig(Model, frozen=True):
    """Outline of the network in an architecture search."""

    num_layers: Int32 | None = None
    input_sizes: tuple[Int32, ...] = ()
    output_sizes: tuple[Int32, ...] = ()


class Operation(Model, frozen=True):
    """One candidate operation of a layer."""

    operation_type: str = ""
    parameters: tuple[ParameterSpec, ...] = ()


class NasConfig(Model, frozen=True):
    """Search space of an architecture search."""

    graph_config: GraphConfig = field(default_factory=GraphConfig)
    operations: tuple[Operation, ...] = ()


# --- objective and algorithms -----------------------------------------------------------------------------------------


class MetricStrategySpec(Model, frozen=True):
    """The strategy that picks the decisive reading of a metric."""

    name: str = ""
    value: str = ""


class ObjectiveTerm(Model, frozen=True):
    """One of several objectives."""

    name: str = ""
    type: str = ""
    goal: Number | None = None


class MetricConstraint(Model, frozen=True):
    """Bounds on a metric of a trial, inclusive."""

    metric_name: str = ""
    min: Number | None = None
    max: Number | None = None


class ObjectiveSpec(Model, frozen=True):
    """The objective. With several `objectives`, `type` and `objective_metric_name` are those of the first."""

    type: str = ""
    goal: Number | None = None
    objective_metric_name: str = ""
    additional_metric_names: tuple[str, ...] = ()
    metric_strategies: tuple[MetricStrategySpec, ...] = ()
    objectives: tuple[ObjectiveTerm, ...] = ()
    constraints: tuple[MetricConstraint, ...] = ()

    @property
    def metric_names(self) -> tuple[str, ...]:
        """All metrics to collect, without duplicates: the objective first, then the additional ones."""
        others, bounded = map(_TERM_NAME, self.objectives), map(_BOUNDED_NAME, self.constraints)
        return tuple(dict.fromkeys((self.objective_metric_name, *self.additional_metric_names, *others, *bounded)))

    @property
    def terms(self) -> tuple[ObjectiveTerm, ...]:
        """All objectives, even if there is only one."""
        if self.objectives:
            return self.objectives
        return (ObjectiveTerm(name=self.objective_metric_name, type=self.type, goal=self.goal),)

    @property
    def objective_names(self) -> tuple[str, ...]:
        return tuple(map(_TERM_NAME, self.objectives)) or (self.objective_metric_name,)

    @property
    def has_several(self) -> bool:
        """Whether there is more than one objective."""
        return len(self.objectives) > 1

    def strategy_of(self, metric: str) -> str:
        """Return the strategy of a metric, empty if it has none."""
        for strategy in self.metric_strategies:
            if strategy.name == metric:
                return strategy.value
        return ""


class AlgorithmSetting(Model, frozen=True):
    """One option of an algorithm."""

    name: str = ""
    value: PlainText = ""


class AlgorithmSpec(Model, frozen=True):
    """A suggestion or early stopping algorithm with its settings."""

    algorithm_name: str = ""
    algorithm_settings: tuple[AlgorithmSetting, ...] = ()


class EarlyStoppingRule(Model, frozen=True):
    """A condition on readings that ends a trial early.

    It is met if, from the `start_step`-th reading on, the metric compares so with the value; for the objective metric
    the best reading so far is compared.
    """

    name: str = ""
    value: PlainText = ""
    comparison: str = ""
    start_step: int = 0


class ParameterAssignment(Model, frozen=True):
    """A parameter and its chosen value."""

    name: str = ""
    value: PlainText = ""


class InitialTrial(Model, frozen=True):
    """A trial that the user chose."""

    parameter_assignments: tuple[ParameterAssignment, ...] = ()


class MetricValue(Model, frozen=True):
    """A metric and its final value."""

    name: str = ""
    value: PlainText = ""


class EarlierTrial(Model, frozen=True):
    """A trial of an earlier search, with its result."""

    parameter_assignments: tuple[ParameterAssignment, ...] = ()
    metrics: tuple[MetricValue, ...] = ()


class WarmStartSpec(Model, frozen=True):
    """Earlier trials to learn from: those of other experiments of the namespace, and those listed here."""

    experiments: tuple[str, ...] = ()
    trials: tuple[EarlierTrial, ...] = ()


# --- metrics ----------------------------------------------------------------------------------------------------------


class Metric(OpenModel, frozen=True):
    """Summary of one metric of a trial. Values keep the text that the trial printed."""

    name: str = ""
    min: str = ""
    max: str = ""
    latest: str = ""
    mean: str = ""


class Observation(OpenModel, frozen=True):
    """Summary of all metrics of a trial.

    Attributes:
        metrics: The smallest, largest and latest reading of each metric.
        at_best: Readings of additional metrics at the best reading of the objective.
    """

    metrics: tuple[Metric, ...] = ()
    at_best: tuple[MetricValue, ...] = ()

    def metric(self, name: str) -> Metric | None:
        """Return the summary of one metric."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        return None


class FilterSpec(Model, frozen=True):
    """RE2 patterns with two groups, name and value."""

    metrics_format: tuple[str, ...] = ()


class FileSystemPath(Model, frozen=True):
    """Location of a metrics file or directory."""

    path: str = ""
    kind: str = ""
    format: str = ""


class SourceSpec(Model, frozen=True):
    """Source of a collector's readings."""

    http_get: dict[str, Any] | None = None
    file_system_path: FileSystemPath | None = None
    filter: FilterSpec | None = None


class CollectorSpec(Model, frozen=True):
    """The kind of metrics collector."""

    kind: str = ""
    custom_collector: dict[str, Any] | None = None


class MetricsCollectorSpec(Model, frozen=True):
    """Collection of a trial's metrics."""

    source: SourceSpec | None = None
    collector: CollectorSpec | None = None

    @property
    def kind(self) -> str:
        """The kind of collector; `StdOut` if none is named."""
        return self.collector.kind if self.collector is not None else CollectorKind.STDOUT


# --- template ---------------------------------------------------------------------------------------------------------


class TrialParameterSpec(Model, frozen=True):
    """A placeholder of the template and its source."""

    name: str = ""
    description: str = ""
    reference: str = ""
    otherwise: PlainText | None = None
    """Replacement of a parameter that a trial does not have."""


class ConfigMapSource(Model, frozen=True):
    """A template kept in a ConfigMap."""

    config_map_name: str = ""
    config_map_namespace: str = ""
    template_path: str = ""


class TrialTemplate(Model, frozen=True):
    """Template of a trial's job: any object, with placeholders."""

    retain: Flag = False
    trial_spec: dict[str, Any] | None = None
    config_map: ConfigMapSource | None = None
    trial_parameters: tuple[TrialParameterSpec, ...] | None = None
    primary_pod_labels: dict[str, str] = field(default_factory=dict)
    primary_container_name: str = ""
    success_condition: str = ""
    failure_condition: str = ""
