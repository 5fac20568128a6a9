"""Progress of a run: changes of objects in, events for the user out. Pure; time is an argument.

Memory holds one word per trial and the objects of the active ones, which suffices for ten thousand trials.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from katib.errors import KatibError
from katib.model.conditions import has_ended
from katib.model.names import (
    EXPERIMENT_INTERRUPTED,
    EXPERIMENT_STOPPED,
    RETRYING_REASON,
    SERVICE_UNAVAILABLE,
    TEMPLATE_MISSING,
)
from katib.model.restarts import awaits_restart
from katib.model.trials import ACTIVE, ran_seconds
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import Change, TuningService
from katib.service.tuning.states import (
    active_count,
    best_value,
    completed_count,
    failure_of,
    has_several_objectives,
    running_condition,
    state_of,
    stops_early,
)


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A trial started or resumed.

    Attributes:
        again: Whether it ran before.
    """

    trial: Trial
    again: bool = False


@dataclass(frozen=True, slots=True)
class TrialRetried:
    """An attempt of a trial's job failed and another one follows."""

    trial: Trial
    message: str


@dataclass(frozen=True, slots=True)
class TrialHeldUp:
    """A trial's job cannot run for now."""

    trial: Trial
    message: str


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial ended, in any state."""

    trial: Trial
    done: int


@dataclass(frozen=True, slots=True)
class BestChanged:
    """There is a better trial; with several objectives, a larger hypervolume.

    Attributes:
        pareto: With several objectives, a description of the Pareto set.
    """

    name: str
    value: str
    pareto: str = ""


@dataclass(frozen=True, slots=True)
class ExperimentHeldUp:
    """No further trial can be created for now."""

    experiment: Experiment
    message: str


@dataclass(frozen=True, slots=True)
class IdenticalFailures:
    """The first trials of an experiment all failed immediately with the same cause: more of them will.

    Attributes:
        remedy: The remedy, a sentence; empty until looked up, and if none is known.
    """

    trial: Trial
    count: int
    cause: str
    remedy: str = ""


Moment = TrialStarted | TrialRetried | TrialHeldUp | TrialEnded | BestChanged | IdenticalFailures | ExperimentHeldUp

_ALIKE = 2
"""Number of equal failures that is no coincidence."""

_AT_ONCE_SECONDS = 10.0
"""A later failure may depend on the trial's parameters."""

_GOING = frozenset(map(str, ACTIVE))
"""States of trials that have not ended."""

_NEWS: dict[str, type[TrialRetried | TrialHeldUp]] = {
    RETRYING_REASON: TrialRetried,
    "TrialWaiting": TrialHeldUp,
    "TrialSuspended": TrialHeldUp,
    "JobForbidden": TrialHeldUp,
    "JobKindNotInstalled": TrialHeldUp,
}
"""Reasons of the condition Running that are shown to the user, with their events."""

_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
_NEWS_BEGINS = re.compile(r"Trial (is running|cannot run|waits): |Trial waits for ")


_OBSTACLES = (TEMPLATE_MISSING, EXPERIMENT_STOPPED, EXPERIMENT_INTERRUPTED, RETRYING_REASON, SERVICE_UNAVAILABLE)
"""Reasons of the condition Running of an experiment that cannot create further trials for now."""


class RunProgress:
    """Progress of one run.

    Args:
        started_at: Start of this run: trials that ended earlier belong to an earlier run and are not shown.
    """

    def __init__(self, experiment: Experiment, started_at: datetime) -> None:
        self.experiment = experiment
        self.started_at = started_at.replace(microsecond=0)  # times of objects have whole seconds
        self.active: dict[str, Trial] = {}
        self.deleted = False
        self._states: dict[str, str] = {}
        self._news: dict[str, str] = {}
        self._started: set[str] = set()
        self._ended = 0
        self._ended_before = 0
        self._best = ""
        self._better: tuple[BestChanged, set[str]] | None = None  # not shown yet, with the trials whose ends come first
        self._hypervolume = -1.0
        self._pareto: set[str] = set()
        self._failed_alike: list[Trial] | None = []  # None: not all failed alike, or it was shown
        self._obstacle = ""

    def observe(self, change: Change) -> Iterator[Moment]:
        """Yield the events of a change; exhaust the iterator before the next change."""
        if isinstance(change.object, Trial):
            return self._observe_trial(change.object, change.type)
        return iter(()) if change.object is None else self._observe_experiment(change.object, change.type)

    @property
    def limit(self) -> int | None:
        """The number of trials in the end; None without a limit."""
        return self.experiment.spec.max_trial_count

    @property
    def done(self) -> int:
        """The number of ended trials, including those of earlier runs."""
        return max(self._ended, completed_count(self.experiment))

    @property
    def finished(self) -> bool:
        """Whether the experiment has ended and none of its trials runs."""
        return self.deleted or (self.completed and not active_count(self.experiment))

    @property
    def all_reported(self) -> bool:
        """Whether the end of every trial in the experiment's count was observed: changes may arrive out of order."""
        return self.deleted or self._ended >= completed_count(self.experiment)

    @property
    def completed(self) -> bool:
        """Whether the experiment has ended; unneeded trials may still be stopping.

        False after its budget was raised since: its controller is about to restart it.
        """
        return has_ended(self.experiment.status.conditions) and not awaits_restart(self.experiment)

    def seconds_left(self, elapsed_seconds: float) -> float | None:
        """Return the estimated time to the last trial at the pace so far; None without a pace or a limit."""
        done_now = self.done - self._ended_before
        if self.limit is None or done_now <= 0:
            return None
        return max(0.0, elapsed_seconds / done_now * (self.limit - self.done))

    def _observe_trial(self, trial: Trial, change: str) -> Iterator[Moment]:
        name, state = trial.name, trial.state.value
        before = self._states.get(name)
        if change == "DELETED":
            self._states.pop(name, None)
            self._started.discard(name)
            self.active.pop(name, None)
            return
        self._states[name] = state
        if state in _GOING:
            self.active[name] = trial
            if state == "Running" and before != "Running":
                yield TrialStarted(trial, again=name in self._started)
                self._started.add(name)
            running = running_condition(trial)
            news = _NEWS_BEGINS.sub("", running.message, count=1) if running.reason in _NEWS else ""
            if news and news != self._news.get(name):
                yield _NEWS[running.reason](trial, news)
            self._news[name] = news
            return
        self.active.pop(name, None)
        self._started.discard(name)
        self._news.pop(name, None)
        if before in (None, "Pending", "Running"):
            self._ended += 1
            end = trial.status.completion_time
            if end is not None and end < self.started_at:
                self._ended_before += 1
            else:
                yield TrialEnded(trial, self._ended)
                yield from self._observe_failure(trial)
            yield from self._tell_better()

    def _observe_failure(self, trial: Trial) -> Iterator[Moment]:
        """Yield once if the first trials fail alike; a first trial that ends differently rules that out."""
        failed = self._failed_alike
        if failed is None or state_of(trial) == "Killed":
            return
        if not _failed_at_once(trial) or (failed and _likeness(failed[0]) != _likeness(trial)):
            self._failed_alike = None
            return
        failed.append(trial)
        if len(failed) >= min(_ALIKE, self._failures_to_come):
            from katib.service.tuning.replicas import own_cause

            self._failed_alike = None
            yield IdenticalFailures(trial, len(failed), own_cause(trial))

    @property
    def _failures_to_come(self) -> int:
        """The number of trials that can fail before there are no more."""
        limits = (self.limit, self.experiment.spec.max_failed_trial_count)
        return max(1, min((limit for limit in limits if limit is not None), default=_ALIKE))

    def _observe_experiment(self, experiment: Experiment, change: str) -> Iterator[Moment]:
        self.deleted, self.experiment = change == "DELETED", experiment
        running = running_condition(experiment)
        found = running.message if running.reason in _OBSTACLES else ""
        if found and found != self._obstacle:
            yield ExperimentHeldUp(experiment, found.removeprefix("Experiment waits for "))
        self._obstacle = found
        name, value = experiment.status.current_optimal_trial.best_trial_name, best_value(experiment)
        if has_several_objectives(experiment):
            self._observe_pareto_set(name, value)
        elif name and name != self._best and value is not None:
            self._best = name
            self._better = BestChanged(name, value), {name}
        yield from self._tell_better()

    def _tell_better(self) -> Iterator[Moment]:
        """Yield the better trial once its own end was shown: changes of the experiment may arrive earlier."""
        if self._better is None:
            return
        moment, trials = self._better
        if self.all_reported or all(self._states.get(name, "Pending") not in ("Pending", "Running") for name in trials):
            self._better = None
            yield moment

    def _observe_pareto_set(self, name: str, value: str | None) -> None:
        """Note a growth of the hypervolume: a new best trial of one objective need not be progress."""
        from katib.service.tuning.reading import pareto_trials, pareto_words

        found = self.experiment.status.pareto_set
        volume = None if found is None else found.hypervolume
        names = {trial.name for trial in pareto_trials(self.experiment)}
        if volume is None or value is None or names <= self._pareto or volume <= self._hypervolume:
            return  # the first trials move the reference point
        self._hypervolume, self._pareto = volume, names
        self._better = BestChanged(name, value, pareto_words(self.experiment)), names


def _likeness(trial: Trial) -> str:
    """Return the comparable part of a failure's cause, without addresses of Python objects."""
    from katib.service.tuning.replicas import own_cause

    return _ADDRESS.sub("", own_cause(trial))


def _failed_at_once(trial: Trial) -> bool:
    took = ran_seconds(trial) or 0.0
    return state_of(trial) == "Failed" and bool(failure_of(trial)) and took <= _AT_ONCE_SECONDS


def savings_of(service: TuningService, experiment: Experiment) -> str:
    """Return the savings of early stopping as a sentence; empty if there are none, or unknown."""
    if not stops_early(experiment):
        return ""
    try:
        return service.why(experiment.namespace, experiment.name).savings
    except KatibError:  # optional at the end of a run
        return ""


def with_remedy(moment: Moment, service: TuningService) -> Moment:
    if not isinstance(moment, IdenticalFailures):
        return moment
    try:
        remedies = service.why(moment.trial.namespace, moment.trial.name).remedies
    except KatibError:  # the event is useful without a remedy
        return moment
    return replace(moment, remedy=next(iter(remedies), ""))


class SilentLines:
    """Shows nothing, for -q."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, moment: Moment) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""
