"""How far a run is: changes of objects in, moments worth telling out. Pure; time is an argument.

Memory holds one word for each trial and the objects of the active ones, so that ten thousand trials are no burden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from katib.api.decoding import decode_stored
from katib.api.names import EXPERIMENT_STOPPED, SERVICE_UNAVAILABLE, TEMPLATE_MISSING
from katib.api.validation import awaits_restart
from katib.errors import KatibError
from katib.tuning.reading import (
    Json,
    best_value,
    completed_count,
    failure_of,
    has_several_objectives,
    is_completed,
    name_of,
    namespace_of,
    pareto_set_of,
    pareto_trials,
    pareto_words,
    state_of,
    status_of,
    time_of,
)
from katib.tuning.replicas import own_cause
from katib.tuning.service import Change, TuningService


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A trial began to run, or goes on after it had to wait.

    Attributes:
        again: Whether it ran before.
    """

    trial: Json
    again: bool = False


@dataclass(frozen=True, slots=True)
class TrialRetried:
    """A try of a trial's job failed and another one follows."""

    trial: Json
    message: str


@dataclass(frozen=True, slots=True)
class TrialHeldUp:
    """A trial's job cannot run for now."""

    trial: Json
    message: str


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial ended, in whatever way."""

    trial: Json
    done: int


@dataclass(frozen=True, slots=True)
class BestChanged:
    """There is a better trial; with several objectives, the trials that none beats cover more.

    Attributes:
        name: Of the best one.
        value: Its objective value.
        pareto: Of several objectives, what is known of all that none beats.
    """

    name: str
    value: str
    pareto: str = ""


@dataclass(frozen=True, slots=True)
class ExperimentHeldUp:
    """No further trial can be made for now."""

    experiment: Json
    message: str


@dataclass(frozen=True, slots=True)
class FailingAlike:
    """The first trials of an experiment all failed at once, for the same cause: more of them will.

    Attributes:
        trial: One of them.
        count: How many there were.
        cause: What they have in common.
        remedy: What to do, a sentence; empty until it was looked up, and when none is known.
    """

    trial: Json
    count: int
    cause: str
    remedy: str = ""


Moment = TrialStarted | TrialRetried | TrialHeldUp | TrialEnded | BestChanged | FailingAlike | ExperimentHeldUp

_ALIKE = 2
"""So many trials failing the same way are no accident."""

_AT_ONCE_SECONDS = 10.0
"""A trial that fails later than that got somewhere; what ends it may depend on its parameters."""

_NEWS: dict[str, type[TrialRetried | TrialHeldUp]] = {
    "TrialRetrying": TrialRetried,
    "TrialWaiting": TrialHeldUp,
    "TrialSuspended": TrialHeldUp,
    "JobForbidden": TrialHeldUp,
    "JobKindNotInstalled": TrialHeldUp,
}
"""Reasons of the condition Running that a user should see, and what they mean."""

_NEWS_BEGINS = re.compile(r"Trial (is running|cannot run|waits): |Trial waits for ")


_OBSTACLES = (TEMPLATE_MISSING, EXPERIMENT_STOPPED, SERVICE_UNAVAILABLE)
"""Reasons of the condition Running of an experiment that makes no further trial for now."""


class Progress:
    """The state of one run.

    Args:
        experiment: As submitted.
        started_at: When this run began: trials that ended before belong to an earlier run and are not shown.
    """

    def __init__(self, experiment: Json, started_at: datetime) -> None:
        self.experiment = experiment
        self.started_at = started_at.replace(microsecond=0)  # times of objects have whole seconds
        self.active: dict[str, Json] = {}
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
        self._failed_alike: list[Json] | None = []  # None: not all failed alike, or it was shown
        self._obstacle = ""

    def observe(self, change: Change) -> Iterator[Moment]:
        """Take a change and yield what is worth telling about it."""
        if change.object.get("kind") == "Trial":
            yield from self._observe_trial(change)
        elif change.object:
            yield from self._observe_experiment(change)

    @property
    def limit(self) -> int | None:
        """How many trials there will be; None when no limit is set."""
        limit: int | None = self.experiment.get("spec", {}).get("maxTrialCount")
        return limit

    @property
    def done(self) -> int:
        """How many trials have ended, in earlier runs too."""
        return max(self._ended, completed_count(self.experiment))

    @property
    def finished(self) -> bool:
        """Whether the experiment has ended and nothing of it runs any more."""
        status = status_of(self.experiment)
        active = int(status.get("trialsRunning") or 0) + int(status.get("trialsPending") or 0)
        return self.deleted or (self.completed and not active)

    @property
    def all_told(self) -> bool:
        """Whether every trial that the experiment counts as ended was seen: its own changes may overtake theirs."""
        return self.deleted or self._ended >= completed_count(self.experiment)

    @property
    def completed(self) -> bool:
        """Whether the experiment has ended; trials that it no longer needs may still be stopping.

        One that ended before and has got a larger budget since has not: its controller is about to take it up again.
        """
        return is_completed(self.experiment) and not awaits_restart(decode_stored(self.experiment))

    @property
    def best(self) -> Json:
        """The best trial so far as the experiment's status has it; empty while there is none."""
        best: Json = status_of(self.experiment).get("currentOptimalTrial") or {}
        return best

    @property
    def best_value(self) -> str | None:
        """The objective value of the best trial."""
        return best_value(self.experiment)

    def seconds_left(self, elapsed_seconds: float) -> float | None:
        """Return the estimated time to the last trial at the pace so far; None without a pace or a limit."""
        done_now = self.done - self._ended_before
        if self.limit is None or done_now <= 0:
            return None
        return max(0.0, elapsed_seconds / done_now * (self.limit - self.done))

    def _observe_trial(self, change: Change) -> Iterator[Moment]:
        trial = change.object
        name, state = name_of(trial), state_of(trial)
        before = self._states.get(name)
        if change.type == "DELETED":
            self._states.pop(name, None)
            self._started.discard(name)
            self.active.pop(name, None)
            return
        self._states[name] = state
        if not is_completed(trial):
            self.active[name] = trial
            if state == "Running" and before != "Running":
                yield TrialStarted(trial, again=name in self._started)
                self._started.add(name)
            yield from self._observe_news(trial)
            return
        self.active.pop(name, None)
        self._started.discard(name)
        self._news.pop(name, None)
        if before in (None, "Pending", "Running"):
            self._ended += 1
            if self._is_old(trial):
                self._ended_before += 1
            else:
                yield TrialEnded(trial, self._ended)
                yield from self._observe_failure(trial)
            yield from self._tell_better()

    def _observe_failure(self, trial: Json) -> Iterator[Moment]:
        """Yield once that the first trials fail alike; a first trial that ends otherwise rules that out."""
        failed = self._failed_alike
        if failed is None or state_of(trial) == "Killed":
            return
        if not _failed_at_once(trial) or (failed and own_cause(failed[0]) != own_cause(trial)):
            self._failed_alike = None
            return
        failed.append(trial)
        if len(failed) >= min(_ALIKE, self._failures_to_come):
            self._failed_alike = None
            yield FailingAlike(trial, len(failed), own_cause(trial))

    @property
    def _failures_to_come(self) -> int:
        """How many trials can fail before there are no more."""
        spec = self.experiment.get("spec", {})
        limits = [int(spec[field]) for field in ("maxTrialCount", "maxFailedTrialCount") if spec.get(field) is not None]
        return max(1, min(limits, default=_ALIKE))

    def _observe_news(self, trial: Json) -> Iterator[Moment]:
        conditions = status_of(trial).get("conditions") or ()
        running: Json = next((c for c in conditions if c.get("type") == "Running"), {})
        moment = _NEWS.get(str(running.get("reason")))
        if moment is None:
            self._news.pop(name_of(trial), None)
            return
        message = _NEWS_BEGINS.sub("", str(running.get("message", "")), count=1)
        if message != self._news.get(name_of(trial)):
            self._news[name_of(trial)] = message
            yield moment(trial, message)

    def _observe_obstacle(self) -> Iterator[Moment]:
        conditions = status_of(self.experiment).get("conditions") or ()
        found = next((str(c.get("message", "")) for c in conditions if c.get("reason") in _OBSTACLES), "")
        if found and found != self._obstacle:
            yield ExperimentHeldUp(self.experiment, found.removeprefix("Experiment waits for "))
        self._obstacle = found

    def _is_old(self, trial: Json) -> bool:
        end = time_of(status_of(trial).get("completionTime"))
        return end is not None and end < self.started_at

    def _observe_experiment(self, change: Change) -> Iterator[Moment]:
        self.deleted = change.type == "DELETED"
        self.experiment = change.object
        yield from self._observe_obstacle()
        name, value = str(self.best.get("bestTrialName", "")), self.best_value
        if has_several_objectives(self.experiment):
            self._observe_pareto_set(name, value)
        elif name and name != self._best and value is not None:
            self._best = name
            self._better = BestChanged(name, value), {name}
        yield from self._tell_better()

    def _tell_better(self) -> Iterator[Moment]:
        """Yield the better trial once its own end was shown: changes of the experiment may come first."""
        if self._better is None:
            return
        moment, trials = self._better
        if self.all_told or all(self._states.get(name, "Pending") not in ("Pending", "Running") for name in trials):
            self._better = None
            yield moment

    def _observe_pareto_set(self, name: str, value: str | None) -> None:
        """Note that the hypervolume has grown: a new best trial of one objective need not be progress."""
        volume = pareto_set_of(self.experiment).get("hypervolume")
        names = {name_of(trial) for trial in pareto_trials(self.experiment)}
        if volume is None or value is None or names <= self._pareto or volume <= self._hypervolume:
            return  # the first trials move the point that it is measured from
        self._hypervolume, self._pareto = volume, names
        self._better = BestChanged(name, value, pareto_words(self.experiment)), names


def _failed_at_once(trial: Json) -> bool:
    status = status_of(trial)
    start, end = time_of(status.get("startTime")), time_of(status.get("completionTime"))
    took = (end - start).total_seconds() if start and end else 0.0
    return state_of(trial) == "Failed" and bool(failure_of(trial)) and took <= _AT_ONCE_SECONDS


def savings_of(service: TuningService, experiment: Json) -> str:
    """Return a sentence on what early stopping saved; empty where there is none, or that is not known."""
    if not experiment.get("spec", {}).get("earlyStopping"):
        return ""
    try:
        return service.why(namespace_of(experiment), name_of(experiment)).savings
    except KatibError:  # the end of a run is worth telling without
        return ""


def with_remedy(moment: Moment, service: TuningService) -> Moment:
    """Return a moment with what is known to help, when it asks for help."""
    if not isinstance(moment, FailingAlike):
        return moment
    try:
        remedies = service.why(namespace_of(moment.trial), name_of(moment.trial)).remedies
    except KatibError:  # the moment is worth telling without
        return moment
    return replace(moment, remedy=next(iter(remedies), ""))
