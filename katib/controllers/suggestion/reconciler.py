"""Reconciles a Suggestion: has its service ready, has the experiment accepted, and gets the assignments asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from katib.api.conditions import Conditions, is_true
from katib.api.types import Experiment, Suggestion, SuggestionCondition, SuggestionStatus, Trial
from katib.controllers.freshness import Freshness
from katib.controllers.kinds import is_owned_by, key_of, with_status
from katib.controllers.ports import EventRecorder, ServiceDirectory, SuggestionService
from katib.controllers.settings import ControllerSettings
from katib.controllers.suggestion import states
from katib.controllers.suggestion.calls import PendingCalls, then
from katib.controllers.suggestion.failures import Failures
from katib.controllers.suggestion.plan import (
    Answer,
    MalformedReplyError,
    Round,
    accepted,
    next_round,
    question,
    waiting_assignments,
    waiting_trials,
)
from katib.controllers.taken_names import TakenNames
from katib.errors import InvalidError, KatibError, NotFoundError, TerminalError
from katib.runtime.clock import Clock
from katib.runtime.controller import Result
from katib.runtime.informer import Informer
from katib.runtime.objects import Key, ObjectStore

TRIALS_BY_EXPERIMENT = "experiment"
"""Index of the trial informer: `namespace/name` of the experiment."""


class _Waiting(Exception):  # noqa: N818 - no error: it ends a reconcile that somebody will wake
    """The answer is not there yet."""


@dataclass(frozen=True, slots=True)
class _Round:
    """One reconcile's view of the world."""

    key: Key
    experiment: Experiment
    suggestion: Suggestion
    client: SuggestionService


class SuggestionReconciler:
    """Talks to suggestion services for one key at a time; never waits for them."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        suggestions: Informer[Suggestion],
        experiments: Informer[Experiment],
        trials: Informer[Trial],
        services: ServiceDirectory,
        events: EventRecorder,
        clock: Clock,
        settings: ControllerSettings,
        wake: Callable[[Key], None],
    ) -> None:
        self._store = store
        self._suggestions = suggestions
        self._experiments = experiments
        self._trials = trials
        self._services = services
        self._events = events
        self._clock = clock
        self._calls = PendingCalls(wake)
        self._failures = Failures(clock, settings)
        self._fresh = Freshness()
        self._served: dict[Key, Experiment] = {}

    def reconcile(self, key: Key) -> Result:
        """Move one Suggestion a step closer to what is asked of it."""
        suggestion = self._suggestions.get(key)
        experiment = self._experiments.get(key)
        if suggestion is None or experiment is None or not is_owned_by(suggestion, experiment):
            self._close(key)
            return Result()
        if self._fresh.is_stale(suggestion):
            return Result()
        if states.is_closed(suggestion.status.conditions):
            self._close(key, experiment)
            return Result()
        return self._converse(key, experiment, suggestion)

    def _close(self, key: Key, experiment: Experiment | None = None) -> None:
        """End the conversation: nobody wants an answer any more and the service may go idle.

        A known experiment is released even if it was never served here: a controller before this one may have done so.
        """
        self._calls.finish(key)
        self._failures.clear(key)
        to_release = self._served.get(key, experiment)
        if to_release is not None:
            self._services.release(to_release)
        self._served.pop(key, None)  # after the release, which is tried again if it fails

    def _serve(self, key: Key, experiment: Experiment) -> None:
        """Begin or go on; what a deleted experiment of this name asked is not answered to the new one."""
        served = self._served.get(key)
        if served is not None and served.metadata.uid != experiment.metadata.uid:
            self._close(key)
        self._served[key] = experiment

    def _converse(self, key: Key, experiment: Experiment, suggestion: Suggestion) -> Result:
        now = self._clock.now()
        conditions = states.created(suggestion.status.conditions, now)
        start = suggestion.status.start_time or now
        status = suggestion.status.model_copy(update={"conditions": conditions, "start_time": start})
        self._serve(key, experiment)
        try:
            client = self._services.service_for(experiment)
        except TerminalError as error:
            return self._give_up(suggestion, status, str(error))
        if client is None:
            return self._await(suggestion, status, self._services.waiting_for(experiment))
        status = _with_conditions(status, states.deployment_ready(status.conditions, now))
        wait = self._failures.wait_seconds(key)
        if wait > 0:
            self._write(suggestion, status)
            return Result(requeue_after_seconds=wait)
        current = suggestion.model_copy(update={"status": status})
        return self._ask(_Round(key, experiment, current, client), suggestion)

    def _await(self, stored: Suggestion, status: SuggestionStatus, waiting_for: str) -> Result:
        conditions = states.deployment_not_ready(status.conditions, waiting_for, self._clock.now())
        self._write(stored, _with_conditions(status, conditions))
        if waiting_for and conditions != status.conditions:
            self._events.record(stored, warning=True, reason="SuggestionServiceWaiting", message=waiting_for)
        return Result()

    def _ask(self, seen: _Round, stored: Suggestion) -> Result:
        status = seen.suggestion.status
        try:
            # That the experiment is accepted is stored before anything is asked: while it cannot be, its call must not
            # give way to the next one, or the two would take turns, each waking the other, for as long as the disk is
            # full.
            accepted_before = is_true(status.conditions, SuggestionCondition.RUNNING)
            status = self._answered(seen, status) if accepted_before else self._validated(seen)
        except _Waiting:
            self._write(stored, status)
            return Result()
        except InvalidError as error:
            self._calls.finish(seen.key)
            return self._give_up(stored, status, f"Validation failed: {error}")
        except (KatibError, MalformedReplyError) as error:
            self._calls.finish(seen.key)
            return self._failed_once(seen, stored, status, str(error))
        except Exception:
            self._calls.finish(seen.key)  # the next attempt asks anew instead of stumbling over the same answer
            raise
        self._write(stored, status)  # outside of the attempt: what the store refuses is no failure of the service
        self._calls.finish(seen.key)
        self._failures.clear(seen.key)
        return Result()

    def _validated(self, seen: _Round) -> SuggestionStatus:
        future = self._calls.ask(seen.key, "validate", lambda: seen.client.validate(seen.experiment))
        if not future.done() or self._calls.purpose_of(seen.key) != "validate":
            raise _Waiting
        future.result()
        status = seen.suggestion.status
        return _with_conditions(status, states.running(status.conditions, self._clock.now()))

    def _answered(self, seen: _Round, status: SuggestionStatus) -> SuggestionStatus:
        asked = next_round(seen.suggestion)
        if asked is None:
            return status
        under_way = self._calls.purpose_of(seen.key)
        if isinstance(under_way, Round) and under_way.base == asked.base:
            asked = under_way  # more or fewer are wanted by now; its answer is as good for that
        future = self._calls.ask(seen.key, asked, lambda: self._start(seen, asked))
        under_way = self._calls.purpose_of(seen.key)
        if not future.done() or not isinstance(under_way, Round) or under_way.base != asked.base:
            raise _Waiting
        return accepted(
            seen.experiment,
            seen.suggestion,
            under_way,
            future.result(),
            taken=TakenNames(self._trials, seen.key.namespace),
            conditions=status.conditions,
            now=self._clock.now(),
        )

    def _start(self, seen: _Round, asked: Round) -> Future[Any]:
        experiment = question(seen.experiment, seen.suggestion)
        trials = self._history(seen, experiment)

        def suggestions(rules: Any = ()) -> Future[Any]:
            reply = seen.client.get_suggestions(
                experiment, trials, current_request=asked.wanted, total_request=asked.base + asked.wanted
            )
            return then(reply, lambda value: _done(Answer(value, tuple(rules))))

        if experiment.spec.early_stopping is None:
            return suggestions()
        # Rules first: they can be asked for again, while assignments that nobody stores are lost on some services.
        return then(seen.client.get_early_stopping_rules(experiment, trials), suggestions)

    def _history(self, seen: _Round, experiment: Experiment) -> tuple[Trial, ...]:
        if not seen.client.reads_history and experiment.spec.early_stopping is None:
            return ()
        waiting = waiting_assignments(seen.suggestion, TakenNames(self._trials, seen.key.namespace))
        return (
            *self._trials.by_index(TRIALS_BY_EXPERIMENT, str(seen.key)),
            *waiting_trials(experiment, waiting, self._clock.now()),
        )

    def _failed_once(self, seen: _Round, stored: Suggestion, status: SuggestionStatus, error: str) -> Result:
        streak = self._failures.add(seen.key, error)
        self._events.record(stored, warning=True, reason="SuggestionServiceFailed", message=error)
        if self._failures.is_hopeless(streak):
            message = f"Suggestion service failed {streak.count} times in a row: {error}"
            return self._give_up(stored, status, message)
        self._write(stored, status)
        return Result(requeue_after_seconds=streak.delay_seconds)

    def _give_up(self, stored: Suggestion, status: SuggestionStatus, message: str) -> Result:
        failed = states.failed(status.conditions, message, self._clock.now())
        self._write(stored, _with_conditions(status, failed))
        self._events.record(stored, warning=True, reason="SuggestionFailed", message=message)
        self._failures.clear(key_of(stored))
        return Result()

    def _write(self, stored: Suggestion, status: SuggestionStatus) -> None:
        if status != stored.status:
            with suppress(NotFoundError):  # it went away meanwhile; the event of that is on its way
                self._fresh.wrote(stored, self._store.update_status(with_status(stored, status)))


def _with_conditions(status: SuggestionStatus, conditions: Conditions) -> SuggestionStatus:
    return status.model_copy(update={"conditions": conditions})


def _done(value: Answer) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
