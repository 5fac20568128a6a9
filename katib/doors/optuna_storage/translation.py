"""Translation between Optuna's terms and Katib's. Pure.

A study is an experiment, its directions are objectives named `value`, or `value_0` and so on. A trial's id combines the
numbers of its experiment and its own, so that ids increase within a study and are unique.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from katib.doors.optuna_storage.messages import DIRECTIONS, STATES, Study, Trial
from katib.errors import invalid
from katib.model.types import (
    Distribution,
    FeasibleSpace,
    MetricStrategy,
    MetricStrategySpec,
    ObjectiveSpec,
    ObjectiveTerm,
    ObjectiveType,
    ParameterSpec,
    ParameterType,
    TrialState,
)
from katib.service.tuning.chosen_trials import Choice, ChosenExperiment, ChosenTrial

USER, SYSTEM = "user", "system"
"""Kinds of attributes."""

_TRIAL_BITS = 24
"""Allows 16 million trials per study. Ids stay below 2**53, JavaScript's largest exact integer."""

_TIME = "%Y-%m-%d %H:%M:%S.%f"
_DIRECTIONS = dict(zip(DIRECTIONS, (ObjectiveType.MINIMIZE, ObjectiveType.MAXIMIZE), strict=True))
_STATES = {
    "RUNNING": TrialState.RUNNING,
    "COMPLETE": TrialState.SUCCEEDED,
    "PRUNED": TrialState.EARLY_STOPPED,
    "FAIL": TrialState.FAILED,
    "WAITING": TrialState.PENDING,
}
_NUMBERS = {state: STATES.index(name) for name, state in _STATES.items()}


def trial_id(study: int, trial: int) -> int:
    return study << _TRIAL_BITS | trial


def numbers_of(id_: int) -> tuple[int, int]:
    """Return the numbers of the study and of the trial of an id."""
    return id_ >> _TRIAL_BITS, id_ & (1 << _TRIAL_BITS) - 1


def objective_of(directions: Sequence[int]) -> ObjectiveSpec:
    """Return the objective of a study with these directions; the final value counts, not intermediate ones."""
    names = ["value"] if len(directions) == 1 else [f"value_{number}" for number in range(len(directions))]
    terms = [
        ObjectiveTerm(name=name, type=_DIRECTIONS[DIRECTIONS[direction]])
        for name, direction in zip(names, directions, strict=True)
    ]
    latest = tuple(MetricStrategySpec(name=name, value=MetricStrategy.LATEST.value) for name in names)
    first = terms[0]
    several = tuple(terms) if len(terms) > 1 else ()
    return ObjectiveSpec(
        type=first.type, objective_metric_name=first.name, metric_strategies=latest, objectives=several
    )


def directions_of(objective: ObjectiveSpec) -> list[int]:
    return [int(term.type == ObjectiveType.MAXIMIZE) for term in objective.terms]


def state_of(number: int) -> TrialState:
    return _STATES[STATES[number]]


def parameter_of(name: str, internal: float, distribution: str) -> tuple[Choice, ParameterSpec]:
    """Return a parameter and its specification, from Optuna's internal value and its distribution.

    Raises:
        InvalidError: The kind of distribution is unknown.
    """
    try:
        read = json.loads(distribution)
        kind, attributes = read["name"], read["attributes"]
        spec = _spec(name, kind, attributes)
        text = _text(internal, kind, attributes)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        remedy = "use FloatDistribution, IntDistribution or CategoricalDistribution"
        raise invalid(
            f"parameter {name}", f"its distribution is not known ({error!r})", remedy, "optuna-kind"
        ) from error
    return Choice(text, f"{float(internal)!r} {distribution}"), spec


def _spec(name: str, kind: str, attributes: dict[str, Any]) -> ParameterSpec:
    if kind == "CategoricalDistribution":
        space = FeasibleSpace(list=tuple(map(str, attributes["choices"])))
        return ParameterSpec(name=name, parameter_type=ParameterType.CATEGORICAL.value, feasible_space=space)
    type_ = {"FloatDistribution": ParameterType.DOUBLE, "IntDistribution": ParameterType.INT}[kind]
    step = attributes.get("step")
    space = FeasibleSpace(
        min=str(attributes["low"]),
        max=str(attributes["high"]),
        step="" if step is None or (type_ is ParameterType.INT and step == 1) else str(step),
        distribution=Distribution.LOG_UNIFORM.value if attributes.get("log") else "",
    )
    return ParameterSpec(name=name, parameter_type=type_.value, feasible_space=space)


def _text(internal: float, kind: str, attributes: dict[str, Any]) -> str:
    if kind == "CategoricalDistribution":
        return str(attributes["choices"][int(internal)])
    return str(int(internal)) if kind == "IntDistribution" else repr(float(internal))


def study_of(known: ChosenExperiment) -> Any:
    return Study(
        study_id=known.number,
        study_name=known.title,
        directions=directions_of(known.objective),
        user_attributes=known.attributes.get(USER, {}),
        system_attributes=known.attributes.get(SYSTEM, {}),
    )


def message_of(study: int, trial: ChosenTrial) -> Any:
    made = Trial(
        trial_id=trial_id(study, trial.number),
        number=trial.number,
        state=_NUMBERS[trial.state],
        values=trial.values,
        datetime_start=_written(trial.started),
        datetime_complete=_written(trial.completed),
        user_attributes=trial.attributes.get(USER, {}),
        system_attributes=trial.attributes.get(SYSTEM, {}),
        intermediate_values=trial.readings,
    )
    for name, choice in list(trial.parameters.items()):
        internal, _, distribution = choice.detail.partition(" ")
        made.params.add(key=name, value=float(internal))
        made.distributions.add(key=name, value=distribution)
    return made


def trial_of(made: Any) -> tuple[ChosenTrial, dict[str, ParameterSpec]]:
    distributions = {pair.key: pair.value for pair in made.distributions}
    read = {pair.key: parameter_of(pair.key, pair.value, distributions.get(pair.key, "")) for pair in made.params}
    trial = ChosenTrial(
        0,
        state_of(made.state),
        tuple(made.values),
        _read(made.datetime_start),
        _read(made.datetime_complete),
        {name: choice for name, (choice, _) in read.items()},
        dict(made.intermediate_values),
        {USER: dict(made.user_attributes), SYSTEM: dict(made.system_attributes)},
    )
    return trial, {name: spec for name, (_, spec) in read.items()}


def _written(time: datetime | None) -> str:
    """Return a time in Optuna's form, in this machine's zone and without naming it."""
    return "" if time is None else time.astimezone().strftime(_TIME)


def _read(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _TIME).astimezone() if text else None
    except ValueError as error:
        raise invalid("datetime", f"{text!r} is not a time", f"write it as {_TIME}", "optuna-time") from error
