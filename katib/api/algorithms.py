"""What is known of an algorithm before its service runs: name, settings, needs. Pure data, cheap to import.

The list of our own algorithms is `suggestion_services.algorithms`; further ones come from the user's configuration and
have no declared settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from katib.api.types import AlgorithmSetting
from katib.api.wording import did_you_mean, shown
from katib.errors import FieldError

_BOOLEANS = ("true", "false", "True", "False")
_NUMBERS: dict[str, tuple[Callable[[str], float], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
}


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One option of an algorithm.

    Attributes:
        name: As written in `algorithmSettings`.
        type: `int`, `float`, `text` or `bool`: what the text must convert to.
        default: Text shown to users; empty when there is none.
        description: One sentence.
        choices: Allowed texts; empty when any value of the type is.
        above: The number must be greater than this.
        at_least: The number must not be smaller.
        below: The number must be smaller than this.
        at_most: The number must not be greater.
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


@dataclass(frozen=True, slots=True)
class AlgorithmInfo:
    """An algorithm that can be asked for.

    Attributes:
        name: The `algorithmName`.
        summary: One sentence for `katib algorithms`.
        settings: Declared options; None when the service alone knows them.
        reads_history: Whether the service needs the trials of the experiment. Without, a request costs the same at
            the first trial and at the ten-thousandth.
        early_stopping: True for an early stopping algorithm, False for a suggestion algorithm.
        extra: The optional dependency group it needs; empty when none.
    """

    name: str
    summary: str = ""
    settings: tuple[SettingSpec, ...] | None = None
    reads_history: bool = True
    early_stopping: bool = False
    extra: str = ""


class AlgorithmCatalog(Protocol):
    """All algorithms that this installation offers."""

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None when it is not offered."""

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return every algorithm, suggestion algorithms first."""


def check_settings(info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], path: str) -> list[FieldError]:
    """Return what is wrong with the settings: unknown or repeated name, value of the wrong type or out of range.

    Args:
        info: The algorithm. With undeclared settings nothing is checked: its service will.
        settings: As given by the user.
        path: Path of the list, such as `spec.algorithm.algorithmSettings`.
    """
    if info.settings is None:
        return []
    errors: list[FieldError] = []
    known = {spec.name: spec for spec in info.settings}
    seen: set[str] = set()
    for i, setting in enumerate(settings):
        where = f"{path}[{i}]"
        spec = known.get(setting.name)
        if spec is None:
            errors.append(_unknown(info, setting.name, f"{where}.name"))
        elif setting.name in seen:
            errors.append(FieldError(f"{where}.name", f"{setting.name} is set twice", "keep one", "setting-duplicate"))
        else:
            errors.extend(_check_value(spec, setting.value, f"{where}.value"))
        seen.add(setting.name)
    return errors


def _unknown(info: AlgorithmInfo, name: str, path: str) -> FieldError:
    names = [spec.name for spec in info.settings or ()]
    remedy = did_you_mean(name, names) if names else f"remove it, {info.name} has no settings"
    return FieldError(path, f"{shown(name)} is no setting of {info.name}", remedy, "setting-unknown")


def _check_value(spec: SettingSpec, text: str, path: str) -> list[FieldError]:
    choices = _BOOLEANS if spec.type == "bool" and not spec.choices else spec.choices
    if choices and text not in choices:
        cause = f"{shown(text)} is not a value of {spec.name}"
        return [FieldError(path, cause, did_you_mean(text, choices), "setting-choice")]
    if spec.type not in _NUMBERS:
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
