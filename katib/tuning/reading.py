"""Reading objects in their JSON form, without decoding them: what surfaces need in order to show or explain them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

COMPLETED_EXPERIMENT = frozenset({"Succeeded", "Failed"})
COMPLETED_TRIAL = frozenset({"Succeeded", "Failed", "Killed", "EarlyStopped", "MetricsUnavailable"})
TRIAL_STATES = ("Pending", "Running", "Succeeded", "EarlyStopped", "Failed", "Killed", "MetricsUnavailable")


def name_of(obj: Json) -> str:
    """Return the name of an object."""
    return str(obj.get("metadata", {}).get("name", ""))


def namespace_of(obj: Json) -> str:
    """Return the namespace of an object."""
    return str(obj.get("metadata", {}).get("namespace", ""))


def status_of(obj: Json) -> Json:
    """Return the status of an object, empty while it has none."""
    status: Json = obj.get("status") or {}
    return status


def condition_of(obj: Json, type_: str) -> Json | None:
    """Return the condition of that type if it holds."""
    for condition in status_of(obj).get("conditions") or ():
        if condition.get("type") == type_ and condition.get("status") == "True":
            found: Json = condition
            return found
    return None


def last_condition(obj: Json) -> Json:
    """Return the condition that changed last among those that hold; empty when none does."""
    held = [c for c in status_of(obj).get("conditions") or () if c.get("status") == "True"]
    return held[-1] if held else {}


def state_of(obj: Json) -> str:
    """Return "the state" as users know it; a trial that was only created is `Pending`."""
    type_ = str(last_condition(obj).get("type", ""))
    if obj.get("kind") == "Trial" and type_ in ("", "Created"):
        return "Pending"
    return type_ or "Created"


def is_completed(obj: Json) -> bool:
    """Tell whether an Experiment or a Trial has ended."""
    ends = COMPLETED_TRIAL if obj.get("kind") == "Trial" else COMPLETED_EXPERIMENT
    return any(condition_of(obj, end) is not None for end in ends)


def completed_count(experiment: Json) -> int:
    """Return how many trials of an experiment have ended, in whatever way."""
    status = status_of(experiment)
    fields = (
        "trialsSucceeded",
        "trialsFailed",
        "trialsKilled",
        "trialsEarlyStopped",
        "trialMetricsUnavailable",
    )
    return sum(int(status.get(field) or 0) for field in fields)


def assignments_of(trial: Json) -> dict[str, str]:
    """Return the parameter values of a trial, in order."""
    pairs = trial.get("spec", {}).get("parameterAssignments") or ()
    return {str(pair.get("name", "")): str(pair.get("value", "")) for pair in pairs}


def objective_of(obj: Json) -> Json:
    """Return the objective of an Experiment or a Trial; empty when it has none."""
    objective: Json = obj.get("spec", {}).get("objective") or {}
    return objective


def metric_value(objective: Json, metrics: Sequence[Json], name: str = "") -> str | None:
    """Return the value that stands for a metric under the objective's strategies; None when it has no usable reading.

    Args:
        objective: With `metricStrategies`.
        metrics: Entries of an observation.
        name: The metric; empty for the objective metric.
    """
    name = name or str(objective.get("objectiveMetricName", ""))
    entry = next((m for m in metrics if m.get("name") == name), None)
    if entry is None:
        return None
    strategies = {s.get("name"): s.get("value") for s in objective.get("metricStrategies") or ()}
    default = "min" if objective.get("type") == "minimize" else "max"
    value = entry.get(strategies.get(name) or default)
    if value in (None, "", "unavailable"):
        value = entry.get("latest")
    return None if value in (None, "", "unavailable") else str(value)


def objective_value(trial: Json) -> str | None:
    """Return the objective value of a trial as text; None while it has none."""
    observation = status_of(trial).get("observation") or {}
    return metric_value(objective_of(trial), observation.get("metrics") or ())


def time_of(text: object) -> datetime | None:
    """Read a time of an object."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def format_duration(seconds: float) -> str:
    """Return a duration in at most two units, as kubectl writes ages: `45s`, `3m20s`, `5h12m`, `3d4h`."""
    total = max(0, int(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:  # noqa: PLR2004 - kubectl counts seconds up to two minutes
        return f"{total}s"
    if hours < 1:
        return _two_units(minutes, "m", total % 60, "s")
    if days < 1:
        return _two_units(hours, "h", minutes % 60, "m")
    return _two_units(days, "d", hours % 24, "h")


def _two_units(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}{minor}{minor_unit}" if minor else f"{major}{major_unit}"
