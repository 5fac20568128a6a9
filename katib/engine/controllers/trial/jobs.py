"""Jobs of trials: any kind, found through a cache if there is one, and judged by condition paths."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from katib.engine.controllers.job_caches import JobCaches
from katib.engine.controllers.kinds import owner_entry
from katib.engine.controllers.ports import NO_UPDATE, PodUpdate
from katib.engine.controllers.trial.plan import JobView, Judgment, had_job
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import FieldError, InvalidError, NotFoundError
from katib.model.defaults import holds
from katib.model.job_kinds import is_suspended, known_kind, retry_words
from katib.model.names import JOB_LABEL, METRICS_REPORT_ANNOTATION
from katib.model.templates.condition_path import parse
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Trial

_CACHED_PARTS = ("", "status", "metadata")
"""First keys of condition paths that a cache can answer; a cache need not keep the rest of a job."""

_LONGEST_LABEL = 63

NEVER_JOBS = frozenset(
    {
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("", "Secret"),
        ("", "Service"),
        ("", "ServiceAccount"),
        ("", "Event"),
        ("apps", "Deployment"),
        ("coordination.k8s.io", "Lease"),
        ("kubeflow.org", "Experiment"),
        ("kubeflow.org", "Suggestion"),
        ("kubeflow.org", "Trial"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
    }
)
"""Groups and kinds that controllers may create for their own needs. They never end, and as a trial's job each would
extend the rights of users that may create experiments: a volume, for example, exposes the disk of a node."""


class JobLook(NamedTuple):
    """Result of looking up a trial's job.

    Attributes:
        is_followed: Whether a cache shows every change that the trial's conditions read.
        is_stray: Whether it exists, but in no cache that would report its changes.
    """

    job: Object | None
    is_followed: bool = False
    is_stray: bool = False


class Jobs:
    """Looks up jobs.

    Attributes:
        tried: Uids of trials that may have a job whatever their status: earlier ones, and those for which one was
            created. `look` removes them once the status shows the job, or the trial has ended.

    Args:
        store: Read for kinds without a cache.
        caches: Informers of the kinds that trials run as.
    """

    def __init__(self, store: ObjectStore, caches: JobCaches) -> None:
        self._store = store
        self._caches = caches
        self.tried: set[str] = set()

    def look(self, trial: Trial) -> JobLook:
        """Return the job of a trial. A job of another owner does not count.

        A cache may omit jobs that have lost their label, or never had it. So an expected job that is in no cache is
        read by name before it counts as gone.
        """
        uid, is_active = trial.metadata.uid, trial_state(trial) in ACTIVE
        is_due = uid in self.tried or (is_active and had_job(trial))
        kind, key = place = job_place(trial)
        is_cached = _is_cached(trial.spec.success_condition, trial.spec.failure_condition)
        cache, strays = self._caches.synced(kind) if is_cached else None, self._caches.strays
        job = None if cache is None else cache.get(key)
        if job is not None:
            strays.discard(place)
        elif not check_job_kind(kind, "") and (cache is None or is_due or place in strays):
            job = self._live(kind, key)
            self._caches.follow(kind)
        if not is_active:
            self.tried.discard(uid)
        owners = () if job is None else job.get("metadata", {}).get("ownerReferences") or ()
        for owner in owners:
            if owner.get("uid") == uid:
                if had_job(trial):
                    self.tried.discard(uid)
                return JobLook(job, is_followed=cache is not None, is_stray=place in strays)
        return JobLook(None, is_followed=cache is not None)

    def find(self, trial: Trial) -> Object | None:
        return self.look(trial).job

    def _live(self, kind: Kind, key: Key) -> Object | None:
        try:
            job = self._store.get(kind, key)
        except NotFoundError:
            job = None
        # A job may be deleted between this answer and the first list of its informer, which then has no event for it.
        is_shown = job is None or (
            JOB_LABEL in (job["metadata"].get("labels") or {}) and self._caches.synced(kind) is not None
        )
        (self._caches.strays.discard if is_shown else self._caches.strays.add)((kind, key))
        return job


@lru_cache(maxsize=256)
def _is_cached(*conditions: str) -> bool:
    """Return whether a trial's conditions read only the cached parts of a job."""
    return not {path.partition(".")[0] for path in conditions}.difference(_CACHED_PARTS)


def job_place(trial: Trial) -> tuple[Kind, Key]:
    job, metadata = trial.spec.run_spec or {}, trial.metadata
    return Kind(job.get("apiVersion", ""), job.get("kind", "")), Key(metadata.namespace, metadata.name)


def job_of(trial: Trial) -> Object:
    """Return the job of a trial as created: with its name, in its namespace, and owned by it.

    Users may write trials, too: whatever their `runSpec` contains, it must not create anything in another namespace,
    nor a kind reserved to the product.

    Raises:
        InvalidError: The trial's `runSpec` is not a job.
    """
    run_spec = trial.spec.run_spec or {}
    errors = check_job_kind(job_place(trial)[0], "spec.runSpec")
    if errors:
        raise InvalidError(errors)
    metadata = dict(run_spec.get("metadata") or {})
    labels = metadata.get("labels") or {}
    if len(trial.name) <= _LONGEST_LABEL and isinstance(labels, Mapping):  # else the trial was written by hand
        metadata["labels"] = {**labels, JOB_LABEL: trial.name}
    metadata |= {"name": trial.name, "namespace": trial.namespace, "ownerReferences": [owner_entry(trial)]}
    return {**run_spec, "metadata": metadata}


def check_job_kind(kind: Kind, path: str) -> list[FieldError]:
    """Return the errors of a kind for trials; none for almost any kind.

    A kind that is not text is reported elsewhere.
    """
    named: tuple[object, object] = kind  # as written, possibly not text
    is_named = isinstance(named[0], str) and isinstance(named[1], str)
    if not is_named or (kind.api_version.rpartition("/")[0], kind.kind) not in NEVER_JOBS:
        return []
    remedy = "give an object that runs to an end, such as a Job"
    return [FieldError(f"{path}.kind", f"{kind.kind} is not a job", remedy, "job-kind")]


def view_of(job: Object, trial: Trial, seen_ended_at: datetime, update: PodUpdate = NO_UPDATE) -> JobView:
    """Return the view of a job, judged by the trial's two conditions.

    If nothing is known of its pods, a job runs as soon as its controller has written a status; one of an unknown kind,
    as soon as it exists.

    Args:
        seen_ended_at: When it was first seen ended, now if this is the first time; used for a kind that does not record
            its end.
    """
    judgments = []
    for path in (trial.spec.failure_condition, trial.spec.success_condition):
        satisfied = parse(path).evaluate(job) if path else None
        judgments.append(None if satisfied is None else Judgment(satisfied.reason, satisfied.message))
    failed, succeeded = judgments
    if failed is None and succeeded is None and trial.spec.success_condition:
        failed = _unjudged(job, trial)
    ended = failed is not None or succeeded is not None
    annotations = job.get("metadata", {}).get("annotations") or {}
    is_taken_up = bool(job.get("status")) or known_kind(trial.spec.run_spec or {}) is None
    suspended = is_suspended(job)
    runs = is_taken_up and not update.waiting and not suspended if update.runs is None else update.runs
    return JobView(
        failed=failed,
        succeeded=succeeded,
        began_at=_time((job.get("status") or {}).get("startTime")) if ended else None,
        ended_at=_end_of(job, seen_ended_at) if ended else None,
        metrics_report=annotations.get(METRICS_REPORT_ANNOTATION, "") or update.metrics_report,
        retrying=retry_words(job, trial.spec.run_spec, update.last_failure, update.restarts),
        waiting=update.waiting,
        is_trouble=update.is_trouble,
        suspended=suspended,
        queued=update.queued,
        runs=runs,
        place=update.place,
        last_failure=update.last_failure,
        restarts=update.restarts,
        collecting=update.collecting,
        incomplete=update.incomplete,
        lost=update.lost,
        uncollected=update.uncollected,
        refusal=update.refusal,
        is_going="deletionTimestamp" in job.get("metadata", {}),
    )


def _unjudged(job: Object, trial: Trial) -> Judgment | None:
    """Return the failure of a trial whose job has ended while neither condition holds; they never will."""
    known = known_kind(trial.spec.run_spec or {})
    for condition in (job.get("status") or {}).get("conditions") or () if known is not None else ():
        type_ = condition.get("type")
        if known is None or condition.get("status") != "True" or type_ not in (known.success, "Failed"):
            continue
        if type_ == "Failed":
            return Judgment(str(condition.get("reason", "")), str(condition.get("message", "")))
        both = f"neither successCondition, {trial.spec.success_condition}, nor failureCondition holds"
        remedy = f"leave successCondition out, or write {holds(type_)}"
        return Judgment("ConditionsNeverHold", f"its {Kind.of(job).kind} is {type_}, but {both}; {remedy}")
    return None


def _end_of(job: Object, seen_ended_at: datetime) -> datetime:
    """Return the end of the job: its completion time, else its last transition, else when it was first seen."""
    status = job.get("status") or {}
    conditions = status.get("conditions")
    last = conditions[-1] if isinstance(conditions, list) and conditions else {}
    for text in (status.get("completionTime"), last.get("lastTransitionTime") if isinstance(last, dict) else None):
        if (time := _time(text)) is not None:
            return time
    return seen_ended_at


def _time(text: object) -> datetime | None:
    """Return a time in a job's status, None for anything else: foreign kinds may hold any value there."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if isinstance(text, str) else None
    except ValueError:
        return None
