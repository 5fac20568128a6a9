"""Views of the page of a trial. Pure: objects in, values for templates and scripts out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import yaml
from msgspec import structs

from katib.doors.ui.words import trial_sentence
from katib.engine.runtime.objects import Key
from katib.figures.trials import Objective, objectives_of
from katib.model.job_kinds import suspend_field
from katib.model.marks import marks_of
from katib.model.names import EXPERIMENT_LABEL, GENERATION_LABEL, PARENT_LABEL
from katib.model.types import Experiment, Trial
from katib.model.wording import number_text
from katib.service.explaining.replicas import trouble_of
from katib.service.tuning.reading import (
    assignments_of,
    best_trial_of,
    constraint_words,
    format_run,
    objective_values,
    seconds_run,
    short,
    time_text,
    violates_constraints,
)
from katib.service.tuning.replicas import (
    COLLECTORS,
    exit_words,
    newest_of_each,
    place_words,
    replica_name,
    restarts_of,
    state_words,
)
from katib.service.tuning.service import Diagnosis, Json, RecordedEvent
from katib.service.tuning.states import failure_of, is_completed, is_suspended_trial, state_of

NO_VALUE = "unavailable"
MOST_EVENTS = 200
_CLEAR_RATIO = 1.1
"""Smaller ratios of two values are shown in percent."""


def experiment_name(trial: Trial) -> str:
    """Return the name of a trial's experiment; empty if it names none."""
    return label_of(trial, EXPERIMENT_LABEL)


def label_of(trial: Trial, label: str) -> str:
    """Return a label; empty without it."""
    return trial.metadata.labels.get(label, "")


def trial_summary(
    trial: Trial, experiment: Experiment | None, latest: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the head of a trial's page. All of it is JSON.

    Args:
        trial: The Trial.
        experiment: Its Experiment; None if it is deleted, or may not be read.
        latest: Newest readings by metric, of a trial that has no value yet.
    """
    status = trial.status
    best = None if experiment is None else best_trial_of(experiment)
    job = trial.spec.run_spec or {}
    seconds = seconds_run(trial, datetime.now(UTC))
    duration = "" if seconds is None else format_run(seconds)
    return {
        "name": trial.name,
        "namespace": trial.namespace,
        "experiment": experiment_name(trial),
        "state": state_of(trial),
        "reason": trial_sentence(trial),
        "completed": is_completed(trial),
        "created": time_text(trial.metadata.creation_timestamp),
        "started": time_text(status.start_time) if duration else "",
        "ended": time_text(status.completion_time),
        "duration": duration,
        "runs": state_of(trial) == "Running",
        "job": f"{job.get('kind', '')}.{'.'.join(reversed(str(job.get('apiVersion', '')).split('/')))}" if job else "",
        "suspendField": ".".join(suspend_field(job)),
        "suspended": is_suspended_trial(trial),
        "version": trial.metadata.resource_version,
        "values": [
            {"name": name, "text": short(value), "exact": value, "latest": short(latest.get(name, ""))}
            for name, value in objective_values(trial)
            if value != NO_VALUE or not is_completed(trial)
        ],
        "distance": distance_words(trial, experiment),
        "best": best.name if best else "",
        "isBest": best is not None and best.name == trial.name,
        "marks": asdict(marks_of(trial.metadata.annotations)),
    }


def shown_diagnosis(found: Diagnosis, trial: Trial) -> Diagnosis:
    """Return what a diagnosis adds to a page: the rest is in its head, its curves and its table of parameters."""
    findings = tuple(one for one in found.findings if not one.startswith(("Its parameters are ", "Latest ")))
    cause = failure_of(trial)
    is_told = state_of(trial) == "Running" and not found.remedies
    is_told |= bool(cause) and cause in found.verdict
    return structs.replace(found, findings=findings, verdict="" if is_told else found.verdict)


def distance_words(trial: Trial, experiment: Experiment | None) -> str:
    """Return the distance of a trial's objective value from the best one, in words; empty without both."""
    best = None if experiment is None else best_trial_of(experiment)
    if experiment is None or best is None:
        return ""
    if best.name == trial.name:
        return "the best trial so far"
    if violates_constraints(trial):
        return f"does not satisfy {constraint_words(trial)}"
    [(_, own), *_], [(_, other), *_] = objective_values(trial), objective_values(best)
    return _distance(own, other, objectives_of(experiment)[0])


def _distance(own: str, other: str, objective: Objective) -> str:
    try:
        value, best = float(own), float(other)
    except ValueError:
        return ""
    if not (math.isfinite(value) and math.isfinite(best)):
        return ""
    gap = value - best
    if not gap:
        return f"the same as the best, {short(other)}"
    is_worse = gap < 0 if objective.maximize else gap > 0
    share = f" ({abs(gap / best):.2%})" if best else ""
    side = "above" if gap > 0 else "below"
    return f"{abs(gap):.4g}{share} {side} the best, {short(other)}{'' if is_worse else ': better'}"


def parameter_rows(trial: Trial, experiment: Experiment | None) -> list[dict[str, Any]]:
    """Return the parameters of a trial beside those of the best one, in the order of the trial."""
    best_trial = None if experiment is None else best_trial_of(experiment)
    best = None if best_trial is None else assignments_of(best_trial)
    own = assignments_of(trial)
    rows = []
    for name in dict.fromkeys((*own, *(best or {}))):
        value, other = own.get(name), None if best is None else best.get(name)
        rows.append(
            {
                "name": name,
                "value": cell(value),
                "best": cell(other),
                "differs": best is not None and value != other,
                "change": "" if best is None or value == other else _change(value, other),
            }
        )
    return rows


def cell(value: str | None) -> dict[str, str]:
    """Return a value for a table cell: short, with every digit on demand."""
    return {"text": "" if value is None else short(value), "exact": value or ""}


def _change(value: str | None, other: str | None) -> str:
    """Return the difference of a value from the best trial's in words: how much higher or lower, or which has it."""
    if value is None or other is None:
        return "only here" if other is None else "only in the best"
    try:
        number, best = float(value), float(other)
    except ValueError:
        return "different"
    if number == best or not (math.isfinite(number) and math.isfinite(best)):
        return "different"
    side = "higher" if number > best else "lower"
    if number * best <= 0:
        return f"{number_text(abs(number - best), 3)} {side}"
    ratio = max(number / best, best / number)
    if ratio < _CLEAR_RATIO:
        return f"{abs(number / best - 1):.1%} {side}"
    return f"{number_text(ratio, 2)} \u00d7 {side}"


def metric_names(trial: Trial, seen: Iterable[str]) -> list[str]:
    """Return the metrics of a trial, the objectives first.

    Args:
        trial: The trial, with the declared and observed metrics.
        seen: Names of metrics among its readings.
    """
    objective, observation = trial.spec.objective, trial.status.observation
    named = [
        *(name for name, _ in objective_values(trial)),
        *(objective.additional_metric_names if objective is not None else ()),
        *(metric.name for metric in (observation.metrics if observation is not None else ())),
        *seen,
    ]
    return [name for name in dict.fromkeys(named) if name]


def replica_rows(pods: Sequence[Json]) -> list[dict[str, Any]]:
    """Return the newest pod of each replica, with the containers whose output can be read, the user's own first.

    Args:
        pods: Pods of one trial, the oldest first.
    """
    return [
        {
            "name": replica_name(pod),
            "pod": Key.of(pod).name,
            "state": state_words(pod),
            "restarts": restarts_of(pod),
            "exit": exit_words(pod),
            "place": place_words(pod),
            "trouble": trouble_of(pod),
            "containers": _containers(pod),
        }
        for pod in newest_of_each(pods)
    ]


def _containers(pod: Json) -> list[str]:
    spec = pod.get("spec") or {}
    names = [str(c.get("name", "")) for part in ("containers", "initContainers") for c in spec.get(part) or ()]
    return sorted(names, key=lambda name: name in COLLECTORS)


def event_rows(events: Sequence[RecordedEvent]) -> list[dict[str, Any]]:
    """Return the events of a trial, the newest first, 200 at most."""
    return [
        {
            "time": event.time.isoformat(),
            "kind": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": event.message,
            "count": event.count,
        }
        for event in reversed(events[-MOST_EVENTS:])
    ]


def lineage_rows(generations: Sequence[Trial]) -> list[dict[str, str]]:
    """Return the trials with the checkpoints that led to a trial's, itself first; empty without a parent."""
    if not generations or not label_of(generations[0], PARENT_LABEL):
        return []
    return [
        {
            "name": trial.name,
            "generation": label_of(trial, GENERATION_LABEL) or "0",
            "value": next((short(value) for _, value in objective_values(trial)), ""),
            "parent": label_of(trial, PARENT_LABEL),
        }
        for trial in generations
    ]


def job_yaml(trial: Trial) -> str:
    """Return the rendered job of a trial as YAML; empty if it was not kept."""
    job = trial.spec.run_spec
    return yaml.safe_dump(job, sort_keys=False, allow_unicode=True, width=120) if job else ""


def neighbours(names: Sequence[str], name: str) -> Mapping[str, Any]:
    """Return the trials before and after one, its position, and their number.

    Args:
        names: Names of all trials of the experiment, in order of their creation.
        name: Name of the trial.
    """
    place = next((number for number, other in enumerate(names) if other == name), None)
    if place is None:
        return {"previous": "", "next": "", "place": 0, "total": len(names)}
    return {
        "previous": names[place - 1] if place else "",
        "next": names[place + 1] if place + 1 < len(names) else "",
        "place": place + 1,
        "total": len(names),
    }
