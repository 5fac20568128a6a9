"""Columns of `kubectl get` for each kind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from katib.engine.runtime.objects import Object
from katib.model.names import EXPERIMENT_INTERRUPTED
from katib.model.wording import format_duration
from katib.service.tuning.replicas import ready_words, restarts_of, state_words


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column.

    Attributes:
        cell: Returns the cell for an object and the time.
        type: Type in OpenAPI's terms.
        is_wide: Whether only `-o wide` shows it.
    """

    name: str
    cell: Callable[[Object, datetime], Any]
    type: str = "string"
    is_wide: bool = False
    is_name: bool = False


def at(*path: str) -> Callable[[Object, datetime], Any]:
    """Return a cell with the value at a path; empty if there is none."""

    def cell(obj: Object, _now: datetime) -> Any:
        return value_at(obj, *path)

    return cell


def value_at(obj: Any, *path: str) -> Any:
    """Return the value at a path of maps; None if there is none."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def since(*path: str) -> Callable[[Object, datetime], str]:
    """Return a cell with the time elapsed since the time at a path."""

    def cell(obj: Object, now: datetime) -> str:
        began = _time(value_at(obj, *path))
        return "<unknown>" if began is None else format_duration((now - began).total_seconds())

    return cell


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def _last_condition(field: str) -> Callable[[Object, datetime], Any]:
    def cell(obj: Object, _now: datetime) -> Any:
        conditions = value_at(obj, "status", "conditions")
        last = conditions[-1] if isinstance(conditions, list) and conditions else {}
        return value_at(last, field)

    return cell


def _unless_interrupted(field: str, word: str) -> Callable[[Object, datetime], Any]:
    """Return a cell with a field of the last condition, or a word if the experiment is interrupted.

    Interrupted experiments do not exist on a cluster.
    """
    reason, told = _last_condition("reason"), _last_condition(field)
    return lambda obj, now: word if reason(obj, now) == EXPERIMENT_INTERRUPTED else told(obj, now)


def _latest(*path: str) -> Callable[[Object, datetime], Any]:
    """Return a cell with the objective's latest value in the observation at a path."""

    def cell(obj: Object, _now: datetime) -> Any:
        metrics = value_at(obj, *path, "metrics")
        return value_at(metrics[0], "latest") if metrics else None

    return cell


def _condition_of(obj: Object) -> str:
    """Return the state of a Job, in kubectl's words."""
    conditions = value_at(obj, "status", "conditions") or ()
    states = [c.get("type") for c in conditions if isinstance(c, Mapping) and c.get("status") == "True"]
    return next((str(state) for state in ("Complete", "Failed", "Suspended") if state in states), "Running")


def _completions(obj: Object, _now: datetime) -> str:
    succeeded = value_at(obj, "status", "succeeded") or 0
    wanted, parallel = value_at(obj, "spec", "completions"), value_at(obj, "spec", "parallelism") or 1
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def _ran(obj: Object, now: datetime) -> str:
    began = _time(value_at(obj, "status", "startTime"))
    ended = _time(value_at(obj, "status", "completionTime"))
    return "" if began is None else format_duration(((ended or now) - began).total_seconds())


def _count(field: str) -> Callable[[Object, datetime], int]:
    def cell(obj: Object, _now: datetime) -> int:
        return len(value_at(obj, field) or ())

    return cell


def _involved(obj: Object, _now: datetime) -> str:
    about = obj.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _last_seen(obj: Object, now: datetime) -> str:
    places = (("lastTimestamp",), ("series", "lastObservedTime"), ("eventTime",))
    return since(*next((place for place in places if value_at(obj, *place)), places[0]))(obj, now)


def _of_pod(words: Callable[[dict[str, Any]], Any]) -> Callable[[Object, datetime], Any]:
    return lambda obj, _now: words(dict(obj))


AGE = PrinterColumn("Age", since("metadata", "creationTimestamp"))
TYPE_AND_STATUS = (PrinterColumn("Type", _last_condition("type")), PrinterColumn("Status", _last_condition("status")))
REASON = PrinterColumn("Reason", _last_condition("reason"))
STATE = (PrinterColumn("State", _last_condition("type")), AGE)
EXPERIMENT = (
    PrinterColumn("Type", _unless_interrupted("type", "Interrupted")),
    PrinterColumn("Status", _unless_interrupted("status", "True")),
    REASON,
    PrinterColumn("Done", at("status", "trialsCompleted"), "integer"),
    PrinterColumn("Best", _latest("status", "currentOptimalTrial", "observation")),
    AGE,
    PrinterColumn("Trials", at("status", "trials"), "integer", is_wide=True),
    PrinterColumn("Succeeded", at("status", "trialsSucceeded"), "integer", is_wide=True),
    PrinterColumn("Best Trial", at("status", "currentOptimalTrial", "bestTrialName"), is_wide=True),
)
TRIAL = (*TYPE_AND_STATUS, REASON, AGE, PrinterColumn("Latest", _latest("status", "observation"), is_wide=True))
SUGGESTION = (
    *TYPE_AND_STATUS,
    PrinterColumn("Requested", at("spec", "requests")),
    PrinterColumn("Assigned", at("status", "suggestionCount")),
    AGE,
)
JOB = (
    PrinterColumn("Status", lambda obj, _now: _condition_of(obj)),
    PrinterColumn("Completions", _completions),
    PrinterColumn("Duration", _ran),
    AGE,
)
JOB_SET = (
    PrinterColumn("TerminalState", at("status", "terminalState")),
    PrinterColumn("Restarts", at("status", "restarts")),
    PrinterColumn("Suspended", at("spec", "suspend")),
    AGE,
)
POD = (
    PrinterColumn("Ready", _of_pod(ready_words)),
    PrinterColumn("Status", _of_pod(state_words)),
    PrinterColumn("Restarts", _of_pod(restarts_of), "integer"),
    AGE,
    PrinterColumn("IP", at("status", "podIP"), is_wide=True),
    PrinterColumn("Node", at("spec", "nodeName"), is_wide=True),
)
NAMESPACE = (PrinterColumn("Status", at("status", "phase")), AGE)
CONFIG_MAP = (PrinterColumn("Data", _count("data"), "integer"), AGE)
SECRET = (PrinterColumn("Type", at("type")), PrinterColumn("Data", _count("data"), "integer"), AGE)
LEASE = (PrinterColumn("Holder", at("spec", "holderIdentity")), AGE)
SERVICE_ACCOUNT = (PrinterColumn("Secrets", _count("secrets"), "integer"), AGE)
NAME = PrinterColumn("Name", at("metadata", "name"), is_name=True)
EVENT = (
    PrinterColumn("Last Seen", _last_seen),
    PrinterColumn("Type", at("type")),
    PrinterColumn("Reason", at("reason")),
    PrinterColumn("Object", _involved),
    PrinterColumn("Message", at("message")),
    PrinterColumn("Name", at("metadata", "name"), is_wide=True, is_name=True),
)
"""The only kind whose names are not shown first."""
