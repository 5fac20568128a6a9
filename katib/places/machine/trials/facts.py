"""State of one machine beyond its objects: jobs with their output, services, and whether an engine runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from katib.engine.controllers.kinds import POD, key_of
from katib.engine.runtime.objects import Key, Kind, ObjectStore
from katib.errors import NotFoundError
from katib.model.names import TRIAL_LABEL
from katib.model.types import Experiment, Suggestion, Trial
from katib.places.machine.layout import Layout
from katib.places.machine.pods.plans import PULLING
from katib.places.machine.processes.remains import RECORD_FILE, is_engine_at_work
from katib.places.machine.trials.output import TrialOutput
from katib.service.explaining.diagnostician import attempt_of
from katib.service.explaining.evidence import LOCAL, JobFacts, ServiceFacts
from katib.service.explaining.replicas import failed_replica
from katib.service.tuning.replicas import is_over, last_failure, replica_name, waiting_words
from katib.service.tuning.service import Json
from katib.service.tuning.states import failure_of

if TYPE_CHECKING:  # a data directory is explained without either
    from katib.places.machine.jobs.controller import JobController
    from katib.places.machine.services.host import ServiceHost

_LOG_LINES = 12
_PULL_FIRST = "Wait for it; a large image is better pulled before the run (podman pull, docker pull)."


class LocalFacts:
    """State of a data directory, from its engine or without one.

    Implements `katib.service.explaining.diagnostician.HomeFacts`.

    Args:
        jobs: Runs the jobs; None if this process is not the engine.
        services: Runs the services; None if this process is not the engine.
    """

    place = LOCAL

    def __init__(
        self,
        store: ObjectStore,
        files: TrialOutput,
        layout: Layout,
        jobs: JobController | None = None,
        services: ServiceHost | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._layout = layout
        self._jobs = jobs
        self._services = services

    def waiting(self, job: Key) -> str:
        """Return why nothing of a job runs; empty if it runs or that is unknown."""
        return "" if self._jobs is None else self._jobs.waiting_reason(job.namespace, job.name)

    def services(self, asked: Suggestion | Experiment) -> Iterable[ServiceFacts]:
        """Yield the states of the services that an experiment waits for or uses."""
        for state in () if self._services is None else self._services.states_of(asked.namespace, asked.name):
            yield ServiceFacts(
                algorithm=state.service.algorithm,
                state=state.state,
                attempts=state.attempts,
                last_error=state.last_error,
                address=state.address,
            )

    def is_at_work(self) -> bool:
        """Return whether an engine works on the data directory."""
        return self._jobs is not None or is_engine_at_work(self._layout.run / RECORD_FILE)

    def disk_is_full(self) -> bool:
        return self._layout.is_full()

    def job(self, trial: Trial) -> JobFacts:
        job = None
        with suppress(NotFoundError):
            job = dict(self._store.get(Kind.of(trial.spec.run_spec or {}), key_of(trial)))
        stored = self._store.list(POD, trial.namespace, labels={TRIAL_LABEL: trial.name}).items
        pods = tuple(map(dict, stored or self._files.past_pods(trial)))
        cause = failure_of(trial)
        replica, container = _source(trial, failed_replica(pods, cause), cause, self._files)
        tail = self._files.tail(trial, _LOG_LINES, replica, container)
        program, in_image = self._files.program(trial)
        known = JobFacts(log_tail=tail, log_container=container, program=program, in_image=in_image, pods=pods)
        if job is None:
            return known
        reason, remedy = self.waiting(Key.of(job)), ""
        waits = (waiting_words(pod) for pod in pods if not is_over(pod))
        pulling = next((words for words in waits if words.startswith(PULLING)), "")
        if pulling:
            reason, remedy = f"is {pulling}", _PULL_FIRST
        waiting = f"its job {reason}" if reason.startswith(("waits ", "is ")) else reason
        runs = self._jobs is not None and self._jobs.runs_program(Key.of(job))
        return replace(known, job=job, waiting=waiting, remedy=remedy, runs=runs, attempt=attempt_of(job))


def _source(trial: Trial, failed: Json | None, cause: str, files: TrialOutput) -> tuple[str, str]:
    """Return the output that explains the end of a trial: replica and container, empty for the primary one."""
    if failed is None:
        return "", files.container_quoted(trial, cause) if cause else ""
    container = str(last_failure(failed).get("name", ""))
    return replica_name(failed), "" if container == trial.spec.primary_container_name else container
