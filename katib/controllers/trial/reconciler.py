"""Reconciles a Trial: its job runs, is judged, and leaves an observation behind."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from katib.api.names import TRIAL_FINALIZER
from katib.api.types import Observation, Trial
from katib.controllers.freshness import Freshness
from katib.controllers.kinds import TRIAL, key_of, with_metadata, with_status
from katib.controllers.ports import NO_NEWS, EventRecorder, ObservationLog, PodWatcher
from katib.controllers.settings import ControllerSettings
from katib.controllers.trial.job_caches import JobCaches
from katib.controllers.trial.jobs import Jobs, job_kind, job_of, view_of
from katib.controllers.trial.plan import JobView, Observed, TrialPlan, held_up, needs_observation, plan_trial, refused
from katib.controllers.trial_states import ACTIVE, TrialState, state_of
from katib.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    KatibError,
    KindNotInstalledError,
    NotFoundError,
    TerminalError,
    UnavailableError,
)
from katib.runtime.clock import Clock
from katib.runtime.controller import DONE, Result
from katib.runtime.informer import Informer
from katib.runtime.objects import Key, Object, ObjectStore

_DELETION_POLL_SECONDS = 0.5

HELD_UP_POLL_SECONDS = 5.0
"""How often to try again what needs a right, or a kind, that is missing: somebody has to give it, by hand."""

_HELD_UP_REASONS = {
    ForbiddenError: "JobForbidden",
    KindNotInstalledError: "JobKindNotInstalled",
}


class TrialReconciler:
    """Moves one trial at a time towards its end."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        trials: Informer[Trial],
        jobs: JobCaches,
        observations: ObservationLog,
        events: EventRecorder,
        clock: Clock,
        settings: ControllerSettings,
        pods: PodWatcher | None = None,
    ) -> None:
        self._store = store
        self._pods = pods
        self._trials = trials
        self._jobs = Jobs(store, jobs)
        self._observations = observations
        self._events = events
        self._clock = clock
        self._settings = settings
        self._fresh = Freshness()
        self._seen_ended: dict[str, datetime] = {}
        self._deleted: dict[str, str] = {}

    def reconcile(self, key: Key) -> Result:
        """Move one trial a step closer to its end."""
        trial = self._trials.get(key)
        if trial is None or self._fresh.is_stale(trial):
            return DONE
        with suppress(NotFoundError):  # it went away meanwhile; the event of that is on its way
            if trial.metadata.deletion_timestamp is not None:
                return self._clean_up(trial)
            if TRIAL_FINALIZER not in trial.metadata.finalizers:
                self._fresh.wrote(trial, self._write_finalizers(trial, present=True))
                return DONE
            return self._progress(trial)
        return DONE

    def _refuse(self, trial: Trial, error: InvalidError) -> Result:
        """End a trial whose job the store does not take."""
        if state_of(trial) not in ACTIVE:
            raise error
        status = refused(trial.status, _one_line(error), self._clock.now())
        self._fresh.wrote(trial, self._store.update_status(with_status(trial, status)))
        self._events.record(trial, warning=True, reason="JobRefused", message=status.conditions[-1].message)
        return DONE

    def _hold_up(self, trial: Trial, error: KatibError) -> Result:
        """Say what the trial's job waits for that somebody has to do; try again now and then."""
        reason = _HELD_UP_REASONS[type(error)]
        status = held_up(trial.status, reason, _one_line(error), self._clock.now())
        if status != trial.status:
            self._fresh.wrote(trial, self._store.update_status(with_status(trial, status)))
            self._events.record(trial, warning=True, reason=reason, message=status.conditions[-1].message)
        return Result(HELD_UP_POLL_SECONDS)

    def _progress(self, trial: Trial) -> Result:
        try:
            return self._step(trial)
        except (ForbiddenError, KindNotInstalledError) as error:
            return self._hold_up(trial, error)
        except InvalidError as error:
            return self._refuse(trial, error)

    def _step(self, trial: Trial) -> Result:
        now = self._clock.now()
        job = self._jobs.find(trial)
        view = None if job is None else self._view(job, trial, now)
        plan = plan_trial(
            Observed(
                trial,
                view,
                self._observe(trial, view),
                metrics_timeout_seconds=self._settings.metrics_timeout_seconds,
                explanation_seconds=self._settings.explanation_seconds,
                now=now,
            )
        )
        return self._apply(trial, plan, job)

    def _view(self, job: Object, trial: Trial, now: datetime) -> JobView:
        news = NO_NEWS if self._pods is None else self._pods.news_of(trial)
        view = view_of(job, trial, self._seen_ended.get(trial.metadata.uid, now), news)
        if view.ended_at is not None and trial.status.completion_time is None:
            self._seen_ended.setdefault(trial.metadata.uid, now)
        else:
            self._seen_ended.pop(trial.metadata.uid, None)
        return view

    def _observe(self, trial: Trial, job: JobView | None) -> Observation | None:
        if trial.spec.objective is None or not needs_observation(trial, job):
            return None
        return self._observations.summarize(trial.name, trial.spec.objective.metric_names)

    def _apply(self, trial: Trial, plan: TrialPlan, job: Object | None) -> Result:
        if plan.create_job and not self._create_job(trial):
            return DONE
        if plan.status != trial.status:
            self._fresh.wrote(trial, self._store.update_status(with_status(trial, plan.status)))
        if plan.event is not None:
            event = plan.event
            self._events.record(trial, warning=event.warning, reason=event.reason, message=event.message)
        if plan.delete_job:
            self._delete_job(trial, job)
        return Result(plan.again_after_seconds)

    def _create_job(self, trial: Trial) -> bool:
        """Create the job unless the trial is over by now; a job that is there already is as good.

        A second run of a finished trial would be wrong. A trial that had a job before is therefore read anew: the cache
        may be behind.
        """
        if state_of(trial) is TrialState.RUNNING:
            current = Trial.decode(self._store.get(TRIAL, key_of(trial)))
            if state_of(current) not in ACTIVE or current.metadata.uid != trial.metadata.uid:
                return False
        job = job_of(trial)
        if self._settings.discards_before_start and not self._has_job(trial):
            self._observations.delete(trial.name)
        try:
            self._store.create(job)
        except AlreadyExistsError:
            self._check_owner(trial)
        return True

    def _has_job(self, trial: Trial) -> bool:
        """Tell whether the job is there in truth: the cache may be behind, and it may have reported already."""
        try:
            self._store.get(job_kind(trial), key_of(trial))
        except NotFoundError:
            return False
        return True

    def _check_owner(self, trial: Trial) -> None:
        kind = job_kind(trial)
        owners = self._store.get(kind, key_of(trial)).get("metadata", {}).get("ownerReferences") or ()
        if all(owner.get("uid") != trial.metadata.uid for owner in owners):
            raise TerminalError(
                f"{kind.kind} {key_of(trial)} belongs to somebody else; delete it so that the trial can run"
            )

    def _delete_job(self, trial: Trial, job: Object | None) -> None:
        """Delete the job, once: one that waits for its pods to go is on its way."""
        uid = job["metadata"].get("uid", "") if job is not None else ""
        if job is None or "deletionTimestamp" in job["metadata"] or self._deleted.get(trial.metadata.uid) == uid:
            return
        with suppress(NotFoundError):  # gone, or by now somebody else's of that name
            self._store.delete(job_kind(trial), key_of(trial), uid=uid)
        self._deleted[trial.metadata.uid] = uid

    def _clean_up(self, trial: Trial) -> Result:
        """Let the job go first, then its metrics, then the trial, so that nothing is reported after the clean-up."""
        if TRIAL_FINALIZER not in trial.metadata.finalizers:
            return DONE
        # Where the kind is gone there is no job; one that we may not see goes with its owner, by garbage collection.
        with suppress(ForbiddenError, KindNotInstalledError):
            job = self._jobs.find(trial)
            if job is not None:
                self._delete_job(trial, job)
                return Result(_DELETION_POLL_SECONDS)
        if not self._forget_metrics(trial):
            return Result(_DELETION_POLL_SECONDS)
        self._write_finalizers(trial, present=False)
        self._deleted.pop(trial.metadata.uid, None)
        self._seen_ended.pop(trial.metadata.uid, None)
        self._fresh.forget(trial.metadata.uid)
        return DONE

    def _forget_metrics(self, trial: Trial) -> bool:
        """Remove the trial's readings; tell whether the trial may go. It does not wait for an absent log for ever."""
        try:
            self._observations.delete(trial.name)
        except UnavailableError as error:
            deleted_at = trial.metadata.deletion_timestamp or self._clock.now()
            if (self._clock.now() - deleted_at).total_seconds() < self._settings.deletion_patience_seconds:
                return False
            message = f"Metrics stay behind in the observation log, which cannot be reached: {error}"
            self._events.record(trial, warning=True, reason="MetricsNotDeleted", message=message)
        return True

    def _write_finalizers(self, trial: Trial, *, present: bool) -> Object:
        stored = Trial.decode(self._store.get(TRIAL, key_of(trial)))  # the cached one may lack its job
        if stored.metadata.uid != trial.metadata.uid:
            raise NotFoundError(f"trial {key_of(trial)} is gone; another has its name")
        others = tuple(f for f in stored.metadata.finalizers if f != TRIAL_FINALIZER)
        return self._store.update(with_metadata(stored, finalizers=(*others, TRIAL_FINALIZER) if present else others))


def _one_line(error: KatibError) -> str:
    return "; ".join(str(error).splitlines())
