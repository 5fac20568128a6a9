"""OptimizationJobs: validation, and translation into the Experiment that does their work. Pure.

A parameter reaches the program as a variable of `trainer.env`. The value of a trial is the last one of the metric in
the status of its TrainJob. Source: the definition of the kind in Kubeflow Trainer. It takes precedence over the text of
its design, whose examples are accepted with a notice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from katib.errors import FieldError, InvalidError
from katib.model.conditions import find_condition
from katib.model.decoding import decode_as, unknown_fields
from katib.model.json_values import check_plain
from katib.model.loading import OPTIMIZATION_JOB as KIND
from katib.model.loading import LoadedDocument, Submission, decode_experiment, with_namespace
from katib.model.names import (
    ALGORITHM_ANNOTATION,
    ALGORITHM_SETTINGS_ANNOTATION,
    EARLY_STOPPING_ANNOTATION,
    EARLY_STOPPING_SETTINGS_ANNOTATION,
    LAST_APPLIED,
    OPTIMIZATION_JOB_LABEL,
)
from katib.model.types import API_VERSION
from katib.model.types.optimization import (
    TRAINER_API_VERSION,
    JobParameter,
    JobSearchSpace,
    NumericSpace,
    OptimizationJob,
)
from katib.model.wording import path_to, shown

Json = dict[str, Any]

_NODE: Final = "node"
_VARIABLE: Final = "KUBEFLOW_TRAINER_OPT_"
_NOT_OF_VARIABLES: Final = re.compile(r"[^A-Z0-9_]")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_LONGEST, _MOST = 64, 100
_LARGEST_INT: Final = 2**53
_SEEDS: Final = 2**32
_DIRECTIONS: Final = {"Maximize": "maximize", "Minimize": "minimize"}
_TYPES: Final = {"Int": "int", "Float": "double"}
MANAGER: Final = "katib.kubeflow.org/katib-controller"
"""Value of `spec.managedBy` for our controllers."""
CREATED: Final = "Created"
EXPERIMENT_CREATED: Final = "ExperimentCreated"
JOB_TEMPLATE: Final = "spec.trainJobTemplate"
TRIAL_SPEC: Final = "spec.trialTemplate.trialSpec"


def settled(raw: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Return an OptimizationJob with defaults, and notices about spellings from the text of the design.

    Malformed values stay unchanged.
    """
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return dict(raw), ()
    notices: list[str] = []
    algorithm = spec.get("searchAlgorithm")
    search = algorithm.get("random") if isinstance(algorithm, dict) else None
    if isinstance(algorithm, dict) and isinstance(search, dict) and "randomState" in search:
        notices.append("spec.searchAlgorithm.random.randomState is taken for seed, its name in the definition")
        seeded = {"seed" if name == "randomState" else name: value for name, value in search.items()}
        algorithm = {**algorithm, "random": seeded}
    return {
        **raw,
        "spec": {
            **spec,
            "objectives": _each(spec.get("objectives"), lambda one: _settled_objective(one, notices)),
            "searchAlgorithm": {"random": {}} if algorithm is None else algorithm,
            "parameters": _each(spec.get("parameters"), _settled_parameter),
            "numTrials": spec.get("numTrials", 1),
            "parallelTrials": spec.get("parallelTrials", 1),
        },
    }, tuple(notices)


def read_optimization_job(raw: Mapping[str, Any]) -> tuple[OptimizationJob, tuple[FieldError, ...]]:
    """Return an OptimizationJob with defaults, and errors for its unknown fields.

    Raises:
        InvalidError: All its errors, except those found by the checks of its Experiment.
    """
    if errors := check_plain(raw):
        raise InvalidError(errors)
    raw, _ = settled(raw)
    job, errors = decode_as(raw, OptimizationJob)
    if errors := errors or list(_errors(job)):
        raise InvalidError(errors)
    return job, tuple(unknown_fields(raw, OptimizationJob))


def not_run_at_once(job: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield reasons why the job of a file, which runs at submission, cannot do so."""
    spec = job.get("spec") or {}
    if spec.get("suspend"):
        cause, remedy = "a suspended job is not run", "set it to false, or create the object with kubectl"
        yield FieldError("spec.suspend", cause, remedy, "optimization-job")
    if (manager := spec.get("managedBy", MANAGER)) != MANAGER:
        cause, remedy = f"{shown(manager)} works on this job", f"leave it out, or use {MANAGER}"
        yield FieldError("spec.managedBy", cause, remedy, "optimization-job")


def experiment_of(job: OptimizationJob) -> Json:
    """Return the Experiment of a valid OptimizationJob, owned by the job if it has a uid."""
    spec, metadata = job.spec, job.metadata
    (objective,) = spec.objectives
    names = [parameter.name for parameter in spec.parameters]
    annotations = {name: text for name, text in metadata.annotations.items() if name != LAST_APPLIED}
    owner: Json = {"apiVersion": TRAINER_API_VERSION, "kind": KIND, "name": job.name, "uid": metadata.uid}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    stopping = _algorithm(annotations, EARLY_STOPPING_ANNOTATION, EARLY_STOPPING_SETTINGS_ANNOTATION)
    return {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {
            "name": job.name,
            **({"namespace": job.namespace} if job.namespace else {}),
            "labels": {**metadata.labels, OPTIMIZATION_JOB_LABEL: job.name},
            **({"annotations": annotations} if annotations else {}),
            **({"ownerReferences": [owner]} if metadata.uid else {}),
        },
        "spec": {
            "objective": {
                "type": _DIRECTIONS[objective.direction],
                "objectiveMetricName": objective.metric,
                "metricStrategies": [{"name": objective.metric, "value": "latest"}],
            },
            "algorithm": _algorithm(annotations, ALGORITHM_ANNOTATION, ALGORITHM_SETTINGS_ANNOTATION) or _own(job),
            **({"earlyStopping": stopping} if stopping else {}),
            "parallelTrialCount": spec.parallel_trials,
            "maxTrialCount": spec.num_trials,
            "parameters": list(map(_parameter, spec.parameters)),
            "trialTemplate": {
                "primaryContainerName": _NODE,
                "trialParameters": [{"name": name, "reference": name} for name in names],
                "trialSpec": _train_job(spec.train_job_template, names),
            },
        },
    }


def other_manager(job: OptimizationJob) -> str:
    """Return the evidence that another controller manages a job; empty if there is none."""
    if job.spec.managed_by:
        return "" if job.spec.managed_by == MANAGER else f"its spec.managedBy is {job.spec.managed_by}"
    created = find_condition(job.status.conditions, CREATED)
    if created is None or created.reason == EXPERIMENT_CREATED:
        return ""
    return f"its condition {CREATED} is of another controller ({created.reason})"


def in_words_of_job(error: InvalidError) -> InvalidError:
    """Return the errors of an OptimizationJob's Experiment, with the paths of the job."""
    return InvalidError(
        FieldError(one.path.replace(TRIAL_SPEC, JOB_TEMPLATE, 1), one.cause, one.remedy, one.origin)
        for one in error.errors
    )


# --- defaults ---------------------------------------------------------------------------------------------------------


def _each(elements: Any, change: Any) -> Any:
    """Return a list with each of its maps changed; any other value unchanged."""
    if not isinstance(elements, list):
        return elements
    return [change(element) if isinstance(element, dict) else element for element in elements]


def _settled_objective(objective: Json, notices: list[str]) -> Json:
    direction = objective.get("direction", "Minimize")
    if direction in _DIRECTIONS.values():
        notices.append(f"spec.objectives[0].direction: {direction} is taken for {direction.title()}")
        direction = direction.title()
    if "metric" not in objective:
        notices.append("spec.objectives[0].metric is not given and taken to be loss")
    return {"metric": "loss", **objective, "direction": direction}


def _settled_parameter(parameter: Json) -> Json:
    space = parameter.get("searchSpace")
    if not isinstance(space, dict):
        return parameter
    typed = {
        name: {"type": "Float", **one} if name != "categorical" and isinstance(one, dict) else one
        for name, one in space.items()
    }
    return {**parameter, "searchSpace": typed}


# --- rules ------------------------------------------------------------------------------------------------------------


def _errors(job: OptimizationJob) -> Iterator[FieldError]:
    spec = job.spec
    if len(spec.objectives) != 1:
        cause = f"there are {len(spec.objectives)}"
        yield FieldError("spec.objectives", cause, "give exactly one", "optimization-job")
    for i, objective in enumerate(spec.objectives):
        yield from _length(objective.metric, f"spec.objectives[{i}].metric")
        yield from _one_of(objective.direction, _DIRECTIONS, f"spec.objectives[{i}].direction")
    algorithm = spec.search_algorithm
    if algorithm is None or (algorithm.random is None) == (algorithm.grid is None):
        yield FieldError("spec.searchAlgorithm", "not exactly one is given", "give random or grid", "optimization-job")
    yield from _count(len(spec.parameters), "spec.parameters")
    yield from _twice([parameter.name for parameter in spec.parameters], "spec.parameters", "name")
    for i, parameter in enumerate(spec.parameters):
        yield from _length(parameter.name, f"spec.parameters[{i}].name")
        yield from _space_errors(parameter.search_space, f"spec.parameters[{i}].searchSpace")
        if algorithm is not None and algorithm.grid is not None and parameter.search_space.categorical is None:
            cause, remedy = "grid needs choices", "give categorical, or search with random"
            yield FieldError(f"spec.parameters[{i}].searchSpace", cause, remedy, "optimization-job")
    for name, count in (("numTrials", spec.num_trials), ("parallelTrials", spec.parallel_trials)):
        yield from _count(count or 0, f"spec.{name}")
    if (spec.parallel_trials or 0) > (spec.num_trials or 0):
        cause = f"{spec.parallel_trials} is more than numTrials, {spec.num_trials}"
        yield FieldError("spec.parallelTrials", cause, "use at most numTrials", "optimization-job")
    yield from _template_errors(spec.train_job_template, [parameter.name for parameter in spec.parameters])
    for name in (ALGORITHM_SETTINGS_ANNOTATION, EARLY_STOPPING_SETTINGS_ANNOTATION):
        if not all(key for key, _ in _settings(job.metadata.annotations.get(name, ""))):
            path = path_to("metadata.annotations", name)
            yield FieldError(path, "an option has no value", "write a=1, b=2", "optimization-job")


def _space_errors(space: JobSearchSpace, path: str) -> Iterator[FieldError]:
    given = [one for one in (space.uniform, space.log_uniform, space.categorical) if one is not None]
    if len(given) != 1:
        remedy = "give uniform, logUniform or categorical"
        yield FieldError(path, f"{len(given)} spaces are given, not one", remedy, "optimization-job")
    if space.categorical is not None:
        choices = space.categorical.choices
        yield from _count(len(choices), f"{path}.categorical.choices")
        yield from _twice(choices, f"{path}.categorical.choices")
        for i, choice in enumerate(choices):
            yield from _length(choice, f"{path}.categorical.choices[{i}]", least=0)
    for name, numbers in (("uniform", space.uniform), ("logUniform", space.log_uniform)):
        if numbers is not None:
            yield from _numbers_errors(numbers, f"{path}.{name}", is_log=name == "logUniform")


def _numbers_errors(space: NumericSpace, path: str, *, is_log: bool) -> Iterator[FieldError]:
    yield from _one_of(space.type, _TYPES, f"{path}.type")
    found = [_number_error(text, f"{path}.{name}", space.type) for name, text in _bounds(space)]
    yield from filter(None, found)
    if any(found):
        return
    if not Decimal(space.min) < Decimal(space.max):
        yield FieldError(f"{path}.min", f"{space.min} is not below max {space.max}", "swap them", "bounds-order")
    if is_log and Decimal(space.min) <= 0:
        cause = f"{space.min} is not above 0"
        yield FieldError(f"{path}.min", cause, "raise it, or use uniform", "optimization-job")


def _number_error(text: str, path: str, type_: str) -> FieldError | None:
    if not _NUMBER.fullmatch(text) or len(text) > _LONGEST:
        return FieldError(path, f"{shown(text)} is not a number", 'write it as text: "0.01"', "optimization-job")
    number = Decimal(text)
    if number.adjusted() > _MOST * 3 or (type_ == "Int" and not (abs(number) <= _LARGEST_INT and number % 1 == 0)):
        remedy = "use a whole number of at most 2^53" if type_ == "Int" else "use a smaller one"
        return FieldError(path, f"{text} is not a number of this type", remedy, "optimization-job")
    return None


def _bounds(space: NumericSpace) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("min", space.min), ("max", space.max)


def _template_errors(template: Mapping[str, Any], names: Sequence[str]) -> Iterator[FieldError]:
    metadata, spec = template.get("metadata") or {}, template.get("spec")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        field = "metadata" if isinstance(spec, dict) else "spec"
        remedy = "give that of a TrainJob"
        yield FieldError(f"{JOB_TEMPLATE}.{field}", "it is not a map of fields", remedy, "optimization-job")
        return
    trainer = spec.get("trainer") or {}
    if not isinstance(trainer, dict) or not isinstance(trainer.get("env") or [], list):
        cause, remedy = "it cannot be read", "give a map of fields, and in it env as a list"
        yield FieldError(f"{JOB_TEMPLATE}.spec.trainer", cause, remedy, "optimization-job")
        return
    for field in ("name", "namespace"):
        if field in metadata:
            cause = "each trial has its own"
            yield FieldError(f"{JOB_TEMPLATE}.metadata.{field}", cause, "remove it", "optimization-job")
    entries = [entry for entry in trainer.get("env") or () if isinstance(entry, dict)]
    taken = Counter([*map(variable_of, names), *(str(entry.get("name")) for entry in entries)])
    for i, name in enumerate(names):
        if taken[variable_of(name)] > 1:
            cause = f"its variable {variable_of(name)} is given twice"
            yield FieldError(f"spec.parameters[{i}].name", cause, "use another name", "optimization-variable")


def variable_of(parameter: str) -> str:
    """Return the name of the variable that holds a parameter's value."""
    return _VARIABLE + _NOT_OF_VARIABLES.sub("_", parameter.upper())


def _length(text: str, path: str, least: int = 1) -> Iterator[FieldError]:
    if not least <= len(text) <= _LONGEST:
        cause = f"it has {len(text)} characters"
        yield FieldError(path, cause, f"use {least} to {_LONGEST}", "optimization-job")


def _count(count: int, path: str) -> Iterator[FieldError]:
    if not 1 <= count <= _MOST:
        yield FieldError(path, f"{count} is out of range", f"give 1 to {_MOST}", "optimization-job")


def _one_of(text: str, words: Mapping[str, str], path: str) -> Iterator[FieldError]:
    if text not in words:
        remedy = f"use {' or '.join(words)}"
        yield FieldError(path, f"{shown(text)} is not known", remedy, "optimization-job")


def _twice(texts: Sequence[str], path: str, field: str = "") -> Iterator[FieldError]:
    for i, text in enumerate(texts):
        if text in texts[:i]:
            place = f"{path}[{i}].{field}" if field else f"{path}[{i}]"
            yield FieldError(place, f"{shown(text)} is there twice", "remove one", "optimization-job")


# --- translation ------------------------------------------------------------------------------------------------------


def _own(job: OptimizationJob) -> Json:
    """Return the algorithm in the job's own spec."""
    algorithm = job.spec.search_algorithm
    if algorithm is not None and algorithm.grid is not None:
        return {"algorithmName": "grid"}
    seed = None if algorithm is None or algorithm.random is None else algorithm.random.seed
    settings = [] if seed is None else [{"name": "random_state", "value": str(seed % _SEEDS)}]
    return {"algorithmName": "random", **({"algorithmSettings": settings} if settings else {})}


def _algorithm(annotations: Mapping[str, str], name: str, settings: str) -> Json:
    if not (algorithm := annotations.get(name, "").strip()):
        return {}
    pairs = _settings(annotations.get(settings, ""))
    return {
        "algorithmName": algorithm,
        **({"algorithmSettings": [{"name": key, "value": value} for key, value in pairs]} if pairs else {}),
    }


def _settings(text: str) -> list[tuple[str, str]]:
    """Return the options in a text; one without a value is an empty pair."""
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    return [(key.strip(), value.strip()) if sep and key.strip() else ("", "") for key, sep, value in parts]


def _parameter(parameter: JobParameter) -> Json:
    space = parameter.search_space
    numbers = space.uniform or space.log_uniform
    if numbers is None:
        feasible: Json = {"list": list(space.categorical.choices) if space.categorical is not None else []}
        return {"name": parameter.name, "parameterType": "categorical", "feasibleSpace": feasible}
    feasible = {name: str(int(Decimal(text))) if numbers.type == "Int" else text for name, text in _bounds(numbers)}
    feasible["distribution"] = "uniform" if space.log_uniform is None else "logUniform"
    return {"name": parameter.name, "parameterType": _TYPES[numbers.type], "feasibleSpace": feasible}


def _train_job(template: Mapping[str, Any], names: Sequence[str]) -> Json:
    """Return the TrainJob of a trial, with a placeholder in the variable of each parameter."""
    spec: Json = template["spec"]
    trainer = spec.get("trainer") or {}
    own = [{"name": variable_of(name), "value": f"${{trialParameters.{name}}}"} for name in names]
    env = [*(trainer.get("env") or ()), *own]
    metadata = template.get("metadata")
    return {
        "apiVersion": TRAINER_API_VERSION,
        "kind": "TrainJob",
        **({"metadata": metadata} if metadata else {}),
        "spec": {**spec, "trainer": {**trainer, "env": env}},
    }


def decode_optimization_job(
    raw: Mapping[str, Any], default_namespace: str, companions: Sequence[LoadedDocument] = ()
) -> Submission:
    """Read an OptimizationJob as `decode_experiment` does an Experiment.

    Raises:
        InvalidError: All its errors, except those found by the checks of its Experiment.
    """
    job, unknown = read_optimization_job(raw)
    submission = decode_experiment(experiment_of(job), default_namespace, companions)
    whole, notices = settled(raw)
    kept = with_namespace({**whole, "spec": job.spec.encode()}, default_namespace)
    return replace(submission, errors=(*unknown, *submission.errors), job=kept, notices=notices)


def decode_job_to_run(
    raw: Mapping[str, Any], default_namespace: str, companions: Sequence[LoadedDocument] = ()
) -> Submission:
    """Read an OptimizationJob of a file, whose Experiment is to run at once."""
    submission = decode_optimization_job(raw, default_namespace, companions)
    return replace(submission, errors=(*submission.errors, *not_run_at_once(submission.job or {})))
