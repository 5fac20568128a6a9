"""Gathers the evidence about an experiment or a trial, and explains it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from msgspec import structs

from katib.engine.controllers.kinds import OPTIMIZATION_JOB, TRIAL, key_of
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import ForbiddenError, KindNotInstalledError, NotFoundError, UnavailableError
from katib.model.metrics import PROGRESS, MetricLog, ObservationReader
from katib.model.names import ALGORITHM_ANNOTATION, EXPERIMENT_LABEL
from katib.model.optimization_jobs import other_manager
from katib.model.types import API_VERSION, Experiment, Resource, Suggestion, Trial
from katib.model.types.optimization import OptimizationJob
from katib.service.explaining.answer import SAVINGS_SAMPLE, DiagnosisDraft, saved_share, savings_sentence
from katib.service.explaining.evidence import Evidence, HomeTerms, JobFacts, ServiceFacts
from katib.service.explaining.experiment import diagnose_experiment
from katib.service.explaining.trial import diagnose_trial
from katib.service.tuning.ports import Records
from katib.service.tuning.reading import metric_of
from katib.service.tuning.service import Diagnosis, RecordedEvent
from katib.service.tuning.states import is_completed, state_of, stops_early
from katib.service.tuning.stored_reading import best_of, confirming_experiment, findings_of, with_confirmed_best


def diagnose_optimization_job(job: OptimizationJob, evidence: Evidence) -> Diagnosis:
    """Return why there is no Experiment for an OptimizationJob."""
    last, place = next(reversed(job.status.conditions), None), evidence.place
    if other := other_manager(job):
        answer = DiagnosisDraft(f"Another controller works on OptimizationJob {job.name}: {other}.")
        if last is not None:
            answer.findings.append(f"It says: {last.message or last.type} ({last.reason}).")
    elif last is not None:
        answer = DiagnosisDraft(f"OptimizationJob {job.name}: {last.message or last.type} ({last.reason}).")
    elif place.needs_annotation and ALGORITHM_ANNOTATION not in job.metadata.annotations:
        answer = DiagnosisDraft(
            f"Nobody works on OptimizationJob {job.name}: it has no annotation {ALGORITHM_ANNOTATION}."
        )
        answer.findings.append("Without the annotation it is left to Kubeflow Trainer, whose controller wrote nothing.")
        space = f" --namespace {job.namespace}"
        answer.remedies.append(
            f"`kubectl annotate optimizationjob {job.name}{space} {ALGORITHM_ANNOTATION}=random` has it run as its "
            "searchAlgorithm says; any other algorithm, such as tpe, takes the place of it."
        )
    else:
        answer = DiagnosisDraft(f"OptimizationJob {job.name} has no experiment yet.")
        if not evidence.controllers_running:
            answer.findings.append(f"Nobody works on it: {place.idle}.")
            answer.remedies.append(place.start)
        elif place.needs_annotation:
            answer.remedies.append(
                "If this lasts, apply manifests/components/optimization-jobs and restart the controller: it looks for "
                "the kind when it starts to lead."
            )
    return answer.diagnosis("OptimizationJob", job.name, last.type if last is not None else "")


_SAMPLE = 50
"""Sample size of ended trials; counts come from the experiment's status."""
_DETAILED = 20
"""Limit of trials whose jobs and output are read: more would cost a request each and not change the answer."""
_UNEXPLAINED = ("Pending", "Running", "Failed", "MetricsUnavailable")

R = TypeVar("R", bound=Resource)


class HomeFacts(Protocol):
    """State of jobs and services in one home, beyond the stored objects. Thread-safe."""

    @property
    def place(self) -> HomeTerms:
        """The home's terms for a diagnosis."""

    def job(self, trial: Trial) -> JobFacts:
        """Return the state of the job of a Trial."""

    def services(self, asked: Suggestion | Experiment) -> Iterable[ServiceFacts]:
        """Return the states of the services of a Suggestion, or of an Experiment that has none yet."""

    def is_at_work(self) -> bool:
        """Return whether controllers work on the objects, here or elsewhere."""

    def disk_is_full(self) -> bool:
        """Return whether the disk is full; then events are not stored, and cannot report it."""


class Diagnostician:
    """Explains experiments and trials from the stores and the home. Implements `katib.service.tuning.ports.Explain`.

    Evidence that is unavailable or forbidden is left out of the answer.
    """

    def __init__(self, records: Records, facts: HomeFacts, clock: Clock) -> None:
        self._store = records.store
        self._observations = records.observations
        self._events = records.events
        self._facts = facts
        self._clock = clock

    def explain(self, namespace: str, name: str) -> Diagnosis:
        """Explain the experiment, trial, or OptimizationJob without an experiment, of that name.

        Raises:
            NotFoundError: There is none.
        """
        key = Key(namespace, name)
        experiment = self._find(Experiment, key)
        if experiment is not None:
            experiment = with_confirmed_best(self._store, experiment, confirming_experiment(self._store, experiment))
            sample = _sample(self._trials_of(key))
            diagnosis = diagnose_experiment(experiment, self._evidence(experiment, sample.trials))
            share = self._saved_share(experiment, sample)
            return structs.replace(diagnosis, savings=savings_sentence(experiment, share), saved_share=share)
        trial = self._find(Trial, key)
        if trial is None:
            with suppress(NotFoundError, ForbiddenError, KindNotInstalledError):
                job = OptimizationJob.read(self._store.get(OPTIMIZATION_JOB, key))
                return diagnose_optimization_job(job, self._evidence(None, []))
            raise NotFoundError(f'neither an experiment nor a trial "{name}" is in namespace {namespace}')
        owner = trial.metadata.labels.get(EXPERIMENT_LABEL, "")
        return diagnose_trial(trial, self._evidence(self._find(Experiment, Key(namespace, owner)), [trial]))

    def _trials_of(self, experiment: Key) -> Iterator[Trial]:
        for page in self._store.pages(TRIAL, experiment.namespace, labels={EXPERIMENT_LABEL: experiment.name}):
            yield from map(Trial.read, page.items)

    def _evidence(self, experiment: Experiment | None, trials: list[Trial]) -> Evidence:
        key = Key("", "") if experiment is None else key_of(experiment)
        suggestion = self._find(Suggestion, key) if experiment is not None else None
        readings = _Readings(self._observations, trials)
        return Evidence(
            now=self._clock.now(),
            experiment=experiment,
            suggestion=suggestion,
            trials=trials,
            best=None if experiment is None else best_of(self._store, experiment),
            jobs={trial.name: self._facts.job(trial) for trial in _doubtful(trials)},
            services=self._services_of(suggestion, experiment),
            events=self._events_of(key),
            readings=readings.newest,
            reading_counts=readings.counts,
            progress=readings.progress,
            readings_error=readings.error,
            controllers_running=self._facts.is_at_work(),
            disk_is_full=self._facts.disk_is_full(),
            confirmation=None if experiment is None else findings_of(self._store, experiment),
            place=self._facts.place,
        )

    def _saved_share(self, experiment: Experiment, sample: _Sample) -> float | None:
        """Return the share of readings saved by early stopping; None if unknown."""
        status = experiment.status
        if not (stops_early(experiment) or status.trials_early_stopped):  # as imported trials were
            return None
        with suppress(ForbiddenError, UnavailableError):
            stopped, complete = map(self._reading_counts, (sample.stopped, sample.succeeded))
            return saved_share(stopped, complete, stopped=status.trials_early_stopped, complete=status.trials_succeeded)
        return None

    def _reading_counts(self, trials: Iterable[Trial]) -> list[int]:
        """Return the number of readings of the objective per trial."""
        return [
            self._observations.within(trial.namespace).count(trial.name, metric_name=metric_of(trial))
            for trial in trials
        ]

    def _services_of(self, suggestion: Suggestion | None, experiment: Experiment | None) -> tuple[ServiceFacts, ...]:
        """Return the services of a suggestion, or of the experiment of the same name before the suggestion exists."""
        asked = suggestion or experiment
        return () if asked is None else tuple(self._facts.services(asked))

    def _events_of(self, key: Key) -> tuple[RecordedEvent, ...]:
        with suppress(ForbiddenError, UnavailableError):
            return tuple(self._events.events_of("Experiment", key.namespace, key.name)) if key.name else ()
        return ()

    def _find(self, kind: type[R], key: Key) -> R | None:
        with suppress(NotFoundError):
            return kind.read(self._store.get(Kind(API_VERSION, kind.__name__), key))
        return None


class _Readings:
    """Of every running trial: the newest reading of its objective, the number of readings, and its progress."""

    def __init__(self, observations: ObservationReader, trials: list[Trial]) -> None:
        self._observations = observations
        self.newest: dict[str, MetricLog] = {}
        self.counts: dict[str, int] = {}
        self.progress: dict[str, str] = {}
        self.error = ""
        for trial in trials:
            metric = metric_of(trial)
            if metric and not is_completed(trial) and not self.error:
                self._read(key_of(trial), metric)

    def _read(self, key: Key, metric: str) -> None:
        log, trial = self._observations.within(key.namespace), key.name
        try:
            newest = log.newest(trial, limit=1, metric_name=metric)
            if newest:
                self.newest[trial] = newest[-1]
                self.counts[trial] = log.count(trial, metric_name=metric)
            if progress := log.newest(trial, limit=1, metric_name=PROGRESS):
                self.progress[trial] = progress[-1].value
        except (UnavailableError, ForbiddenError) as error:
            self.error = str(error)


class _Sample(NamedTuple):
    """Sample of the trials of an experiment.

    Attributes:
        trials: All active ones and the newest ended ones, oldest first.
        stopped: The newest that were stopped early.
    """

    trials: list[Trial]
    stopped: list[Trial]
    succeeded: list[Trial]


def _sample(trials: Iterable[Trial]) -> _Sample:
    """Sample trials, which come oldest first, in one pass that holds no more than the result."""
    active: list[tuple[int, Trial]] = []
    ended: deque[tuple[int, Trial]] = deque(maxlen=_SAMPLE)
    newest: dict[str, deque[Trial]] = {state: deque(maxlen=SAVINGS_SAMPLE) for state in ("EarlyStopped", "Succeeded")}
    for number, trial in enumerate(trials):
        (ended if is_completed(trial) else active).append((number, trial))
        if (state := state_of(trial)) in newest:
            newest[state].append(trial)
    chosen = sorted([*active, *ended], key=lambda pair: pair[0])
    return _Sample([trial for _, trial in chosen], *map(list, newest.values()))


def _doubtful(trials: list[Trial]) -> list[Trial]:
    """Return the trials whose jobs explain the state: the first active ones, then the newest that brought no value."""
    unexplained = [trial for trial in trials if state_of(trial) in _UNEXPLAINED]
    active = [trial for trial in unexplained if not is_completed(trial)][:_DETAILED]
    lost = [trial for trial in unexplained if is_completed(trial)][-_DETAILED:]
    return active + lost


def attempt_of(job: Object) -> int:
    """Return the current or last attempt of a batch Job; 1 if unknown."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    if (spec.get("completions") or 1) != 1 or (spec.get("parallelism") or 1) != 1:
        return 1  # several pods run intentionally, and each of them counts
    failed, active = status.get("failed"), status.get("active")
    count = failed if isinstance(failed, int) else 0
    return max(1, count + (1 if active else 0))
