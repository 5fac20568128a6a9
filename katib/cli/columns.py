"""What the tables say about each kind of object."""

from __future__ import annotations

from datetime import UTC, datetime

from katib.tuning.reading import (
    Json,
    assignments_of,
    completed_count,
    format_duration,
    last_condition,
    metric_value,
    name_of,
    namespace_of,
    objective_of,
    objective_value,
    state_of,
    status_of,
    time_of,
)

EXPERIMENT = ("NAME", "STATE", "PROGRESS", "BEST", "AGE")
EXPERIMENT_WIDE = (*EXPERIMENT, "ALGORITHM", "RUNNING", "FAILED", "BEST-TRIAL", "REASON")
TRIAL = ("NAME", "STATE", "OBJECTIVE", "DURATION", "AGE", "PARAMETERS")
TRIAL_WIDE = (*TRIAL, "METRICS", "MESSAGE")
SUGGESTION = ("NAME", "STATE", "ALGORITHM", "REQUESTED", "ASSIGNED", "AGE")
SUGGESTION_WIDE = (*SUGGESTION, "MESSAGE")

_LONG_NUMBER = 8
"""Numbers up to this length are shown as they were written."""

HEADINGS = {
    "Experiment": (EXPERIMENT, EXPERIMENT_WIDE),
    "Trial": (TRIAL, TRIAL_WIDE),
    "Suggestion": (SUGGESTION, SUGGESTION_WIDE),
}


def headings(kind: str, *, wide: bool = False, namespaces: bool = False) -> tuple[str, ...]:
    """Return the headings for a kind."""
    return (("NAMESPACE",) if namespaces else ()) + HEADINGS[kind][wide]


def row(obj: Json, *, wide: bool = False, namespaces: bool = False) -> tuple[str, ...]:
    """Return the row of an object; empty cells where nothing is known."""
    cells = {"Experiment": _experiment, "Trial": _trial, "Suggestion": _suggestion}[obj["kind"]](obj)
    shown = cells[: len(HEADINGS[obj["kind"]][wide])]
    return ((namespace_of(obj),) if namespaces else ()) + shown


def age_of(obj: Json) -> str:
    """Return how long ago an object was created."""
    created = time_of(obj.get("metadata", {}).get("creationTimestamp"))
    return format_duration((datetime.now(UTC) - created).total_seconds()) if created else ""


def duration_of(obj: Json) -> str:
    """Return how long an object has been running, or ran."""
    status = status_of(obj)
    start = time_of(status.get("startTime"))
    if start is None:
        return ""
    end = time_of(status.get("completionTime")) or datetime.now(UTC)
    return format_duration((end - start).total_seconds())


def short(text: str) -> str:
    """Return a number with the digits that a person compares; everything else as it is."""
    if len(text) <= _LONG_NUMBER:
        return text
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


def parameters_of(trial: Json, *, whole: bool = False) -> str:
    """Return the assignments of a trial in one line, with every digit or with those that matter."""
    show = str if whole else short
    return " ".join(f"{name}={show(value)}" for name, value in assignments_of(trial).items())


def progress_of(experiment: Json) -> str:
    """Return trials done of all: `3/12`."""
    limit = experiment.get("spec", {}).get("maxTrialCount")
    return f"{completed_count(experiment)}/{limit if limit is not None else '∞'}"


def best_value(experiment: Json) -> str:
    """Return the best objective value so far with the metric's name; empty while there is none."""
    objective, best = objective_of(experiment), status_of(experiment).get("currentOptimalTrial") or {}
    value = metric_value(objective, (best.get("observation") or {}).get("metrics") or ())
    return f"{objective.get('objectiveMetricName', '')}={short(value)}" if value is not None else ""


def _experiment(obj: Json) -> tuple[str, ...]:
    status = status_of(obj)
    failed = int(status.get("trialsFailed") or 0) + int(status.get("trialMetricsUnavailable") or 0)
    return (
        name_of(obj),
        state_of(obj),
        progress_of(obj),
        best_value(obj),
        age_of(obj),
        str(obj.get("spec", {}).get("algorithm", {}).get("algorithmName", "")),
        str(status.get("trialsRunning") or 0),
        str(failed),
        str((status.get("currentOptimalTrial") or {}).get("bestTrialName", "")),
        str(last_condition(obj).get("reason", "")),
    )


def _trial(obj: Json) -> tuple[str, ...]:
    metrics = (status_of(obj).get("observation") or {}).get("metrics") or ()
    objective = objective_of(obj)
    values = (f"{m['name']}={metric_value(objective, metrics, m['name']) or 'unavailable'}" for m in metrics)
    return (
        name_of(obj),
        state_of(obj),
        short(objective_value(obj) or ""),
        duration_of(obj),
        age_of(obj),
        parameters_of(obj),
        " ".join(values),
        " ".join(str(last_condition(obj).get("message", "")).split()),
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
