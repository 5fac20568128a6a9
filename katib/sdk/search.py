"""What a parameter of a tuned function may be.

tune(train, {"lr": search.double(1e-4, 1e-1, log=True), "layers": search.int(1, 4), "act": search.categorical(...)})
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from katib.api.types import Distribution, ParameterType


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the search space.

    Attributes:
        type: A `ParameterType`.
        space: The feasible space as an Experiment has it.
        choices: The Python values behind the texts of a list; empty for numbers.
    """

    type: ParameterType
    space: dict[str, Any]
    choices: tuple[Any, ...] = ()

    def spec(self, name: str) -> dict[str, Any]:
        """Return the entry of `spec.parameters`."""
        return {"name": name, "parameterType": self.type.value, "feasibleSpace": self.space}

    def value(self, text: str) -> Any:
        """Return the Python value of an assignment."""
        if self.type is ParameterType.DOUBLE:
            return float(text)
        if self.type is ParameterType.INT:
            return builtins.int(text)
        return self.choices[self.space["list"].index(text)]


def double(min: float, max: float, *, step: float | None = None, log: bool = False) -> Parameter:  # noqa: A002 - Katib's names
    """Return a real parameter between two bounds, both included.

    Args:
        min: Smallest value.
        max: Largest value.
        step: Distance between values; None for any value.
        log: Spread values evenly over orders of magnitude; `min` must be positive.
    """
    return _number(ParameterType.DOUBLE, min, max, step, log=log)


def int(min: builtins.int, max: builtins.int, *, step: builtins.int = 1, log: bool = False) -> Parameter:  # noqa: A001, A002 - Katib's names
    """Return a whole parameter between two bounds, both included."""
    return _number(ParameterType.INT, min, max, None if step == 1 else step, log=log)


def categorical(choices: Iterable[Any]) -> Parameter:
    """Return a parameter that is one of some values of any type, in no order."""
    return _choice(ParameterType.CATEGORICAL, choices)


def discrete(choices: Iterable[float]) -> Parameter:
    """Return a parameter that is one of some numbers."""
    return _choice(ParameterType.DISCRETE, choices)


def _number(kind: ParameterType, low: float, high: float, step: float | None, *, log: bool) -> Parameter:
    space: dict[str, Any] = {"min": str(low), "max": str(high)}
    if step is not None:
        space["step"] = str(step)
    if log:
        space["distribution"] = Distribution.LOG_UNIFORM.value
    return Parameter(kind, space)


def _choice(kind: ParameterType, choices: Iterable[Any]) -> Parameter:
    values = tuple(choices)
    return Parameter(kind, {"list": [str(value) for value in values]}, values)
