"""Values, times and messages of objects in words, for surfaces. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from katib.model import types
from katib.model.features.listed import FEATURES
from katib.model.features.repeats.feature import are_repeated
from katib.model.names import SEED_VARIABLE
from katib.model.trials import (
    ELIGIBLE,
    bounds_of,
    cost,
    is_feasible,
    metric_text,
    objective_names,
    ran_seconds,
    trial_state,
    waiting_words,
)
from katib.model.types import UNAVAILABLE, TrialState
from katib.model.wording import counted, format_duration, number_text
from katib.service.tuning.states import best_value, last_condition, objective_value

if TYPE_CHECKING:
    from katib.model.types import (
        AlgorithmSpec,
        Experiment,
        OptimalTrial,
        ParameterAssignment,
        ParameterSpec,
        Suggestion,
        Trial,
    )

_EXTREMES = {"minimize": "min", "maximize": "max"}
"""The strategy of a metric that was given none, by the objective's type."""

_LONG_NUMBER = 8
"""Numbers up to this length are shown as they were written."""
_LONG_TEXT = 40
"""Other text up to this length is shown whole in little room: architectures have hundreds of characters."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_POWER = re.compile(r"[0-9][eE]\+?[0-9]")
"""Such numbers are shown in full: seeds and identifiers differ in their last digits."""


def texts_of(assignments: Sequence[ParameterAssignment]) -> dict[str, str]:
    """Return parameter values by name, in order."""
    return {pair.name: pair.value for pair in assignments}


def assignments_of(trial: Trial) -> dict[str, str]:
    return texts_of(trial.spec.parameter_assignments)


def metric_of(obj: Experiment | Trial) -> str:
    """Return the name of the objective metric, the first of several; empty without an objective."""
    return "" if obj.spec.objective is None else obj.spec.objective.objective_metric_name


def algorithm_of(experiment: Experiment | Suggestion) -> str:
    return "" if experiment.spec.algorithm is None else experiment.spec.algorithm.algorithm_name


def algorithm_words(spec: AlgorithmSpec | None) -> str:
    """Return an algorithm with its settings: `tpe (n_startup_trials=10)`; empty without one."""
    if spec is None:
        return ""
    settings = ", ".join(f"{setting.name}={setting.value}" for setting in spec.algorithm_settings)
    return f"{spec.algorithm_name}{f' ({settings})' if settings else ''}"


def space_words(parameter: ParameterSpec) -> str:
    """Return the values of a parameter: `double 0.1 to 1 step 0.1 logUniform`, `categorical adam, sgd`."""
    space = parameter.feasible_space
    values = ", ".join(space.list) if space.list else f"{space.min} to {space.max}"
    more = [f"step {space.step}"] if space.step else []
    default = "" if parameter.default is None else f"default {parameter.default or '(empty)'}"
    return " ".join([parameter.parameter_type, values, *more, *filter(None, [space.distribution, default])])


def extreme_of(direction: str) -> str:
    """Return the strategy of an objective that names none: `min` of one to minimize, `max` of one to maximize."""
    return _EXTREMES.get(direction, "")


def shown_text(trial: Trial, name: str) -> str | None:
    """Return the value of a metric that is shown of a trial; None when it was not read.

    Of a further metric it is what it was at the best reading of the objective, unless a strategy of its own says which
    of its readings counts; one that is the same as the objective's may be a default.
    """
    objective, observation = trial.spec.objective, trial.status.observation
    if objective is None or observation is None:
        return None
    by_default = objective.strategy_of(name) in ("", extreme_of(objective.type))
    at_best = next((m.value for m in observation.at_best if m.name == name), "")
    return at_best if at_best and by_default else metric_text(objective, observation, name)


def metric_values(trial: Trial) -> list[tuple[str, str]]:
    """Return each metric of a trial with the value that is shown of it, `unavailable` if there is none."""
    observation = trial.status.observation
    names = [metric.name for metric in observation.metrics] if observation is not None else []
    return [(name, shown_text(trial, name) or UNAVAILABLE) for name in names]


def metric_rows(trial: Trial) -> list[dict[str, str]]:
    """Return the metrics in the observation of a trial: `value` is that at the best reading."""
    observation = trial.status.observation
    if observation is None:
        return []
    at_best = {metric.name: metric.value for metric in observation.at_best}
    return [
        {
            "name": name,
            "value": at_best.get(name, value),
            "min": metric.min,
            "max": metric.max,
            "latest": metric.latest,
        }
        for (name, value), metric in zip(metric_values(trial), observation.metrics, strict=True)
    ]


def further_values(trial: Trial) -> list[tuple[str, str]]:
    """Return each metric of a trial that is no objective, with the value that is shown of it."""
    objectives = objective_names(trial.spec.objective)
    return [(name, value) for name, value in metric_values(trial) if name not in objectives]


def further_values_of_best(experiment: Experiment) -> list[tuple[str, str]]:
    """Return each metric of the best trial that is no objective, with the value that is shown of it."""
    best = best_trial_of(experiment)
    return [] if best is None else further_values(best)


def best_trial_of(experiment: Experiment) -> Trial | None:
    """Return the best trial as the status has it: its name, assignments and metrics; None while there is none."""
    best = experiment.status.current_optimal_trial
    return _as_trial(best, experiment) if best.best_trial_name else None


def objective_values(trial: Trial) -> list[tuple[str, str]]:
    """Return each objective of a trial with its value as text, `unavailable` while it has none."""
    objective, observation = trial.spec.objective, trial.status.observation
    return [(name, metric_text(objective, observation, name) or UNAVAILABLE) for name in objective_names(objective)]


def objective_text(trial: Trial, *, longest: int = _LONG_TEXT) -> str | None:
    """Return the objective values of a trial: `loss=0.12`, or several of these; None while it has no value at all.

    Args:
        longest: As many characters of a value that is text, as a genotype is, are shown.
    """
    if objective_value(trial) is None:
        return None
    return " ".join(f"{name}={short(value, longest)}" for name, value in objective_values(trial))


def objective_words(experiment: Experiment) -> str:
    """Return the objectives of an experiment: `maximize accuracy (goal 0.9), minimize seconds, with memory <= 8`."""
    objective = experiment.spec.objective
    words = ", ".join(
        f"{term.type} {term.name}" + (f" (goal {number_text(term.goal)})" if term.goal is not None else "")
        for term in (objective or types.ObjectiveSpec()).terms
    )
    bounds = constraint_words(experiment)
    return f"{words}, with {bounds}" if bounds else words


def constraint_words(obj: Experiment | Trial) -> str:
    """Return the constraints of an Experiment or a Trial: `latency <= 30 and 1 <= layers <= 3`; empty without any."""
    return " and ".join(
        (f"{low:g} <= " if low is not None and high is not None else "")
        + name
        + (f" <= {high:g}" if high is not None else f" >= {low:g}" if low is not None else "")
        for name, low, high in bounds_of(obj.spec.objective)
    )


def violates_constraints(trial: Trial) -> bool:
    """Return whether a trial has a value and does not satisfy the constraints, so that it cannot be the best."""
    return (
        trial_state(trial) in ELIGIBLE
        and not is_feasible(trial.spec.objective, trial.status.observation)
        and objective_value(trial) is not None
    )


def infeasible_words(experiment: Experiment) -> str:
    """Return that no trial satisfies the constraints; empty if one does, or none was measured."""
    if not experiment.status.trials_infeasible or best_value(experiment) is not None:
        return ""
    return f"no trial satisfies {constraint_words(experiment)}"


def compared_words(experiment: Experiment) -> str:
    """Return the best trial compared with that of the defaults: `12% below your configuration (0.4)`; else empty."""
    default = experiment.status.default_trial
    return "" if default is None else default.comparison


def with_comparison(best: str, experiment: Experiment) -> str:
    """Return a sentence about the best trial, without a full stop, followed by the comparison with the defaults."""
    words = compared_words(experiment)
    return f"{best}{', ' if words[:1].isdigit() else '; '}{words}" if words else best


def pareto_trials(experiment: Experiment) -> list[Trial]:
    """Return the trials of the Pareto set that the status names, with the assignments and metrics of a Trial."""
    found = experiment.status.pareto_set
    return [_as_trial(trial, experiment) for trial in found.trials] if found is not None else []


def _as_trial(optimum: OptimalTrial, experiment: Experiment) -> Trial:
    return types.Trial(
        metadata=types.ObjectMeta(name=optimum.best_trial_name, namespace=experiment.namespace),
        spec=types.TrialSpec(objective=experiment.spec.objective, parameter_assignments=optimum.parameter_assignments),
        status=types.TrialStatus(observation=optimum.observation),
    )


def pareto_words(experiment: Experiment) -> str:
    """Return the size of the Pareto set and its hypervolume: `4 trials that none beats, hypervolume 0.83`."""
    found = experiment.status.pareto_set or types.ParetoSet()
    count = found.trial_count
    return f"{counted(count, 'trial')} that no other beats, hypervolume {found.hypervolume or 0:.6g}"


def time_of(text: object) -> datetime | None:
    """Read a time of an object of another kind."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def time_text(moment: datetime | None) -> str:
    """Return a time of an object as it is written there; empty if it has not happened."""
    return "" if moment is None else types.format_time(moment)


def format_run(seconds: float) -> str:
    """Return how long something ran: as `format_duration`, below ten seconds with one decimal if there is one.

    Times of objects are whole seconds, so a run that began and ended within one is `<1s`.
    """
    if 0 <= seconds < 0.05:  # noqa: PLR2004 - what one decimal would write as 0.0
        return "<1s"
    if (rounded := round(seconds, 1)) < 10 and not rounded.is_integer():  # noqa: PLR2004 - see above
        return f"{max(rounded, 0.0):.1f}s"
    return format_duration(seconds)


def seconds_run(obj: Experiment | Trial, now: datetime) -> float | None:
    """Return how long programs of an object have been running, or ran; None for one that has not run yet.

    Of a trial that runs its start tells it, which moves on by the time that it did not run. Nothing else that passed is
    in it: no night without an engine, no step of the clock.
    """
    status = obj.status
    if isinstance(obj, types.Trial):
        if trial_state(obj) is not TrialState.RUNNING:
            return ran_seconds(obj) if status.completion_time is not None else ran_seconds(obj) or None
        return None if status.start_time is None else max((now - status.start_time).total_seconds(), 0.0)
    measured, since = obj.status.run_seconds, status.last_reconcile_time
    if measured is None:
        end = status.completion_time or now
        return None if status.start_time is None else (end - status.start_time).total_seconds()
    runs = obj.status.trials_running > 0 and status.completion_time is None and since is not None
    return measured + (max((now - since).total_seconds(), 0.0) if runs and since is not None else 0.0)


def used_words(experiment: Experiment) -> dict[str, str]:
    """Return the progress of each feature that an experiment uses, by its name."""
    return {feature.name: words for feature in FEATURES if (words := feature.words(experiment))}


def mean_words(trials: Iterable[Trial]) -> dict[str, str]:
    """Return the mean of each trial's configuration by name: `0.85 ± 0.09 (4)`, its standard error, its runs."""
    from katib.model.features.repeats.runs import RepeatedRuns

    runs, words = RepeatedRuns(), dict[str, str]()
    for trial in trials:
        runs.add(trial)
    for one in runs.configurations.values():
        if (found := one.summary()).sample is not None:
            mean, count, squares = found.sample
            error = f" ± {number_text((squares / (count - 1) / count) ** 0.5, 2)}" if count > 1 else ""
            text = f"{number_text(cost(one.objective, mean), _MEAN_DIGITS)}{error} ({count})"
            words |= dict.fromkeys(one.runs, text)
    return words


_MEAN_DIGITS = 4


def may_be_noisy(experiment: Experiment) -> bool:
    """Return whether the values of an experiment depend on seeds: trials are repeated, or their template has one."""
    template = experiment.spec.trial_template
    given = () if template is None else (template.trial_spec, template.trial_parameters)
    return are_repeated(experiment.metadata.annotations) or any(word in str(given) for word in _SEEDS)


_SEEDS = (SEED_VARIABLE, "${trialSpec.Seed}")


def duration_of(obj: Experiment | Trial) -> str:
    """Return how long an object has been running, or ran; empty for one that has not run yet."""
    seconds = seconds_run(obj, datetime.now(UTC))
    return "" if seconds is None else format_duration(seconds)


def message_of(trial: Trial) -> str:
    """Return the state of a trial in one line: the cause of its waiting, else its newest condition."""
    return " ".join((waiting_words(trial) or last_condition(trial).message).split())


def short(text: str, longest: int = _LONG_TEXT) -> str:
    """Return a number with the digits that a person compares, and other text without the middle when it is long."""
    if len(text) <= _LONG_NUMBER and not _POWER.search(text):
        return text
    try:
        return shortened(text, longest) if _WHOLE.fullmatch(text) else number_text(float(text))
    except ValueError:
        return shortened(text, longest)


def shortened(text: str, length: int) -> str:
    """Return the text, without its middle when it has more characters than `length`."""
    if len(text) <= length:
        return text
    tail = length // 3
    return f"{text[: length - tail - 3]}...{text[-tail:]}"


def parameters_of(trial: Trial, *, whole: bool = False) -> str:
    """Return the assignments of a trial in one line, with every digit or with those that matter."""
    show = str if whole else short
    return " ".join(f"{name}={show(value)}" for name, value in assignments_of(trial).items())


def typed_value(parameter_type: str, text: str) -> float | str:
    """Return the value of an assignment with the type that its parameter has in a file."""
    try:
        if parameter_type == "int":
            return int(text)
        return float(text) if parameter_type in ("double", "discrete") else text
    except ValueError:
        return text
