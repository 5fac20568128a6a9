"""Our algorithms, in process: the object that the service holds, asked with the history that a request would carry.

What the transport adds is time, which `benchmarks.latency` measures; the suggestions are the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from benchmarks.search.problems import Setting, Task, Value, Values, Variable
from katib.api.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    Distribution,
    ExperimentSpec,
    FeasibleSpace,
    ObjectiveSpec,
    ObjectiveType,
    ParameterCondition,
    ParameterSpec,
    ParameterType,
)
from suggestion_services.algorithms import find_entry
from suggestion_services.base.algorithm import Outcome, PastTrial, Problem, Proposal

_TYPES = {
    "double": ParameterType.DOUBLE,
    "int": ParameterType.INT,
    "discrete": ParameterType.DISCRETE,
    "categorical": ParameterType.CATEGORICAL,
}


class OwnSearch:
    """One of our algorithms."""

    def __init__(self, name: str, task: Task, setting: Setting) -> None:
        entry = find_entry(name)
        spec = ExperimentSpec(
            parameters=tuple(map(parameter, task.variables)),
            objective=ObjectiveSpec(type=ObjectiveType.MINIMIZE, objective_metric_name="loss"),
            algorithm=AlgorithmSpec(
                algorithm_name=name,
                algorithm_settings=(AlgorithmSetting(name="random_state", value=str(setting.seed)),),
            ),
            max_trial_count=setting.evaluations,
            parallel_trial_count=setting.parallel,
        )
        self._task = task
        self._problem = Problem.of("benchmark", spec, entry.info)
        cls = entry.load()
        errors = cls.check(self._problem)
        if errors:
            raise ValueError(str(errors[0]))
        self._algorithm = cls(self._problem)
        self._trials: dict[str, PastTrial] = {}

    def ask(self) -> tuple[str, Values] | None:
        k = len(self._trials)
        # Names of trials are random, and so is the order in which an algorithm sees them.
        name = hashlib.sha256(f"{self._problem.seed} {k}".encode()).hexdigest()[:8]
        trials = [self._trials[other] for other in sorted(self._trials)]
        found = next(iter(self._algorithm.suggest(trials, first=k, count=1)), None)
        if found is None:
            return None
        if not isinstance(found, Proposal):
            found = Proposal(self._problem.space.format(found))
        texts = found.assignments
        self._trials[name] = PastTrial(name, Outcome.PENDING, texts, labels=found.labels)
        values: dict[str, Value] = {}
        for variable in self._task.variables:
            if variable.is_active(values):
                values[variable.name] = _value(variable, texts[variable.name])
        return name, values

    def tell(self, handle: str, value: float) -> None:
        self._trials[handle] = replace(self._trials[handle], outcome=Outcome.MEASURED, objective=value)

    def explain(self) -> str:
        """Return what the algorithm says of its choice."""
        return self._algorithm.explain()


def parameter(variable: Variable) -> ParameterSpec:
    """Return a variable as an experiment has it."""
    distribution = Distribution.LOG_UNIFORM if variable.log else Distribution.UNIFORM
    if variable.values:
        space = FeasibleSpace(list=variable.values)
    elif variable.kind == "int":
        space = FeasibleSpace(min=str(int(variable.low)), max=str(int(variable.high)), distribution=distribution)
    else:
        space = FeasibleSpace(min=repr(variable.low), max=repr(variable.high), distribution=distribution)
    when = None if variable.when is None else ParameterCondition(parameter=variable.when[0], values=variable.when[1])
    return ParameterSpec(name=variable.name, parameter_type=_TYPES[variable.kind], feasible_space=space, when=when)


def _value(variable: Variable, text: str) -> Value:
    match variable.kind:
        case "double":
            return float(text)
        case "int":
            return int(text)
        case _:
            return text
