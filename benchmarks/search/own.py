"""Our algorithms, in process: the object in the service, called with the history that a request would carry.

The transport only adds time, which `benchmarks.latency` measures; the suggestions are the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.search.problems import Setting, Task, Value, Values, Variable
from katib.model.types import (
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
from suggestion_services.base.algorithm import AwaitingTrials, PastTrial, Problem, Proposal, TrialOutcome

_TYPES = {
    "double": ParameterType.DOUBLE,
    "int": ParameterType.INT,
    "discrete": ParameterType.DISCRETE,
    "categorical": ParameterType.CATEGORICAL,
}


LOSS = ObjectiveSpec(type=ObjectiveType.MINIMIZE, objective_metric_name="loss")


class Searching:
    """One of our algorithms over some parameters, with its trials.

    Args:
        settings: Settings of the algorithm, including `random_state`.
        budget: Number of trials; None: unknown.
        parallel: Number of parallel trials; 0: unknown.
    """

    def __init__(
        self,
        algorithm: str,
        parameters: Sequence[ParameterSpec],
        settings: Mapping[str, object],
        *,
        objective: ObjectiveSpec = LOSS,
        budget: int | None = None,
        parallel: int = 0,
    ) -> None:
        given = tuple(AlgorithmSetting(name=name, value=str(value)) for name, value in settings.items())
        spec = ExperimentSpec(
            parameters=tuple(parameters),
            objective=objective,
            algorithm=AlgorithmSpec(algorithm_name=algorithm, algorithm_settings=given),
            max_trial_count=budget,
            parallel_trial_count=parallel or None,
        )
        entry = find_entry(algorithm, early_stopping=False)
        self.problem = Problem.of("benchmark", spec, entry.info)
        cls = entry.load()
        if errors := cls.check(self.problem):
            raise ValueError(str(errors[0]))
        self.algorithm = cls(self.problem)
        self.trials: list[PastTrial] = []

    def suggest(self, count: int = 1, earlier: Sequence[PastTrial] = ()) -> list[Proposal]:
        """Return the next suggestions; none at the end of the search, or before others have ended."""
        try:
            found = list(self.algorithm.suggest([*earlier, *self.trials], first=len(self.trials), count=count))
        except AwaitingTrials:
            return []
        return [one if isinstance(one, Proposal) else Proposal(self.problem.space.format(one)) for one in found]

    def add(self, proposal: Proposal, *values: float, seconds: float = math.nan) -> None:
        name, point, labels = f"t{len(self.trials):06}", proposal.assignments, proposal.labels
        trial = PastTrial(name, TrialOutcome.MEASURED, point, values[0], seconds, others=values[1:], labels=labels)
        self.trials.append(trial)


def number(name: str, low: float, high: float, *, log: bool = False, whole: bool = False) -> ParameterSpec:
    """Return a parameter that is a double, or an integer."""
    return parameter(Variable(name, "int" if whole else "double", low, high, log))


class OwnSearch:
    """One of our algorithms, with its trials in the order of their names, including running ones."""

    def __init__(self, name: str, task: Task, setting: Setting) -> None:
        self._task = task
        searching = Searching(
            name,
            list(map(parameter, task.variables)),
            {"random_state": setting.seed},
            budget=setting.evaluations,
            parallel=setting.parallel,
        )
        self._problem, self._algorithm = searching.problem, searching.algorithm
        self._trials: dict[str, PastTrial] = {}

    def ask(self) -> tuple[str, Values] | None:
        k = len(self._trials)
        # Names of trials are random, and so is their order for an algorithm.
        name = hashlib.sha256(f"{self._problem.seed} {k}".encode()).hexdigest()[:8]
        trials = [self._trials[other] for other in sorted(self._trials)]
        found = next(iter(self._algorithm.suggest(trials, first=k, count=1)), None)
        if found is None:
            return None
        if not isinstance(found, Proposal):
            found = Proposal(self._problem.space.format(found))
        texts = found.assignments
        self._trials[name] = PastTrial(name, TrialOutcome.PENDING, texts, labels=found.labels)
        values: dict[str, Value] = {}
        for variable in self._task.variables:
            if variable.is_active(values):
                values[variable.name] = _value(variable, texts[variable.name])
        return name, values

    def tell(self, handle: str, value: float) -> None:
        self._trials[handle] = replace(self._trials[handle], outcome=TrialOutcome.MEASURED, objective=value)

    def explain(self) -> str:
        """Return the algorithm's explanation of its choice."""
        return self._algorithm.explain()


def parameter(variable: Variable) -> ParameterSpec:
    """Convert a variable to a parameter of an experiment."""
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
