"""Suspending the job of a trial, and letting it go on."""

from __future__ import annotations

from contextlib import suppress

from katib.api.job_kinds import IN_QUEUE, nested, suspend_field, value_at
from katib.api.names import PAUSED, PAUSED_ANNOTATION
from katib.api.trials import ACTIVE, trial_state, waiting_words
from katib.api.types import Trial
from katib.controllers.kinds import TRIAL
from katib.errors import NotFoundError, UnavailableError, invalid
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.tuning.writing import until_written


def suspend_trial(store: ObjectStore, key: Key, *, suspended: bool) -> Trial:
    """Set the field of a trial's job that suspends it, and note on the trial that a user did; return the Trial.

    The pods of a suspended job end, which is no failure, and another trial may run in its place. One that goes on
    starts its pods again, from the beginning or from a checkpoint.

    Args:
        store: Where the trial and its job are.
        key: Of the trial.
        suspended: Whether the job is to be suspended.

    Raises:
        InvalidError: The trial has ended, nothing suspends a job of its kind, or Kueue decides when it goes on.
        NotFoundError: There is no such trial.
        UnavailableError: Its job is not there yet, or not any more.
    """

    def attempt() -> Trial:
        found = store.get(TRIAL, key)
        trial = Trial.read(found)
        what = f"trial {key.name}"
        if trial_state(trial) not in ACTIVE:
            remedy = f"there is nothing to {'suspend' if suspended else 'resume'}"
            raise invalid(what, "it has ended", remedy, "suspend-ended")
        if (words := waiting_words(trial)).startswith(IN_QUEUE):
            remedy = "Kueue decides when it runs; to hold it back, set spec.active of its Workload to false"
            raise invalid(what, f"it {words.partition(':')[0]}", remedy, "suspend-queued")
        run_spec = trial.spec.run_spec or {}
        kind, path = Kind.of(run_spec), suspend_field(run_spec)
        if not path:
            cause = f"{kind.kind} ({kind.api_version}) has no field that suspends it"
            remedy = "only a Job, a JobSet, a TrainJob and the training jobs of kubeflow.org can be suspended"
            raise invalid(what, cause, remedy, "suspend-kind")
        job: Object = {}
        with suppress(NotFoundError):
            job = store.get(kind, key)
        owners = (job.get("metadata") or {}).get("ownerReferences") or ()
        if trial.metadata.uid not in (owner.get("uid") for owner in owners):
            raise UnavailableError(f"{what} has no {kind.kind} now; try again in a moment")
        if bool(value_at(job, path)) is not suspended:
            job = store.patch(job, nested(path, suspended))
        if bool(value_at(job, path)) is not suspended:
            cause = f"the API server dropped {'.'.join(path)} of its {kind.kind}, which it does not know"
            raise invalid(what, cause, "a newer Kubernetes or operator is needed for it", "suspend-unknown")
        if (PAUSED_ANNOTATION in trial.metadata.annotations) is suspended:
            return trial
        noted = {"metadata": {"annotations": {PAUSED_ANNOTATION: PAUSED if suspended else None}}}
        return Trial.read(store.patch(found, noted))

    return until_written(attempt, key.name, "try again")
