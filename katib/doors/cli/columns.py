"""Columns of the tables, by kind of object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from katib.engine.runtime.objects import Key, Object
from katib.model.features.listed import ENDINGS
from katib.model.names import GENERATION_LABEL, PARENT_LABEL
from katib.model.types import Experiment, Suggestion, Trial
from katib.model.wording import format_duration
from katib.service.tuning.reading import (
    algorithm_of,
    duration_of,
    message_of,
    metric_of,
    metric_values,
    objective_text,
    parameters_of,
    short,
    time_of,
)
from katib.service.tuning.replicas import (
    exit_words,
    has_role,
    place_words,
    ready_words,
    replica_name,
    restarts_of,
    state_words,
    status_of,
    trial_of,
    waiting_words,
)
from katib.service.tuning.states import (
    best_value,
    completed_count,
    has_several_objectives,
    last_condition,
    lost_count,
    objective_value,
    state_of,
)

Cells = Mapping[str, str]
"""Cells of a row by heading; empty if unknown."""

EXPERIMENT = ("NAME", "STATE", "PROGRESS", "BEST", "AGE")
_TRIAL = ("NAME", "STATE", "OBJECTIVE", "MEAN", "DURATION", "AGE", "GENERATION", "PARENT", "PARAMETERS")
_SUGGESTION = ("NAME", "STATE", "ALGORITHM", "REQUESTED", "ASSIGNED", "AGE")
_POD = ("NAME", "READY", "STATUS", "RESTARTS", "AGE", "TRIAL")
_FEATURES = tuple(feature.name.upper() for feature in ENDINGS.values())
_HEADINGS = {
    "Experiment": (EXPERIMENT, (*EXPERIMENT, "ALGORITHM", "RUNNING", "FAILED", "BEST-TRIAL", *_FEATURES, "REASON")),
    "Trial": (_TRIAL, (*_TRIAL, "METRICS", "MESSAGE")),
    "Suggestion": (_SUGGESTION, (*_SUGGESTION, "MESSAGE")),
    "Pod": (_POD, (*_POD, "REPLICA", "EXIT", "WHERE", "MESSAGE")),
}
_OPTIONAL = frozenset({"MEAN", "GENERATION", "PARENT"})
"""Columns of trials that are repeated, or start from each other's checkpoints."""


def headings(kind: str, *, wide: bool = False, namespaces: bool = False) -> Sequence[str]:
    return (*(["NAMESPACE"] if namespaces else []), *_HEADINGS[kind][wide])


def used(headings: Iterable[str], rows: Sequence[Cells]) -> list[str]:
    """Return the headings of a table that starts with these rows; optional ones only if a row has any."""
    return [heading for heading in headings if heading not in _OPTIONAL or any(row[heading] for row in rows)]


def cells_of(obj: Experiment | Trial | Suggestion) -> Cells:
    if isinstance(obj, Trial):
        return _trial(obj)
    return _experiment(obj) if isinstance(obj, Experiment) else _suggestion(obj)


def age_of(created: datetime | None) -> str:
    return format_duration((datetime.now(UTC) - created).total_seconds()) if created else ""


def progress_of(experiment: Experiment) -> str:
    """Return ended trials of all: `3/12`."""
    limit = experiment.spec.max_trial_count
    return f"{completed_count(experiment)}/{limit if limit is not None else '∞'}"


def best_cell(experiment: Experiment) -> str:
    """Return the best objective value so far with the metric's name, or the hypervolume; empty without one."""
    if has_several_objectives(experiment):
        found = experiment.status.pareto_set
        return f"hypervolume={found.hypervolume:.6g}" if found is not None and found.hypervolume is not None else ""
    value = best_value(experiment)
    return f"{metric_of(experiment)}={short(value)}" if value is not None else ""


def _experiment(obj: Experiment) -> Cells:
    return {
        "NAMESPACE": obj.namespace,
        "NAME": obj.name,
        "STATE": state_of(obj),
        "PROGRESS": progress_of(obj),
        "BEST": best_cell(obj),
        "AGE": age_of(obj.metadata.creation_timestamp),
        "ALGORITHM": algorithm_of(obj),
        "RUNNING": str(obj.status.trials_running),
        "FAILED": str(lost_count(obj)),
        "BEST-TRIAL": obj.status.current_optimal_trial.best_trial_name,
        **{feature.name.upper(): feature.words(obj) for feature in ENDINGS.values()},
        "REASON": last_condition(obj).reason,
    }


def _trial(obj: Trial) -> Cells:
    several = has_several_objectives(obj)
    return {
        "NAMESPACE": obj.namespace,
        "NAME": obj.name,
        "STATE": state_of(obj),
        "OBJECTIVE": (objective_text(obj) or "") if several else short(objective_value(obj) or ""),
        "MEAN": "",
        "DURATION": duration_of(obj),
        "AGE": age_of(obj.metadata.creation_timestamp),
        "GENERATION": obj.metadata.labels.get(GENERATION_LABEL, ""),
        "PARENT": obj.metadata.labels.get(PARENT_LABEL, ""),
        "PARAMETERS": parameters_of(obj),
        "METRICS": " ".join(f"{name}={value}" for name, value in metric_values(obj)),
        "MESSAGE": message_of(obj),
    }


def cells_of_pod(pod: Object) -> Cells:
    obj = dict(pod)
    return {
        "NAMESPACE": Key.of(obj).namespace,
        "NAME": Key.of(obj).name,
        "READY": ready_words(obj),
        "STATUS": state_words(obj),
        "RESTARTS": str(restarts_of(obj)),
        "AGE": age_of(time_of(obj["metadata"].get("creationTimestamp"))),
        "TRIAL": trial_of(obj),
        "REPLICA": replica_name(obj) if has_role(obj) else "",
        "EXIT": exit_words(obj),
        "WHERE": place_words(obj),
        "MESSAGE": " ".join(str(status_of(obj).get("message") or waiting_words(obj)).split()),
    }


def _suggestion(obj: Suggestion) -> Cells:
    return {
        "NAMESPACE": obj.namespace,
        "NAME": obj.name,
        "STATE": state_of(obj),
        "ALGORITHM": algorithm_of(obj),
        "REQUESTED": str(obj.spec.requests),
        "ASSIGNED": str(obj.status.suggestion_count),
        "AGE": age_of(obj.metadata.creation_timestamp),
        "MESSAGE": " ".join(last_condition(obj).message.split()),
    }
