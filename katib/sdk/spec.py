"""Conversion of the Python arguments of `katib.tune` and `katib.create` to fields of an Experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from katib.errors import invalid
from katib.sdk.search import Parameter
from katib.service.tuning.service import Json

Bounds = tuple[float | None, float | None]


def search_spec(
    space: Mapping[str, Parameter],
    *,
    objective: str,
    direction: str,
    goal: float | None,
    objectives: Mapping[str, str] | None,
    goals: Mapping[str, float] | None,
    constraints: Mapping[str, Bounds] | None,
    max_failed: int | None,
    algorithm: str,
    settings: Mapping[str, Any] | None,
    early_stopping: str | None,
    early_stopping_settings: Mapping[str, Any] | None,
    additional_metrics: Sequence[str],
    strategy: str,
    where: Sequence[str],
    initial_trials: Sequence[Mapping[str, Any]],
    warm_start: Sequence[str],
) -> Json:
    """Return the fields of a spec that define the search; the arguments are those of `katib.tune`.

    Raises:
        InvalidError: A goal is given for a metric that is not an objective.
    """
    single = {"type": direction, "objectiveMetricName": objective, "goal": goal}
    bounds = constraints or {}
    return {
        "objective": without_none(
            **(_objectives(objectives, goals or {}) if objectives else single),
            additionalMetricNames=list(additional_metrics) or None,
            metricStrategies=[{"name": name, "value": strategy} for name in objectives or [objective]]
            if strategy
            else None,
            constraints=[without_none(metricName=key, min=b[0], max=b[1]) for key, b in bounds.items()] or None,
        ),
        "algorithm": _algorithm(algorithm, settings),
        "parameters": [parameter.spec(key) for key, parameter in space.items()],
        **without_none(
            maxFailedTrialCount=max_failed,
            parameterConstraints=list(where) or None,
            initialTrials=[{"parameterAssignments": _pairs(trial)} for trial in initial_trials] or None,
            warmStart={"experiments": list(warm_start)} if warm_start else None,
            earlyStopping=_algorithm(early_stopping, early_stopping_settings) if early_stopping else None,
        ),
    }


def search_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a function's arguments that `search_spec` takes."""
    code = search_spec.__code__
    return {name: given[name] for name in code.co_varnames[1 : 1 + code.co_kwonlyargcount]}


def document_of(experiment: Json) -> str:
    """Return an experiment as text; numbers of NumPy are converted, and other unsupported values are refused."""
    return json.dumps(experiment, default=lambda value: value.item() if hasattr(value, "item") else str(value))


def without_none(**fields: Any) -> Json:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}


def _objectives(directions: Mapping[str, str], goals: Mapping[str, float]) -> Json:
    unknown = [name for name in goals if name not in directions]
    if unknown:
        raise invalid("goals", f"{unknown[0]} is not an objective", f"use one of {', '.join(directions)}", "goal-name")
    return {
        "objectives": [
            without_none(name=name, type=direction, goal=goals.get(name)) for name, direction in directions.items()
        ]
    }


def _algorithm(name: str, settings: Mapping[str, Any] | None) -> Json:
    return {"algorithmName": name, **({"algorithmSettings": _pairs(settings)} if settings else {})}


def _pairs(values: Mapping[str, Any]) -> list[Json]:
    return [{"name": key, "value": str(value)} for key, value in values.items()]
