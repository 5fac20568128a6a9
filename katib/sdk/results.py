"""The result of an experiment, as returned by `katib.tune`: trials, the best of them, a table, figures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from katib.errors import KatibError
from katib.model.metrics import parse_value
from katib.model.trials import is_asked
from katib.model.types import Experiment, Trial
from katib.model.wording import number_text
from katib.sdk.homes import ExperimentPlace
from katib.service.tuning.reading import (
    assignments_of,
    compared_words,
    further_values,
    infeasible_words,
    objective_values,
    pareto_trials,
)
from katib.service.tuning.service import Confirmation, TuningService
from katib.service.tuning.states import failure_of, last_condition, objective_value, state_of

if TYPE_CHECKING:
    import pandas as pd

    from katib.sdk.plots import ResultPlots

_PAGE = 1000
_FAILURES = ("Failed", "MetricsUnavailable")
_LOOK_SECONDS = 0.25
_ROWS = 5
"""Trials in the table of a result: the best ones."""


class TuneError(KatibError):
    """The experiment failed, or no trial has a value."""


class NearestNames:
    """An object whose error for an unknown attribute names the nearest one."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers report unknown attributes

        def __getattr__(self, name: str) -> Any:
            from katib.service.drafting import missing_attribute

            raise missing_attribute(type(self).__name__, name, self)


@dataclass(frozen=True, slots=True)
class TrialResult(NearestNames):
    """The result of a trial.

    Attributes:
        name: Name of the trial; `katib logs NAME` prints its output.
        state: Its final state: `Succeeded`, `Failed`, `EarlyStopped`, ...
        parameters: Its arguments, with their Python types, without absent ones.
        value: The objective, or the first of several; None if it was not read.
        values: Each objective by name; None if it was not read.
        metrics: Further metrics by name, at the best reading of the objective; None if not read.
    """

    name: str
    state: str
    parameters: dict[str, Any]
    value: float | None
    values: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class TuneResult(NearestNames):
    """The result of an experiment. Printed, it is a small table; a notebook shows its history as well.

    Attributes:
        name: Name of the experiment.
        reason: How it ended, in a sentence; while it runs, its state.
        objectives: `minimize` or `maximize` by name of the metric, the most important first.
        trials: All trials, oldest first.
        pareto: With several objectives the Pareto-optimal trials, in the order of the first objective.
        place: Where the experiment is kept.
        nothing: The reason why no trial is the best; empty if there is one.
        default: The trial of the defaults; None without defaults, and until it has ended.
        comparison: The best trial compared with it, such as `12% below your configuration (0.4)`.
    """

    name: str
    reason: str
    objectives: Mapping[str, str]
    trials: tuple[TrialResult, ...]
    pareto: tuple[TrialResult, ...] = ()
    place: ExperimentPlace = field(default_factory=ExperimentPlace)
    nothing: str = ""
    default: TrialResult | None = None
    comparison: str = ""
    _best: TrialResult | None = None

    @property
    def best(self) -> TrialResult:
        """The best trial; with several objectives the best one of the first.

        Raises:
            TuneError: No trial has a value.
        """
        if self._best is None:
            raise TuneError(self.nothing)
        return self._best

    @property
    def data_dir(self) -> Path | None:
        """The data directory of the experiment; None if it is elsewhere."""
        return None if self.place.data_dir is None else Path(self.place.data_dir)

    @property
    def plots(self) -> ResultPlots:
        """Its figures: `result.plots.history()` returns one, which a notebook shows."""
        from katib.sdk.plots import ResultPlots

        return ResultPlots(self)

    @property
    def plot(self) -> ResultPlots:
        """The same as `plots`."""
        return self.plots

    def confirm(self, *, top: int = 3, repeats: int = 5, parallel: int | None = None) -> Confirmation:
        """Run the best configurations again, each with other seeds, and return what is known of them then.

        The runs are trials of an experiment of its own, NAME-confirm. The same call continues an interrupted one; a
        larger number adds runs. If callers evaluate its trials, it returns at once, and they are asked for as those of
        any experiment.

        Args:
            top: Number of configurations, the best ones by the search.
            repeats: Runs of each.
            parallel: Runs at once; by default as in the search.

        Raises:
            InvalidError: No trial succeeded with a value, it still runs, or its trials cannot be run again.
        """
        from katib.sdk.homes import open_home

        place, name = self.place.namespace, self.name
        with closing(open_home(self.place)) as home:
            found = home.first_call(
                lambda service: service.confirm(place, name, top=top, repeats=repeats, parallel=parallel)
            )
            runs = home.call(lambda service: service.get(Experiment, place, found.confirmed_by))
            while found.runs < found.budget and found.state != "Failed" and not is_asked(runs):
                time.sleep(_LOOK_SECONDS)
                found = home.call(lambda service: service.confirmation(place, name)) or found
        return found

    def dataframe(self) -> pd.DataFrame:
        """Return the trials as a table of pandas, oldest first.

        Columns: `trial`, `state`, each objective and metric by its name, each parameter as `params_NAME`; missing if a
        trial has none.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("dataframe() needs pandas: pip install pandas") from error
        rows = [
            {"trial": trial.name, "state": trial.state}
            | {**trial.values, **trial.metrics}
            | {f"params_{name}": value for name, value in trial.parameters.items()}
            for trial in self.trials
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        head, rows = self._table()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows)] if rows else [self.nothing]
        return "\n".join([self._caption(), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        from katib.sdk.notebook import history, table

        head, rows = self._table()
        if not rows:
            return table(head, rows, f"{self._caption()} {self.nothing}")
        maximize = next(iter(self.objectives.values())) == "maximize"
        return table(head, rows, self._caption()) + history([t.value for t in self.trials], maximize=maximize)

    def _caption(self) -> str:
        count = f"{len(self.trials)} trial{'' if len(self.trials) == 1 else 's'}"
        compared = f"; {self.comparison}" if self.comparison else ""
        return f"{self.name}: {', '.join(f'{way} {name}' for name, way in self.objectives.items())}, {count}{compared}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return head and rows of the best trials."""
        if self._best is None:
            return [], []
        shown = list(self.pareto or self._ranked())[:_ROWS]
        parameters = list(dict.fromkeys(name for trial in shown for name in trial.parameters))
        rows = [
            [
                trial.name,
                *(_text(trial.values.get(name)) for name in self.objectives),
                *(_text(trial.parameters.get(name, "")) for name in parameters),
            ]
            for trial in shown
        ]
        return ["trial", *self.objectives, *parameters], rows

    def _ranked(self) -> list[TrialResult]:
        """Return the trials with a value, the best first."""
        sign = -1 if next(iter(self.objectives.values())) == "maximize" else 1
        valued = [trial for trial in self.trials if trial.value is not None and trial != self._best]
        return [self.best, *sorted(valued, key=lambda trial: sign * (trial.value or 0.0))]


def read_result(
    service: TuningService, experiment: Experiment, value: Callable[[str, str], Any], place: ExperimentPlace
) -> TuneResult:
    """Return the result of an experiment so far.

    Args:
        service: The service of the experiment.
        experiment: The present object.
        value: Converts an assignment to its Python value, by the name of the parameter and the text.
        place: Place of the service.
    """
    name = experiment.name
    trials: list[TrialResult] = []
    cursor = ""
    while True:
        page = service.trials(place.namespace, name, limit=_PAGE, cursor=cursor)
        trials.extend(_trial(trial, value) for trial in page.items)
        cursor = page.cursor
        if not cursor:
            break
    best = service.best(place.namespace, name)
    reason = last_condition(experiment).message
    by_name = {trial.name: trial for trial in trials}
    objective = experiment.spec.objective
    return TuneResult(
        name=name,
        reason=reason,
        objectives={} if objective is None else {term.name: term.type for term in objective.terms},
        trials=tuple(trials),
        pareto=tuple(by_name[one.name] for one in pareto_trials(experiment) if one.name in by_name),
        place=place,
        nothing=_nothing(service, experiment, trials, place) if best is None else "",
        default=None if (default := experiment.status.default_trial) is None else by_name.get(default.trial_name),
        comparison=compared_words(experiment),
        _best=None if best is None else _trial(best, value),
    )


def _nothing(
    service: TuningService, experiment: Experiment, trials: Sequence[TrialResult], place: ExperimentPlace
) -> str:
    """Return the reason why no trial is the best."""
    failed = state_of(experiment) == "Failed"
    none = infeasible_words(experiment) or f"none of {len(trials)} trials brought a value"
    cause = last_condition(experiment).message if failed else none
    return f"{experiment.name}: {cause}{last_words(service, trials, place.namespace, cause)}"


def last_words(service: TuningService, trials: Sequence[TrialResult], namespace: str, said: str) -> str:
    """Return why the newest trial without a value has none; empty if all have one, or that was said before."""
    lost = next((trial for trial in reversed(trials) if trial.state in _FAILURES or _is_odd(trial.value)), None)
    if lost is None:
        return ""
    trial = service.get(Trial, namespace, lost.name)
    cause = failure_of(trial) if lost.state == "Failed" else last_condition(trial).message
    if cause in said:
        return ""
    if lost.state not in _FAILURES:
        return f"; {lost.name} reported {', '.join(f'{name}={value}' for name, value in lost.values.items())}"
    return f"; {lost.name} {'failed' if lost.state == 'Failed' else 'has no value'}: {cause}"


def _is_odd(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


def _trial(trial: Trial, value: Callable[[str, str], Any]) -> TrialResult:
    objective = objective_value(trial)
    return TrialResult(
        name=trial.name,
        state=state_of(trial),
        parameters={key: value(key, text) for key, text in assignments_of(trial).items()},
        value=None if objective is None else float(objective),
        values=_numbers(objective_values(trial)),
        metrics=_numbers(further_values(trial)),
    )


def _numbers(texts: Iterable[tuple[str, str]]) -> dict[str, float | None]:
    return {name: parse_value(text) for name, text in texts}


def _text(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else "" if value is None else str(value)
