"""What one machine knows of jobs beyond their objects: what their controller says, and the end of their output."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from katib.api.names import TRIAL_LABEL
from katib.api.types import Trial
from katib.errors import NotFoundError
from katib.explaining import JobFacts
from katib.explaining.diagnostician import attempt_of
from katib.explaining.replicas import failed_replica
from katib.local.pods.objects import PULLING
from katib.local.trials.files import TrialFiles
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.tuning.reading import failure_of
from katib.tuning.replicas import POD, is_over, last_failure, replica_name, waiting_words
from katib.tuning.service import Json

_LOG_LINES = 12
_PULL_FIRST = "Wait for it; a large image is better pulled before the run (podman pull, docker pull)."


class LocalJobs:
    """Gathers the facts of a trial's job. Fits `katib.explaining.diagnostician.JobFactsOf`.

    Args:
        store: Objects.
        files: Output of trials.
        waiting: Why nothing of a job runs, given its namespace and name; empty when it runs or no engine is at work.
    """

    def __init__(
        self, store: ObjectStore, files: TrialFiles, waiting: Callable[[str, str], str] = lambda _namespace, _name: ""
    ) -> None:
        self._store = store
        self._files = files
        self._waiting = waiting

    def __call__(self, of: Trial) -> JobFacts:
        """Return what is known of the job of a Trial."""
        trial = of.encode()
        job = None
        with suppress(NotFoundError):
            job = dict(self._store.get(Kind.of(trial["spec"].get("runSpec") or {}), Key.of(trial)))
        pods = self._pods(trial)
        cause = failure_of(of)
        replica, container = _source(trial, failed_replica(pods, cause), cause, self._files)
        tail = self._files.tail(trial, _LOG_LINES, replica, container)
        program, in_image = self._files.program(trial)
        known = JobFacts(log_tail=tail, log_container=container, program=program, in_image=in_image, pods=pods)
        if job is None:
            return known
        reason, remedy = self._waiting(*Key.of(job)), ""
        pulling = next((words for pod in pods if not is_over(pod) and (words := _pulling(pod))), "")
        if pulling:
            reason, remedy = f"is {pulling}", _PULL_FIRST
        waiting = f"its job {reason}" if reason.startswith(("waits ", "is ")) else reason
        return replace(known, job=job, waiting=waiting, remedy=remedy, attempt=attempt_of(job))

    def _pods(self, trial: Object) -> tuple[Json, ...]:
        key = Key.of(trial)
        found = self._store.list(POD, key.namespace, labels={TRIAL_LABEL: key.name}).items
        return tuple(map(dict, found or self._files.past_pods(trial)))


def _source(trial: Object, failed: Json | None, cause: str, files: TrialFiles) -> tuple[str, str]:
    """Return whose output explains the end of a trial: a replica and a container, empty for the primary one."""
    primary = str(trial["spec"].get("primaryContainerName", ""))
    if failed is None:
        return "", files.container_quoted(trial, cause) if cause else ""
    container = str(last_failure(failed).get("name", ""))
    return replica_name(failed), "" if container == primary else container


def _pulling(pod: Json) -> str:
    words = waiting_words(pod)
    return words if words.startswith(PULLING) else ""
