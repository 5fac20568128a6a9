"""Reconciles a Trial: runs its job, judges it, and stores its observation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.freshness import Freshness
from katib.engine.controllers.kinds import JOB, TRIAL, as_read, key_of, with_finalizer, with_status, without_finalizer
from katib.engine.controllers.ports import NO_UPDATE, EventRecorder, PodUpdate, PodWatcher, TrialReport
from katib.engine.controllers.run_times import RunTimes
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.trial.jobs import Jobs, job_of, job_place, view_of
from katib.engine.controllers.trial.observing import ObservationCalls
from katib.engine.controllers.trial.plan import (
    JobView,
    Observed,
    TrialPlan,
    had_job,
    held_up,
    is_stopping,
    needs_observation,
    plan_trial,
    refused,
    runs,
    takes_no_more_readings,
)
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import DONE, ReconcileResult
from katib.engine.runtime.informer import InformerEvent
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    KatibError,
    KindNotInstalledError,
    NotFoundError,
    TerminalError,
    UnavailableError,
    one_line,
)
from katib.model.conditions import find_condition
from katib.model.job_kinds import queue_of, status_readings, with_suspension
from katib.model.names import TRIAL_FINALIZER
from katib.model.trials import ACTIVE, is_callers, trial_state
from katib.model.types import Trial, TrialCondition, TrialState, TrialStatus

FOREGROUND = "foregroundDeletion"
"""Finalizer of a deleted object that stays until its dependents are gone."""

_DELETION_POLL_SECONDS = 0.5
_NO_REPORT = TrialReport()

_CLOSE_WITHIN = timedelta(hours=1)
"""After the end of a trial; a controller may be away that long and still close the log."""

_CLOSE_RETRY_SECONDS = 10.0

_WHOLE_SECOND = 1.0
"""Maximum rounding error of a job's end time."""

HELD_UP_POLL_SECONDS = 5.0
"""How often to retry if a right or a kind is missing, which an administrator has to add."""

SHORTEST_STRAY_POLL_SECONDS, LONGEST_STRAY_POLL_SECONDS = 5.0, 60.0
"""Bounds of the interval for reading a job without a watch, a tenth of its trial's run time: such jobs
predate an upgrade, or have lost their label, and there may be hundreds of them."""

_HELD_UP_REASONS: dict[type[KatibError], str] = {
    ForbiddenError: "JobForbidden",
    KindNotInstalledError: "JobKindNotInstalled",
}


class TrialReconciler:
    """Moves one trial at a time towards its end.

    Args:
        observations: Asynchronous access to the observation log.
        verdicts: Causes for stopping running trials early, by uid.
        pods: State of the jobs' pods; None if the jobs' status suffices.
    """

    def __init__(
        self,
        store: ObjectStore,
        caches: Caches,
        observations: ObservationCalls,
        events: EventRecorder,
        clock: Clock,
        settings: ControllerSettings,
        verdicts: Mapping[str, str],
        times: RunTimes,
        pods: PodWatcher | None = None,
    ) -> None:
        self._store = store
        self._pods = pods
        self._verdicts = verdicts
        self._times = times
        self._trials = caches.trials
        self._jobs = Jobs(store, caches.jobs)
        self._may_lose_events = caches.jobs.shows_labelled
        self._observations, self._logs = observations, observations.logs
        self._events = events
        self._clock, self._started = clock, clock.now()
        self._settings = settings
        self._fresh = Freshness()
        self._seen_ended: dict[str, datetime] = {}
        self._deleted: dict[str, str] = {}
        self._status_taken: dict[str, list[tuple[str, str, int | None]]] = {}  # of running jobs
        self._closed: set[str] = set()
        self._is_first_list = True
        self._trials.add_handler(self._note_earlier)

    def reconcile(self, key: Key) -> ReconcileResult:
        """Move one trial a step closer to its end."""
        trial = self._trials.get(key)
        if trial is None or self._fresh.is_stale(trial):
            return DONE
        with suppress(NotFoundError):  # deleted meanwhile; the event follows
            if trial.metadata.deletion_timestamp is not None:
                return self._clean_up(trial)
            if TRIAL_FINALIZER not in trial.metadata.finalizers:
                stored = self._store.patch(as_read(trial), with_finalizer(trial, TRIAL_FINALIZER))
                self._fresh.wrote(trial, stored)
                return DONE
            try:
                return self._step(trial)
            except (ForbiddenError, KindNotInstalledError, InvalidError) as error:
                return self._refuse(trial, error) if isinstance(error, InvalidError) else self._hold_up(trial, error)
        return DONE

    def _note_earlier(self, event: InformerEvent[Trial]) -> None:
        """Note the trials of the first list: an earlier controller may have created their jobs."""
        if self._is_first_list and event.new is not None and trial_state(event.new) in ACTIVE:
            self._is_first_list = not self._trials.has_synced()
            if self._is_first_list:
                self._jobs.tried.add(event.new.metadata.uid)

    def _refuse(self, trial: Trial, error: InvalidError) -> ReconcileResult:
        """End a trial whose job the store refuses."""
        if trial_state(trial) not in ACTIVE:
            raise error
        status = refused(trial.status, one_line(error), self._clock.now())
        self._fresh.wrote(trial, self._store.update_status(with_status(trial, status)))
        self._events.record(trial, warning=True, reason="JobRefused", message=status.conditions[-1].message)
        return DONE

    def _hold_up(self, trial: Trial, error: KatibError) -> ReconcileResult:
        """Report the obstacle that an administrator has to remove; retry now and then."""
        reason = next(reason for class_, reason in _HELD_UP_REASONS.items() if isinstance(error, class_))
        status = held_up(trial.status, reason, one_line(error), self._clock.now())
        if status != trial.status:
            self._fresh.wrote(trial, self._store.update_status(with_status(trial, status)))
            self._events.record(trial, warning=True, reason=reason, message=status.conditions[-1].message)
        return ReconcileResult(HELD_UP_POLL_SECONDS)

    def _step(self, trial: Trial) -> ReconcileResult:
        now = self._clock.now()
        if is_callers(trial):
            return self._follow_caller(trial, now)
        uid, found = trial.metadata.uid, self._jobs.look(trial)
        job, is_ending = found.job, self._pods is not None and self._pods.is_ending(trial)
        is_over = trial_state(trial) not in ACTIVE and not is_ending and not self._times.knows(trial)
        if job is None and uid in self._closed and is_over:
            self._deleted.pop(uid, None)
            return DONE  # ended, and nothing is left to do
        view, update = None, NO_UPDATE
        if job is not None:
            update = NO_UPDATE if self._pods is None else self._pods.update_of(trial)
            view = view_of(job, trial, self._seen_ended.get(uid, now), update)
            if view.ended_at is not None and trial.status.completion_time is None:
                self._seen_ended.setdefault(uid, now)
            else:
                self._seen_ended.pop(uid, None)
        posts = job is not None and "trainerStatus" in (job.get("status") or {})
        run_seconds = self._measured(trial, view, update, now, is_ending=is_ending)
        is_ending = is_ending and view is None
        report = (
            _NO_REPORT if is_ending and is_stopping(trial) else self._report(trial, view, job if posts else None, now)
        )
        if report is None:
            return DONE  # the answer enqueues the trial
        is_untried = job is None and trial_state(trial) in ACTIVE and uid not in self._jobs.tried
        plan = plan_trial(
            Observed(
                trial,
                view,
                report.observation,
                log_refusal=report.refusal,
                verdict=self._verdicts.get(uid, ""),
                is_ending=is_ending and is_stopping(trial),
                run_seconds=run_seconds,
                is_announced=is_untried and found.is_followed,
                may_lose_event=self._may_lose_events,
                settings=self._settings,
                now=now,
            )
        )
        result = self._apply(trial, plan, job)
        if plan.status.completion_time is not None or (view is not None and view.ended_at is not None):
            self._status_taken.pop(uid, None)
        elif job is not None and posts:
            self._take_status(trial, job, now)
        if takes_no_more_readings(plan.status, view) and not is_ending:  # the end is stored by now
            return self._closed_after(trial, plan.status, now, result)
        if found.is_stray and trial_state(trial) in ACTIVE:
            return _no_later(result, stray_poll_seconds(trial.status.start_time, now))
        return result

    def _measured(
        self, trial: Trial, view: JobView | None, update: PodUpdate, now: datetime, *, is_ending: bool
    ) -> float | None:
        """Record whether a trial runs now, and return its run time so far.

        The programs of a deleted job count as running while any of them is terminating.
        """
        is_active = trial_state(trial) in ACTIVE
        if view is None:
            seconds = self._times.see(trial, runs=is_ending or (None if is_active else False))
        elif view.ended_at is not None and not view.is_going:
            seconds = self._times.ended(trial, max((now - view.ended_at).total_seconds() - _WHOLE_SECOND, 0.0))
        else:
            waits = bool(view.waiting or view.refusal or view.suspended)
            runs = view.is_going or (update.runs is True if waits else view.runs)
            is_new = not waits and find_condition(trial.status.conditions, TrialCondition.RUNNING) is None
            seconds = self._times.see(trial, runs=runs or (None if is_new else False))
        if not is_active and not is_ending and (view is None or view.ended_at is not None):
            self._times.forget(trial)
        return seconds

    def _follow_caller(self, trial: Trial, now: datetime) -> ReconcileResult:
        """Move a trial that a caller evaluates a step closer to its end."""
        from katib.engine.controllers.trial.callers import (
            CallersTrial,
            comes_to_its_end,
            plan_callers_trial,
            silence_of,
        )

        report = _NO_REPORT
        if comes_to_its_end(trial, now, self._started):
            answer = self._observations.ask(trial, self._logs.conclude)
            if answer is None:
                return DONE  # the answer enqueues the trial
            report = answer[0]
        verdict, silence = self._verdicts.get(trial.metadata.uid, ""), silence_of(trial, now, self._started)
        seconds = self._times.see(trial, runs=silence is None, late_seconds=silence or 0.0)
        plan = plan_callers_trial(CallersTrial(trial, report.observation, verdict, self._started, seconds, now=now))
        result = self._apply(trial, plan, None)
        if trial_state(trial) not in ACTIVE:
            self._times.forget(trial)
        if not takes_no_more_readings(plan.status, None):
            return result
        return self._closed_after(trial, plan.status, now, result)

    def _closed_after(
        self, trial: Trial, status: TrialStatus, now: datetime, result: ReconcileResult
    ) -> ReconcileResult:
        """Close the log of a trial, once, after its end; return the result, or when to retry.

        A trial that ended before this process began, but recently, is closed again: a crash may have intervened.
        """
        uid, completed = trial.metadata.uid, status.completion_time
        if uid in self._closed or completed is None or now - completed > _CLOSE_WITHIN:
            return result
        try:
            if self._observations.ask(trial, self._logs.end):
                self._closed.add(uid)
        except UnavailableError:
            return _no_later(result, _CLOSE_RETRY_SECONDS)
        return result

    def _report(self, trial: Trial, view: JobView | None, job: Object | None, now: datetime) -> TrialReport | None:
        """Return the log's report if needed; None while it is pending."""
        objective = trial.spec.objective
        if objective is None or not needs_observation(trial, view):
            return _NO_REPORT
        from_status = [] if job is None else status_readings(job, objective.metric_names, now)
        answer = self._observations.ask(trial, self._logs.summarize, from_status)
        return None if answer is None else answer[0]

    def _take_status(self, trial: Trial, job: Object, now: datetime) -> None:
        """Store the readings in a running job's status as they come; the last ones are part of its report."""
        uid, objective = trial.metadata.uid, trial.spec.objective
        if objective is None:
            return
        found = status_readings(job, objective.metric_names, now)
        if not found or self._status_taken.get(uid) == (said := [(one.name, one.value, one.step) for one in found]):
            return
        with suppress(InvalidError, ForbiddenError):  # the log refuses them for good
            if not self._observations.ask(trial, self._logs.take_status, found):
                return  # the answer enqueues the trial
        self._status_taken[uid] = said

    def _apply(self, trial: Trial, plan: TrialPlan, job: Object | None) -> ReconcileResult:
        if plan.create_job and not self._create_job(trial):
            return DONE
        changes = plan.status is not trial.status and plan.status != trial.status
        if changes:
            self._fresh.wrote(trial, self._store.update_status(with_status(trial, plan.status)))
        if plan.event is not None:
            event = plan.event
            self._events.record(trial, warning=event.warning, reason=event.reason, message=event.message)
        if changes and runs(plan.status.conditions) and not runs(trial.status.conditions):
            self._events.record(trial, warning=False, reason="JobRunning", message=f"Job {trial.name} is running")
        if plan.delete_job and self._delete_job(trial, job):
            message = f"Job {trial.name} has been deleted"
            self._events.record(trial, warning=False, reason="JobDeleted", message=message)
        return ReconcileResult(plan.again_after_seconds)

    def _create_job(self, trial: Trial) -> bool:
        """Create the job unless the trial is over by now; an existing job counts as created.

        A second run of a finished trial would be wrong. A trial that had a job before, or that another program set to
        run, is thus read again: the cache may be behind, and does not keep the job.
        """
        current = trial
        if had_job(trial) or trial_state(trial) is not TrialState.PENDING:
            current = Trial.decode(self._store.get(TRIAL, key_of(trial)))
            if trial_state(current) not in ACTIVE or current.metadata.uid != trial.metadata.uid:
                return False
        job = job_of(current)
        if queue_of(job):  # it must not run before it is queued, nor wait if there are no queues
            job = with_suspension(job, suspended=self._pods is not None and self._pods.has_queues())
        if self._settings.discards_before_start and not self._has_empty_log(trial):
            return False  # the answer enqueues the trial
        self._jobs.tried.add(trial.metadata.uid)
        self._times.job_created(trial)
        try:
            self._store.create(job)
        except AlreadyExistsError:
            self._check_owner(trial)
        return True

    def _has_empty_log(self, trial: Trial) -> bool:
        """Return whether the job may be created; False while readings under the trial's name are being removed."""
        is_tried = trial.metadata.uid in self._jobs.tried
        if is_tried and not self._observations.is_beginning(trial) and self._has_job(trial):
            return True
        return self._observations.ask(trial, self._logs.begin) is not None

    def _has_job(self, trial: Trial) -> bool:
        """Return whether the job exists in the store: the cache may be behind, and readings may exist."""
        try:
            self._store.get(*job_place(trial))
        except NotFoundError:
            return False
        return True

    def _check_owner(self, trial: Trial) -> None:
        kind, key = job_place(trial)
        owners = self._store.get(kind, key).get("metadata", {}).get("ownerReferences") or ()
        if all(owner.get("uid") != trial.metadata.uid for owner in owners):
            raise TerminalError(f"{kind.kind} {key} belongs to another owner; delete it so that the trial can run")

    def _delete_job(self, trial: Trial, job: Object | None) -> bool:
        """Delete the job, once, even if it waits for its pods to terminate. Return whether this call deleted it.

        A foreign kind's job is deleted again while it waits: its operator may recreate pods and keep it alive.
        """
        if job is None:
            return False
        metadata = job["metadata"]
        uid, waits = metadata.get("uid", ""), FOREGROUND in (metadata.get("finalizers") or ())
        if not (waits and job_place(trial)[0] != JOB) and (
            "deletionTimestamp" in metadata or self._deleted.get(trial.metadata.uid) == uid
        ):
            return False
        with suppress(NotFoundError):  # gone, or replaced by another owner's job of that name
            self._store.delete(*job_place(trial), uid=uid)
        self._deleted[trial.metadata.uid] = uid
        return True

    def _clean_up(self, trial: Trial) -> ReconcileResult:
        """Delete the job first, then its metrics, then the trial, so that nothing is reported after the clean-up."""
        if TRIAL_FINALIZER not in trial.metadata.finalizers:
            return DONE
        # An uninstalled kind has no jobs; a job that we may not read is garbage-collected with its owner.
        with suppress(ForbiddenError, KindNotInstalledError):
            job = None if is_callers(trial) else self._jobs.look(trial).job
            if job is not None:
                self._delete_job(trial, job)
                return ReconcileResult(_DELETION_POLL_SECONDS)
        if self._pods is not None and self._pods.is_ending(trial):
            return ReconcileResult(_DELETION_POLL_SECONDS)
        left = self._forget_metrics(trial)
        if left > 0:
            return ReconcileResult(left)
        self._store.patch(as_read(trial), without_finalizer(trial, TRIAL_FINALIZER))
        self._deleted.pop(trial.metadata.uid, None)
        self._seen_ended.pop(trial.metadata.uid, None)
        self._status_taken.pop(trial.metadata.uid, None)
        self._closed.discard(trial.metadata.uid)
        self._jobs.tried.discard(trial.metadata.uid)
        self._times.forget(trial)
        self._fresh.forget(trial.metadata.uid)
        return DONE

    def _forget_metrics(self, trial: Trial) -> float:
        """Remove the trial's readings; return when to check again, 0 if the trial may go.

        It does not wait forever for a log that refuses, or that has not answered since the trial was deleted.
        """
        now = self._clock.now()
        since, soon, cause = trial.metadata.deletion_timestamp or now, _DELETION_POLL_SECONDS, ""
        try:
            if self._observations.ask(trial, self._logs.delete):
                return 0.0
        except KatibError as error:
            cause = one_line(error)
        else:
            since = max(since, self._observations.answered_at)
            soon = self._settings.deletion_patience_seconds  # the answer enqueues the trial before that
        left = self._settings.deletion_patience_seconds - (now - since).total_seconds()
        if left > 0:
            return min(left, soon)
        self._observations.forget(trial)
        message = f"Metrics stay behind in the observation log, which cannot be reached: {cause or 'no answer'}"
        self._events.record(trial, warning=True, reason="MetricsNotDeleted", message=message)
        return 0.0


def stray_poll_seconds(started: datetime | None, now: datetime) -> float:
    """Return when to read a job without a watch again."""
    age = 0.0 if started is None else (now - started).total_seconds()
    return min(max(age / 10, SHORTEST_STRAY_POLL_SECONDS), LONGEST_STRAY_POLL_SECONDS)


def _no_later(result: ReconcileResult, seconds: float) -> ReconcileResult:
    planned = result.requeue_after_seconds
    return ReconcileResult(seconds if planned is None else min(planned, seconds))
