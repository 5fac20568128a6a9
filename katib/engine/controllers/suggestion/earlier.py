"""The earlier trials that an experiment learns from.

Theory of operation: they are read again for each question, so that an earlier search that still runs keeps
contributing. A trial fits if it has a value in the space of every parameter that it needs (others are ignored), and
ended with a value of the objective metric, or failed, which is evidence as well. The selection is cached until a trial
of the earlier experiments changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec import structs

from katib.engine.runtime.cache import CacheSnapshot
from katib.engine.runtime.objects import Key
from katib.model.conditions import set_condition
from katib.model.learned_experiments import learned_experiments
from katib.model.names import EXPERIMENT_LABEL
from katib.model.space.assignments import check_assignments
from katib.model.trials import ACTIVE, ELIGIBLE, objective_number, trial_state
from katib.model.types import (
    EarlierTrial,
    EarlierTrialsStatus,
    Experiment,
    Metric,
    ObjectiveSpec,
    ObjectMeta,
    Observation,
    Trial,
    TrialCondition,
    TrialSpec,
    TrialState,
    TrialStatus,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TELLING = ELIGIBLE | {TrialState.FAILED}


@dataclass(frozen=True, slots=True)
class EarlierTrials:
    """The trials to learn from, with the objective of the experiment that asks."""

    trials: tuple[Trial, ...] = ()
    status: EarlierTrialsStatus | None = None


class EarlierTrialsReader:
    """Reads the earlier trials of each experiment. Used by one thread per experiment."""

    def __init__(self, trials_of: Callable[[Key], CacheSnapshot[Trial]]) -> None:
        self._trials_of = trials_of
        self._known: dict[Key, tuple[tuple[object, ...], EarlierTrials]] = {}

    def read(self, key: Key, experiment: Experiment) -> EarlierTrials:
        start, names = experiment.spec.warm_start, learned_experiments(experiment)
        sources = [self._trials_of(Key(key.namespace, name)) for name in names]
        versions = (experiment.metadata.uid, *((uid, version) for s in sources for uid, version, _ in s.versions()))
        known = self._known.get(key)
        if known is None or known[0] != versions:
            found = (trial for source in sources for trial in source)
            listed = (_as_trial(trial, i) for i, trial in enumerate(start.trials if start is not None else ()))
            known = versions, fitting(experiment, (*found, *listed))
            self._known[key] = known
        return known[1]

    def forget(self, key: Key) -> None:
        """Drop the cached selection of an experiment."""
        self._known.pop(key, None)


def fitting(experiment: Experiment, trials: Iterable[Trial]) -> EarlierTrials:
    """Return the ended trials that fit, with a summary of those left out."""
    objective = experiment.spec.objective or ObjectiveSpec()
    used: list[Trial] = []
    left_out, reason = 0, ""
    for trial in trials:
        if trial_state(trial) in ACTIVE:
            continue
        misfit = _misfit(experiment, objective, trial)
        if misfit:
            left_out, reason = left_out + 1, reason or f"{trial.name}: {misfit}"
        else:
            source = trial.metadata.labels.get(EXPERIMENT_LABEL, "")
            labels = {**trial.spec.labels, EXPERIMENT_LABEL: source}
            used.append(structs.replace(trial, spec=structs.replace(trial.spec, objective=objective, labels=labels)))
    return EarlierTrials(tuple(used), EarlierTrialsStatus(used=len(used), left_out=left_out, reason=reason))


def _misfit(experiment: Experiment, objective: ObjectiveSpec, trial: Trial) -> str:
    state = trial_state(trial)
    if state not in _TELLING:
        return f"it is {state}"
    if state in ELIGIBLE and objective_number(objective, trial.status.observation) is None:
        return f"it has no value of {objective.objective_metric_name}"
    names = {parameter.name for parameter in experiment.spec.parameters}
    known = [assignment for assignment in trial.spec.parameter_assignments if assignment.name in names]
    # The value of an absent parameter comes from an experiment without that condition; services ignore it.
    errors = (e for e in check_assignments(experiment.spec.parameters, known) if e.origin != "assignment-not-absent")
    return next((error.cause for error in errors), "")


def _as_trial(earlier: EarlierTrial, place: int) -> Trial:
    name = f"earlier-{place}"
    ended = set_condition((), TrialCondition.SUCCEEDED, "EarlierTrial", "It was given", _EPOCH)
    metrics = tuple(Metric(name=m.name, min=m.value, max=m.value, latest=m.value) for m in earlier.metrics)
    return Trial(
        metadata=ObjectMeta(name=name, uid=name, resource_version="1"),
        spec=TrialSpec(parameter_assignments=earlier.parameter_assignments),
        status=TrialStatus(conditions=ended, observation=Observation(metrics=metrics)),
    )
