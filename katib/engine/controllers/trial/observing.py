"""Asynchronous access of the trial controller to the observation log.

Theory of operation. With a pool, each call runs there; the reconcile that needs it ends, and the answer enqueues the
trial. A log that hangs blocks the threads of the pool and the trials that need the log, but no worker. Without a pool
the log is local, and is called in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from katib.engine.controllers.calls import PendingCalls
from katib.engine.controllers.kinds import key_of
from katib.engine.controllers.ports import TrialReport
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key
from katib.model.metrics import BatchId, MetricLog, ObservationLog
from katib.model.summary import POINTS, observation_of, with_at_best, with_means
from katib.model.types import Trial

T = TypeVar("T")

_Purpose = tuple[str, str, tuple[tuple[object, ...], ...]]

_OUTCOME = "outcome/"
"""Prefix of the request id, as reporter of a caller's final readings: they are stored once, even after retries."""


class TrialLogs:
    """The logs of trials. Thread-safe.

    Every call raises UnavailableError if the log cannot be reached.
    """

    def __init__(self, log: ObservationLog) -> None:
        self._log = log

    def begin(self, trial: Trial) -> None:
        """Empty the log of a trial before its job is created.

        Raises:
            InvalidError: The trial's name is not valid for a log.
        """
        self._log.within(trial.namespace).delete(trial.name)

    def take_status(self, trial: Trial, readings: Sequence[MetricLog]) -> None:
        """Store the readings in a job's status, unless they are stored, or the metric is reported another way.

        A status is identified by the time of its readings: a whole second, which a collector's almost never have.
        """
        log, new = self._log.within(trial.namespace), list[MetricLog]()
        for reading in readings:
            last = next(iter(log.newest(trial.name, limit=1, metric_name=reading.name)), None)
            if last is None or (last.time.microsecond == 0 and last.value != reading.value):
                new.append(reading)
        if new:
            log.report(trial.name, new)

    def summarize(self, trial: Trial, from_status: Sequence[MetricLog] = ()) -> TrialReport:
        """Return the observation.

        Args:
            from_status: Readings in the status of its job, which are stored first.
        """
        objective = trial.spec.objective
        if objective is None:
            return TrialReport()
        if from_status:
            self.take_status(trial, from_status)
        log = self._log.within(trial.namespace)
        observation = log.summarize(trial.name, objective.metric_names)

        def last(metric: str, count: int) -> Sequence[MetricLog]:
            if count:
                return log.newest(trial.name, limit=count, metric_name=metric)
            return log.read(trial.name, metric_name=metric)

        observation = with_means(objective, observation, last)
        return TrialReport(with_at_best(objective, observation, lambda metric: log.curve(trial.name, metric, POINTS)))

    def conclude(self, trial: Trial, *, is_empty: bool = False) -> TrialReport:
        """Store the final readings of a trial that its caller ended, once, and return the observation.

        They are recorded at the last reported step, like the return value of a function.

        Args:
            is_empty: Whether its log is known to be empty.
        """
        from katib.model.leases import outcome_of

        outcome, log = outcome_of(trial), self._log.within(trial.namespace)
        if outcome is None or not outcome.values:
            return TrialReport() if is_empty else self.summarize(trial)
        step = None if is_empty else next((reading.step for reading in log.newest(trial.name, limit=1)), None)
        readings = [MetricLog(outcome.time, name, value, step) for name, value in outcome.values.items()]
        log.report(trial.name, readings, BatchId(f"{_OUTCOME}{outcome.tell_id}", 0))
        objective = trial.spec.objective
        if objective is None or not is_empty:
            return self.summarize(trial)
        observation = observation_of(objective.metric_names, outcome.values.items())
        observation = with_means(objective, observation, lambda metric, _: [r for r in readings if r.name == metric])
        return TrialReport(
            with_at_best(objective, observation, lambda metric: [one for one in readings if one.name == metric])
        )

    def end(self, trial: Trial) -> None:
        """Close the log of a trial, whose end and observation are stored. Idempotent.

        A local log needs nothing: reports are admitted on arrival.
        """

    def delete(self, trial: Trial) -> None:
        self._log.within(trial.namespace).delete(trial.name)


class ObservationCalls:
    """Calls of the log, one per trial at a time. Thread-safe.

    Args:
        pool: Runs the calls; None calls in place.
    """

    def __init__(self, logs: TrialLogs, pool: Executor | None, wake: Callable[[Key], None], clock: Clock) -> None:
        self.logs = logs
        self._pool = pool
        self._calls: PendingCalls[_Purpose] = PendingCalls(wake)
        self._clock = clock
        self.answered_at = clock.now()

    def is_beginning(self, trial: Trial) -> bool:
        """Return whether the log of a trial is being emptied, or was just now."""
        return self._calls.purpose_of(key_of(trial)) == _purpose(trial, self.logs.begin)

    def ask(self, trial: Trial, call: Callable[..., T], *readings: Sequence[MetricLog]) -> tuple[T] | None:
        """Call a method of `logs` with a trial; return its answer once, None until it arrives.

        Raises the exception of the call. A call with other readings, whatever their times, is a different one.
        """
        pool = self._pool
        if pool is None:
            return (call(trial, *readings),)
        key, purpose = key_of(trial), _purpose(trial, call, *readings)
        self._calls.ask(key, purpose, lambda: pool.submit(self._noting, partial(call, trial, *readings)))
        seen = self._calls.find(key)
        if seen is None or not seen.is_done or seen.purpose != purpose:
            return None
        self._calls.finish(key)
        if seen.error is not None:
            raise seen.error
        return (seen.answer,)

    def forget(self, trial: Trial) -> None:
        """Discard the answer. A running call continues; the next call for a trial of this name starts after it."""
        self._calls.abandon(key_of(trial))

    def _noting(self, call: Callable[[], Any]) -> Any:
        answer = call()
        self.answered_at = self._clock.now()
        return answer


def _purpose(trial: Trial, call: Callable[..., Any], *readings: Sequence[MetricLog]) -> _Purpose:
    said = tuple((one.name, one.value, one.step) for given in readings for one in given)
    return trial.metadata.uid, call.__name__, said
