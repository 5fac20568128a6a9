"""Comparison of the best trial with the trial of the defaults, the configuration in use before the search."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le

from katib.model.conditions import find_condition
from katib.model.failure_text import trial_failure
from katib.model.trials import ACTIVE, is_feasible, metric_text, objective_costs, objective_number, trial_state
from katib.model.types import DefaultTrial, ExperimentSpec, ObjectiveSpec, ObjectiveType, Trial, TrialState
from katib.model.wording import counted, number_text

_DIGITS = 4  # of a difference: the values themselves are shown beside it
_SHARE_DIGITS = 2  # of a difference in points or percent


def default_trial_of(
    spec: ExperimentSpec, default: Trial | None, best: Trial | None, pareto: Sequence[Trial] = ()
) -> DefaultTrial | None:
    """Return the ended trial of the defaults as an experiment's status shows it; None while there is none."""
    if default is None or trial_state(default) in ACTIVE:
        return None
    return DefaultTrial(
        trial_name=default.name,
        state=trial_state(default).value,
        parameter_assignments=default.spec.parameter_assignments,
        observation=default.status.observation,
        comparison=_comparison(spec, default, best, pareto),
    )


def _comparison(spec: ExperimentSpec, default: Trial, best: Trial | None, pareto: Sequence[Trial]) -> str:
    """Return the comparison as a clause: `1.7 points above your configuration (0.9645)`, or `your ... failed`."""
    objective, state = default.spec.objective or ObjectiveSpec(), trial_state(default)
    is_whole = all(parameter.default is not None or parameter.when is not None for parameter in spec.parameters)
    subject = "your configuration" if is_whole else "the trial of your defaults"
    if state is TrialState.FAILED:
        failed = find_condition(default.status.conditions, "Failed")
        cause = "" if failed is None else trial_failure(failed.message).rstrip(".")
        return f"{subject} failed{f': {cause}' if cause else ''}"
    if objective_costs(objective, default.status.observation) is None:
        verb = "was not evaluated to its end" if state is TrialState.KILLED else "brought no value"
        return f"{subject} {verb}{'' if state is TrialState.KILLED else f' of {objective.objective_metric_name}'}"
    values = [
        number_text(float(metric_text(objective, default.status.observation, name) or "nan"))
        for name in objective.objective_names
    ]
    names = [f"{name}=" if objective.has_several else "" for name in objective.objective_names]
    shown = " ".join(f"{name}{value}" for name, value in zip(names, values, strict=True))
    shown = f"{subject} ({shown}{', when it was stopped early' if state is TrialState.EARLY_STOPPED else ''})"
    if not is_feasible(objective, default.status.observation):
        return f"{shown} does not satisfy the constraints"
    if objective.has_several:
        return _among(objective, default, shown, pareto)
    difference = "" if best is None or best.name == default.name else _difference(objective, default, best)
    return f"{difference} {shown}" if difference else f"no other trial is better than {shown}"


def _among(objective: ObjectiveSpec, default: Trial, shown: str, pareto: Sequence[Trial]) -> str:
    costs = objective_costs(objective, default.status.observation) or ()
    if any(trial.name == default.name for trial in pareto):
        return f"no trial beats {shown} in every objective"
    points = [objective_costs(objective, trial.status.observation) or () for trial in pareto]
    count = sum(all(map(le, point, costs)) for point in points)
    return f"{shown} is beaten by {counted(count, 'trial') if count else 'another trial'} of the Pareto set"


def _difference(objective: ObjectiveSpec, default: Trial, best: Trial) -> str:
    """Return by how much the best trial is better: in points of a share, percent of a positive number, or absolute.

    Empty if it is not better: a trial that was stopped early cannot be the best if means are compared.
    """
    before = objective_number(objective, default.status.observation) or 0.0
    after = objective_number(objective, best.status.observation) or 0.0
    maximizes = objective.type == ObjectiveType.MAXIMIZE
    side, gain = ("above", after - before) if maximizes else ("below", before - after)
    if gain <= 0:
        return ""
    if maximizes and 0 <= before <= 1 and 0 <= after <= 1:
        return f"{number_text(100 * gain, _SHARE_DIGITS)} points {side}"
    if before > 0 and after > 0:
        return f"{number_text(100 * gain / before, _SHARE_DIGITS)}% {side}"
    return f"{number_text(gain, _DIGITS)} {side}"
