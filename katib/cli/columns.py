"""What the tables say about each kind of object."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from katib.api.names import GENERATION_LABEL, PARENT_LABEL
from katib.api.types import Experiment, Suggestion, Trial
from katib.runtime.objects import Key, Object
from katib.tuning.reading import (
    algorithm_of,
    best_value,
    budget_words,
    completed_count,
    duration_of,
    format_duration,
    has_several_objectives,
    last_condition,
    lost_count,
    message_of,
    metric_of,
    metric_values,
    objective_text,
    objective_value,
    parameters_of,
    short,
    state_of,
    time_of,
)
from katib.tuning.replicas import (
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
from katib.tuning.service import Json

EXPERIMENT = ("NAME", "STATE", "PROGRESS", "BEST", "AGE")
EXPERIMENT_WIDE = (*EXPERIMENT, "ALGORITHM", "RUNNING", "FAILED", "BEST-TRIAL", "BUDGET", "REASON")
TRIAL = ("NAME", "STATE", "OBJECTIVE", "DURATION", "AGE", "PARAMETERS")
TRIAL_WIDE = (*TRIAL, "METRICS", "MESSAGE")
LINEAGE = ("GENERATION", "PARENT")
"""Of trials that start from each other's checkpoints; they stand before the parameters."""
_LINEAGE_PLACE = TRIAL.index("PARAMETERS")
SUGGESTION = ("NAME", "STATE", "ALGORITHM", "REQUESTED", "ASSIGNED", "AGE")
SUGGESTION_WIDE = (*SUGGESTION, "MESSAGE")

POD = ("NAME", "READY", "STATUS", "RESTARTS", "AGE", "TRIAL")
POD_WIDE = (*POD, "REPLICA", "EXIT", "WHERE", "MESSAGE")

HEADINGS = {
    "Experiment": (EXPERIMENT, EXPERIMENT_WIDE),
    "Trial": (TRIAL, TRIAL_WIDE),
    "Suggestion": (SUGGESTION, SUGGESTION_WIDE),
    "Pod": (POD, POD_WIDE),
}


def headings(kind: str, *, wide: bool = False, namespaces: bool = False, lineage: bool = False) -> tuple[str, ...]:
    """Return the headings for a kind; with `lineage`, of trials that say which checkpoint they start from."""
    found = (("NAMESPACE",) if namespaces else ()) + HEADINGS[kind][wide]
    return _with_lineage(found, LINEAGE, namespaces=namespaces) if lineage else found


def row(
    obj: Experiment | Trial | Suggestion, *, wide: bool = False, namespaces: bool = False, lineage: bool = False
) -> tuple[str, ...]:
    """Return the row of an object; empty cells where nothing is known."""
    if isinstance(obj, Trial):
        cells = _trial(obj)
    else:
        cells = _experiment(obj) if isinstance(obj, Experiment) else _suggestion(obj)
    found = _chosen(cells, type(obj).__name__, obj.namespace, wide=wide, namespaces=namespaces)
    if not lineage or not isinstance(obj, Trial):
        return found
    labels = obj.metadata.labels
    parents = labels.get(GENERATION_LABEL, ""), labels.get(PARENT_LABEL, "")
    return _with_lineage(found, parents, namespaces=namespaces)


def pod_row(pod: Object, *, wide: bool = False, namespaces: bool = False) -> tuple[str, ...]:
    """Return the row of a pod; empty cells where nothing is known."""
    return _chosen(_pod(dict(pod)), "Pod", Key.of(pod).namespace, wide=wide, namespaces=namespaces)


def _chosen(cells: tuple[str, ...], kind: str, namespace: str, *, wide: bool, namespaces: bool) -> tuple[str, ...]:
    return ((namespace,) if namespaces else ()) + cells[: len(HEADINGS[kind][wide])]


def _with_lineage(cells: tuple[str, ...], lineage: tuple[str, ...], *, namespaces: bool) -> tuple[str, ...]:
    place = _LINEAGE_PLACE + namespaces
    return (*cells[:place], *lineage, *cells[place:])


def has_lineage(rows: Iterable[tuple[str, ...]], *, namespaces: bool = False) -> bool:
    """Return whether a row with lineage is of a trial of population based training."""
    return any(row[_LINEAGE_PLACE + namespaces] for row in rows)


def without_lineage(cells: tuple[str, ...], *, namespaces: bool = False) -> tuple[str, ...]:
    """Return a row with lineage as one without."""
    place = _LINEAGE_PLACE + namespaces
    return (*cells[:place], *cells[place + len(LINEAGE) :])


def age_of(created: datetime | None) -> str:
    """Return how long ago something was created."""
    return format_duration((datetime.now(UTC) - created).total_seconds()) if created else ""


def progress_of(experiment: Experiment) -> str:
    """Return trials done of all: `3/12`."""
    limit = experiment.spec.max_trial_count
    return f"{completed_count(experiment)}/{limit if limit is not None else '∞'}"


def best_cell(experiment: Experiment) -> str:
    """Return the best objective value so far with the metric's name, or the hypervolume; empty while there is none."""
    if has_several_objectives(experiment):
        found = experiment.status.pareto_set
        return f"hypervolume={found.hypervolume:.6g}" if found is not None and found.hypervolume is not None else ""
    value = best_value(experiment)
    return f"{metric_of(experiment)}={short(value)}" if value is not None else ""


def _experiment(obj: Experiment) -> tuple[str, ...]:
    return (
        obj.name,
        state_of(obj),
        progress_of(obj),
        best_cell(obj),
        age_of(obj.metadata.creation_timestamp),
        algorithm_of(obj),
        str(obj.status.trials_running),
        str(lost_count(obj)),
        obj.status.current_optimal_trial.best_trial_name,
        budget_words(obj),
        last_condition(obj).reason,
    )


def _trial(obj: Trial) -> tuple[str, ...]:
    return (
        obj.name,
        state_of(obj),
        (objective_text(obj) or "") if has_several_objectives(obj) else short(objective_value(obj) or ""),
        duration_of(obj),
        age_of(obj.metadata.creation_timestamp),
        parameters_of(obj),
        " ".join(f"{name}={value}" for name, value in metric_values(obj)),
        message_of(obj),
    )


def _pod(obj: Json) -> tuple[str, ...]:
    return (
        Key.of(obj).name,
        ready_words(obj),
        state_words(obj),
        str(restarts_of(obj)),
        age_of(time_of(obj["metadata"].get("creationTimestamp"))),
        trial_of(obj),
        replica_name(obj) if has_role(obj) else "",
        exit_words(obj),
        place_words(obj),
        " ".join(str(status_of(obj).get("message") or waiting_words(obj)).split()),
    )


def _suggestion(obj: Suggestion) -> tuple[str, ...]:
    return (
        obj.name,
        state_of(obj),
        algorithm_of(obj),
        str(obj.spec.requests),
        str(obj.status.suggestion_count),
        age_of(obj.metadata.creation_timestamp),
        " ".join(last_condition(obj).message.split()),
    )
