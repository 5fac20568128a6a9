"""What is known of an algorithm before its service runs: name, settings, needs. Pure data, cheap to import.

The list of our own algorithms is `suggestion_services.algorithms`; further ones come from the user's configuration and
have no declared settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, structs

from katib.errors import FieldError
from katib.model.checkpoints import is_shared_directory, is_url
from katib.model.types import (
    AlgorithmSetting,
    EarlyStoppingRule,
    ExperimentSpec,
    ParameterSpec,
    ParameterType,
    TrialAssignment,
)
from katib.model.wording import did_you_mean, either, shown

_BOOLEANS = ("true", "false", "True", "False")
_ROUNDING = 1e-9  # relative
_NUMBERS: dict[str, tuple[Callable[[str], float], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
}


class SettingSpec(Struct, frozen=True, rename="camel"):
    """One option of an algorithm.

    Attributes:
        name: As written in `algorithmSettings`.
        type: `int`, `float`, `text`, `bool` or `place`: what the text must convert to. A place is where trials keep
            checkpoints: an absolute path, or a URL.
        default: Text shown to users; empty when there is none.
        description: One sentence.
        choices: Allowed texts; empty when any value of the type is.
        above: The number must be greater than this.
        at_least: The number must not be smaller.
        below: The number must be smaller than this.
        at_most: The number must not be greater.
        is_required: Whether the algorithm does not work without it.
        names_parameter: Whether the value is the name of a parameter, one of numbers that every trial has.
        above_setting: The number must be greater than that of this setting, given or default.
        amount_of: The number is an amount of the parameter that this setting names: there must be room to divide it by
            `eta` once, unless `s_max` says how often that is done.
        may_be_none: Whether the text `None` is allowed, which turns off what it controls.
    """

    name: str
    type: str
    default: str
    description: str
    choices: tuple[str, ...] = ()
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    is_required: bool = False
    names_parameter: bool = False
    above_setting: str = ""
    amount_of: str = ""
    may_be_none: bool = False


class Feature(StrEnum):
    """What an experiment may ask of a suggestion service beyond Katib's messages, worded for errors."""

    SEVERAL_OBJECTIVES = "several objectives"
    CONSTRAINTS = "constraints"
    CONDITIONAL_PARAMETERS = "conditional parameters"
    EARLIER_TRIALS = "a warm start"


SEED = SettingSpec("seed", "int", "", "Another name of random_state, which every algorithm has.", at_least=0)
"""Of every suggestion algorithm of ours."""

MOST_PARALLEL = 10_000
"""The most suggestions in one request; more is a mistake, and would keep a thread of a service busy for hours."""


class AlgorithmInfo(Struct, frozen=True, rename="camel"):
    """An algorithm that can be asked for.

    Attributes:
        name: The `algorithmName`.
        summary: One sentence for `katib algorithms`.
        settings: Declared options; None when the service alone knows them.
        reads_history: Whether the service needs the trials of the experiment. Without, a request costs the same at
            the first trial and at the ten-thousandth.
        early_stopping: True for an early stopping algorithm, False for a suggestion algorithm.
        extra: The optional dependency group it needs; empty when none.
        features: What it makes use of.
        declares_features: Whether that is all. Otherwise the service alone knows, and says so when it validates.
        echoed: Settings that its service sends along with suggestions and gets back with the next request. They change
            nothing, and are accepted where a user copies them.
        numeric_parameters: How many parameters whose values are numbers it needs at least.
        needs_steps: Whether it lists all values, so that a double needs a step.
        graph_fields: Fields of `nasConfig.graphConfig` that it needs. With any it searches architectures, and only
            these; without, parameters.
        assigns: Names of what it assigns, where these are not the names of parameters.
        forwards_settings: Whether it hands all settings on to the trials, those that it does not know, too.
    """

    name: str
    summary: str = ""
    settings: tuple[SettingSpec, ...] | None = None
    reads_history: bool = True
    early_stopping: bool = False
    extra: str = ""
    features: tuple[Feature, ...] = ()
    echoed: tuple[str, ...] = ()
    numeric_parameters: int = 0
    needs_steps: bool = False
    declares_features: bool = True
    graph_fields: tuple[str, ...] = ()
    assigns: tuple[str, ...] = ()
    forwards_settings: bool = False


class AlgorithmCatalog(Protocol):
    """All algorithms that this installation offers."""

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None when it is not offered."""

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return every algorithm, suggestion algorithms first."""


def check_settings(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], path: str, others: Sequence[AlgorithmInfo] = ()
) -> list[FieldError]:
    """Return what is wrong with the settings: unknown or repeated name, value of the wrong type or out of range.

    Args:
        info: The algorithm. With undeclared settings nothing is checked: its service will.
        settings: As given by the user.
        path: Path of the list, such as `spec.algorithm.algorithmSettings`.
        others: All algorithms, to name those that have a setting which this one does not have.
    """
    if info.settings is None:
        return []
    errors = seed_errors(settings, path)
    known = {spec.name: spec for spec in info.settings}
    seen: set[str] = set()
    for i, setting in enumerate(settings):
        where = f"{path}[{i}]"
        spec = known.get(setting.name)
        if setting.name in info.echoed:
            continue
        if spec is None and info.forwards_settings:
            pass
        elif spec is None:
            errors.append(_unknown(info, setting.name, f"{where}.name", others))
        elif setting.name in seen:
            errors.append(FieldError(f"{where}.name", f"{setting.name} is set twice", "keep one", "setting-duplicate"))
        else:
            errors.extend(_check_value(spec, setting.value, f"{where}.value"))
        seen.add(setting.name)
    errors.extend(_missing(info, spec, path) for spec in info.settings if spec.is_required and spec.name not in seen)
    return errors or list(_check_order(known, settings, path))


def _check_order(
    known: Mapping[str, SettingSpec], settings: Sequence[AlgorithmSetting], path: str
) -> Iterator[FieldError]:
    """Yield what is wrong between settings that are right by themselves."""
    values = {name: spec.default for name, spec in known.items()} | {s.name: s.value for s in settings}
    for i, setting in enumerate(settings):
        spec = known.get(setting.name)
        other = spec.above_setting if spec is not None else ""
        if other and values[other] and float(setting.value) <= float(values[other]):
            cause = f"{shown(setting.value)} is not above {other}, which is {values[other]}"
            yield FieldError(f"{path}[{i}].value", cause, "raise it or leave it out", "setting-range")


def seed_errors(settings: Sequence[AlgorithmSetting], path: str) -> list[FieldError]:
    """Return what is wrong with a seed that is given under both of its names."""
    seeds = {setting.value for setting in settings if setting.name in ("seed", "random_state")}
    if len(seeds) <= 1:
        return []
    cause = "seed and random_state are the same option and differ"
    return [FieldError(path, cause, "keep one of them", "setting-conflict")]


def check_named_parameters(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], parameters: Sequence[ParameterSpec], path: str
) -> Iterator[FieldError]:
    """Yield what is wrong with settings that name a parameter of the search space."""
    naming = {spec.name for spec in info.settings or () if spec.names_parameter}
    known = {parameter.name: parameter for parameter in with_free_resource(settings, parameters)}
    for i, setting in enumerate(settings):
        if setting.name not in naming:
            continue
        where, parameter = f"{path}[{i}].value", known.get(setting.value)
        if parameter is None:
            cause = f"{shown(setting.value)} is not a parameter"
            remedy = did_you_mean(setting.value, known) if known else "add the parameter"
            yield FieldError(where, cause, remedy, "setting-parameter")
        elif parameter.parameter_type == ParameterType.CATEGORICAL:
            cause = f"{setting.value} is categorical, and {setting.name} needs a parameter of numbers"
            yield FieldError(where, cause, "name an int, double or discrete parameter", "setting-parameter-type")
        elif parameter.when is not None:
            cause = f"{setting.value} is a conditional parameter, and {setting.name} needs one that every trial has"
            yield FieldError(where, cause, "name another parameter or remove its when", "setting-parameter-when")
        else:
            yield from _check_amounts(info, settings, setting.name, parameter, path)


def with_free_resource(
    settings: Sequence[AlgorithmSetting], parameters: Sequence[ParameterSpec]
) -> Sequence[ParameterSpec]:
    """Return the parameters, with one value of the resource replaced by the amounts that trials get.

    Katib's services write the amount over the value whatever the range is, and its own files give the resource one
    value: it stands for a parameter that is not searched.
    """
    given = {setting.name: setting.value for setting in settings}
    name, most = given.get("resource_name"), _number(given.get("r_l", "")) or 0.0
    return [p if p.name != name else _with_amounts(p, most) for p in parameters] if name else parameters


def _with_amounts(parameter: ParameterSpec, most: float) -> ParameterSpec:
    """Return a parameter of one number with the amounts from 1 up as its range; any other one as it is."""
    space, is_whole = parameter.feasible_space, parameter.parameter_type == ParameterType.INT
    least = _number(space.min)
    if least is None or least != _number(space.max) or not 1 < most < math.inf:
        return parameter
    range_ = structs.replace(space, min="1", max=str(int(most) if is_whole else most), step="", distribution="")
    return structs.replace(parameter, feasible_space=range_)


def _check_amounts(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], name: str, parameter: ParameterSpec, path: str
) -> Iterator[FieldError]:
    """Yield the amounts of a parameter, which the setting of this name names, that are too small to be divided."""
    specs = {spec.name: spec for spec in info.settings or ()}
    given = {setting.name: setting.value for setting in settings}
    eta, least = _number(given.get("eta") or specs["eta"].default) if "eta" in specs else None, _least_amount(parameter)
    if eta is None or least is None or "s_max" in given:
        return
    for i, setting, amount in _amount_settings(info, settings, name):
        if 0 < amount < eta * least * (1 - _ROUNDING):
            cause = (
                f"{shown(setting.value)} is less than eta times {least:g}, the least {parameter.name} of a trial, so "
                "there is nothing to divide"
            )
            remedy = f"raise {setting.name} to {eta * least:g} or more, or lower the least {parameter.name}"
            yield FieldError(f"{path}[{i}].value", cause, remedy, "setting-range")


def find_cut_amounts(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], parameters: Sequence[ParameterSpec], path: str
) -> Iterator[FieldError]:
    """Yield the amounts that are accepted, as Katib does, but are more than the parameter lets a trial have."""
    named = {setting.value: setting.name for setting in settings}
    for parameter in with_free_resource(settings, parameters):
        space = parameter.feasible_space
        most = max(_amounts(space.list or (space.max,)) or (), default=math.inf)
        for i, setting, amount in _amount_settings(info, settings, named.get(parameter.name, "")):
            if amount > most:
                cause = f"{shown(setting.value)} is above {most:g}, and no trial gets more {parameter.name} than that"
                remedy = f"raise the most {parameter.name} to {setting.value}, or lower {setting.name}"
                yield FieldError(f"{path}[{i}].value", cause, remedy, "setting-range")


def _amount_settings(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], name: str
) -> Iterator[tuple[int, AlgorithmSetting, float]]:
    """Yield the settings that are an amount of the parameter which the setting of this name names."""
    ours = {spec.name for spec in info.settings or () if name and spec.amount_of == name}
    for i, setting in enumerate(settings):
        if setting.name in ours and (amount := _number(setting.value)) is not None:
            yield i, setting, amount


def _least_amount(parameter: ParameterSpec) -> float | None:
    """Return the least amount that a trial can have, at least 1 for whole numbers; None where it cannot be read."""
    space = parameter.feasible_space
    amounts = _amounts(space.list or (space.min,))
    if amounts is None:
        return None
    least = min(amounts, default=1.0)
    return max(least, 1.0) if parameter.parameter_type == ParameterType.INT else least


def _amounts(texts: Sequence[str]) -> list[float] | None:
    """Return the numbers above 0; None where one cannot be read."""
    numbers = [_number(text) for text in texts]
    return None if None in numbers else [number for number in numbers if number is not None and number > 0]


def _number(text: str) -> float | None:
    """Return the number that a text says; None where it says none."""
    with suppress(ValueError):
        return float(text)
    return None


def _missing(info: AlgorithmInfo, spec: SettingSpec, path: str) -> FieldError:
    what = spec.description[:1].lower() + spec.description[1:].rstrip(".")
    return FieldError(path, f"{info.name} needs {spec.name}", f"add {spec.name}: {what}", "setting-missing")


def _unknown(info: AlgorithmInfo, name: str, path: str, others: Sequence[AlgorithmInfo]) -> FieldError:
    owners = [
        other.name
        for other in others
        if other.early_stopping == info.early_stopping and any(name == spec.name for spec in other.settings or ())
    ]
    cause = f"{shown(name)} is not a setting of {info.name}"
    if owners:
        where = " and ".join(filter(None, [", ".join(owners[:-1]), owners[-1]]))
        remedy = f"remove it, or use {owners[0]}" if len(owners) == 1 else "remove it, or use one of these"
        return FieldError(path, f"{cause}, but of {where}", remedy, "setting-unknown")
    names = [spec.name for spec in info.settings or ()]
    remedy = did_you_mean(name, names) if names else f"remove it, {info.name} has no settings"
    return FieldError(path, cause, remedy, "setting-unknown")


def _check_value(spec: SettingSpec, text: str, path: str) -> list[FieldError]:
    choices = _BOOLEANS if spec.type == "bool" and not spec.choices else spec.choices
    if choices and text not in choices:
        cause = f"{shown(text)} is not a value of {spec.name}"
        return [FieldError(path, cause, did_you_mean(text, choices), "setting-choice")]
    if spec.type == "place" and not (is_shared_directory(text) or is_url(text)):
        cause = f"{shown(text)} is neither an absolute path nor a URL"
        remedy = f"give {spec.name} a directory such as /checkpoints, or the address of your object store"
        return [FieldError(path, cause, remedy, "setting-type")]
    if spec.type not in _NUMBERS or (spec.may_be_none and text == "None"):
        return []
    convert, kind = _NUMBERS[spec.type]
    try:
        number = convert(text)
    except ValueError:
        return [FieldError(path, f"{shown(text)} is not {kind}", f"give {spec.name} {kind}", "setting-type")]
    if _is_in_range(number, spec):
        return []
    return [FieldError(path, f"{shown(text)} is out of range", f"choose {spec.name} {_range(spec)}", "setting-range")]


def _is_in_range(number: float, spec: SettingSpec) -> bool:
    """Compare so that NaN is in no range."""
    return (
        (spec.above is None or number > spec.above)
        and (spec.at_least is None or number >= spec.at_least)
        and (spec.below is None or number < spec.below)
        and (spec.at_most is None or number <= spec.at_most)
    )


def _range(spec: SettingSpec) -> str:
    limits = (
        ("above", spec.above),
        ("at least", spec.at_least),
        ("below", spec.below),
        ("at most", spec.at_most),
    )
    return " and ".join(f"{words} {bound:g}" for words, bound in limits if bound is not None)


_WITHOUT = {
    Feature.SEVERAL_OBJECTIVES: "searches one objective",
    Feature.CONSTRAINTS: "makes no use of constraints",
    Feature.CONDITIONAL_PARAMETERS: "does not know conditional parameters",
    Feature.EARLIER_TRIALS: "does not learn from earlier trials",
}


def required_features(spec: ExperimentSpec) -> Iterator[Feature]:
    """Yield what an experiment cannot do without. Constraints are none: any search can be judged by them afterwards."""
    if spec.objective is not None and len(spec.objective.terms) > 1:
        yield Feature.SEVERAL_OBJECTIVES
    if any(parameter.when is not None for parameter in spec.parameters):
        yield Feature.CONDITIONAL_PARAMETERS
    if spec.warm_start is not None:
        yield Feature.EARLIER_TRIALS


def check_features(
    spec: ExperimentSpec, name: str, features: Collection[Feature], others: Sequence[AlgorithmInfo] = ()
) -> list[FieldError]:
    """Return what an experiment needs and its algorithm does not know.

    Args:
        spec: Of the experiment.
        name: The algorithm.
        features: What it knows.
        others: All algorithms, to name those that would do; empty where they are not known.
    """
    path = "spec.algorithm.algorithmName"
    return [
        FieldError(path, f"{name} {_WITHOUT[feature]}", _use(feature, others), "algorithm-without-feature")
        for feature in required_features(spec)
        if feature not in features
    ]


def _use(feature: Feature, others: Sequence[AlgorithmInfo]) -> str:
    """Return which algorithms to use; those that learn from trials where there are any."""
    able = [info for info in others if feature in info.features and not info.early_stopping]
    names = [info.name for info in able if info.reads_history] or [info.name for info in able]
    if not names:
        return f"use one that `katib algorithms` lists with {feature}"
    return f"use {either(names)}"


@dataclass(frozen=True, slots=True)
class SuggestionsReply:
    """A whole answer.

    Attributes:
        assignments: As many as were asked for, unless `exhausted` or `waits`. An empty name leaves naming to the
            controller.
        algorithm_settings: To be sent back with the next question.
        exhausted: Whether the search has no more.
        waits: Whether there are more once a running trial has ended.
        explanation: What the service chose, and why: one sentence, empty where it has nothing to say.
        rules: What stops the trials of these assignments early, as the early stopping service says.
    """

    assignments: tuple[TrialAssignment, ...]
    algorithm_settings: tuple[AlgorithmSetting, ...] = ()
    exhausted: bool = False
    waits: bool = False
    explanation: str = ""
    rules: tuple[EarlyStoppingRule, ...] = ()


@dataclass(frozen=True, slots=True)
class StopVerdict:
    """A running trial that should be stopped.

    Attributes:
        trial_name: Which.
        reason: Why, one sentence such as `loss 0.91 at step 4 is worse than 0.43, the best third of 27 trials`.
    """

    trial_name: str
    reason: str
