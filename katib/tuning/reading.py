"""Reading objects in their JSON form, without decoding them: what surfaces need in order to show or explain them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from katib.api.conditions import COMPLETED_EXPERIMENT
from katib.api.failure_text import trial_failure
from katib.api.names import EXPERIMENT_STOPPED
from katib.api.trials import (
    ACTIVE,
    ELIGIBLE,
    TrialState,
    bounds_of,
    is_feasible,
    metric_text,
    objective_names,
    trial_state,
    waiting_words,
)
from katib.api.types import UNAVAILABLE

Json = dict[str, Any]

TRIAL_STATES = tuple(state.value for state in TrialState)
_EXTREMES = {"minimize": "min", "maximize": "max"}
"""The strategy of a metric that was given none, by the objective's type."""

_LONG_NUMBER = 8
"""Numbers up to this length are shown as they were written."""
_LONG_TEXT = 40
"""Other text up to this length is shown whole where there is little room: architectures have hundreds of characters."""


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


def early_stop_reason(message: str) -> str:
    """Return why a trial was stopped early, from the message of its condition; any other message as it is."""
    return message.removeprefix("Trial is early stopped").removeprefix(": ")


def failure_of(trial: Json) -> str:
    """Return why a trial failed; empty when it did not, or when the cause is unknown."""
    return trial_failure(str((condition_of(trial, "Failed") or {}).get("message", ""))).rstrip(".")


def state_of(obj: Json) -> str:
    """Return "the state" as users know it."""
    if obj.get("kind") == "Trial":
        return trial_state(obj).value
    if is_stopped(obj):
        return "Stopped"
    return str(last_condition(obj).get("type") or "Created")


def is_stopped(experiment: Json) -> bool:
    """Return whether an experiment was stopped and nothing of it runs any more."""
    conditions = status_of(experiment).get("conditions") or ()
    running: Json = next((c for c in conditions if c.get("type") == "Running"), {})
    return running.get("reason") == EXPERIMENT_STOPPED and running.get("status") != "True"


def is_suspended_trial(trial: Json) -> bool:
    """Return whether a trial waits because its job is suspended."""
    conditions = status_of(trial).get("conditions") or ()
    waits = [c for c in conditions if c.get("type") == "Running" and c.get("reason") == "TrialSuspended"]
    return bool(waits) and not is_completed(trial)


def is_completed(obj: Json) -> bool:
    """Return whether an Experiment or a Trial has ended."""
    if obj.get("kind") == "Trial":
        return trial_state(obj) not in ACTIVE
    for condition in status_of(obj).get("conditions") or ():
        if condition.get("type") in COMPLETED_EXPERIMENT and condition.get("status") == "True":
            return True
    return False


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


def shown_text(trial: Json, name: str) -> str | None:
    """Return the value of a metric that is shown of a trial; None when it was not read.

    Of a further metric it is what it was at the best reading of the objective, unless a strategy of its own says which
    of its readings counts; one that is the same as the objective's may be a default.
    """
    objective, observation = objective_of(trial), status_of(trial).get("observation") or {}
    strategies = {s.get("name"): s.get("value") for s in objective.get("metricStrategies") or ()}
    by_default = strategies.get(name) in (None, _EXTREMES.get(str(objective.get("type"))))
    at_best = next((m.get("value") for m in observation.get("atBest") or () if m.get("name") == name), None)
    return str(at_best) if at_best and by_default else metric_text(objective, observation, name)


def metric_values(trial: Json) -> list[tuple[str, str]]:
    """Return each metric of a trial with the value that is shown of it, `unavailable` where there is none."""
    metrics = (status_of(trial).get("observation") or {}).get("metrics") or ()
    names = [str(metric.get("name", "")) for metric in metrics]
    return [(name, shown_text(trial, name) or UNAVAILABLE) for name in names]


def metric_rows(trial: Json) -> list[dict[str, str]]:
    """Return what the observation of a trial holds of each metric: `value` is what it was at the best reading."""
    observation = status_of(trial).get("observation") or {}
    at_best = {metric.get("name"): str(metric.get("value", "")) for metric in observation.get("atBest") or ()}
    return [
        {
            "name": name,
            "value": at_best.get(name, value),
            **{kind: str(metric.get(kind, "")) for kind in ("min", "max", "latest")},
        }
        for (name, value), metric in zip(metric_values(trial), observation.get("metrics") or (), strict=True)
    ]


def further_values(trial: Json) -> list[tuple[str, str]]:
    """Return each metric of a trial that is no objective, with the value that is shown of it."""
    objectives = objective_names(objective_of(trial))
    return [(name, value) for name, value in metric_values(trial) if name not in objectives]


def best_trial_of(experiment: Json) -> Json:
    """Return the best trial as the status has it, with what a Trial says of assignments and metrics; empty without."""
    best = status_of(experiment).get("currentOptimalTrial") or {}
    return _as_trial(best, experiment) if best.get("bestTrialName") else {}


def objective_value(trial: Json) -> str | None:
    """Return the objective value of a trial as text; None while it has none."""
    return metric_text(objective_of(trial), status_of(trial).get("observation"))


def objective_values(trial: Json) -> list[tuple[str, str]]:
    """Return each objective of a trial with its value as text, `unavailable` while it has none."""
    objective, observation = objective_of(trial), status_of(trial).get("observation")
    return [(name, metric_text(objective, observation, name) or UNAVAILABLE) for name in objective_names(objective)]


def objective_text(trial: Json) -> str | None:
    """Return what a trial reached in one line: `loss=0.12`, or several of these; None while it has no value at all."""
    if objective_value(trial) is None:
        return None
    return " ".join(f"{name}={short(value)}" for name, value in objective_values(trial))


def has_several_objectives(obj: Json) -> bool:
    """Return whether an Experiment or a Trial has more than one objective."""
    return len(objective_names(objective_of(obj))) > 1


def objective_words(experiment: Json) -> str:
    """Return what an experiment is to do: `maximize accuracy (goal 0.9), minimize seconds, with memory <= 8`."""
    objective = objective_of(experiment)
    terms = objective.get("objectives") or [{**objective, "name": objective.get("objectiveMetricName", "")}]
    words = ", ".join(
        f"{term.get('type', '')} {term.get('name', '')}" + (f" (goal {goal:g})" if goal is not None else "")
        for term, goal in ((term, term.get("goal")) for term in terms)
    )
    bounds = constraint_words(experiment)
    return f"{words}, with {bounds}" if bounds else words


def constraint_words(obj: Json) -> str:
    """Return the constraints of an Experiment or a Trial: `latency <= 30 and 1 <= layers <= 3`; empty without any."""
    return " and ".join(
        (f"{low:g} <= " if low is not None and high is not None else "")
        + name
        + (f" <= {high:g}" if high is not None else f" >= {low:g}" if low is not None else "")
        for name, low, high in bounds_of(objective_of(obj))
    )


def violates_constraints(trial: Json) -> bool:
    """Return whether a trial has a value and does not satisfy the constraints, so that it cannot be the best."""
    objective, observation = objective_of(trial), status_of(trial).get("observation")
    return (
        trial_state(trial) in ELIGIBLE
        and objective_value(trial) is not None
        and not is_feasible(objective, observation)
    )


def infeasible_words(experiment: Json) -> str:
    """Return that no trial satisfies the constraints; empty where one does, or where none was measured."""
    if not int(status_of(experiment).get("trialsInfeasible") or 0) or best_value(experiment) is not None:
        return ""
    return f"no trial satisfies {constraint_words(experiment)}"


def pareto_set_of(experiment: Json) -> Json:
    """Return the trials that none beats in every objective, as the status has them; empty with one objective."""
    found: Json = status_of(experiment).get("paretoSet") or {}
    return found


def pareto_trials(experiment: Json) -> list[Json]:
    """Return the trials of the Pareto set that the status names, with what a Trial says of assignments and metrics."""
    return [_as_trial(trial, experiment) for trial in pareto_set_of(experiment).get("trials") or ()]


def _as_trial(optimum: Json, experiment: Json) -> Json:
    assignments = optimum.get("parameterAssignments") or []
    return {
        "kind": "Trial",
        "metadata": {"name": optimum.get("bestTrialName", ""), "namespace": namespace_of(experiment)},
        "spec": {"objective": objective_of(experiment), "parameterAssignments": assignments},
        "status": {"observation": optimum.get("observation") or {}},
    }


def pareto_words(experiment: Json) -> str:
    """Return the size of the Pareto set and what it covers: `4 trials that none beats, hypervolume 0.83`."""
    found = pareto_set_of(experiment)
    count, volume = int(found.get("trialCount") or 0), float(found.get("hypervolume") or 0)
    return f"{count} trial{'s' * (count != 1)} that no other beats, hypervolume {volume:.6g}"


def best_value(experiment: Json) -> str | None:
    """Return the objective value of the best trial of an experiment as text; None while there is none."""
    best = status_of(experiment).get("currentOptimalTrial") or {}
    return metric_text(objective_of(experiment), best.get("observation"))


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


def seconds_run(obj: Json, now: datetime) -> float | None:
    """Return how long an object has been running, or ran; None for one that has not run yet.

    The start of a trial moves on by the time that it waits, and while it waits nothing is added.
    """
    status = status_of(obj)
    start, end = time_of(status.get("startTime")), time_of(status.get("completionTime"))
    if start is None or end is not None:
        return None if start is None or end is None else (end - start).total_seconds()
    if obj.get("kind") != "Trial" or state_of(obj) != TrialState.PENDING:
        return (now - start).total_seconds()
    conditions = status.get("conditions") or ()
    waits: Json = next((c for c in conditions if c.get("type") == "Running"), {})
    return ((time_of(waits.get("lastTransitionTime")) or start) - start).total_seconds() or None


def duration_of(obj: Json) -> str:
    """Return how long an object has been running, or ran; empty for one that has not run yet."""
    seconds = seconds_run(obj, datetime.now(UTC))
    return "" if seconds is None else format_duration(seconds)


def message_of(obj: Json) -> str:
    """Return what an object says of its state in one line: what a trial waits for, else its newest condition."""
    waits = waiting_words(obj) if obj.get("kind") == "Trial" else ""
    return " ".join((waits or str(last_condition(obj).get("message", ""))).split())


def short(text: str) -> str:
    """Return a number with the digits that a person compares, and other text without the middle when it is long."""
    if len(text) <= _LONG_NUMBER:
        return text
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return shortened(text, _LONG_TEXT)


def shortened(text: str, length: int) -> str:
    """Return the text, without its middle when it has more characters than `length`."""
    if len(text) <= length:
        return text
    tail = length // 3
    return f"{text[: length - tail - 3]}...{text[-tail:]}"


def parameters_of(trial: Json, *, whole: bool = False) -> str:
    """Return the assignments of a trial in one line, with every digit or with those that matter."""
    show = str if whole else short
    return " ".join(f"{name}={show(value)}" for name, value in assignments_of(trial).items())


def _two_units(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}{minor}{minor_unit}" if minor else f"{major}{major_unit}"
