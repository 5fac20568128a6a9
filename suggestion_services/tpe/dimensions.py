"""Conversion of parameters and values to Optuna and back.

| parameter | in Optuna |
|---|---|
| interval, uniform | a float between the bounds |
| interval, logUniform | a float between the bounds, logarithmic |
| grid, equal weights | the index, an int: exact for every step |
| list of numbers (discrete) | the index in numeric order, an int: neighbors are alike |
| list of texts (categorical) | a choice |
| anything else (bell distributions, log on a grid) | the share of probability below the value, a float in [0, 1] |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial
from typing_extensions import override

from katib.model.space import Grid, Interval, Parameter, Value, ValueList
from katib.model.types import Distribution

_INT_LIMIT = 2**53  # beyond it Optuna's floats cannot distinguish neighbors


@dataclass(frozen=True)
class Dimension(ABC):
    """A parameter in Optuna."""

    parameter: Parameter
    distribution: BaseDistribution

    @abstractmethod
    def encode(self, value: Value) -> Value:
        """Return Optuna's value for a feasible value."""

    @abstractmethod
    def decode(self, value: Value) -> Value:
        """Return the feasible value for a value from Optuna."""


class _Same(Dimension):
    @override
    def encode(self, value: Value) -> Value:
        return value

    @override
    def decode(self, value: Value) -> Value:
        return value


class _Index(Dimension):
    @override
    def encode(self, value: Value) -> Value:
        return self.parameter.index_of(value)

    @override
    def decode(self, value: Value) -> Value:
        return self.parameter.at(int(value))


class _Share(Dimension):
    @override
    def encode(self, value: Value) -> Value:
        return self.parameter.to_unit(value)

    @override
    def decode(self, value: Value) -> Value:
        return self.parameter.from_unit(float(value))


def suggested(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    """Return Optuna's suggestion for one parameter of a trial."""
    match distribution:
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(name, low, high, log=log)
        case IntDistribution(low=low, high=high):
            return trial.suggest_int(name, low, high)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
    raise AssertionError(distribution)


def dimension_of(parameter: Parameter) -> Dimension:
    match parameter:
        case Interval(spread=spread) if not spread.bell:
            log = spread.distribution == Distribution.LOG_UNIFORM
            return _Same(parameter, FloatDistribution(spread.low, spread.high, log=log))
        case Grid(spread=None, count=count) if count <= _INT_LIMIT:
            return _Index(parameter, IntDistribution(0, count - 1))
        case ValueList(ordered=True, values=values):
            return _Index(parameter, IntDistribution(0, len(values) - 1))
        case ValueList(values=values):
            return _Same(parameter, CategoricalDistribution(values))
        case _:
            return _Share(parameter, FloatDistribution(0.0, 1.0))
