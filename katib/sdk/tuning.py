"""`katib.tune`: tune a Python function on this machine."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from katib.api.metrics import parse_value
from katib.api.types import API_VERSION, Experiment, Trial
from katib.errors import KatibError, invalid
from katib.explaining.lines import Lines, Silence
from katib.explaining.progress import Progress, savings_of, with_remedy
from katib.local import open_engine
from katib.sdk.payload import Payload, check_defaults, takes_mapping
from katib.sdk.search import Parameter
from katib.tuning.reading import (
    assignments_of,
    failure_of,
    further_values,
    infeasible_words,
    last_condition,
    objective_value,
    objective_values,
    pareto_trials,
    state_of,
)
from katib.tuning.service import DEFAULT_NAMESPACE, Json, TuningService

if TYPE_CHECKING:
    from katib.sdk.plots import ResultPlots

_CONTAINER = "function"
_PAGE = 1000
_FAILURES = ("Failed", "MetricsUnavailable")


class TuneError(KatibError):
    """The experiment failed, or not one of its trials brought a value."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial of a function.

    Attributes:
        name: Name of the trial; `katib logs NAME` prints its output.
        state: How it ended: `Succeeded`, `Failed`, `EarlyStopped`, ...
        parameters: Its arguments, with their Python types, without those that it did not have.
        value: The objective, or the first of several; None when it was not read.
        values: Each objective by name; None where it was not read.
        metrics: Further metrics by name, as they were at the best reading of the objective; None where not read.
    """

    name: str
    state: str
    parameters: dict[str, Any]
    value: float | None
    values: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What a tuned run found.

    Attributes:
        name: Name of the experiment.
        reason: How it ended, in a sentence.
        best: The best trial; with several objectives the best one of the first.
        trials: All trials, oldest first.
        pareto: With several objectives the trials that no other one beats in all of them, in the order of the first.
        data_dir: Where the experiment is kept.
    """

    name: str
    reason: str
    best: TrialResult
    trials: tuple[TrialResult, ...]
    pareto: tuple[TrialResult, ...] = ()
    data_dir: Path = field(default=Path(".katib"), repr=False)

    @property
    def plot(self) -> ResultPlots:
        """Its figures: `result.plot.history()` returns one, which a notebook shows."""
        from katib.sdk.plots import ResultPlots

        return ResultPlots(self)


def tune(
    function: Callable[..., Any],
    parameters: Mapping[str, Parameter | Any],
    *,
    objective: str = "objective",
    direction: str = "minimize",
    goal: float | None = None,
    objectives: Mapping[str, str] | None = None,
    goals: Mapping[str, float] | None = None,
    constraints: Mapping[str, tuple[float | None, float | None]] | None = None,
    max_trials: int = 20,
    parallel: int | None = None,
    max_failed: int | None = None,
    algorithm: str = "auto",
    settings: Mapping[str, Any] | None = None,
    early_stopping: str | None = None,
    early_stopping_settings: Mapping[str, Any] | None = None,
    additional_metrics: Sequence[str] = (),
    initial_trials: Sequence[Mapping[str, Any]] = (),
    warm_start: Sequence[str] = (),
    name: str | None = None,
    data_dir: str | Path | None = None,
    verbose: bool = True,
) -> TuneResult:
    """Search the best arguments of a function, each trial in a process of its own.

    Args:
        function: Takes the parameters by name, or one mapping of them. Returns the objective, a mapping of metrics, or
            None when it calls `katib.report` itself. May be defined in a script or a notebook.
        parameters: Search space by name, made with `katib.search`; any other value is passed as it is. Where the
            condition of a parameter does not hold, its argument is not passed.
        objective: Name of the metric to optimize.
        direction: `minimize` or `maximize`.
        goal: Value of the objective that ends the search.
        objectives: Several objectives in place of one: the direction of each by name, such as
            `{"accuracy": "maximize", "seconds": "minimize"}`. The function returns or reports all of them.
        goals: Values of several objectives that end the search when one trial reaches all that are given.
        constraints: Bounds of metrics by name, such as `{"memory": (None, 8)}`: the best trial satisfies them.
        max_trials: How many trials to run.
        parallel: How many at once; by default as many as the machine has cores, at most 4.
        max_failed: How many failed trials end the search as failed.
        algorithm: A suggestion algorithm; `katib algorithms` lists them, and `auto` chooses one of them.
        settings: Settings of the algorithm, such as `random_state`.
        early_stopping: An early stopping algorithm, such as `medianstop`.
        early_stopping_settings: Its settings.
        additional_metrics: Further metrics to keep.
        initial_trials: Arguments to try first, a value for each parameter of the space.
        warm_start: Names of earlier experiments of the same data directory to learn from.
        name: Name of the experiment. Tuning again under the same name goes on with what is unfinished, or further when
            `max_trials` is raised, with the function as it is by then.
        data_dir: Where everything is kept; by default $KATIB_HOME, else `.katib`.
        verbose: Print a line for each trial.

    Raises:
        InvalidError: Anything wrong with the search space or the settings, all errors at once.
        TuneError: The experiment failed, such as by too many failed trials, or no trial brought a value.
        TypeError: The function can be called neither with the names nor with a mapping, or lacks the default of a
            conditional parameter.
    """
    space = {key: value for key, value in parameters.items() if isinstance(value, Parameter)}
    constants = {key: value for key, value in parameters.items() if key not in space}
    takes_mapping(function, parameters)
    check_defaults(function, parameters)
    root = Path(data_dir or os.environ.get("KATIB_HOME") or ".katib")
    name = name or _fresh_name(function)
    payload = Payload(function, space, constants, next(iter(objectives or [objective])))
    file = root.absolute() / "functions" / f"{name}.pickle"
    single = {"type": direction, "objectiveMetricName": objective, "goal": goal}
    bounds = constraints or {}
    experiment: Json = {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": {
            "objective": _without_none(
                **(_objectives(objectives, goals or {}) if objectives else single),
                additionalMetricNames=list(additional_metrics) or None,
                constraints=[_without_none(metricName=key, min=b[0], max=b[1]) for key, b in bounds.items()] or None,
            ),
            "algorithm": _algorithm(algorithm, settings),
            "parameters": [parameter.spec(key) for key, parameter in space.items()],
            "maxTrialCount": max_trials,
            "parallelTrialCount": min(parallel or min(os.cpu_count() or 1, 4), max_trials),
            "resumePolicy": "FromVolume",  # the budget may be raised, and meanwhile no service waits for that
            "trialTemplate": _template(payload, file),
            **_without_none(
                maxFailedTrialCount=max_failed,
                initialTrials=[{"parameterAssignments": _pairs(trial)} for trial in initial_trials] or None,
                warmStart={"experiments": list(warm_start)} if warm_start else None,
                earlyStopping=_algorithm(early_stopping, early_stopping_settings) if early_stopping else None,
            ),
        },
    }
    with open_engine(data_dir=root, own_process=False) as engine:
        submission = engine.service.submit(json.dumps(experiment), source=name)
        payload.save(file)  # only now is the name known to be one
        engine.start()
        final = _follow(engine.service, submission.experiment, verbose=verbose)
        return _result(engine.service, final, space, root.absolute())


def _fresh_name(function: Callable[..., Any]) -> str:
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in getattr(function, "__name__", "").lower())
    stem = words.strip("-0123456789")[:24].strip("-") or "tune"
    return f"{stem}-{secrets.token_hex(3)}"


def _objectives(directions: Mapping[str, str], goals: Mapping[str, float]) -> Json:
    unknown = [name for name in goals if name not in directions]
    if unknown:
        raise invalid("goals", f"{unknown[0]} is not an objective", f"use one of {', '.join(directions)}", "goal-name")
    return {
        "objectives": [
            _without_none(name=name, type=direction, goal=goals.get(name)) for name, direction in directions.items()
        ]
    }


def _algorithm(name: str, settings: Mapping[str, Any] | None) -> Json:
    return {"algorithmName": name, **({"algorithmSettings": _pairs(settings)} if settings else {})}


def _pairs(values: Mapping[str, Any]) -> list[Json]:
    return [{"name": key, "value": str(value)} for key, value in values.items()]


def _template(payload: Payload, file: Path) -> Json:
    words = payload.words(lambda name: f"${{trialParameters.{name}}}")
    container = {
        "name": _CONTAINER,
        "image": "python",
        "command": [sys.executable, "-m", "katib.sdk.trial", str(file), *words],
    }
    return {
        "primaryContainerName": _CONTAINER,
        "trialParameters": [{"name": name, "reference": name} for name in payload.parameters],
        "trialSpec": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {
                "backoffLimit": 0,  # a function that raised once raises again
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        },
    }


def _follow(service: TuningService, experiment: Experiment, *, verbose: bool) -> Experiment:
    progress = Progress(experiment, datetime.now(UTC))
    with Lines(progress, sys.stdout) if verbose else Silence() as display:
        for change in service.changes(DEFAULT_NAMESPACE, experiment.name):
            for moment in progress.observe(change):
                display.tell(with_remedy(moment, service))
            if progress.finished:
                break
    if verbose and (savings := savings_of(service, progress.experiment)):
        sys.stdout.write(f"{savings}\n")
    return progress.experiment


def _result(
    service: TuningService, experiment: Experiment, space: Mapping[str, Parameter], data_dir: Path
) -> TuneResult:
    name = experiment.name
    trials: list[TrialResult] = []
    cursor = ""
    while True:
        page = service.trials(DEFAULT_NAMESPACE, name, limit=_PAGE, cursor=cursor)
        trials.extend(_trial(trial, space) for trial in page.items)
        cursor = page.cursor
        if not cursor:
            break
    best = service.best(DEFAULT_NAMESPACE, name)
    reason = last_condition(experiment).message
    if best is None or state_of(experiment) == "Failed":
        nothing = infeasible_words(experiment) or f"none of {len(trials)} trials brought a value"
        cause = reason if state_of(experiment) == "Failed" else nothing
        raise TuneError(f"{name}: {cause}{_last_words(service, trials)}")
    by_name = {trial.name: trial for trial in trials}
    pareto = tuple(by_name[one.name] for one in pareto_trials(experiment) if one.name in by_name)
    return TuneResult(name, reason, _trial(best, space), tuple(trials), pareto, data_dir)


def _last_words(service: TuningService, trials: Sequence[TrialResult]) -> str:
    """Return why the newest trial without a value has none."""
    failed = next((trial for trial in reversed(trials) if trial.state in _FAILURES), None)
    if failed is None:
        return ""
    trial = service.get(Trial, DEFAULT_NAMESPACE, failed.name)
    if failed.state == "Failed":
        return f"; {failed.name} failed: {failure_of(trial)}"
    return f"; {failed.name}: {last_condition(trial).message}"


def _trial(trial: Trial, space: Mapping[str, Parameter]) -> TrialResult:
    value = objective_value(trial)
    return TrialResult(
        name=trial.name,
        state=state_of(trial),
        parameters={key: space[key].value(text) for key, text in assignments_of(trial).items()},
        value=None if value is None else float(value),
        values=_numbers(objective_values(trial)),
        metrics=_numbers(further_values(trial)),
    )


def _numbers(texts: Iterable[tuple[str, str]]) -> dict[str, float | None]:
    return {name: parse_value(text) for name, text in texts}


def _without_none(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value is not None}
