"""Reconciles a Suggestion: starts its service, has the experiment accepted, and gets the requested assignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from katib.engine.controllers.cached_trial import TakenNames
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.calls import PendingCalls, mapped, then
from katib.engine.controllers.freshness import Freshness
from katib.engine.controllers.kinds import is_owned_by, key_of, with_status
from katib.engine.controllers.ports import EventRecorder, ServiceDirectory, SuggestionService, SuggestionsReply
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.suggestion import states
from katib.engine.controllers.suggestion.plan import Purpose, Seen, Step, Streak, Wait, next_step
from katib.engine.controllers.suggestion.replies import (
    Question,
    asked_about,
    waiting_assignments,
    waiting_trials,
)
from katib.engine.runtime.cache import CacheSnapshot
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import ReconcileResult
from katib.engine.runtime.objects import Key, ObjectStore
from katib.errors import NotFoundError, TerminalError
from katib.model.learned_experiments import learned_experiments
from katib.model.loadable import Deferred, Loadable
from katib.model.types import EarlyStoppingRule, Experiment, SuggestionStatus, Trial

if TYPE_CHECKING:
    from katib.engine.controllers.suggestion.earlier import EarlierTrialsReader

_EARLIER: Final[Loadable[type[EarlierTrialsReader]]] = Loadable(
    "katib.engine.controllers.suggestion.earlier:EarlierTrialsReader"
)

LONG_HISTORY = 1_000
"""Number of trials from which a question is prepared on a thread of its own: encoding tens of thousands for the first
time takes seconds, and all experiments of one machine share the thread of the controllers."""

PREPARED_AT_ONCE = 8


class SuggestionReconciler:
    """Calls suggestion services for one key at a time; never waits for them."""

    def __init__(
        self,
        store: ObjectStore,
        caches: Caches,
        services: ServiceDirectory,
        events: EventRecorder,
        clock: Clock,
        settings: ControllerSettings,
        wake: Callable[[Key], None],
    ) -> None:
        self._store = store
        self._caches = caches
        self._services = services
        self._events = events
        self._clock = clock
        self._settings = settings
        self._pool = ThreadPoolExecutor(PREPARED_AT_ONCE, thread_name_prefix="questions")  # no threads until used
        self._calls: PendingCalls[Purpose] = PendingCalls(wake)
        self._patience: dict[Key, tuple[Streak | None, Wait | None]] = {}
        self._earlier = Deferred(lambda: _EARLIER.load()(caches.trials_of))
        self._fresh = Freshness()
        self._served: dict[Key, Experiment] = {}

    def reconcile(self, key: Key) -> ReconcileResult:
        """Move one Suggestion a step closer to its spec."""
        suggestion = self._caches.suggestions.get(key)
        experiment = self._caches.experiments.get(key)
        if suggestion is None or experiment is None or not is_owned_by(suggestion, experiment):
            self._close(key)
            return ReconcileResult()
        if experiment.metadata.deletion_timestamp is not None:
            self._close(key, experiment)
            return ReconcileResult()
        if self._fresh.is_stale(suggestion):
            return ReconcileResult()
        if states.is_closed(suggestion.status.conditions):
            self._close(key, experiment)
            return ReconcileResult()
        served = self._served.get(key)
        if served is not None and served.metadata.uid != experiment.metadata.uid:
            self._close(key)  # a question of a deleted experiment of this name is not answered to the new one
        self._served[key] = experiment
        client, waiting_for, failure = None, "", ""
        try:
            client = self._services.service_for(experiment)
        except TerminalError as error:
            failure = str(error)
        if client is None and not failure:
            waiting_for = self._services.waiting_for(experiment)
        learns = experiment.spec.warm_start is not None or learned_experiments(experiment)
        earlier = self._earlier.get().read(key, experiment) if learns else None
        streak, wait = self._patience.get(key, (None, None))
        ended, active = self._caches.ledger.ended_and_active(key)
        seen = Seen(
            experiment,
            suggestion,
            is_ready=client is not None,
            waiting_for=waiting_for,
            failure=failure,
            call=self._calls.find(key),
            streak=streak,
            taken=TakenNames(self._caches.trials, key.namespace),
            earlier=None if earlier is None else earlier.status,
            ended=ended,
            active=active,
            wait=wait,
        )
        try:
            step = next_step(seen, self._settings, now=self._clock.now(), moment=self._clock.monotonic())
        except Exception:
            self._calls.finish(key)  # the next attempt asks again instead of failing on the same answer
            raise
        return self._take(key, seen, step, client, () if earlier is None else earlier.trials)

    def _close(self, key: Key, experiment: Experiment | None = None) -> None:
        """End the conversation: discard any answer and let the service go idle.

        A known experiment is released even if it was never served here: an earlier controller may have served it.
        """
        self._calls.finish(key)
        self._patience.pop(key, None)
        to_release = self._served.get(key, experiment)
        if to_release is not None:
            self._services.release(to_release)
        if self._earlier.made is not None:
            self._earlier.made.forget(key)
        self._served.pop(key, None)  # after the release, which is retried if it fails

    def _take(
        self, key: Key, seen: Seen, step: Step, client: SuggestionService | None, earlier: Sequence[Trial]
    ) -> ReconcileResult:
        if step.status != seen.suggestion.status:  # first: a refusal by the store is no failure of the service
            with suppress(NotFoundError):  # deleted meanwhile; the event follows
                written = self._store.update_status(with_status(seen.suggestion, step.status))
                self._fresh.wrote(seen.suggestion, written)
        if step.status.earlier_trials is not None and seen.suggestion.status.earlier_trials is None:
            used = str(step.status.earlier_trials)
            self._events.record(seen.suggestion, warning=False, reason="WarmStart", message=used)
        if step.forgets_call:
            self._calls.finish(key)
        self._patience[key] = step.streak, step.wait
        for reason, message in step.warnings:
            self._events.record(seen.suggestion, warning=True, reason=reason, message=message)
        if step.call is not None and client is not None:
            asked, service = step.call, client
            self._calls.ask(key, asked, partial(self._start, seen, step.status, service, asked, earlier))
        return ReconcileResult(requeue_after_seconds=step.retry_after_seconds)

    def _history(self, key: Key, experiment: Experiment) -> CacheSnapshot[Trial]:
        """Return the trials of an experiment as its algorithm sees them."""
        with self._caches.trials.lock:
            shown = self._caches.tallies.history(key, experiment)
        return self._caches.trials_of(key) if shown is None else CacheSnapshot[Trial]().followed_by(shown)

    def _start(
        self,
        seen: Seen,
        status: SuggestionStatus,
        client: SuggestionService,
        asked: Purpose,
        earlier: Sequence[Trial],
    ) -> Future[Any]:
        if not isinstance(asked, Question):
            return client.validate(seen.experiment)
        suggestion = seen.suggestion
        if status is not suggestion.status:
            suggestion = structs.replace(suggestion, status=status)
        experiment = asked_about(seen.experiment, suggestion)
        trials: Sequence[Trial] = ()
        if client.reads_history or experiment.spec.early_stopping is not None:
            waiting = waiting_assignments(suggestion, seen.taken)
            trials = self._history(key_of(suggestion), seen.experiment).followed_by(
                waiting_trials(experiment, waiting, self._clock.now())
            )

        ask = partial(
            client.get_suggestions,
            experiment,
            trials,
            current_request=asked.wanted,
            total_request=asked.base - asked.initial + asked.wanted,  # the service does not know initial trials
            earlier=earlier,
        )
        if experiment.spec.early_stopping is not None:
            ask = partial(_with_rules, client, experiment, trials, ask)
        if len(trials) + len(earlier) < LONG_HISTORY:
            return ask()
        return then(self._pool.submit(ask), lambda answer: answer)


def _with_rules(
    client: SuggestionService,
    experiment: Experiment,
    trials: Sequence[Trial],
    suggestions: Callable[[], Future[SuggestionsReply]],
) -> Future[Any]:
    """Ask for suggestions and the rules that they start with: none if the service judges running trials.

    It knows more later than now. Otherwise rules first: they can be asked for again, while unstored assignments are
    lost on some services.
    """

    def add(rules: Sequence[EarlyStoppingRule]) -> Future[SuggestionsReply]:
        return mapped(suggestions(), lambda reply: replace(reply, rules=tuple(rules)))

    def rules_first(judges: bool) -> Future[Any]:
        return suggestions() if judges else then(client.get_early_stopping_rules(experiment, trials), add)

    return then(client.judges(experiment), rules_first)
