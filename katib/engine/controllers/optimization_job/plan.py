"""Plan of an OptimizationJob's next step from the observed state. Pure: no I/O, no clock.

Theory of operation: an Experiment of the same name does the work, and the job owns it. While there is none and the job
is not Created, it is created, unless the job is suspended. From then on the status mirrors the Experiment until that
has ended: the job is Complete or Failed then, for good. Deleting the Experiment before that deletes the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from msgspec import structs

from katib.engine.controllers.kinds import is_owned_by
from katib.model import conditions
from katib.model.conditions import find_condition, is_true, set_condition
from katib.model.names import OPTIMIZATION_JOB_LABEL
from katib.model.optimization_jobs import CREATED, EXPERIMENT_CREATED
from katib.model.restarts import MAX_TRIALS_REACHED
from katib.model.types import ConditionStatus, Experiment, ExperimentCondition
from katib.model.types.optimization import JobResult, OptimizationJob, OptimizationJobStatus

SUSPENDED, COMPLETE, FAILED = "Suspended", "Complete", "Failed"
CREATION_FAILED = "TrainJobsCreationFailed"

_SUSPENDING = "Suspending"
"""Reason that is written before anything is suspended, so that resuming the job undoes it."""

_REASONS = {MAX_TRIALS_REACHED: "MaxTrialsReached"}
"""Reasons of an Experiment that are renamed; the others are kept."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Writes to make.

    Attributes:
        status: The new status; the very same object if nothing changed.
        adopt: Whether to become the owner of the existing Experiment.
        suspend: Whether to suspend (True) or resume (False) the Experiment; None leaves it.
    """

    status: OptimizationJobStatus
    create: bool = False
    adopt: bool = False
    suspend: bool | None = None


def has_ended(job: OptimizationJob) -> bool:
    return is_true(job.status.conditions, COMPLETE) or is_true(job.status.conditions, FAILED)


def plan_job(job: OptimizationJob, experiment: Experiment | None, now: datetime) -> JobPlan:
    """Return the next step for a job that has not ended."""
    if experiment is None:
        if find_condition(job.status.conditions, CREATED) is None:
            status, _ = _suspension(job, now)
            return JobPlan(status, create=not job.spec.suspend and status is job.status)
        return JobPlan(failed(job.status, "ExperimentDeleted", "The Experiment of the job was deleted", now))
    if not is_owned_by(experiment, job):
        is_made_of_it = experiment.metadata.labels.get(OPTIMIZATION_JOB_LABEL) == job.name
        if is_made_of_it and not experiment.metadata.owner_references:
            return JobPlan(job.status, adopt=True)
        message = f"Experiment {experiment.name} is there and not of this job; delete it, or use another name"
        return JobPlan(failed(job.status, CREATION_FAILED, message, now))
    status, suspend = _suspension(job, now)
    if conditions.has_ended(experiment.status.conditions):
        suspend = None
    return JobPlan(_followed(status, experiment, now), suspend=suspend)


def failed(status: OptimizationJobStatus, reason: str, message: str, now: datetime) -> OptimizationJobStatus:
    return _with(status, FAILED, reason, message, now)


def _suspension(job: OptimizationJob, now: datetime) -> tuple[OptimizationJobStatus, bool | None]:
    """Return the status with Suspended, once it was suspended, and the change to make to its Experiment."""
    found = find_condition(job.status.conditions, SUSPENDED)
    is_on = is_true(job.status.conditions, SUSPENDED)
    if job.spec.suspend and not is_on:
        return _with(
            job.status, SUSPENDED, _SUSPENDING, "No trial starts; those that run are suspended next", now
        ), None
    if job.spec.suspend and found is not None and found.reason == _SUSPENDING:
        return _with(job.status, SUSPENDED, "Suspended", "No trial starts, and those that run are suspended", now), True
    if is_on and not job.spec.suspend:
        return _with(job.status, SUSPENDED, "Resumed", "The job continues", now, holds=False), False
    return job.status, None


def _followed(status: OptimizationJobStatus, experiment: Experiment, now: datetime) -> OptimizationJobStatus:
    status = _with(status, CREATED, EXPERIMENT_CREATED, f"Experiment {experiment.name} runs the trials", now)
    best = experiment.status.current_optimal_trial
    if best.best_trial_name:
        result = JobResult(train_job_name=best.best_trial_name, parameters=best.parameter_assignments)
        status = status if result == status.result else structs.replace(status, result=result)
    for ended, type_ in ((ExperimentCondition.SUCCEEDED, COMPLETE), (ExperimentCondition.FAILED, FAILED)):
        end = find_condition(experiment.status.conditions, ended)
        if end is not None and end.status == ConditionStatus.TRUE:
            return _with(status, type_, _REASONS.get(end.reason, end.reason), end.message, now)
    return status


def _with(
    status: OptimizationJobStatus, type_: str, reason: str, message: str, now: datetime, *, holds: bool = True
) -> OptimizationJobStatus:
    """Return a status with a condition in the form of Kubernetes, without the time of the last update."""
    new = set_condition(status.conditions, type_, reason, message, now, holds=holds)
    if new is status.conditions:
        return status
    plain = tuple(structs.replace(condition, last_update_time=None) for condition in new)
    return structs.replace(status, conditions=plain)
