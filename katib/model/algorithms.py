"""Facts about algorithms that are known without their service: names, settings, needs. Pure data, cheap to import.

Our own algorithms are listed in `suggestion_services.algorithms`. Algorithms from the user's configuration have no
declared settings.
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
        type: Type of the value: `int`, `float`, `text`, `bool` or `place`. A place is a location for checkpoints: an
            absolute path or a URL.
        default: Text shown to users; empty if there is none.
        description: One sentence.
        choices: Allowed texts; empty if any value of the type is allowed.
        above: Exclusive lower bound.
        at_least: Inclusive lower bound.
        below: Exclusive upper bound.
        at_most: Inclusive upper bound.
        names_parameter: Whether the value is the name of a numeric parameter that every trial has.
        above_setting: Another setting, given or default, whose value is an exclusive lower bound.
        amount_of: The setting that names the parameter of which this is an amount. The amount must allow one division
            by `eta`, unless `s_max` gives the number of divisions.
        may_be_none: Whether the text `None` is allowed; it disables the option.
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
    """An optional ability of a suggestion service beyond Katib's messages, worded for errors."""

    SEVERAL_OBJECTIVES = "several objectives"
    CONSTRAINTS = "constraints"
    CONDITIONAL_PARAMETERS = "conditional parameters"
    EARLIER_TRIALS = "a warm start"
    PRIORS = "priors"


RANDOM_STATE = SettingSpec(
    "random_state", "int", "", "Seed; without it the name of the experiment is the seed.", at_least=0
)
SEED = SettingSpec("seed", "int", "", "Another name of random_state, which every algorithm has.", at_least=0)
"""Accepted by all of our suggestion algorithms."""

MOST_PARALLEL = 10_000
"""Maximum number of suggestions in one request. More is a mistake and would occupy a service thread for hours."""


class AlgorithmInfo(Struct, frozen=True, rename="camel"):
    """An available algorithm.

    Attributes:
        summary: One sentence for `katib algorithms`.
        settings: Declared options; None if only the service knows them.
        reads_history: Whether the service needs the experiment's trials. If not, the cost of a request does not grow
            with their number.
        early_stopping: True for an early stopping algorithm, False for a suggestion algorithm.
        extra: The optional dependency group it needs; empty if none.
        declares_features: Whether `features` is complete. If not, only the service knows, and it reports errors during
            validation.
        echoed: Settings that its service sends with suggestions and receives with the next request. They have no effect
            and are accepted because users copy them.
        numeric_parameters: Minimum number of numeric parameters.
        needs_steps: Whether it lists all values, so that a double needs a step.
        graph_fields: Required fields of `nasConfig.graphConfig`. An algorithm with such fields searches architectures
            only, others search parameters only.
        assigns: Names of its assignments, if they are not parameter names.
        forwards_settings: Whether it passes all settings, including unknown ones, to the trials.
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


Others = Callable[[], Sequence[AlgorithmInfo]]
"""Returns algorithms, which are described when an error names them."""


class AlgorithmCatalog(Protocol):
    """All algorithms of this installation."""

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None if it is not available."""

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return every algorithm, suggestion algorithms first."""


def check_settings(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], path: str, others: Others = tuple
) -> list[FieldError]:
    """Return errors in the settings: unknown or repeated names, values of the wrong type or out of range.

    Args:
        info: The algorithm. Undeclared settings are left to its service.
        path: Path of the list, such as `spec.algorithm.algorithmSettings`.
        others: Returns all algorithms, to name those that have an unknown setting.
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
    """Yield conflicts between settings that are valid by themselves."""
    values = {name: spec.default for name, spec in known.items()} | {s.name: s.value for s in settings}
    for i, setting in enumerate(settings):
        spec = known.get(setting.name)
        other = spec.above_setting if spec is not None else ""
        if other and values[other] and float(setting.value) <= float(values[other]):
            cause = f"{shown(setting.value)} is not above {other}, which is {values[other]}"
            yield FieldError(f"{path}[{i}].value", cause, "raise it or leave it out", "setting-range")


def seed_errors(settings: Sequence[AlgorithmSetting], path: str) -> list[FieldError]:
    """Return an error if a seed is given under both of its names with different values."""
    seeds = {setting.value for setting in settings if setting.name in ("seed", "random_state")}
    if len(seeds) <= 1:
        return []
    cause = "seed and random_state are the same option and differ"
    return [FieldError(path, cause, "keep one of them", "setting-conflict")]


def check_named_parameters(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], parameters: Sequence[ParameterSpec], path: str
) -> Iterator[FieldError]:
    """Yield errors in settings that name a parameter of the search space."""
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
    """Return the parameters, with a single-valued resource parameter replaced by the range of amounts given to trials.

    Katib's services overwrite the value with the amount, whatever the range. In Katib's own files the resource has a
    single value, which stands for a parameter that is not searched.
    """
    given = {setting.name: setting.value for setting in settings}
    name, most = given.get("resource_name"), _number(given.get("r_l", "")) or 0.0
    return [p if p.name != name else _with_amounts(p, most) for p in parameters] if name else parameters


def _with_amounts(parameter: ParameterSpec, most: float) -> ParameterSpec:
    """Return a single-valued numeric parameter with the range from 1 to `most`; any other parameter unchanged."""
    space, is_whole = parameter.feasible_space, parameter.parameter_type == ParameterType.INT
    least = _number(space.min)
    if least is None or least != _number(space.max) or not 1 < most < math.inf:
        return parameter
    range_ = structs.replace(space, min="1", max=str(int(most) if is_whole else most), step="", distribution="")
    return structs.replace(parameter, feasible_space=range_)


def _check_amounts(
    info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], name: str, parameter: ParameterSpec, path: str
) -> Iterator[FieldError]:
    """Yield an error for each amount of the parameter named by the setting `name` that is too small to divide."""
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
    """Yield a warning for each amount that is accepted, as in Katib, but exceeds the parameter's maximum."""
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
    """Yield the settings that are an amount of the parameter named by the setting `name`."""
    ours = {spec.name for spec in info.settings or () if name and spec.amount_of == name}
    for i, setting in enumerate(settings):
        if setting.name in ours and (amount := _number(setting.value)) is not None:
            yield i, setting, amount


def _least_amount(parameter: ParameterSpec) -> float | None:
    """Return the smallest amount of a trial, at least 1 for whole numbers; None if it cannot be read."""
    space = parameter.feasible_space
    amounts = _amounts(space.list or (space.min,))
    if amounts is None:
        return None
    least = min(amounts, default=1.0)
    return max(least, 1.0) if parameter.parameter_type == ParameterType.INT else least


def _amounts(texts: Sequence[str]) -> list[float] | None:
    """Return the numbers above 0; None if one cannot be read."""
    numbers = [_number(text) for text in texts]
    return None if None in numbers else [number for number in numbers if number is not None and number > 0]


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None


def _missing(info: AlgorithmInfo, spec: SettingSpec, path: str) -> FieldError:
    what = spec.description[:1].lower() + spec.description[1:].rstrip(".")
    return FieldError(path, f"{info.name} needs {spec.name}", f"add {spec.name}: {what}", "setting-missing")


def _unknown(info: AlgorithmInfo, name: str, path: str, others: Others) -> FieldError:
    owners = [
        other.name
        for other in others()
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
    """Return whether a number is in range; NaN never is."""
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
    Feature.PRIORS: "ignores priors",
}


def required_features(spec: ExperimentSpec) -> Iterator[Feature]:
    """Yield the features that an experiment requires. Constraints and priors never are: a search can ignore them."""
    if spec.objective is not None and len(spec.objective.terms) > 1:
        yield Feature.SEVERAL_OBJECTIVES
    if any(parameter.when is not None for parameter in spec.parameters):
        yield Feature.CONDITIONAL_PARAMETERS
    if spec.warm_start is not None:
        yield Feature.EARLIER_TRIALS


def check_features(
    spec: ExperimentSpec, name: str, features: Collection[Feature], others: Others = tuple
) -> list[FieldError]:
    """Return an error for each feature that an experiment requires and its algorithm does not support."""
    path = "spec.algorithm.algorithmName"
    return [
        FieldError(path, f"{name} {_WITHOUT[feature]}", _use(feature, others), "algorithm-without-feature")
        for feature in required_features(spec)
        if feature not in features
    ]


def _use(feature: Feature, others: Others) -> str:
    """Return the remedy that names suitable algorithms, preferring those that learn from trials."""
    able = [info for info in others() if feature in info.features and not info.early_stopping]
    names = [info.name for info in able if info.reads_history] or [info.name for info in able]
    if not names:
        return f"use one that `katib algorithms` lists with {feature}"
    return f"use {either(names)}"


@dataclass(frozen=True, slots=True)
class SuggestionsReply:
    """The complete reply of a suggestion service.

    Attributes:
        assignments: As many as requested, unless `exhausted` or `waits`. The controller replaces an empty name.
        algorithm_settings: Settings to send with the next request.
        exhausted: Whether the search has no more assignments.
        waits: Whether more assignments become available when a running trial ends.
        explanation: The service's choice and its reason in one sentence; empty if there is none.
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
        reason: One sentence, such as `loss 0.91 at step 4 is worse than 0.43, the best third of 27 trials`.
    """

    trial_name: str
    reason: str
