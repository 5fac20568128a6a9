"""What the tables say about each kind of object."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from katib.api.names import GENERATION_LABEL, PARENT_LABEL
from katib.tuning.reading import (
    Json,
    best_value,
    completed_count,
    duration_of,
    format_duration,
    has_several_objectives,
    last_condition,
    message_of,
    metric_values,
    name_of,
    namespace_of,
    objective_of,
    objective_text,
    objective_value,
    parameters_of,
    pareto_set_of,
    short,
    state_of,
    status_of,
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
    trial_of,
    waiting_words,
)

EXPERIMENT = ("NAME", "STATE", "PROGRESS", "BEST", "AGE")
EXPERIMENT_WIDE = (*EXPERIMENT, "ALGORITHM", "RUNNING", "FAILED", "BEST-TRIAL", "REASON")
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


def row(obj: Json, *, wide: bool = False, namespaces: bool = False, lineage: bool = False) -> tuple[str, ...]:
    """Return the row of an object; empty cells where nothing is known."""
    cells = {"Experiment": _experiment, "Trial": _trial, "Suggestion": _suggestion, "Pod": _pod}[obj["kind"]](obj)
    shown = cells[: len(HEADINGS[obj["kind"]][wide])]
    found = ((namespace_of(obj),) if namespaces else ()) + shown
    return _with_lineage(found, _lineage(obj), namespaces=namespaces) if lineage else found


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


def age_of(obj: Json) -> str:
    """Return how long ago an object was created."""
    created = time_of(obj.get("metadata", {}).get("creationTimestamp"))
    return format_duration((datetime.now(UTC) - created).total_seconds()) if created else ""


def progress_of(experiment: Json) -> str:
    """Return trials done of all: `3/12`."""
    limit = experiment.get("spec", {}).get("maxTrialCount")
    return f"{completed_count(experiment)}/{limit if limit is not None else '∞'}"


def best_cell(experiment: Json) -> str:
    """Return the best objective value so far with the metric's name, or the hypervolume; empty while there is none."""
    if has_several_objectives(experiment):
        volume = pareto_set_of(experiment).get("hypervolume")
        return f"hypervolume={volume:.6g}" if volume is not None else ""
    value = best_value(experiment)
    return f"{objective_of(experiment).get('objectiveMetricName', '')}={short(value)}" if value is not None else ""


def _experiment(obj: Json) -> tuple[str, ...]:
    status = status_of(obj)
    failed = int(status.get("trialsFailed") or 0) + int(status.get("trialMetricsUnavailable") or 0)
    return (
        name_of(obj),
        state_of(obj),
        progress_of(obj),
        best_cell(obj),
        age_of(obj),
        str(obj.get("spec", {}).get("algorithm", {}).get("algorithmName", "")),
        str(status.get("trialsRunning") or 0),
        str(failed),
        str((status.get("currentOptimalTrial") or {}).get("bestTrialName", "")),
        str(last_condition(obj).get("reason", "")),
    )


def _trial(obj: Json) -> tuple[str, ...]:
    return (
        name_of(obj),
        state_of(obj),
        (objective_text(obj) or "") if has_several_objectives(obj) else short(objective_value(obj) or ""),
        duration_of(obj),
        age_of(obj),
        parameters_of(obj),
        " ".join(f"{name}={value}" for name, value in metric_values(obj)),
        message_of(obj),
    )


def _lineage(trial: Json) -> tuple[str, ...]:
    labels = trial["metadata"].get("labels") or {}
    return str(labels.get(GENERATION_LABEL, "")), str(labels.get(PARENT_LABEL, ""))


def _pod(obj: Json) -> tuple[str, ...]:
    return (
        name_of(obj),
        ready_words(obj),
        state_words(obj),
        str(restarts_of(obj)),
        age_of(obj),
        trial_of(obj),
        replica_name(obj) if has_role(obj) else "",
        exit_words(obj),
        place_words(obj),
        " ".join(str(status_of(obj).get("message") or waiting_words(obj)).split()),
    )


def _suggestion(obj: Json) -> tuple[str, ...]:
    spec, status = obj.get("spec", {}), status_of(obj)
    return (
        name_of(obj),
        state_of(obj),
        str(spec.get("algorithm", {}).get("algorithmName", "")),
        str(spec.get("requests", 0)),
        str(status.get("suggestionCount", 0)),
        age_of(obj),
        " ".join(str(last_condition(obj).get("message", "")).split()),
    )
