"""What an experiment means where its author said nothing. Pure; applying it twice changes nothing.

The rules and their order are Katib's, so that the same file means the same on both.
"""

from __future__ import annotations

from typing import Any

from katib.api.types import (
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

DEFAULT_PARALLEL_TRIAL_COUNT = 3
DEFAULT_METRICS_FILE = "/var/log/katib/metrics.log"
DEFAULT_EVENTS_DIRECTORY = "/var/log/katib/tfevent/"
DEFAULT_METRICS_URL_PATH = "/metrics"
DEFAULT_METRICS_PORT = 8080

_TRAINING_KINDS = ("TFJob", "PyTorchJob", "XGBoostJob", "MPIJob")
_TRAINING_LABELS = {"training.kubeflow.org/job-role": "master"}
_TRAIN_JOB_LABELS = {
    "jobset.sigs.k8s.io/replicatedjob-name": "node",
    "batch.kubernetes.io/job-completion-index": "0",
}
_STRATEGIES = {ObjectiveType.MINIMIZE: MetricStrategy.MIN, ObjectiveType.MAXIMIZE: MetricStrategy.MAX}


def with_defaults(experiment: Experiment) -> Experiment:
    """Return the experiment with every default filled in; nothing that was given changes."""
    return experiment.model_copy(update={"spec": _spec(experiment.spec)})


def _spec(spec: ExperimentSpec) -> ExperimentSpec:
    parallel = spec.parallel_trial_count
    return spec.model_copy(
        update={
            "parallel_trial_count": DEFAULT_PARALLEL_TRIAL_COUNT if parallel is None else parallel,
            "resume_policy": spec.resume_policy or ResumePolicy.NEVER.value,
            "objective": spec.objective and _objective(spec.objective),
            "trial_template": spec.trial_template and _template(spec.trial_template),
            "metrics_collector_spec": _metrics_collector(spec.metrics_collector_spec or MetricsCollectorSpec()),
            "parameters": tuple(map(_parameter, spec.parameters)),
        }
    )


def _objective(objective: ObjectiveSpec) -> ObjectiveSpec:
    """Append a strategy for the objective metric, then for each additional metric, that has none."""
    value = next((s.value for t, s in _STRATEGIES.items() if t == objective.type), MetricStrategy.LATEST.value)
    strategies = list(objective.metric_strategies)
    for name in objective.metric_names:
        if all(strategy.name != name for strategy in strategies):
            strategies.append(MetricStrategySpec(name=name, value=value))
    return objective.model_copy(update={"metric_strategies": tuple(strategies)})


def _template(template: TrialTemplate) -> TrialTemplate:
    """Fill in how the known job kinds say that they ended. A template in a ConfigMap is not known here."""
    kind = (template.trial_spec or {}).get("kind")
    if kind == "Job":
        return _with_conditions(template, "Complete", {})
    if kind in _TRAINING_KINDS:
        return _with_conditions(template, "Succeeded", _TRAINING_LABELS)
    if kind == "TrainJob":
        return _with_conditions(template, "Complete", _TRAIN_JOB_LABELS)
    return template


def _with_conditions(template: TrialTemplate, success: str, labels: dict[str, str]) -> TrialTemplate:
    return template.model_copy(
        update={
            "success_condition": template.success_condition or _holds(success),
            "failure_condition": template.failure_condition or _holds("Failed"),
            "primary_pod_labels": template.primary_pod_labels or dict(labels),
        }
    )


def _holds(condition: str) -> str:
    return f'status.conditions.#(type=="{condition}")#|#(status=="True")#'


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
    return spec.model_copy(update={"collector": collector, "source": source})


def _source(source: SourceSpec | None, **fields: object) -> SourceSpec:
    return (source or SourceSpec()).model_copy(update=fields)


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
    uniform = space.model_copy(update={"distribution": Distribution.UNIFORM.value})
    return parameter.model_copy(update={"feasible_space": uniform})
