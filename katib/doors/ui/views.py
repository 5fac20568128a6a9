"""Views of objects for pages. Pure: objects in, values for templates and scripts out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from katib.doors.ui.numbers import shown_number
from katib.doors.ui.words import experiment_sentence
from katib.figures.trials import objectives_of
from katib.model.marks import marks_of, views_of
from katib.model.metrics import is_usable
from katib.model.names import CONFIRMS_LABEL, STOPPED, STOPPED_ANNOTATION, confirmation_name
from katib.model.types import Experiment, ParameterSpec, ParameterType
from katib.service.tuning.reading import (
    algorithm_of,
    compared_words,
    further_values_of_best,
    objective_words,
    pareto_words,
    short,
    texts_of,
    time_text,
)
from katib.service.tuning.states import (
    active_count,
    best_value,
    completed_count,
    is_at_rest,
    is_completed,
    is_interrupted,
    last_condition,
    running_condition,
    state_of,
)

Summary = dict[str, Any]
"""The values of an experiment on a page; all of it is JSON."""

_ENDED_STATES = ("Succeeded", "EarlyStopped", "Failed", "MetricsUnavailable", "Killed")


_COUNTS = {
    "Succeeded": "trials_succeeded",
    "EarlyStopped": "trials_early_stopped",
    "Running": "trials_running",
    "Pending": "trials_pending",
    "Failed": "trials_failed",
    "MetricsUnavailable": "trial_metrics_unavailable",
    "Killed": "trials_killed",
}


def experiment_summary(experiment: Experiment) -> Summary:
    """Return the head of an experiment's page: state, reason, counts, best, progress. All of it is JSON."""
    spec, status, metadata = experiment.spec, experiment.status, experiment.metadata
    best = status.current_optimal_trial
    return {
        "name": experiment.name,
        "namespace": experiment.namespace,
        "state": state_of(experiment),
        "reason": _reason_of(experiment),
        "completed": is_completed(experiment),
        "algorithm": algorithm_of(experiment),
        "objective": objective_words(experiment),
        "metric": objectives_of(experiment)[0].name,
        "created": time_text(metadata.creation_timestamp),
        "started": time_text(status.start_time),
        "ended": time_text(status.completion_time),
        "done": completed_count(experiment),
        "trials": max(status.trials, completed_count(experiment) + active_count(experiment)),
        "limit": spec.max_trial_count,
        "parallel": spec.parallel_trial_count,
        "failures": spec.max_failed_trial_count,
        "stopped": metadata.annotations.get(STOPPED_ANNOTATION) == STOPPED or is_interrupted(experiment),
        "active": active_text(experiment),
        **asdict(marks_of(metadata.annotations)),
        "counts": {state: getattr(status, field) for state, field in _COUNTS.items()},
        "best": {
            "trial": best.best_trial_name,
            "value": best_value(experiment),
            "parameters": texts_of(best.parameter_assignments),
            "compared": compared_words(experiment),
        },
    }


NOW = "now"


def active_text(experiment: Experiment) -> str:
    """Return the time of the last event of an experiment; NOW while trials run."""
    status = experiment.status
    if status.trials_running and not is_completed(experiment):
        return NOW
    changed = (moment for one in status.conditions for moment in (one.last_update_time, one.last_transition_time))
    known = (experiment.metadata.creation_timestamp, status.start_time, status.completion_time, *changed)
    return time_text(max(filter(None, known), default=None))


def _reason_of(experiment: Experiment) -> str:
    """Return the reason of an experiment's state, a sentence."""
    if is_at_rest(experiment):
        return running_condition(experiment).message
    return last_condition(experiment).message


def experiment_head(experiment: Experiment) -> Summary:
    """Return the summary with values for its own page: the best parameters to copy."""
    summary = experiment_summary(experiment)
    best: dict[str, str] = summary["best"]["parameters"]
    return {
        **summary,
        "confirmable": summary["completed"] and best and CONFIRMS_LABEL not in experiment.metadata.labels,
        "confirmation": confirmation_name(experiment.name),
        "sentence": experiment_sentence(experiment, summary["reason"]),
        "views": views_of(experiment.metadata.annotations),
        "pareto": pareto_words(experiment) if experiment.status.pareto_set else "",
        "further": [(name, shown_number(text), text) for name, text in further_values_of_best(experiment)],
        "assignments": [(name, short(shown_number(text)), text) for name, text in best.items()],
        "copies": copies_of(typed_assignments(experiment, best)),
    }


@dataclass(frozen=True, slots=True)
class ActionField:
    """A parameter in the form that adds a trial by hand.

    Attributes:
        name: Name of the parameter.
        value: Initial value: that of the best trial.
        hint: Its feasible values.
        number: Whether it is a number.
        choices: The choices; empty for free text.
    """

    name: str
    value: str
    hint: str
    number: bool = False
    choices: tuple[str, ...] = ()


def action_fields(experiment: Experiment) -> list[ActionField]:
    """Return the fields of the form that adds a trial by hand, none for an architecture search."""
    best = texts_of(experiment.status.current_optimal_trial.parameter_assignments)
    return [_action_field(spec, best) for spec in experiment.spec.parameters]


def _action_field(spec: ParameterSpec, best: Mapping[str, str]) -> ActionField:
    name, space = spec.name, spec.feasible_space
    if space.list:
        return ActionField(name, best.get(name, space.list[0]), "", choices=space.list)
    step = f", step {space.step}" if space.step else ""
    hint = f"{spec.parameter_type} from {space.min} to {space.max}{step}"
    return ActionField(name, best.get(name, space.min), hint, number=True)


def progress_parts(summary: Summary) -> list[tuple[str, int]]:
    """Return the numbers of an experiment's trials by outcome, running ones, then those still to come."""
    counts = summary["counts"]
    parts = [(state, counts[state]) for state in (*_ENDED_STATES, "Running", "Pending") if counts[state]]
    left = (summary["limit"] or 0) - sum(count for _, count in parts)
    return [*parts, ("to come", left)] if left > 0 else parts


def progress_words(summary: Summary) -> str:
    """Return a progress bar in words: `12 of 30 done: 9 Succeeded, 2 Failed, 1 EarlyStopped; 3 Running`."""
    counts, limit = summary["counts"], summary["limit"]
    ended = ", ".join(f"{counts[state]:,} {state}" for state in _ENDED_STATES if counts[state])
    active = ", ".join(f"{counts[state]:,} {state}" for state in ("Running", "Pending") if counts[state])
    done = f"{summary['done']:,}" + (f" of {limit:,}" if limit else "") + " done"
    return done + (f": {ended}" if ended else "") + (f"; {active}" if active else "")


def typed_assignments(experiment: Experiment, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return parameter values with the types for programs: numbers of numeric parameters, text of the others."""
    kinds = {spec.name: spec.parameter_type for spec in experiment.spec.parameters}
    return {name: _typed(kinds.get(name), text) for name, text in texts.items()}


def _typed(kind: str | None, text: str) -> Any:
    if kind not in (ParameterType.INT, ParameterType.DOUBLE, ParameterType.DISCRETE) or not is_usable(text):
        return text
    number = float(text)
    try:
        return int(text)
    except ValueError:
        return number


def copies_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return parameter values as texts to paste, by format."""
    return {
        "YAML": yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=10_000),
        "JSON": json.dumps(values, indent=2, ensure_ascii=False),
        "Python": repr(dict(values)),
        "Command line": " ".join(f"--{name}={shlex.quote(str(value))}" for name, value in values.items()),
    }
