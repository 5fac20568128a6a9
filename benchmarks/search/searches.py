"""Searches by name: the libraries, called directly as their documentation says, and ours.

`optuna:tpe` and its like are the libraries'; `katib:tpe` is our algorithm of that name. A library is imported when one
of its searches is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from benchmarks.search.problems import Setting, Task, Value, Values, Variable

OWN = "katib:"


class BenchmarkSearch(Protocol):
    """A search on one problem."""

    def ask(self) -> tuple[Any, Values] | None:
        """Return a handle and the next point; None if there are no more."""

    def tell(self, handle: Any, value: float) -> None:
        """Report the value of a point."""


def names() -> list[str]:
    """Return the names of all searches, whether or not their library is installed."""
    return [*_RIVALS, *own_names()]


def own_names() -> list[str]:
    """Return the names of ours; none if Katib is not installed."""
    try:
        from suggestion_services.algorithms import ENTRIES
    except ImportError:
        return []
    return [OWN + entry.info.name for entry in ENTRIES if not entry.info.early_stopping]


def build(name: str, task: Task, setting: Setting) -> BenchmarkSearch:
    if name.startswith(OWN):
        from benchmarks.search.own import OwnSearch

        return OwnSearch(name.removeprefix(OWN), task, setting)
    return _RIVALS[name](task, setting)


class RandomBaseline:
    """Independent draws, the baseline for all others."""

    def __init__(self, task: Task, setting: Setting) -> None:
        self._variables = task.variables
        self._random = Random(f"{task.name} {setting.seed}")

    def ask(self) -> tuple[None, Values]:
        values: dict[str, Value] = {}
        for variable in self._variables:
            value = value_at(variable, self._random.random())
            if variable.is_active(values):
                values[variable.name] = value
        return None, values

    def tell(self, handle: None, value: float) -> None:
        """Do nothing."""


def value_at(variable: Variable, u: float) -> Value:
    """Return the value of a variable at a place of [0, 1]."""
    if variable.values:
        return variable.values[int(u * len(variable.values))]
    low, high = variable.low, variable.high
    if variable.kind == "int" and not variable.log:
        return min(int(low + u * (high - low + 1)), int(high))
    value = low * (high / low) ** u if variable.log else low + u * (high - low)
    return round(value) if variable.kind == "int" else value


class OptunaSearch:
    """A sampler of Optuna, with a define-by-run space."""

    def __init__(self, sampler: Callable[[Any, Setting], Any], task: Task, setting: Setting) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._variables = task.variables
        self.study = optuna.create_study(sampler=sampler(optuna.samplers, setting))

    def ask(self) -> tuple[Any, Values]:
        trial = self.study.ask()
        values: dict[str, Value] = {}
        for variable in self._variables:
            if variable.is_active(values):
                values[variable.name] = suggested(trial, variable)
        return trial, values

    def tell(self, handle: Any, value: float) -> None:
        self.study.tell(handle, value)


def suggested(trial: Any, variable: Variable) -> Value:
    """Return the value that a trial of Optuna suggests for a variable."""
    name, low, high, log = variable.name, variable.low, variable.high, variable.log
    match variable.kind:
        case "double":
            return trial.suggest_float(name, low, high, log=log)
        case "int":
            return trial.suggest_int(name, int(low), int(high), log=log)
        case "discrete":  # as by a user who knows that neighbors are alike
            return variable.values[trial.suggest_int(name, 0, len(variable.values) - 1)]
        case _:
            return trial.suggest_categorical(name, list(variable.values))


class SkoptSearch:
    """The optimizer of scikit-optimize with its defaults, as used by its `gp_minimize`."""

    def __init__(self, task: Task, setting: Setting) -> None:
        import skopt
        from skopt.space import Categorical, Integer, Real

        def dimension(variable: Variable) -> Any:
            prior = "log-uniform" if variable.log else "uniform"
            match variable.kind:
                case "double":
                    return Real(variable.low, variable.high, prior=prior)
                case "int":
                    return Integer(int(variable.low), int(variable.high), prior=prior)
                case "discrete":
                    return Integer(0, len(variable.values) - 1)
                case _:
                    return Categorical(list(variable.values))

        self._task = task
        self._optimizer = skopt.Optimizer([dimension(v) for v in task.variables], random_state=setting.seed)
        self._liar = setting.parallel > 1
        self._pending: list[Any] = []

    def ask(self) -> tuple[Any, Values]:
        point = self._point()
        self._pending.append(point)
        values: dict[str, Value] = {}
        for variable, value in zip(self._task.variables, point, strict=True):
            if variable.is_active(values):
                values[variable.name] = variable.values[int(value)] if variable.kind == "discrete" else value
        return point, values

    def _point(self) -> Any:
        if not (self._liar and self._pending and self._optimizer.models):
            return self._optimizer.ask()
        # The library's strategy for parallel work: believe that the running ones give the least value so far.
        copy = self._optimizer.copy()
        copy.tell(list(self._pending), [min(self._optimizer.yi)] * len(self._pending))
        return copy.ask()

    def tell(self, handle: Any, value: float) -> None:
        self._pending.remove(handle)
        self._optimizer.tell(handle, value)

    def tell_all(self, points: list[Any], values: list[float]) -> None:
        """Report points that it did not suggest."""
        self._optimizer.tell(points, values)


class HeboSearch:
    """HEBO with its defaults; its interface does not support running points."""

    def __init__(self, task: Task, setting: Setting) -> None:
        import numpy as np
        import torch
        from hebo.design_space.design_space import DesignSpace
        from hebo.optimizers.hebo import HEBO

        torch.set_num_threads(1)
        np.random.seed(setting.seed)  # noqa: NPY002  # what HEBO draws from
        torch.manual_seed(setting.seed)

        def dimension(variable: Variable) -> dict[str, Any]:
            name, low, high = variable.name, variable.low, variable.high
            match variable.kind:
                case "double":
                    return {"name": name, "type": "pow" if variable.log else "num", "lb": low, "ub": high}
                case "int":
                    return {"name": name, "type": "pow_int" if variable.log else "int", "lb": int(low), "ub": int(high)}
                case "discrete":
                    return {"name": name, "type": "int", "lb": 0, "ub": len(variable.values) - 1}
                case _:
                    return {"name": name, "type": "cat", "categories": list(variable.values)}

        self._task = task
        self._optimizer = HEBO(DesignSpace().parse([dimension(v) for v in task.variables]), scramble_seed=setting.seed)

    def ask(self) -> tuple[Any, Values]:
        frame = self._optimizer.suggest(1)
        row = frame.iloc[0]
        values: dict[str, Value] = {}
        for variable in self._task.variables:
            value = row[variable.name]
            if variable.is_active(values):
                values[variable.name] = variable.values[int(value)] if variable.kind == "discrete" else value
        return frame, {name: v.item() if hasattr(v, "item") else v for name, v in values.items()}

    def tell(self, handle: Any, value: float) -> None:
        import numpy as np

        self._optimizer.observe(handle, np.array([[value if math.isfinite(value) else 1e10]]))


def _optuna(sampler: Callable[[Any, Setting], Any]) -> Callable[[Task, Setting], BenchmarkSearch]:
    return lambda task, setting: OptunaSearch(sampler, task, setting)


_RIVALS: dict[str, Callable[[Task, Setting], BenchmarkSearch]] = {
    "random": RandomBaseline,
    "optuna:random": _optuna(lambda samplers, s: samplers.RandomSampler(seed=s.seed)),
    "optuna:tpe": _optuna(lambda samplers, s: samplers.TPESampler(seed=s.seed, multivariate=False)),
    "optuna:multivariate-tpe": _optuna(lambda samplers, s: samplers.TPESampler(seed=s.seed, multivariate=True)),
    "optuna:gp": _optuna(lambda samplers, s: samplers.GPSampler(seed=s.seed)),
    "optuna:cmaes": _optuna(lambda samplers, s: samplers.CmaEsSampler(seed=s.seed)),
    "optuna:nsga2": _optuna(lambda samplers, s: samplers.NSGAIISampler(seed=s.seed)),
    "optuna:sobol": _optuna(lambda samplers, s: samplers.QMCSampler(seed=s.seed, scramble=True)),
    "skopt:gp": SkoptSearch,
    "hebo": HeboSearch,
}
