"""Parameters of a tuned function.

tune(train, {"lr": search.double(1e-4, 1e-1, log=True), "layers": search.int(1, 4), "act": search.categorical(...)})

One may depend on another: {"momentum": search.double(0, 1).when("optimizer", "sgd"), ...}
"""

from __future__ import annotations

import builtins
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal

from katib.errors import invalid
from katib.service.drafting import missing_attribute, takes_its_arguments

# Katib's words written out: importing the models that name them takes longer than many a trial runs.
ParameterType = Literal["double", "int", "categorical", "discrete"]
_LOG_UNIFORM = "logUniform"
_UNKNOWN: Any = ...  # None may be a choice
NumberPrior = float | Mapping[Literal["center", "factor", "width"], float]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the search space.

    Attributes:
        type: Katib's `parameterType`.
        space: The feasible space in an Experiment.
        choices: The Python values of the texts of a list; empty for numbers.
        condition: Name of the parameter that decides whether this one has a value, and its deciding values; None for a
            parameter that always has one.
        default: Text of the value in use today; None if unknown.
        prior: Belief about the best value, as in an Experiment; empty if there is none.
    """

    type: ParameterType
    space: dict[str, Any]
    choices: tuple[Any, ...] = ()
    condition: tuple[str, tuple[str, ...]] | None = None
    default: str | None = None
    prior: Mapping[str, Any] = field(default_factory=dict)

    def when(self, parameter: str, *values: Any) -> Parameter:
        """Return this parameter as one that is present only for certain values of another one.

        Otherwise its argument is not passed, so the function needs a default for it.

        Args:
            parameter: Name of the other one: a choice, an int, or a double with a step. It may be conditional itself.
            values: Some of its values.
        """
        return replace(self, condition=(parameter, tuple(map(str, values))))

    def spec(self, name: str) -> dict[str, Any]:
        """Return the entry of `spec.parameters`."""
        spec: dict[str, Any] = {"name": name, "parameterType": self.type, "feasibleSpace": self.space}
        if self.condition is not None:
            parameter, values = self.condition
            spec["when"] = {"parameter": parameter, "values": list(values)}
        if self.default is not None:
            spec["default"] = self.default
        if self.prior:
            spec["prior"] = dict(self.prior)
        return spec

    def value(self, text: str) -> Any:
        """Return the Python value of an assignment."""
        if self.type == "double":
            return float(text)
        if self.type == "int":
            return builtins.int(text)
        return self.choices[self.space["list"].index(text)]


@takes_its_arguments
def double(
    min: float,  # noqa: A002 - Katib's name
    max: float,  # noqa: A002 - Katib's name
    *,
    step: float | None = None,
    log: bool = False,
    default: float | None = None,
    prior: NumberPrior | None = None,
) -> Parameter:
    """Return a real parameter between two bounds, both included.

    Args:
        min: Smallest value.
        max: Largest value.
        step: Distance between values; None for any value.
        log: Spread values evenly over orders of magnitude; `min` must be positive.
        default: The value in use today; the first trial has the defaults of all parameters.
        prior: The value that is probably best, or a mapping: `{"center": 3e-4, "factor": 10}` on a logarithmic scale,
            `{"center": 0.9, "width": 0.05}` on a linear one.
    """
    return replace(_number("double", min, max, step, log, default), prior=_belief(prior))


@takes_its_arguments
def int(  # noqa: A001 - Katib's name
    min: builtins.int,  # noqa: A002 - Katib's name
    max: builtins.int,  # noqa: A002 - Katib's name
    *,
    step: builtins.int = 1,
    log: bool = False,
    default: builtins.int | None = None,
    prior: NumberPrior | None = None,
) -> Parameter:
    """Return an integer parameter between two bounds, both included."""
    number = _number("int", _whole(min), _whole(max), None if step == 1 else _whole(step), log, _whole(default))
    return replace(number, prior=_belief(prior))


@takes_its_arguments
def categorical(
    choices: Iterable[Any], *, default: Any = _UNKNOWN, prior: Mapping[Any, float] | None = None
) -> Parameter:
    """Return a parameter with one of some values of any type, unordered.

    Args:
        choices: The values.
        default: The value in use today, one of them.
        prior: How likely values are to be best, relative to each other: `{"adam": 3, "sgd": 1}`.

    Raises:
        InvalidError: Two of them have the same text, such as 1 and "1".
    """
    return _choice("categorical", choices, default, prior)


@takes_its_arguments
def discrete(
    choices: Iterable[float], *, default: float | None = None, prior: Mapping[float, float] | None = None
) -> Parameter:
    """Return a parameter with one of some numbers."""
    return _choice("discrete", choices, _UNKNOWN if default is None else default, prior)


if not TYPE_CHECKING:  # type checkers know all names

    def __getattr__(name: str) -> Any:
        raise missing_attribute("katib.search", name, ["double", "int", "categorical", "discrete"])


def _whole(value: Any) -> Any:
    """Return a whole number such as 1e3 as an int; anything else unchanged."""
    return builtins.int(value) if isinstance(value, float) and value.is_integer() else value


def _number(
    kind: ParameterType, low: float, high: float, step: float | None, log: bool, default: float | None
) -> Parameter:
    space: dict[str, Any] = {"min": str(low), "max": str(high)}
    if step is not None:
        space["step"] = str(step)
    if log:
        space["distribution"] = _LOG_UNIFORM
    return Parameter(kind, space, default=None if default is None else str(default))


def _belief(prior: NumberPrior | None) -> dict[str, str]:
    if prior is None:
        return {}
    return {key: str(value) for key, value in (prior if isinstance(prior, Mapping) else {"center": prior}).items()}


def _choice(kind: ParameterType, choices: Any, default: Any, prior: Any) -> Parameter:
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        cause = f"{choices!r} is {'one text' if isinstance(choices, str) else 'not a list'}"
        remedy = f"write [{choices!r}, ...]"
        if hasattr(choices, "rvs"):
            cause, remedy = "it is a distribution of SciPy", "write katib.search.double(min, max), with log=True"
        raise invalid("choices", cause, remedy, "argument-type")
    values: dict[str, Any] = {}
    for value in choices:
        text = _text(value, values)
        if text in values:
            cause = f"{values[text]!r} and {value!r} are the same text in an experiment"
            raise invalid("choices", cause, "keep one of them, or spell one differently", "choice-text")
        values[text] = value

    def text_of(value: Any) -> str:
        return next((text for text, other in values.items() if other is value), str(value))

    chosen = None if default is _UNKNOWN else text_of(default)
    belief: dict[str, Any] = {}
    if prior is not None:
        is_weighted = isinstance(prior, Mapping)
        belief = {"weights": {text_of(v): w for v, w in prior.items()}} if is_weighted else {"center": text_of(prior)}
    return Parameter(kind, {"list": list(values)}, tuple(values.values()), default=chosen, prior=belief)


def _text(value: Any, others: Container[str]) -> str:
    """Return the text of a choice in an experiment: the same in each process, so without the address of an object."""
    text = str(value)
    if " at 0x" not in text:
        return text
    name = getattr(value, "__name__", type(value).__name__)
    return next(one for one in chain([name], (f"{name}-{n}" for n in count(2))) if one not in others)
