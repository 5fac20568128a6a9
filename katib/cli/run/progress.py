"""How far a run is: changes of objects in, moments worth telling out. Pure; time is an argument.

Memory holds one word for each trial and the objects of the active ones, so that ten thousand trials are no burden.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from katib.api.types import Experiment
from katib.api.validation import awaits_restart
from katib.tuning.reading import (
    Json,
    completed_count,
    is_completed,
    metric_value,
    name_of,
    objective_of,
    state_of,
    status_of,
    time_of,
)
from katib.tuning.service import Change


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A trial began to run."""

    trial: Json


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
    """There is a better trial."""

    name: str
    value: str


Moment = TrialStarted | TrialRetried | TrialHeldUp | TrialEnded | BestChanged

_NEWS: dict[str, tuple[str, type[TrialRetried | TrialHeldUp]]] = {
    "TrialRetrying": ("Trial is running: ", TrialRetried),
    "TrialWaiting": ("Trial is running: ", TrialHeldUp),
    "JobForbidden": ("Trial cannot run: ", TrialHeldUp),
    "JobKindNotInstalled": ("Trial cannot run: ", TrialHeldUp),
}
"""Reasons of the condition Running that a user should see: how the message begins, and what it means."""


class Progress:
    """The state of one run.

    Args:
        experiment: As submitted.
        started_at: When this run began: trials that ended before belong to an earlier run and are not told.
    """

    def __init__(self, experiment: Json, started_at: datetime) -> None:
        self.experiment = experiment
        self.started_at = started_at.replace(microsecond=0)  # times of objects have whole seconds
        self.active: dict[str, Json] = {}
        self.deleted = False
        self._states: dict[str, str] = {}
        self._news: dict[str, str] = {}
        self._ended = 0
        self._ended_before = 0
        self._best = ""

    def observe(self, change: Change) -> Iterator[Moment]:
        """Take a change and yield what is worth telling about it."""
        if change.object.get("kind") == "Trial":
            yield from self._observe_trial(change)
        else:
            yield from self._observe_experiment(change)

    @property
    def limit(self) -> int | None:
        """How many trials there will be; None when nobody set a limit."""
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
        return is_completed(self.experiment) and not awaits_restart(Experiment.decode(self.experiment))

    @property
    def best(self) -> Json:
        """The best trial so far as the experiment's status has it; empty while there is none."""
        best: Json = status_of(self.experiment).get("currentOptimalTrial") or {}
        return best

    @property
    def best_value(self) -> str | None:
        """The objective value of the best trial."""
        return metric_value(objective_of(self.experiment), (self.best.get("observation") or {}).get("metrics") or ())

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
            self.active.pop(name, None)
            return
        self._states[name] = state
        if not is_completed(trial):
            self.active[name] = trial
            if state == "Running" and before != "Running":
                yield TrialStarted(trial)
            yield from self._observe_news(trial)
            return
        self.active.pop(name, None)
        self._news.pop(name, None)
        if before in (None, "Pending", "Running"):
            self._ended += 1
            if self._is_old(trial):
                self._ended_before += 1
            else:
                yield TrialEnded(trial, self._ended)

    def _observe_news(self, trial: Json) -> Iterator[Moment]:
        conditions = status_of(trial).get("conditions") or ()
        running: Json = next((c for c in conditions if c.get("type") == "Running"), {})
        if running.get("reason") not in _NEWS:
            return
        prefix, moment = _NEWS[str(running["reason"])]
        message = str(running.get("message", "")).removeprefix(prefix)
        if message != self._news.get(name_of(trial)):
            self._news[name_of(trial)] = message
            yield moment(trial, message)

    def _is_old(self, trial: Json) -> bool:
        end = time_of(status_of(trial).get("completionTime"))
        return end is not None and end < self.started_at

    def _observe_experiment(self, change: Change) -> Iterator[Moment]:
        self.deleted = change.type == "DELETED"
        self.experiment = change.object
        name, value = str(self.best.get("bestTrialName", "")), self.best_value
        if name and name != self._best and value is not None:
            self._best = name
            yield BestChanged(name, value)
