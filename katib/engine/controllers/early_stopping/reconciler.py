"""Reconciles the early stopping of an experiment: asks about its running trials repeatedly, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.calls import PendingCalls, then
from katib.engine.controllers.early_stopping import plan
from katib.engine.controllers.early_stopping.plan import Asking, is_watched, stoppable, with_own_rules
from katib.engine.controllers.kinds import key_of
from katib.engine.controllers.ports import (
    EventRecorder,
    GivenRules,
    ServiceDirectory,
    StopVerdict,
    SuggestionService,
    Verdicts,
)
from katib.engine.controllers.suggestion.reconciler import LONG_HISTORY
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import DONE, ReconcileResult
from katib.engine.runtime.objects import Key
from katib.errors import KatibError, TerminalError
from katib.model.types import Experiment, Trial

_THREADS = 4
"""Threads for questions with slow preparation: long histories, and rules that need the observation log."""

Purpose = Literal["service", "rules"]


class EarlyStoppingReconciler:
    """Asks about the running trials of one experiment at a time.

    Args:
        caches: Experiments, their trials, and their Suggestions: a closed Suggestion has no service any more.
        services: Finds the service of an experiment.
        given_rules: Evaluates the trials' own rules if no collector does; None disables that.
        verdicts: Receives the verdicts.
        events: Records repeated failures of a service.
        clock: The clock.
        wake: Enqueues the early stopping of an experiment.
        wake_trial: Enqueues a trial.
    """

    def __init__(
        self,
        caches: Caches,
        services: ServiceDirectory,
        given_rules: GivenRules | None,
        verdicts: Verdicts,
        events: EventRecorder,
        clock: Clock,
        *,
        wake: Callable[[Key], None],
        wake_trial: Callable[[Key], None],
    ) -> None:
        self._caches = caches
        self._services = services
        self._given_rules = given_rules
        self._verdicts = verdicts
        self._events = events
        self._clock = clock
        self._wake_trial = wake_trial
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="early-stopping")  # no threads until used
        self._calls: PendingCalls[Purpose] = PendingCalls(wake)
        self._states: dict[Key, Asking] = {}

    def reconcile(self, key: Key) -> ReconcileResult:
        """Handle the answer to the last question about an experiment, and ask the next one if due."""
        experiment = self._caches.experiments.get(key)
        if experiment is None or not is_watched(experiment, self._caches.suggestions.get(key)):
            self._states.pop(key, None)
            self._calls.finish(key)
            return DONE
        asking = self._states.get(key)
        if asking is None or asking.uid != experiment.metadata.uid:
            asking = self._states[key] = Asking(experiment.metadata.uid)
        asking = self._states[key] = self._after_call(key, experiment, asking)
        running = stoppable(self._caches.active_trials(key))
        if not running or self._calls.find(key) is not None:
            return DONE  # a trial or the answer enqueues it again
        wait = plan.due_at(asking, self._caches.stored_readings[key]) - self._clock.monotonic()
        return ReconcileResult(wait) if wait > 0 else self._ask(key, experiment, asking, running)

    # --- questions ----------------------------------------------------------------------------------------------------

    def _ask(self, key: Key, experiment: Experiment, asking: Asking, running: Sequence[Trial]) -> ReconcileResult:
        now = self._clock.monotonic()
        asking = self._states[key] = plan.before_question(asking, now, self._caches.stored_readings[key])
        if not asking.asks_service:
            trials, rules = with_own_rules(running), self._given_rules
            if not trials or rules is None:
                return ReconcileResult(asking.recheck_at - now)
            self._calls.ask(key, "rules", lambda: self._pool.submit(rules.verdicts, trials))
            return DONE
        try:
            service = self._services.service_for(experiment)
        except TerminalError:
            service = None  # the Suggestion controller reports it
        if service is None:
            return ReconcileResult(plan.SERVICE_SECONDS)
        self._calls.ask(key, "service", lambda: self._judgment(key, experiment, service))
        return DONE

    def _judgment(self, key: Key, experiment: Experiment, service: SuggestionService) -> Future[Any]:
        trials = self._caches.trials_of(key)
        if len(trials) < LONG_HISTORY:
            return service.judge(experiment, trials)
        return then(self._pool.submit(service.judge, experiment, trials), lambda answer: answer)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _after_call(self, key: Key, experiment: Experiment, asking: Asking) -> Asking:
        """Return the state after a completed call; unchanged if there is none."""
        call = self._calls.find(key)
        if call is None or not call.is_done:
            return asking
        self._calls.finish(key)
        now = self._clock.monotonic()
        if call.error is not None:
            asking = plan.after_failure(asking, now)
            if asking.failures == plan.FAILURES_TO_TELL:
                self._tell(experiment, call.error)
            return asking
        verdicts: Sequence[StopVerdict] | None = call.answer
        if verdicts is None:
            return plan.after_refusal(asking, now)
        self._note(key, verdicts)
        return plan.after_answer(asking, now)

    def _note(self, key: Key, verdicts: Sequence[StopVerdict]) -> None:
        if not verdicts:
            return
        reasons = {verdict.trial_name: verdict.reason for verdict in verdicts}
        for trial in stoppable(self._caches.active_trials(key)):
            if trial.name in reasons:
                self._verdicts[trial.metadata.uid] = reasons[trial.name]
                self._wake_trial(key_of(trial))

    def _tell(self, experiment: Experiment, error: BaseException) -> None:
        words = str(error) if isinstance(error, KatibError) else f"{type(error).__name__}: {error}"
        message = f"Running trials cannot be judged, and continue: {words}"
        self._events.record(experiment, warning=True, reason="EarlyStoppingUnavailable", message=message)
