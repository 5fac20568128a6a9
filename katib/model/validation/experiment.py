"""All rules of one experiment, including those about its counts and the frame of its trial template."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from katib.errors import FieldError
from katib.model.algorithms import MOST_PARALLEL, AlgorithmCatalog, find_cut_amounts
from katib.model.checkpoints import checkpoint_directory
from katib.model.features.listed import FEATURES
from katib.model.job_kinds import misspelt_kind
from katib.model.names import FIRST_FAILURES_ANNOTATION, LOST_LEASES_ANNOTATION, MAX_EXPERIMENT_NAME
from katib.model.search_space import check_search_space, find_odd_values
from katib.model.trials import is_asked
from katib.model.types import CollectorKind, Experiment, ExperimentSpec, ObjectMeta, ParameterSpec, TrialTemplate
from katib.model.validation.algorithm import (
    check_algorithm,
    check_early_stopping,
    check_needs,
    check_resume_policy,
)
from katib.model.validation.history import (
    PointCheck,
    check_defaults,
    check_initial_trials,
    check_warm_start,
    no_point_errors,
)
from katib.model.validation.metrics_collector import check_metrics_collector
from katib.model.validation.objective import check_means, check_objective
from katib.model.wording import one_of, path_to, shown

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME_PREFIX = re.compile(r"[a-z][-a-z0-9]*", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_GENERATED_LENGTH = 5
"""Number of characters that Kubernetes appends to `generateName`."""
_MAX_NAMESPACE = 63

_LETTERS = "use lower case letters, digits and hyphens, beginning with a letter and ending with a letter or digit"


def check_metadata(metadata: ObjectMeta) -> Iterator[FieldError]:
    """Check that name and namespace are valid DNS labels of limited length, and labels as Kubernetes does."""
    if metadata.name:
        yield from _check_name(metadata.name)
    elif metadata.generate_name:
        yield from _check_prefix(metadata.generate_name)
    else:
        yield FieldError("metadata.name", "it is missing", "give the experiment a name", "name-missing")
    namespace = metadata.namespace
    if namespace and (not _NAMESPACE.fullmatch(namespace) or len(namespace) > _MAX_NAMESPACE):
        remedy = f"use at most {_MAX_NAMESPACE} lower case letters, digits and inner hyphens"
        cause = f"{shown(namespace)} is not a valid namespace"
        yield FieldError("metadata.namespace", cause, remedy, "namespace-format")
    yield from _check_labels(metadata.labels)
    for feature in FEATURES:
        yield from feature.errors(metadata.annotations)
    count = metadata.annotations.get(FIRST_FAILURES_ANNOTATION, "0")
    if not (count.isascii() and count.isdigit()):
        where = path_to("metadata.annotations", FIRST_FAILURES_ANNOTATION)
        cause = f"{shown(count)} is not a number of trials"
        yield FieldError(where, cause, "use 0 for never, or a whole number above it", "first-failures")


def _check_name(name: str) -> Iterator[FieldError]:
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        such = f", such as {near}" if _NAME.fullmatch(near) else ""
        yield FieldError("metadata.name", f"{shown(name)} is not a DNS label", f"{_LETTERS}{such}", "name-format")
    if len(name) > MAX_EXPERIMENT_NAME:
        cause = f"{shown(name)} has {len(name)} characters"
        yield FieldError("metadata.name", cause, f"use at most {MAX_EXPERIMENT_NAME}", "name-length")


def _check_prefix(prefix: str) -> Iterator[FieldError]:
    if not _NAME_PREFIX.fullmatch(prefix):
        yield FieldError(
            "metadata.generateName", f"{shown(prefix)} does not begin a DNS label", _LETTERS, "name-format"
        )
    limit = MAX_EXPERIMENT_NAME - _GENERATED_LENGTH
    if len(prefix) > limit:
        cause = f"{shown(prefix)} has {len(prefix)} characters"
        remedy = f"use at most {limit}, {_GENERATED_LENGTH} more are appended"
        yield FieldError("metadata.generateName", cause, remedy, "name-length")


def _check_labels(labels: Mapping[str, str]) -> Iterator[FieldError]:
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
            remedy = "use at most 63 letters, digits and inner -_. after an optional domain and /"
            yield FieldError("metadata.labels", f"{shown(key)} is not a valid label name", remedy, "label-format")
        if value and not _LABEL.fullmatch(value):
            remedy = "use at most 63 letters, digits and inner -_. or make it an annotation"
            where = path_to("metadata.labels", key)
            yield FieldError(where, f"{shown(value)} is not a valid label value", remedy, "label-format")


TemplateCheck = Callable[[TrialTemplate, Sequence[ParameterSpec]], list[FieldError]]
"""Returns errors inside a template whose frame is valid, given the search space: its ConfigMap, placeholders and
references, and whether the object can run here. Never raises."""

ConstraintCheck = Callable[[ExperimentSpec], list[FieldError]]
"""Returns errors of the constraints of the parameters. Never raises."""


def no_constraint_errors(_spec: ExperimentSpec) -> list[FieldError]:
    """Return no errors; for callers that cannot interpret values."""
    return []


ALL_COLLECTORS: tuple[str, ...] = tuple(CollectorKind)
_WITHOUT_JOB = (CollectorKind.PUSH, CollectorKind.NONE)


def validate_experiment(
    experiment: Experiment,
    *,
    catalog: AlgorithmCatalog,
    check_template: TemplateCheck,
    check_point: PointCheck = no_point_errors,
    check_constraints: ConstraintCheck = no_constraint_errors,
    collectors: Collection[str] = ALL_COLLECTORS,
) -> list[FieldError]:
    """Return all errors of an experiment; an empty list means that it is accepted."""
    spec = experiment.spec
    return [
        *check_metadata(experiment.metadata),
        *check_counts(spec),
        *check_resume_policy(spec.resume_policy),
        *check_objective(spec.objective),
        *check_means(spec),
        *check_algorithm(spec, catalog),
        *check_early_stopping(spec, catalog),
        *check_search_space(spec),
        *check_constraints(spec),
        *check_defaults(spec, check_point),
        *check_initial_trials(spec, check_point),
        *check_warm_start(spec, experiment.name),
        *check_needs(spec, catalog),
        *_check_template(spec, check_template),
        *check_metrics_collector(spec.metrics_collector_spec, collectors),
        *_check_callers(experiment),
        *(error for feature in FEATURES for error in feature.misfits(experiment)),
    ]


def find_warnings(spec: ExperimentSpec, catalog: AlgorithmCatalog) -> list[FieldError]:
    """Return warnings about accepted fields that are probably mistakes."""
    algorithm = spec.algorithm
    info = catalog.find(algorithm.algorithm_name) if algorithm is not None else None
    warnings = list(find_odd_values(spec.parameters))
    if algorithm is not None and info is not None:
        path = "spec.algorithm.algorithmSettings"
        if any(parameter.prior is not None for parameter in spec.parameters):
            from katib.model.parameter_priors import find_unused_priors

            warnings += find_unused_priors(spec, info, catalog.all)
        warnings += find_cut_amounts(info, algorithm.algorithm_settings, spec.parameters, path)
    return warnings


def _check_template(spec: ExperimentSpec, check_inside: TemplateCheck) -> Iterator[FieldError]:
    template = spec.trial_template
    if template is None:  # callers evaluate the trials
        return
    frame_errors, source_errors = list(check_frame(template)), list(check_source(template))
    yield from frame_errors + source_errors
    if template.trial_parameters and not source_errors:
        yield from (error for error in check_inside(template, spec.parameters) if error not in frame_errors)


def _check_callers(experiment: Experiment) -> Iterator[FieldError]:
    """Check that nothing requires a job if callers evaluate the trials."""
    if not is_asked(experiment):
        return
    from katib.model.leases import LOST_LEASES

    spec, policy = experiment.spec, experiment.metadata.annotations.get(LOST_LEASES_ANNOTATION)
    collector = spec.metrics_collector_spec
    if collector is not None and collector.kind in tuple(CollectorKind) and collector.kind not in _WITHOUT_JOB:
        cause = f"{collector.kind} reads what a job leaves, and without spec.trialTemplate there is no job"
        remedy = "remove it, since callers report their metrics, or add spec.trialTemplate"
        yield FieldError("spec.metricsCollectorSpec.collector.kind", cause, remedy, "collector-without-template")
    if checkpoint_directory(spec.algorithm):
        cause = "its checkpoints are handed from job to job, and without spec.trialTemplate there is no job"
        yield FieldError("spec.algorithm", cause, "add spec.trialTemplate", "checkpoints-without-template")
    if policy is not None and policy not in LOST_LEASES:
        path = f'metadata.annotations["{LOST_LEASES_ANNOTATION}"]'
        yield FieldError(path, f"{shown(policy)} is not known", one_of(LOST_LEASES), "lost-leases")


_PATH = "spec.trialTemplate"


def check_frame(template: TrialTemplate) -> Iterator[FieldError]:
    """Check the required fields beside the template's source."""
    if not template.primary_container_name:
        remedy = "name the container that prints the metrics"
        yield FieldError(f"{_PATH}.primaryContainerName", "it is missing", remedy, "primary-container-missing")
    conditions = {"successCondition": template.success_condition, "failureCondition": template.failure_condition}
    misspelt = misspelt_kind(template.trial_spec, f"{_PATH}.trialSpec") if not all(conditions.values()) else []
    yield from misspelt
    for name, condition in conditions.items():
        if not condition and not misspelt:  # the intended kind has them
            remedy = "give a GJSON path over the job's status; only known kinds of an inline template have a default"
            yield FieldError(f"{_PATH}.{name}", "it is missing", remedy, "condition-missing")
    if not template.trial_parameters:
        remedy = "list name and reference of each placeholder of the template"
        yield FieldError(f"{_PATH}.trialParameters", "it is missing", remedy, "trial-parameters-missing")


def check_source(template: TrialTemplate) -> Iterator[FieldError]:
    """Check that the template has exactly one source, and that it is complete."""
    inline, config_map = template.trial_spec is not None, template.config_map
    if not inline and config_map is None:
        remedy = "give the object a trial runs as in trialSpec, or its place in configMap"
        yield FieldError(_PATH, "it has neither trialSpec nor configMap", remedy, "template-source-missing")
    elif inline and config_map is not None:
        yield FieldError(_PATH, "it has both trialSpec and configMap", "keep one of them", "template-source-both")
    elif config_map is not None:
        for name, value, meaning in (
            ("configMapName", config_map.config_map_name, "the ConfigMap"),
            ("configMapNamespace", config_map.config_map_namespace, "the namespace of the ConfigMap"),
            ("templatePath", config_map.template_path, "the key in the ConfigMap"),
        ):
            if not value:
                where = f"{_PATH}.configMap.{name}"
                yield FieldError(where, "it is missing", f"name {meaning}", "config-map-field-missing")


def check_counts(spec: ExperimentSpec) -> Iterator[FieldError]:
    """Check each count alone, then against `maxTrialCount`."""
    limit = spec.max_trial_count
    if limit is not None and limit <= 0:
        yield FieldError("spec.maxTrialCount", f"{limit} is not above 0", "use at least 1", "max-trials-not-positive")
        limit = None
    yield from _check_parallel(spec.parallel_trial_count, limit)
    yield from _check_max_failed(spec.max_failed_trial_count, limit)


def _check_parallel(parallel: int | None, limit: int | None) -> Iterator[FieldError]:
    path = "spec.parallelTrialCount"
    if parallel is None:
        return
    if parallel <= 0:
        yield FieldError(path, f"{parallel} is not above 0", "use at least 1", "parallel-not-positive")
    elif limit is not None and parallel > limit:
        remedy = f"use at most {limit} or raise maxTrialCount"
        yield FieldError(path, f"{parallel} is above maxTrialCount {limit}", remedy, "parallel-above-max")
    elif parallel > MOST_PARALLEL:
        cause = f"{parallel} is more than an algorithm is asked for at once"
        yield FieldError(path, cause, f"use at most {MOST_PARALLEL}", "parallel-too-many")


def _check_max_failed(failed: int | None, limit: int | None) -> Iterator[FieldError]:
    path = "spec.maxFailedTrialCount"
    if failed is None:
        return
    if failed < 0:
        yield FieldError(path, f"{failed} is negative", "use 0 or more, or remove it", "max-failed-negative")
    elif limit is not None and failed > limit:
        remedy = f"use at most {limit} or raise maxTrialCount"
        yield FieldError(path, f"{failed} is above maxTrialCount {limit}", remedy, "max-failed-above-max")
