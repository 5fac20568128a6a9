"""Reconciles an OptimizationJob: creates its Experiment and mirrors its status."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import structs

from katib.engine.controllers.freshness import Freshness
from katib.engine.controllers.kinds import EXPERIMENT, as_read, owner_entry, with_status
from katib.engine.controllers.optimization_job.plan import CREATION_FAILED, failed, has_ended, plan_job
from katib.engine.controllers.ports import EventRecorder
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import DONE, ReconcileResult
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import AlreadyExistsError, InvalidError, NotFoundError, one_line
from katib.model.optimization_jobs import MANAGER, experiment_of, in_words_of_job, other_manager, read_optimization_job
from katib.model.types import Experiment
from katib.model.types.optimization import OptimizationJob, OptimizationJobStatus

_AGAIN_SECONDS = 0.5
"""When to retry after a conflict over the Experiment's name."""


class OptimizationJobReconciler:
    """Moves one job at a time towards its end.

    Args:
        admit: Returns a new Experiment as stored; raises InvalidError if it is not admitted.
        suspend: Suspends or resumes an Experiment with its trials; raises KatibError while it cannot.
        is_ours: Whether a job without a manager is ours, if other controllers may run, too.
    """

    def __init__(
        self,
        store: ObjectStore,
        jobs: Informer[OptimizationJob],
        experiments: Informer[Experiment],
        admit: Callable[[Object], Object],
        suspend: Callable[[Key, bool], None],
        is_ours: Callable[[OptimizationJob], bool],
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._experiments = experiments
        self._admit = admit
        self._suspend = suspend
        self._is_ours = is_ours
        self._events = events
        self._clock = clock
        self._fresh = Freshness()

    def reconcile(self, key: Key) -> ReconcileResult:
        """Move one job a step closer to its end."""
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp is not None or self._fresh.is_stale(job):
            return DONE
        if has_ended(job) or not (job.spec.managed_by == MANAGER or self._is_ours(job)):
            return DONE
        if other := other_manager(job):
            self._events.record(job, warning=False, reason="LeftAlone", message=f"Left to another controller: {other}")
            return DONE
        experiment = self._experiment(key)
        plan = plan_job(job, experiment, self._clock.now())
        if plan.create:
            return self._create(job)
        if plan.adopt and experiment is not None:
            with suppress(NotFoundError):
                self._store.patch(as_read(experiment), {"metadata": {"ownerReferences": [owner_entry(job)]}})
            return ReconcileResult(_AGAIN_SECONDS)
        if plan.suspend is not None:
            self._suspend(key, plan.suspend)
        self._write(job, plan.status)
        return DONE

    def _experiment(self, key: Key) -> Experiment | None:
        """Return the Experiment of a job, from the store if not cached, since its absence matters."""
        found = self._experiments.get(key)
        if found is None:
            with suppress(NotFoundError):
                return Experiment.read(self._store.get(EXPERIMENT, key))
        return found

    def _create(self, job: OptimizationJob) -> ReconcileResult:
        try:
            checked, _ = read_optimization_job(job.encode())
            owner = structs.replace(checked, metadata=job.metadata)
            self._store.create(self._admit(experiment_of(owner)))
        except AlreadyExistsError:
            return ReconcileResult(_AGAIN_SECONDS)
        except InvalidError as error:
            message = f"The job is invalid: {one_line(in_words_of_job(error))}"
            self._write(job, failed(job.status, CREATION_FAILED, message, self._clock.now()))
        return ReconcileResult(_AGAIN_SECONDS)

    def _write(self, job: OptimizationJob, status: OptimizationJobStatus) -> None:
        if status == job.status:
            return
        with suppress(NotFoundError):  # deleted meanwhile
            self._fresh.wrote(job, self._store.update_status(with_status(job, status)))
        last = status.conditions[-1]
        if last not in job.status.conditions:
            self._events.record(job, warning=last.type == "Failed", reason=last.reason, message=last.message)
