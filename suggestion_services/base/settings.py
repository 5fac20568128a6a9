"""Settings of an algorithm: text to numbers, with the error messages of Katib's services.

The messages equal those of Katib's services character by character, because scripts compare them. The fuller check,
with paths and remedies, runs when an experiment is submitted (`katib.model.algorithms.check_settings`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from katib.errors import FieldError, InvalidError
from katib.model.algorithms import AlgorithmInfo, SettingSpec, seed_errors
from katib.model.types import AlgorithmSetting

SettingValue = int | float | str | bool | None

_PATH = "spec.algorithm.algorithmSettings"
_REMEDY = "see the algorithm's settings"

_TITLES = {"bayesianoptimization": "Bayesian optimization"}  # its name in Katib's messages


class Settings:
    """Typed values by name. Settings that were not given are absent: the algorithm knows their defaults.

    Args:
        values: None for a setting that was turned off by the text `None`.
        texts: The given texts in their order, including settings that are only forwarded.
    """

    def __init__(self, values: Mapping[str, SettingValue], texts: Mapping[str, str] | None = None) -> None:
        self._values = MappingProxyType(dict(values))
        self.texts = MappingProxyType(dict(texts or {}))

    def get(self, name: str, default: SettingValue | None = None) -> SettingValue | None:
        """Return a value; the default if it was not given."""
        return self._values.get(name, default)

    def whole(self, name: str, default: int) -> int:
        return int(self._values.get(name, default) or 0)

    def number(self, name: str, default: float) -> float:
        return float(self._values.get(name, default) or 0.0)

    def optional_number(self, name: str, default: float) -> float | None:
        """Return a float setting; None if it is turned off."""
        value = self._values.get(name, default)
        return None if value is None else float(value)

    def text(self, name: str, default: str) -> str:
        return str(self._values.get(name, default))


class LiteralError(FieldError):
    """An error in the wording of Katib's services: the cause alone, without path and remedy."""

    def __str__(self) -> str:
        return self.cause


def read_settings(info: AlgorithmInfo, settings: Sequence[AlgorithmSetting], *, path: str = _PATH) -> Settings:
    """Return the values of the given settings; the last of a repeated one.

    Raises:
        InvalidError: Unknown names and wrong values, one error each.
    """
    known = {spec.name: spec for spec in info.settings or ()}
    values: dict[str, SettingValue] = {}
    errors: list[FieldError] = [
        LiteralError(error.path, error.cause, error.remedy, error.origin) for error in seed_errors(settings, path)
    ]
    for setting in settings:
        cause: str | None
        spec = known.get(setting.name)
        if spec is None and info.forwards_settings:
            continue
        if spec is None:
            cause, origin = f"unknown setting {setting.name} for algorithm {info.name}", "setting-unknown"
        else:
            try:
                values[setting.name] = _convert(spec, setting.value)
                cause, origin = _out_of_range(info, spec, values[setting.name]), "setting-range"
            except ValueError as error:
                cause, origin = f"failed to validate {setting.name}({setting.value}): {error}", "setting-type"
        if cause is not None:
            errors.append(LiteralError(f"{path}.{setting.name}", cause, _REMEDY, origin))
    if errors:
        raise InvalidError(errors)
    return Settings(values, {setting.name: setting.value for setting in settings})


def _convert(spec: SettingSpec, text: str) -> SettingValue:
    if spec.may_be_none and text == "None":
        return None
    match spec.type:
        case "int":
            return int(text)
        case "float":
            value = float(text)
            if not math.isfinite(value):
                raise ValueError("not a finite number")
            return value
        case "bool":
            if text.lower() not in ("true", "false"):
                raise ValueError("neither true nor false")
            return text.lower() == "true"
        case _:
            return text


def _out_of_range(info: AlgorithmInfo, spec: SettingSpec, value: SettingValue) -> str | None:
    if spec.choices and value not in spec.choices:
        return f"{spec.name} {value} is not supported in {_TITLES.get(info.name, info.name)}"
    if value is None or isinstance(value, str):
        return None
    above, at_least, below, at_most = spec.above, spec.at_least, spec.below, spec.at_most
    rules = (
        (above is not None and below is not None and not above < value < below, f"in the range of ({above}, {below})"),
        (above is not None and value <= above, f"great than {_word(above)}"),
        (at_least is not None and value < at_least, f"great or equal than {_word(at_least)}"),
        (at_most is not None and value > at_most, f"less or equal than {_word(at_most)}"),
    )
    return next((f"{spec.name} should be {wanted}" for broken, wanted in rules if broken), None)


def _word(bound: float | None) -> str:
    return "zero" if bound == 0 else f"{bound:g}" if bound is not None else ""
