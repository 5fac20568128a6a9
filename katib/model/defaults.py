"""Default values of an experiment. Pure; applying them twice changes nothing.

The rules and their order are Katib's, so that the same file means the same on both. Some kinds of jobs have defaults
that Katib does not know (`job_kinds.py`), and an experiment without an algorithm, which Katib rejects, gets one.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from katib.model.job_kinds import known_kind
from katib.model.types import (
    AlgorithmSpec,
    CollectorKind,
    CollectorSpec,
    Distribution,
    Experiment,
    ExperimentSpec,
    FileFormat,
    FileSystemKind,
    FileSystemPath,
    MetricsCollectorSpec,
    MetricStrategy,
    MetricStrategySpec,
    ObjectiveSpec,
    ObjectiveType,
    ParameterSpec,
    ResumePolicy,
    SourceSpec,
    TrialTemplate,
)
from katib.model.types.words import mean_count

DEFAULT_PARALLEL_TRIAL_COUNT = 3
DEFAULT_ALGORITHM = "auto"
DEFAULT_METRICS_FILE = "/var/log/katib/metrics.log"
DEFAULT_EVENTS_DIRECTORY = "/var/log/katib/tfevent/"
DEFAULT_METRICS_URL_PATH = "/metrics"
DEFAULT_METRICS_PORT = 8080

_STRATEGIES = {ObjectiveType.MINIMIZE: MetricStrategy.MIN, ObjectiveType.MAXIMIZE: MetricStrategy.MAX}


def with_defaults(experiment: Experiment) -> Experiment:
    """Return the experiment with every default filled in; given values do not change."""
    return structs.replace(experiment, spec=_spec(experiment.spec))


def _spec(spec: ExperimentSpec) -> ExperimentSpec:
    parallel = spec.parallel_trial_count
    return structs.replace(
        spec,
        parallel_trial_count=DEFAULT_PARALLEL_TRIAL_COUNT if parallel is None else parallel,
        resume_policy=spec.resume_policy or ResumePolicy.NEVER.value,
        algorithm=default_algorithm(spec),
        objective=spec.objective and _objective(spec.objective, means=compares_means(spec)),
        trial_template=spec.trial_template and _template(spec.trial_template),
        metrics_collector_spec=_metrics_collector(spec.metrics_collector_spec or _unnamed_collector(spec)),
        parameters=tuple(map(_parameter, spec.parameters)),
    )


def default_algorithm(spec: ExperimentSpec) -> AlgorithmSpec | None:
    """Return the suggestion algorithm, the default one if none is named.

    An architecture search has no default: the input of its training image depends on the algorithm.
    """
    given = spec.algorithm or AlgorithmSpec()
    if given.algorithm_name or spec.nas_config is not None:
        return spec.algorithm
    return structs.replace(given, algorithm_name=DEFAULT_ALGORITHM)


def compares_means(spec: ExperimentSpec) -> bool:
    """Return whether trials are compared by their mean over folds: their value is the mean as well."""
    return spec.early_stopping is not None and spec.early_stopping.algorithm_name == "wilcoxon"


def _objective(objective: ObjectiveSpec, *, means: bool) -> ObjectiveSpec:
    """Fill in absent fields from the first of several objectives, and a strategy for each metric without one."""
    if objective.objectives:
        first = objective.objectives[0]
        objective = structs.replace(
            objective,
            type=objective.type or first.type,
            objective_metric_name=objective.objective_metric_name or first.name,
            goal=first.goal if objective.goal is None else objective.goal,
        )
    strategies = list(objective.metric_strategies)
    for name in objective.metric_names:
        if all(strategy.name != name for strategy in strategies):
            strategies.append(MetricStrategySpec(name=name, value=_strategy(objective, name, means=means)))
    return structs.replace(objective, metric_strategies=tuple(strategies))


def _strategy(objective: ObjectiveSpec, name: str, *, means: bool) -> str:
    """Return the best reading for an objective, the last one for a metric that is only bounded.

    For additional metrics it is that of the objective, as in Katib.
    """
    given = objective.strategy_of(objective.objective_metric_name)
    if means or (given and mean_count(given) is not None):
        return given or MetricStrategy.MEAN.value
    is_objective = any(term.name == name for term in objective.terms)
    if not is_objective and any(bounds.metric_name == name for bounds in objective.constraints):
        return MetricStrategy.LATEST.value
    type_ = next((term.type for term in objective.objectives if term.name == name), objective.type)
    return next((s.value for t, s in _STRATEGIES.items() if t == type_), MetricStrategy.LATEST.value)


def _template(template: TrialTemplate) -> TrialTemplate:
    """Fill in the end conditions of known job kinds. A template in a ConfigMap cannot be read here."""
    known = known_kind(template.trial_spec or {})
    if known is None:
        return template
    return structs.replace(
        template,
        success_condition=template.success_condition or holds(known.success),
        failure_condition=template.failure_condition or holds("Failed"),
        primary_pod_labels=template.primary_pod_labels or dict(known.primary_pod_labels),
    )


def holds(condition: str) -> str:
    """Return the GJSON path that is satisfied once a condition of a job is true."""
    return f'status.conditions.#(type=="{condition}")#|#(status=="True")#'


def _unnamed_collector(spec: ExperimentSpec) -> MetricsCollectorSpec:
    """Return the default collector: without a job there is no output to read, and callers report."""
    if spec.trial_template is not None:
        return MetricsCollectorSpec()
    return MetricsCollectorSpec(collector=CollectorSpec(kind=CollectorKind.PUSH.value))


def _metrics_collector(spec: MetricsCollectorSpec) -> MetricsCollectorSpec:
    collector = spec.collector or CollectorSpec(kind=CollectorKind.STDOUT.value)
    source = spec.source
    if collector.kind == CollectorKind.PROMETHEUS_METRIC:
        source = _source(source, http_get=_http_get((source and source.http_get) or {}))
    elif collector.kind == CollectorKind.FILE:
        source = _source(
            source, file_system_path=_path(source, FileSystemKind.FILE, DEFAULT_METRICS_FILE, FileFormat.TEXT.value)
        )
    elif collector.kind == CollectorKind.TENSORFLOW_EVENT:
        source = _source(source, file_system_path=_path(source, FileSystemKind.DIRECTORY, DEFAULT_EVENTS_DIRECTORY, ""))
    return structs.replace(spec, collector=collector, source=source)


def _source(source: SourceSpec | None, **fields: object) -> SourceSpec:
    return structs.replace(source or SourceSpec(), **fields)


def _http_get(http_get: dict[str, Any]) -> dict[str, Any]:
    port = http_get.get("port")
    return {
        **http_get,
        "path": http_get.get("path") or DEFAULT_METRICS_URL_PATH,
        "port": DEFAULT_METRICS_PORT if port is None or str(port) == "0" else port,
    }


def _path(source: SourceSpec | None, kind: FileSystemKind, path: str, file_format: str) -> FileSystemPath:
    given = (source and source.file_system_path) or FileSystemPath()
    return FileSystemPath(path=given.path or path, kind=given.kind or kind.value, format=given.format or file_format)


def _parameter(parameter: ParameterSpec) -> ParameterSpec:
    space = parameter.feasible_space
    if space.distribution:
        return parameter
    uniform = structs.replace(space, distribution=Distribution.UNIFORM.value)
    return structs.replace(parameter, feasible_space=uniform)
