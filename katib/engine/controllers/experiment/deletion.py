"""Deletion of an experiment: its trials first, then itself.

A deleted experiment leaves nothing behind that needs a controller: a client that waits for its deletion, such as
`kubectl delete`, may remove the controller next.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import TRIAL, as_read, is_owned_by, key_of, without_finalizer
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import DONE, ReconcileResult
from katib.engine.runtime.objects import ObjectStore
from katib.errors import KindNotInstalledError, NotFoundError
from katib.model.names import EXPERIMENT_FINALIZER, EXPERIMENT_LABEL
from katib.model.types import Experiment, Trial

ORPHAN_FINALIZER = "orphan"
"""Finalizer of an object whose children are to stay: Kubernetes removes their owner reference, then this finalizer."""

BATCH = 100
"""How many trials are deleted before the worker turns to other experiments."""

LOOK_AGAIN_SECONDS = 5.0
"""How soon to check again after all trials were deleted and some remain."""


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """The next step of a deletion.

    Attributes:
        is_last: Whether only the experiment itself remains.
    """

    delete_trials: tuple[Trial, ...] = ()
    is_last: bool = False


def plan_deletion(experiment: Experiment, trials: Iterable[Trial]) -> DeletionPlan:
    """Return the next step for an experiment that is being deleted, given the trials labelled with its name."""
    if ORPHAN_FINALIZER in experiment.metadata.finalizers:
        return DeletionPlan()
    is_last, waiting = True, []
    for trial in trials:  # stops at BATCH: there may be thousands
        if is_owned_by(trial, experiment):
            is_last = False
            if trial.metadata.deletion_timestamp is None:
                waiting.append(trial)
            if len(waiting) == BATCH:
                break
    return DeletionPlan(tuple(waiting), is_last=is_last)


class ExperimentDeletion:
    """Deletes experiments, one reconcile at a time for each of them."""

    def __init__(self, store: ObjectStore, caches: Caches, clock: Clock) -> None:
        self._store = store
        self._caches = caches
        self._clock = clock
        self._complete_at: dict[str, float] = {}

    def let_go(self, experiment: Experiment) -> ReconcileResult:
        """Delete the experiment's trials, then remove its finalizer. The end of each trial enqueues it again."""
        if EXPERIMENT_FINALIZER not in experiment.metadata.finalizers:
            return DONE
        trials = self._caches.trials_of(key_of(experiment))
        if self._only_waits(experiment, trials):
            return ReconcileResult(LOOK_AGAIN_SECONDS)
        plan = plan_deletion(experiment, trials)
        for trial in plan.delete_trials:
            with suppress(NotFoundError):
                self._delete_trial(experiment, trial)
        if not plan.is_last:
            return self._wait(experiment, plan)
        if self._has_trials(experiment):  # the cache is behind
            return ReconcileResult(LOOK_AGAIN_SECONDS)
        self._complete_at.pop(experiment.metadata.uid, None)
        self._store.patch(as_read(experiment), without_finalizer(experiment, EXPERIMENT_FINALIZER))
        return DONE

    def _delete_trial(self, experiment: Experiment, trial: Trial) -> None:
        """Delete a trial if it still belongs to the experiment: the cache may not show that it was orphaned."""
        owners = self._store.get(TRIAL, key_of(trial))["metadata"].get("ownerReferences") or ()
        if any(owner["uid"] == experiment.metadata.uid for owner in owners):
            self._store.delete(TRIAL, key_of(trial), uid=trial.metadata.uid)

    def _wait(self, experiment: Experiment, plan: DeletionPlan) -> ReconcileResult:
        if len(plan.delete_trials) == BATCH:
            return ReconcileResult(0.0)
        self._complete_at[experiment.metadata.uid] = self._clock.monotonic()
        return ReconcileResult(LOOK_AGAIN_SECONDS)

    def _only_waits(self, experiment: Experiment, trials: Iterable[Trial]) -> bool:
        """Return whether all trials were deleted a moment ago and one remains; cheap, as each trial's end calls it."""
        complete_at = self._complete_at.get(experiment.metadata.uid, float("-inf"))
        if self._clock.monotonic() - complete_at >= LOOK_AGAIN_SECONDS:
            return False
        return any(is_owned_by(trial, experiment) for trial in trials)

    def _has_trials(self, experiment: Experiment) -> bool:
        labels = {EXPERIMENT_LABEL: experiment.name}
        with suppress(KindNotInstalledError):
            found = self._store.list(TRIAL, experiment.namespace, labels=labels, owner_uid=experiment.metadata.uid)
            return bool(found.items)
        return False
