"""Gathers what is known about an experiment or a trial, and has it explained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from katib.api.metrics import MetricLog
from katib.api.names import EXPERIMENT_LABEL
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.diagnosis import Evidence, JobFacts, ServiceFacts, diagnose_experiment, diagnose_trial
from katib.engine.trial_files import TrialFiles
from katib.errors import NotFoundError
from katib.observations.ports import ObservationReader
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.stores.events import EventLog, EventSubject
from katib.tuning.reading import is_completed, state_of
from katib.tuning.service import Diagnosis, Json, RecordedEvent

JOB = Kind("batch/v1", "Job")

_SAMPLE = 50
"""Ended trials that are looked at; counts come from the experiment's status."""
_LOG_LINES = 12
_UNEXPLAINED = ("Pending", "Running", "Failed", "MetricsUnavailable")

JobState = Callable[[Object], JobFacts]
ServiceState = Callable[[str, str], Iterable[ServiceFacts]]


class Diagnostician:
    """Explains from the stores, and from the runner and the services where an engine is at work.

    Args:
        store: Objects.
        observations: Metrics.
        events: Notable moments.
        files: Output of trials.
        clock: Tells now.
        job_state: What the runner knows of a job; None when no engine runs here.
        service_state: What is known of the services of an experiment (namespace, name).
        is_at_work: Whether an engine works on the objects, here or in another process.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        observations: ObservationReader,
        events: EventLog,
        files: TrialFiles,
        clock: Clock,
        job_state: JobState | None = None,
        service_state: ServiceState | None = None,
        is_at_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._observations = observations
        self._events = events
        self._files = files
        self._clock = clock
        self._job_state = job_state
        self._service_state = service_state
        self._is_at_work = is_at_work

    def explain(self, namespace: str, name: str) -> Diagnosis:
        """Explain an experiment, or a trial of that name.

        Raises:
            NotFoundError: There is neither.
        """
        key = Key(namespace, name)
        experiment = self._find(EXPERIMENT, key)
        if experiment is not None:
            trials = [dict(t) for t in self._trials_of(key)]
            return diagnose_experiment(experiment, self._evidence(experiment, _sample(trials)))
        trial = self._find(TRIAL, key)
        if trial is None:
            raise NotFoundError(f'neither an experiment nor a trial "{name}" is in namespace {namespace}')
        owner = (trial["metadata"].get("labels") or {}).get(EXPERIMENT_LABEL, "")
        return diagnose_trial(trial, self._evidence(self._find(EXPERIMENT, Key(namespace, owner)), [trial]))

    def _evidence(self, experiment: Json | None, trials: list[Json]) -> Evidence:
        key = Key.of(experiment) if experiment is not None else Key("", "")
        status = (experiment or {}).get("status") or {}
        best = status.get("currentOptimalTrial", {}).get("bestTrialName", "")
        doubtful = [trial for trial in trials if state_of(trial) in _UNEXPLAINED]
        newest = {Key.of(trial).name: self._newest(trial) for trial in trials}
        return Evidence(
            now=self._clock.now(),
            experiment=experiment,
            suggestion=self._find(SUGGESTION, key) if experiment is not None else None,
            trials=trials,
            best=self._find(TRIAL, Key(key.namespace, best)) if best else None,
            jobs={Key.of(trial).name: self._job_facts(trial) for trial in doubtful},
            services=tuple(self._service_state(*key)) if self._service_state and experiment is not None else (),
            events=self._events_of(key),
            readings={name: reading for name, (reading, _) in newest.items() if reading is not None},
            reading_counts={name: count for name, (_, count) in newest.items()},
            controllers_running=self._is_at_work(),
        )

    def _job_facts(self, trial: Json) -> JobFacts:
        key = Key.of(trial)
        job = self._find(Kind.of(trial["spec"].get("runSpec") or {}), key)
        tail = self._files.tail(key, trial["spec"].get("primaryContainerName", ""), _LOG_LINES)
        if job is None or self._job_state is None:
            return JobFacts(job=job, log_tail=tail)
        facts = self._job_state(job)
        return JobFacts(
            job=job,
            waiting=facts.waiting,
            attempt=facts.attempt,
            retry_at=facts.retry_at,
            exit_code=facts.exit_code,
            signal=facts.signal,
            log_tail=tail,
        )

    def _newest(self, trial: Json) -> tuple[MetricLog | None, int]:
        """Return the newest reading of the objective metric and how many there are, of a trial that still runs."""
        metric = (trial["spec"].get("objective") or {}).get("objectiveMetricName", "")
        if is_completed(trial) or not metric:
            return None, 0
        count, newest, cursor = 0, None, ""
        while True:
            page, cursor = self._observations.read(Key.of(trial).name, metric_name=metric, limit=65536, cursor=cursor)
            count += len(page)
            newest = page[-1] if page else newest
            if not cursor:
                return newest, count

    def _events_of(self, key: Key) -> tuple[RecordedEvent, ...]:
        subject = EventSubject("Experiment", key.namespace, key.name, key.name)
        return tuple(
            RecordedEvent(e.time, e.subject.kind, e.subject.name, e.warning, e.reason, e.message, e.count)
            for e in self._events.of(subject)
        )

    def _trials_of(self, key: Key) -> tuple[Object, ...]:
        return self._store.list(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}).items

    def _find(self, kind: Kind, key: Key) -> Json | None:
        with suppress(NotFoundError):
            return dict(self._store.get(kind, key))
        return None


def _sample(trials: list[Json]) -> list[Json]:
    """Return all active trials and the newest ended ones, oldest first."""
    ended = [trial for trial in trials if is_completed(trial)][-_SAMPLE:]
    kept: Mapping[str, Json] = {Key.of(trial).name: trial for trial in ended}
    return [trial for trial in trials if not is_completed(trial) or Key.of(trial).name in kept]
