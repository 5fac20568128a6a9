"""Run times of trials, measured on the monotonic clock.

Laws:

1. Only time under observation of a controller counts. A night without an engine, a step of the wall clock and a
   suspended machine add nothing: the monotonic clock of Linux stands still meanwhile.
2. The time of an experiment is that in which at least one of its trials ran, so it is no sum, and outlives them.
3. Statuses hold a time whenever a trial begins to wait, or ends. `totals` has the time in between, which a home may
   store beside them and pass back as `earlier`. A home that does not, a cluster, counts from `startTime`: pods run
   there without a controller, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock

from katib.engine.controllers.kinds import key_of
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key
from katib.model.trials import trial_state
from katib.model.types import Experiment, Trial, TrialState


@dataclass(slots=True)
class _Meter:
    """Seconds up to the last change, and the start of the running interval; None while stopped."""

    seconds: float = 0.0
    since: float | None = None

    def read(self, now: float) -> float:
        return self.seconds if self.since is None else self.seconds + max(now - self.since, 0.0)


@dataclass(slots=True)
class _TrialMeter(_Meter):
    """Meter of a trial; `created` is its job's creation time until it is first seen running or waiting."""

    key: Key = field(kw_only=True)
    owner: str = field(kw_only=True)
    created: float | None = None


@dataclass(slots=True)
class _ExperimentMeter(_Meter):
    """Meter of an experiment; `is_read` is set once its status is included, `running` holds uids of trials."""

    is_read: bool = False
    running: set[str] = field(default_factory=set)


class RunTimes:
    """Measures trials and experiments. Thread-safe.

    Args:
        earlier: Seconds measured before this process, by uid, if stored beside the statuses.
    """

    def __init__(self, clock: Clock, earlier: Mapping[str, float] | None = None) -> None:
        self._clock = clock
        self._is_stored_beside = earlier is not None
        self._earlier = dict(earlier or {})
        self._trials: dict[str, _TrialMeter] = {}
        self._experiments: dict[str, _ExperimentMeter] = {}
        self._lock = Lock()

    def job_created(self, trial: Trial) -> None:
        """Note that a trial's job was created: if it runs at once, it counts from here."""
        with self._lock:
            meter = self._meter_of(trial)
            if meter.since is None:
                meter.created = self._clock.monotonic()

    def see(self, trial: Trial, *, runs: bool | None, late_seconds: float = 0.0) -> float | None:
        """Note whether a trial runs; return its run time so far, None if it ended before it was measured.

        Args:
            runs: None while unknown for a new job.
            late_seconds: Time since it stopped running, if it did.
        """
        uid, now = trial.metadata.uid, self._clock.monotonic()
        with self._lock:
            if uid not in self._trials and trial_state(trial) not in (TrialState.PENDING, TrialState.RUNNING):
                return None
            meter = self._meter_of(trial)
            if runs is not None:
                began, meter.created = meter.created, None
                self._turn(uid, meter, now if began is None else began, now, late_seconds, runs=runs)
            return meter.read(now)

    def ended(self, trial: Trial, late_seconds: float = 0.0) -> float | None:
        """Note that a trial no longer runs; return its run time, even if it was never seen running."""
        with self._lock:
            meter, now = self._trials.get(trial.metadata.uid), self._clock.monotonic()
            if meter is not None and meter.created is not None:
                self._turn(trial.metadata.uid, meter, meter.created, now, 0.0, runs=True)
                meter.created = None
        return self.see(trial, runs=False, late_seconds=late_seconds)

    def of_trial(self, trial: Trial) -> float:
        with self._lock:
            if trial.metadata.uid in self._trials or trial_state(trial) is TrialState.RUNNING:
                return self._meter_of(trial).read(self._clock.monotonic())
        return trial.status.run_seconds or 0.0

    def of_experiment(self, experiment: Experiment) -> float:
        """Return the time in which at least one trial of an experiment ran."""
        uid = experiment.metadata.uid
        with self._lock:
            meter = self._experiments.setdefault(uid, _ExperimentMeter())
            if not meter.is_read:
                meter.seconds += max(experiment.status.run_seconds or 0.0, self._earlier.pop(uid, 0.0))
                meter.is_read = True
            return meter.read(self._clock.monotonic())

    def knows(self, trial: Trial) -> bool:
        return trial.metadata.uid in self._trials

    def add(self, trial: Trial, seconds: float) -> None:
        """Add run time of a trial that was not measured because no engine was running; once per experiment."""
        with self._lock:
            meter = self._meter_of(trial)
            meter.seconds += seconds
            experiment = self._experiments.setdefault(meter.owner, _ExperimentMeter())
            if not experiment.running:
                experiment.seconds += seconds

    def forget(self, trial: Trial) -> None:
        uid, now = trial.metadata.uid, self._clock.monotonic()
        with self._lock:
            if (meter := self._trials.pop(uid, None)) is not None:
                self._turn(uid, meter, now, now, 0.0, runs=False)

    def forget_experiment(self, uid: str) -> None:
        with self._lock:
            self._experiments.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """Forget earlier times of all other uids, which have ended or are deleted."""
        with self._lock:
            self._earlier = {uid: seconds for uid, seconds in self._earlier.items() if uid in uids}

    def totals(self) -> dict[str, float]:
        """Return the seconds of all measured trials and experiments, by uid."""
        now = self._clock.monotonic()
        with self._lock:
            trials = {uid: meter.read(now) for uid, meter in self._trials.items()}
            read = {uid: meter.read(now) for uid, meter in self._experiments.items() if meter.is_read}
            return {**self._earlier, **trials, **read}

    def running(self) -> list[Key]:
        with self._lock:
            return [meter.key for meter in self._trials.values() if meter.since is not None]

    def _meter_of(self, trial: Trial) -> _TrialMeter:
        uid, status = trial.metadata.uid, trial.status
        if (meter := self._trials.get(uid)) is None:
            seconds = max(status.run_seconds or 0.0, self._earlier.pop(uid, 0.0))
            runs = trial_state(trial) is TrialState.RUNNING and status.start_time is not None
            if runs and not self._is_stored_beside and status.start_time is not None:
                seconds = max(seconds, (self._clock.now() - status.start_time).total_seconds())
            owner = next((one.uid for one in trial.metadata.owner_references if one.controller), "")
            meter = self._trials[uid] = _TrialMeter(seconds, key=key_of(trial), owner=owner)
        return meter

    def _turn(self, uid: str, meter: _TrialMeter, began: float, now: float, late_seconds: float, *, runs: bool) -> None:
        """Start or stop the meters of a trial and of its experiment."""
        if (meter.since is not None) is runs:
            return
        experiment = self._experiments.setdefault(meter.owner, _ExperimentMeter())
        (experiment.running.add if runs else experiment.running.discard)(uid)
        for one, goes_on in ((meter, runs), (experiment, bool(experiment.running))):
            if goes_on and one.since is None:
                one.since = began
            elif not goes_on and one.since is not None:
                one.seconds, one.since = one.seconds + max(now - late_seconds - one.since, 0.0), None
