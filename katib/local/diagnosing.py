"""What one machine knows of jobs beyond their objects: what the runner says, and the end of their output."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from katib.diagnosis import JobFacts
from katib.diagnosis.diagnostician import attempt_of
from katib.errors import NotFoundError
from katib.local.trial_files import TrialFiles
from katib.runtime.objects import Key, Kind, Object, ObjectStore

_LOG_LINES = 12


class LocalJobs:
    """Gathers the facts of a trial's job. Fits `katib.diagnosis.diagnostician.JobFactsOf`.

    Args:
        store: Objects.
        files: Output of trials.
        waiting: Why nothing of a job runs, as the runner sees it; empty when it runs or no engine is at work.
    """

    def __init__(
        self, store: ObjectStore, files: TrialFiles, waiting: Callable[[Object], str] = lambda _job: ""
    ) -> None:
        self._store = store
        self._files = files
        self._waiting = waiting

    def __call__(self, trial: Object) -> JobFacts:
        """Return what is known of the job of a Trial."""
        job = None
        with suppress(NotFoundError):
            job = dict(self._store.get(Kind.of(trial["spec"].get("runSpec") or {}), Key.of(trial)))
        tail, program = self._files.tail(trial, _LOG_LINES), self._files.program(trial)
        if job is None:
            return JobFacts(log_tail=tail, program=program)
        reason = self._waiting(job)
        waiting = f"its job {reason}" if reason else ""
        return JobFacts(job=job, waiting=waiting, attempt=attempt_of(job), log_tail=tail, program=program)
