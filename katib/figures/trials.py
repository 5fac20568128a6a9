"""The trials of an experiment as columns, for figures and tables: 100,000 of them in some megabytes.

Every column is an array with one entry per trial, in the order of creation. Numbers are float64 with NaN for absent
values; a categorical value is the index of its choice. A metric is the reading selected by its strategy, a further
metric its value at the best reading of the objective.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from katib.model.features.repeats.feature import REPEATS, are_repeated
from katib.model.features.repeats.runs import first_run
from katib.model.marks import Marks, has_marks, marks_of
from katib.model.metrics import is_usable
from katib.model.search_space import LOGARITHMIC
from katib.model.trials import is_feasible, objective_names, ran_seconds
from katib.model.types import (
    Experiment,
    MetricStrategy,
    ObjectiveSpec,
    ObjectiveType,
    ParameterSpec,
    ParameterType,
    Trial,
    TrialState,
)
from katib.service.tuning.reading import assignments_of, extreme_of, shown_text
from katib.service.tuning.states import TRIAL_STATES, failure_of, state_of

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
"""Indices of trials in the columns."""

AT_BEST = "at the best"
"""Strategy of a further metric with its value at the best reading of the objective."""

STATES = TRIAL_STATES
"""The column of states holds indices of this tuple."""

_NAN = math.nan
_FIRST_CAPACITY = 64
_MOST_CHOICES = 1_000
"""Maximum number of choices of a parameter without a list (an architecture), which gets one for each value seen."""


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One axis of the search space.

    Attributes:
        type: `double`, `int`, `discrete` or `categorical`.
        log: Whether its axis should be logarithmic.
        choices: Of a categorical one in the order of the spec; empty for numbers.
        low, high: Bounds of numbers; NaN if there are none.
    """

    name: str
    type: str
    log: bool = False
    choices: tuple[str, ...] = ()
    low: float = _NAN
    high: float = _NAN

    @property
    def is_categorical(self) -> bool:
        """Whether its column holds indices of choices."""
        return self.type == ParameterType.CATEGORICAL


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective.

    Attributes:
        maximize: Whether larger is better.
        goal: The value that ends the search; None without one.
    """

    name: str
    maximize: bool
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class TrialTable:
    """The trials of an experiment at one time.

    Attributes:
        states: Indices in `STATES`.
        created, started, ended: Seconds since 1970; NaN if it has not happened.
        durations: Duration of each trial, in seconds; NaN for those that have not ended.
        values: Column of each parameter, by name, in the order of `parameters`.
        metrics: Column of each metric, by name, the objectives first.
        feasible: Whether the constraints are known to hold; True without constraints.
        parameters: The axes of the search space.
        objectives: The objectives, the primary one first.
        marks: Marks of trials, by the names of those that have any.
        strategies: Strategy of each metric's column, in a word or two by its name: `max`, `at the best`.
        failures: Causes of the failures of trials, by their names.
        first_runs: First run of each repeated trial's configuration, by name of the trial; empty without repeats.
        repeats: Number of runs of a whole configuration.
    """

    names: npt.NDArray[np.object_]
    states: npt.NDArray[np.int8]
    created: Floats
    started: Floats
    ended: Floats
    durations: Floats
    values: Mapping[str, Floats]
    metrics: Mapping[str, Floats]
    feasible: npt.NDArray[np.bool_]
    parameters: tuple[ParameterInfo, ...]
    objectives: tuple[Objective, ...]
    strategies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    marks: Mapping[str, Marks] = field(default_factory=lambda: MappingProxyType({}))
    failures: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    first_runs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    repeats: int = 1

    def __len__(self) -> int:
        return len(self.names)

    @property
    def objective(self) -> Objective:
        return self.objectives[0]

    @property
    def objective_values(self) -> Floats:
        """The column of the objective; also values of trials that cannot be the best."""
        return self.metrics[self.objective.name]

    @property
    def run_counts_and_means(self) -> tuple[Floats, Floats]:
        """Number and mean of the runs with a value of each trial's configuration; NaN if it has none."""
        _, places = np.unique([self.first_runs.get(name, name) for name in self.names], return_inverse=True)
        has_value = self.in_states("Succeeded") & np.isfinite(self.objective_values)
        counts = np.bincount(places, has_value, minlength=len(self)).astype(np.float64)
        counts[counts == 0] = _NAN
        sums = np.bincount(places, np.where(has_value, self.objective_values, 0.0), minlength=len(self))
        return counts[places], (sums / counts)[places]

    def in_states(self, *states: str) -> npt.NDArray[np.bool_]:
        return np.isin(self.states, [STATES.index(state) for state in states])

    @property
    def may_be_best(self) -> npt.NDArray[np.bool_]:
        """Mask of the trials that can be best by state and feasibility; see `katib.model.trials.may_be_best`."""
        strategies = {self.strategies.get(objective.name) for objective in self.objectives}
        states = ("Succeeded",) if MetricStrategy.MEAN in strategies else ("Succeeded", "EarlyStopped")
        return self.feasible & self.in_states(*states)

    def state_of(self, row: int) -> str:
        return STATES[int(self.states[row])]

    def parameter(self, name: str) -> ParameterInfo:
        """Return an axis by its name.

        Raises:
            KeyError: There is none.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def parameter_text(self, name: str, row: int) -> str:
        """Return a value as users write it: `adam`, `32`, `0.001`; empty if the trial does not have it."""
        value = self.values[name][row]
        if math.isnan(value):
            return ""
        parameter = self.parameter(name)
        if parameter.is_categorical:
            return parameter.choices[int(value)]
        return f"{value:.15g}"

    @classmethod
    def of(cls, experiment: Experiment, trials: Iterable[Trial]) -> TrialTable:
        """Return the table of some trials, in any order."""
        rows = TrialRows(experiment)
        for trial in trials:
            rows.put(trial)
        return rows.table()


@dataclass(slots=True)
class _GrowingArray:
    """A growing array with room for `capacity` entries."""

    data: npt.NDArray[Any]
    empty: Any

    @classmethod
    def of(cls, dtype: Any, empty: Any, capacity: int) -> Self:
        return cls(np.full(capacity, empty, dtype=dtype), empty)

    def grow(self, capacity: int) -> None:
        grown = np.full(capacity, self.empty, dtype=self.data.dtype)
        grown[: len(self.data)] = self.data
        self.data = grown


@dataclass(slots=True)
class TrialRows:
    """A table under construction: trials are added, changed and removed one by one. Not thread-safe."""

    experiment: Experiment
    _rows: dict[str, int] = field(default_factory=dict)
    _fixed: dict[str, _GrowingArray] = field(default_factory=dict)
    _values: dict[str, _GrowingArray] = field(default_factory=dict)
    _metrics: dict[str, _GrowingArray] = field(default_factory=dict)
    _axes: dict[str, ParameterInfo] = field(default_factory=dict)
    _choices: dict[str, dict[str, int]] = field(default_factory=dict)
    _marks: dict[str, Marks] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    _first_runs: dict[str, str] = field(default_factory=dict)
    _capacity: int = _FIRST_CAPACITY
    _end: int = 0

    def __post_init__(self) -> None:
        """Create a column for everything that the experiment names."""
        kinds: dict[str, tuple[Any, Any]] = {"name": (object, ""), "state": (np.int8, 0), "feasible": (np.bool_, True)}
        kinds |= dict.fromkeys(("created", "started", "ended", "ran"), (np.float64, _NAN))
        self._fixed = {key: _GrowingArray.of(dtype, empty, self._capacity) for key, (dtype, empty) in kinds.items()}
        for parameter in map(_parameter, self.experiment.spec.parameters):
            self._add_axis(parameter)
        objective = self.experiment.spec.objective
        for name in (*objective_names(objective), *(objective.additional_metric_names if objective else ())):
            self._metric(name)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, trial: Trial) -> None:
        name = trial.name
        row = self._rows.get(name)
        if row is None:
            if self._end == self._capacity:
                self._capacity *= 2
                for columns in (self._fixed, self._values, self._metrics):
                    for column in columns.values():
                        column.grow(self._capacity)
            row = self._rows[name] = self._end
            self._end += 1
            self._fixed["name"].data[row] = name
        status, objective, observation = trial.status, trial.spec.objective, trial.status.observation
        fixed = self._fixed
        fixed["state"].data[row] = STATES.index(state_of(trial))
        fixed["created"].data[row] = _seconds(trial.metadata.creation_timestamp)
        waits = state_of(trial) == TrialState.PENDING  # a waiting trial's start time is not that of its program
        fixed["started"].data[row] = _NAN if waits else _seconds(status.start_time)
        fixed["ended"].data[row] = _seconds(status.completion_time)
        ran = None if status.completion_time is None else ran_seconds(trial)
        fixed["ran"].data[row] = _NAN if ran is None else ran
        fixed["feasible"].data[row] = is_feasible(objective, observation)
        self._marks.pop(name, None)
        if has_marks(trial.metadata.annotations):
            self._marks[name] = marks_of(trial.metadata.annotations)
        self._failures.pop(name, None)
        if failure := failure_of(trial):
            self._failures[name] = sys.intern(failure)  # many fail for one reason
        self._first_runs |= {name: first_run(trial)} if are_repeated(trial.metadata.annotations) else {}
        for parameter, text in assignments_of(trial).items():
            self._put_value(parameter, text, row)
        for metric in observation.metrics if observation is not None else ():
            if metric.name:
                self._metric(metric.name).data[row] = number_of(shown_text(trial, metric.name))

    def remove(self, name: str) -> None:
        self._rows.pop(name, None)
        self._marks.pop(name, None)
        self._failures.pop(name, None)
        self._first_runs.pop(name, None)

    def table(self) -> TrialTable:
        """Return the present table, which no later call changes."""
        rows = np.fromiter(self._rows.values(), dtype=np.int64, count=len(self._rows))
        created = self._fixed["created"].data[rows]
        rows = rows[np.argsort(created, kind="stable")]
        names, states, created, started, ended, ran, feasible = (
            self._fixed[key].data[rows] for key in ("name", "state", "created", "started", "ended", "ran", "feasible")
        )
        return TrialTable(
            names,
            states,
            created,
            started,
            ended,
            ran,
            {name: column.data[rows] for name, column in self._values.items()},
            {name: column.data[rows] for name, column in self._metrics.items()},
            feasible,
            tuple(self._axes.values()),
            objectives_of(self.experiment),
            {name: strategy_words(self.experiment, name) for name in self._metrics},
            dict(self._marks),
            dict(self._failures),
            dict(self._first_runs),
            REPEATS.read(self.experiment.metadata.annotations),
        )

    def _add_axis(self, parameter: ParameterInfo) -> None:
        self._axes[parameter.name] = parameter
        self._choices[parameter.name] = {text: number for number, text in enumerate(parameter.choices)}
        self._values[parameter.name] = _GrowingArray.of(np.float64, _NAN, self._capacity)

    def _metric(self, name: str) -> _GrowingArray:
        if name not in self._metrics:
            self._metrics[name] = _GrowingArray.of(np.float64, _NAN, self._capacity)
        return self._metrics[name]

    def _put_value(self, name: str, text: str, row: int) -> None:
        if name not in self._axes:
            self._add_axis(ParameterInfo(name, ParameterType.CATEGORICAL))
        axis, choices = self._axes[name], self._choices[name]
        if axis.is_categorical and text not in choices and len(choices) < _MOST_CHOICES:
            choices[text] = len(choices)
            self._axes[name] = ParameterInfo(name, axis.type, choices=tuple(choices))
        self._values[name].data[row] = choices.get(text, _NAN) if axis.is_categorical else number_of(text)


def objectives_of(obj: Experiment | Trial) -> tuple[Objective, ...]:
    objective = obj.spec.objective or ObjectiveSpec()
    return tuple(Objective(term.name, term.type == ObjectiveType.MAXIMIZE, term.goal) for term in objective.terms)


def strategy_words(obj: Experiment | Trial, metric: str) -> str:
    """Return the strategy of a metric's value: `max`, `latest`, `mean`, or of a further metric `at the best`."""
    objective = obj.spec.objective or ObjectiveSpec()
    strategy = objective.strategy_of(metric)
    for term in objective.terms:
        if term.name == metric:
            return strategy or extreme_of(term.type)
    return AT_BEST if strategy in ("", extreme_of(objective.type)) else strategy


def _parameter(spec: ParameterSpec) -> ParameterInfo:
    space, name, kind = spec.feasible_space, spec.name, spec.parameter_type
    texts = space.list
    if kind == ParameterType.CATEGORICAL or not all(map(is_usable, texts)):
        return ParameterInfo(name, ParameterType.CATEGORICAL, choices=texts)
    numbers = list(map(float, texts))
    low = min(numbers) if numbers else number_of(space.min)
    high = max(numbers) if numbers else number_of(space.max)
    log = space.distribution in LOGARITHMIC and low > 0
    return ParameterInfo(name, kind, log, low=low, high=high)


def number_of(text: object) -> float:
    """Convert a text to a number; NaN if it is not one."""
    try:
        return float(text)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError):
        return _NAN


def _seconds(moment: datetime | None) -> float:
    return _NAN if moment is None else moment.timestamp()
