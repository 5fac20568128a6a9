"""Reconciles an Experiment: requests as many assignments as there is room for, and makes trials of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from katib.engine.controllers.cached_trial import TakenNames
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.experiment.config_maps import MISSING_SECONDS, TemplateConfigMaps
from katib.engine.controllers.experiment.plan import (
    ExperimentPlan,
    Observed,
    Obstacle,
    plan_experiment,
)
from katib.engine.controllers.experiment.trial_factory import TrialFactory
from katib.engine.controllers.freshness import Freshness
from katib.engine.controllers.kinds import as_read, is_owned_by, owned_by, with_finalizer, with_status
from katib.engine.controllers.ports import EventRecorder
from katib.engine.controllers.run_times import RunTimes
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.suggestion import states
from katib.engine.controllers.suggestion.replies import waiting_assignments
from katib.engine.controllers.trial.plan import cut, is_stopping, killed, resumed, stopped_reason
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import DONE, ReconcileResult
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import AlreadyExistsError, ConflictError, FieldError, InvalidError, NotFoundError, one_line
from katib.model.conditions import find_condition, has_ended
from katib.model.features.feature import Progress
from katib.model.features.listed import is_cut
from katib.model.loadable import Deferred, Loadable
from katib.model.names import (
    CHECKPOINTS_ANNOTATION,
    EXPERIMENT_FINALIZER,
    KEPT,
    SERVICE_UNAVAILABLE,
    TEMPLATE_MISSING,
    without_queue,
)
from katib.model.space.assignments import first_trials
from katib.model.templates.source import is_not_there
from katib.model.trials import ACTIVE, is_asked, trial_state
from katib.model.types import (
    Experiment,
    ExperimentCondition,
    ObjectMeta,
    Suggestion,
    SuggestionSpec,
    Trial,
    TrialState,
    TrialStatus,
)

if TYPE_CHECKING:
    from katib.engine.controllers.experiment.deletion import ExperimentDeletion

_DELETION: Final[Loadable[type[ExperimentDeletion]]] = Loadable(
    "katib.engine.controllers.experiment.deletion:ExperimentDeletion"
)

ExperimentCheck = Callable[[Experiment], Sequence[FieldError]]
"""Returns the errors of an experiment that was just created."""


def accept_all(_experiment: Experiment) -> Sequence[FieldError]:
    """Accept any experiment: for a home that validates before storing."""
    return ()


class ExperimentReconciler:
    """Moves one experiment at a time towards its end.

    Args:
        check: Validates an experiment that was stored without validation.
        is_interrupted: Returns whether an experiment is not for this engine.
    """

    def __init__(
        self,
        store: ObjectStore,
        caches: Caches,
        config_maps: TemplateConfigMaps,
        events: EventRecorder,
        clock: Clock,
        settings: ControllerSettings,
        check: ExperimentCheck,
        times: RunTimes,
        is_interrupted: Callable[[Experiment], bool],
    ) -> None:
        self._store = store
        self._experiments = caches.experiments
        self._suggestions = caches.suggestions
        self._trials = caches.trials
        self._ledger = caches.ledger
        self._tallies = caches.tallies
        self._events = events
        self._clock = clock
        self._settings = settings
        self._check = check
        self._times = times
        self._is_interrupted = is_interrupted
        self._factory = TrialFactory(config_maps)
        self._deletion = Deferred(lambda: _DELETION.load()(store, caches, clock))
        self._fresh = Freshness()
        self._written_at: dict[str, float] = {}

    def reconcile(self, key: Key) -> ReconcileResult:
        """Move one experiment a step closer to its end."""
        experiment = self._experiments.get(key)
        if experiment is None or self._fresh.is_stale(experiment):
            return DONE
        with suppress(NotFoundError):  # deleted meanwhile; the event follows
            if experiment.metadata.deletion_timestamp is not None:
                return self._let_go(experiment)
            if EXPERIMENT_FINALIZER not in experiment.metadata.finalizers:
                stored = self._store.patch(as_read(experiment), with_finalizer(experiment, EXPERIMENT_FINALIZER))
                self._fresh.wrote(experiment, stored)
                return DONE
            return self._progress(key, experiment)
        return DONE

    def summarize(self, key: Key) -> None:
        """Reconcile an experiment, and write its counts however recently they were written."""
        experiment = self._experiments.get(key)
        if experiment is not None:
            self._written_at.pop(experiment.metadata.uid, None)
            self.reconcile(key)

    def _progress(self, key: Key, experiment: Experiment) -> ReconcileResult:
        # The Suggestion first: an assignment leaves it only after its trial is in the cache, so a reader in this
        # order sees every assignment in at least one of the two places.
        suggestion = self._suggestions.get(key)
        if suggestion is not None and not is_owned_by(suggestion, experiment):
            suggestion = None  # of a deleted experiment of this name; the cache is behind
        with self._trials.lock:
            counts = self._ledger.counts(key)
            parts = self._tallies.parts(key, experiment, self._progress_of(experiment))
            waiting = waiting_assignments(suggestion, TakenNames(self._trials, key.namespace))
        if not counts.owners <= {experiment.metadata.uid}:
            return DONE  # trials of a deleted experiment of this name remain; the end of the last enqueues this one
        written_at = self._written_at.get(experiment.metadata.uid, -math.inf)
        seconds_to_summary = written_at + self._settings.summary_interval_seconds - self._clock.monotonic()
        seen = Observed(
            experiment,
            suggestion,
            counts,
            waiting,
            self._obstacle(experiment),
            is_interrupted=self._is_interrupted(experiment),
            is_summary_due=seconds_to_summary <= 0,
            run_seconds=self._times.of_experiment(experiment),
            parts=parts,
            now=self._clock.now(),
        )
        plan = plan_experiment(seen)
        try:
            trials = list(map(partial(self._factory.make, experiment), plan.create_trials))
        except InvalidError as error:
            seen = replace(seen, obstacle=_obstacle_of(error))
            plan, trials = plan_experiment(seen), []
        self._apply(experiment, suggestion, plan, trials)
        result = DONE
        if plan.status != experiment.status:
            self._fresh.wrote(experiment, self._store.update_status(with_status(experiment, plan.status)))
            self._written_at[experiment.metadata.uid] = self._clock.monotonic()
            last = plan.status.conditions[-1]
            if last not in experiment.status.conditions:
                warning = last.type == "Failed" or last.reason in (SERVICE_UNAVAILABLE, TEMPLATE_MISSING)
                self._events.record(experiment, warning=warning, reason=last.reason, message=last.message)
        elif seconds_to_summary > 0:  # counts alone are written at intervals, since no decision depends on them
            result = ReconcileResult(seconds_to_summary)
        if plan.again_after_seconds is not None:
            result = _no_later_than(plan.again_after_seconds, result)
        return _no_later_than(MISSING_SECONDS, result) if seen.obstacle and seen.obstacle.may_pass else result

    def _progress_of(self, experiment: Experiment) -> Progress:
        # A trial whose job is created once more continues from its checkpoint, and keeps its readings.
        is_kept = experiment.metadata.annotations.get(CHECKPOINTS_ANNOTATION) == KEPT
        keeps_checkpoints = is_kept and not self._settings.discards_before_start
        return Progress(self._times.of_experiment(experiment), self._times.of_trial, keeps_checkpoints)

    def _obstacle(self, experiment: Experiment) -> Obstacle | None:
        """Return why no trial can be made, None if they can."""
        if has_ended(experiment.status.conditions):
            return None
        if find_condition(experiment.status.conditions, ExperimentCondition.CREATED) is None:
            errors = [error for error in self._check(experiment) if not is_not_there(error)]
            if errors:
                return Obstacle(f"Experiment is invalid: {one_line(InvalidError(errors))}")
        if is_asked(experiment):
            return None
        try:
            self._factory.template_of(experiment)
        except InvalidError as error:
            return _obstacle_of(error)
        return None

    def _apply(
        self,
        experiment: Experiment,
        suggestion: Suggestion | None,
        plan: ExperimentPlan,
        trials: Sequence[Object],
    ) -> None:
        for trial in trials:
            with suppress(AlreadyExistsError):  # created before, and the cache is behind
                self._store.create(trial)
        if plan.create_suggestion:
            self._create_suggestion(experiment, plan.requests or 0)
        elif suggestion is not None and plan.requests is not None:
            self._store.patch(as_read(suggestion), {"spec": {"requests": plan.requests}})
        elif suggestion is not None and (plan.close_suggestion or plan.restart_suggestion):
            conditions, now = suggestion.status.conditions, self._clock.now()
            changed = (
                states.closed(conditions, suggestion.spec.resume_policy, now)
                if plan.close_suggestion
                else states.restarting(conditions, now)
            )
            status = structs.replace(suggestion.status, conditions=changed)
            self._store.update_status(with_status(suggestion, status))
        for name in plan.stop_trials:
            self._kill(Key(experiment.namespace, name), plan)
        for name in plan.cut_trials:
            self._cut(Key(experiment.namespace, name), plan)
        for name in plan.resume_trials:
            found = self._trials.get(Key(experiment.namespace, name))
            if found is not None and is_cut(found):
                self._write(found, resumed(found.status, self._clock.now()))

    def _create_suggestion(self, experiment: Experiment, requests: int) -> None:
        suggestion = Suggestion(
            metadata=ObjectMeta(
                name=experiment.name,
                namespace=experiment.namespace,
                labels=without_queue(experiment.metadata.labels),
                annotations=without_queue(experiment.metadata.annotations),
                owner_references=(owned_by(experiment),),
            ),
            spec=SuggestionSpec(
                algorithm=experiment.spec.algorithm,
                early_stopping=experiment.spec.early_stopping,
                requests=requests,
                resume_policy=experiment.spec.resume_policy,
                initial_trials=first_trials(experiment.spec),
            ),
        )
        with suppress(AlreadyExistsError):
            self._store.create(suggestion.encode())

    def _cut(self, key: Key, plan: ExperimentPlan) -> None:
        """Stop a trial early with its readings; kill one that has not run yet."""
        trial = self._trials.get(key)
        if trial is None or (trial_state(trial) is TrialState.PENDING and not self._times.of_trial(trial)):
            self._kill(key, plan, stopped_reason(plan.cut_cause))
        elif trial_state(trial) in ACTIVE and not is_stopping(trial):
            self._write(trial, cut(trial.status, plan.cut_cause, self._clock.now()))

    def _kill(self, key: Key, plan: ExperimentPlan, reason: str = "TrialKilled") -> None:
        trial = self._trials.get(key)
        if trial is None or trial_state(trial) not in ACTIVE or is_stopping(trial):
            return  # it has ended since the counts were taken, or is about to
        end = plan.status.conditions[-1]
        message, seconds = f"Trial is stopped: {end.message}", self._times.of_trial(trial)
        self._write(trial, killed(trial.status, message, self._clock.now(), seconds, reason))

    def _write(self, trial: Trial, status: TrialStatus) -> None:
        with suppress(ConflictError, NotFoundError):  # changed meanwhile; its event enqueues the experiment
            self._store.update_status(with_status(trial, status))

    def _let_go(self, experiment: Experiment) -> ReconcileResult:
        self._factory.forget(experiment.metadata.uid)
        self._fresh.forget(experiment.metadata.uid)
        self._written_at.pop(experiment.metadata.uid, None)
        self._times.forget_experiment(experiment.metadata.uid)
        return self._deletion.get().let_go(experiment)


def _obstacle_of(error: InvalidError) -> Obstacle:
    if all(map(is_not_there, error.errors)):
        return Obstacle(f"Experiment waits for its trial template: {one_line(error)}", may_pass=True)
    return Obstacle(f"Trial template cannot be rendered: {one_line(error)}")


def _no_later_than(seconds: float, result: ReconcileResult) -> ReconcileResult:
    """Return a result that reconciles again after this many seconds, or sooner."""
    again = result.requeue_after_seconds
    return ReconcileResult(seconds if again is None else min(again, seconds))
