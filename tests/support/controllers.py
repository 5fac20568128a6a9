"""A world for the controllers: real informers, queues and store, with services and jobs that answer at once.

The fakes are in memory and differ from the real thing in this: a service proposes 0.001 times the number of the
assignment for every parameter, never takes time unless told to, and keeps no state; a job ends as soon as it is
created, with the readings that the test's script gives for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from katib.engine.controllers.assembly import Ports, Queues, assemble
from katib.engine.controllers.caches import Caches
from katib.engine.controllers.job_caches import identity
from katib.engine.controllers.kinds import EXPERIMENT, OPTIMIZATION_JOB, SUGGESTION, TRIAL
from katib.engine.controllers.ports import GivenRules, PodWatcher, StopVerdict, SuggestionService, SuggestionsReply
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.errors import ConflictError, KatibError, NotFoundError
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.names import METRICS_REPORT_ANNOTATION
from katib.model.types import (
    EarlyStoppingRule,
    Experiment,
    ParameterAssignment,
    Resource,
    Suggestion,
    Trial,
    TrialAssignment,
)
from tests.support.memory_store import MemoryStore
from tests.support.observations import MemoryObservationLog
from tests.support.waiting import PATIENCE_SECONDS, eventually

JOB = Kind("batch/v1", "Job")
NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ends: conditions as the runner writes them, and the objective readings it leaves."""

    type: str = "Complete"
    reason: str = "CompletionsReached"
    message: str = ""
    readings: tuple[str, ...] = ("0.5",)
    report: str = ""
    ends: bool = True


Script = Callable[[Trial], JobEnd]


def a_reply(first: int, count: int, names: Sequence[str] = ("lr",)) -> SuggestionsReply:
    """Return assignments number `first`, `first + 1`, ... of the fake service."""
    return SuggestionsReply(
        tuple(
            TrialAssignment(
                parameter_assignments=tuple(
                    ParameterAssignment(name=name, value=f"{0.01 + 0.001 * (first + i):.3f}") for name in names
                )
            )
            for i in range(count)
        )
    )


@dataclass
class FakeServices:
    """A directory with one service for all; each answer can be overridden by the test."""

    answer: Callable[[int, int], SuggestionsReply] = field(default=a_reply)
    refuse: KatibError | None = None
    rules: tuple[EarlyStoppingRule, ...] = ()
    judgment: Callable[[Sequence[Trial]], tuple[StopVerdict, ...] | None] = field(default=lambda _trials: None)
    """What is said of running trials; None: the service does not judge."""
    judged: int = 0
    requests: list[tuple[int, int, int]] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)
    """The earlier trials that were given with the last question."""
    released: list[str] = field(default_factory=list)
    reads_history: bool = True
    waits: str | None = None
    """What the service waits for: it is ready when this is None, and merely starts when it is empty."""

    def service_for(self, _experiment: Experiment) -> SuggestionService | None:
        return self if self.waits is None else None

    def waiting_for(self, _experiment: Experiment) -> str:
        return self.waits or ""

    def release(self, experiment: Experiment) -> None:
        self.released.append(experiment.name)

    def validate(self, _experiment: Experiment) -> Future[None]:
        return _future(self._validated)

    def _validated(self) -> None:
        if self.refuse is not None:
            raise self.refuse

    def get_suggestions(
        self,
        _experiment: Experiment,
        trials: Sequence[Trial],
        *,
        current_request: int,
        total_request: int,
        earlier: Sequence[Trial] = (),
    ) -> Future[SuggestionsReply]:
        self.earlier = [trial.name for trial in earlier]
        self.requests.append((current_request, total_request, len(trials)))
        return _future(lambda: self.answer(total_request - current_request, current_request))

    def get_early_stopping_rules(
        self, _experiment: Experiment, _trials: Sequence[Trial]
    ) -> Future[tuple[EarlyStoppingRule, ...]]:
        return _future(lambda: self.rules)

    def judges(self, _experiment: Experiment) -> Future[bool]:
        return _future(lambda: self.judgment(()) is not None)

    def judge(self, _experiment: Experiment, trials: Sequence[Trial]) -> Future[tuple[StopVerdict, ...] | None]:
        self.judged += 1
        return _future(lambda: self.judgment(trials))


def _future(compute: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(compute())
    except KatibError as error:
        future.set_exception(error)
    return future


@dataclass
class RecordedEvents:
    """Events in memory."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        del warning
        self.events.append((obj.name, reason, message))

    def reasons(self) -> set[str]:
        return {reason for _, reason, _ in self.events}


class World:
    """One running set of controllers over a store; a context manager.

    Args:
        store: Where objects are; a new world over an old store is a restart.
        script: How the job of a trial ends.
        trial_logs: What the controllers ask about `observations`; with a pool, as across a network.
        through: Wraps the store that the controllers see, to make it fail.
        caches_of: Makes the caches of the store that the controllers see.
        thread: Where all controllers take turns; None: they have threads of their own.
        given_rules: Evaluates the rules that trials were given.
        pods: What the pods of jobs say.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        script: Script = lambda _trial: JobEnd(),
        *,
        services: FakeServices | None = None,
        observations: MemoryObservationLog | None = None,
        trial_logs: TrialLogs | None = None,
        observation_pool: Executor | None = None,
        settings: ControllerSettings | None = None,
        through: Callable[[ObjectStore], ObjectStore] = lambda store: store,
        caches_of: Callable[[ObjectStore, Clock], Caches] = lambda store, clock: Caches.of(store, [JOB], clock),
        thread: SharedThread | None = None,
        given_rules: GivenRules | None = None,
        pods: PodWatcher | None = None,
    ) -> None:
        self.clock = SystemClock()
        self.store = store or new_store()
        self.observations = observations or MemoryObservationLog()
        self.services = services or FakeServices()
        self.events = RecordedEvents()
        self._script = script
        seen = through(self.store)
        self.caches = caches_of(self.store, self.clock)
        self._queues = Queues.of(self.clock)
        self._manager = assemble(
            seen,
            self.caches,
            self._queues,
            Ports(
                services=self.services,
                logs=trial_logs or TrialLogs(self.observations),
                log_pool=observation_pool,
                events=self.events,
                given_rules=lambda: given_rules,
                pods=pods,
            ),
            self.clock,
            settings=settings,
            thread=thread,
        )
        self._jobs: Informer[Object] = Informer(self.store, JOB, identity, clock=self.clock)
        self._jobs.add_handler(self._job_changed)

    def __enter__(self) -> Self:
        self._manager.start()
        self._jobs.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._jobs.stop()
        self._manager.stop()

    def wake(self, name: str) -> None:
        self._queues.wake_suggestion(NAMESPACE, name)

    def wake_trial(self, name: str) -> None:
        self._queues.trials.add(Key(NAMESPACE, name))

    # --- the user ---------------------------------------------------------------------------------------------------

    def submit(self, raw: dict[str, Any]) -> Experiment:
        return Experiment.decode(self.store.create(with_defaults(Experiment.decode(raw)).encode()))

    def experiment(self, name: str = "demo") -> Experiment:
        return decode_stored(self.store.get(EXPERIMENT, Key(NAMESPACE, name)))

    def suggestion(self, name: str = "demo") -> Suggestion:
        return Suggestion.decode(self.store.get(SUGGESTION, Key(NAMESPACE, name)))

    def trials(self) -> list[Trial]:
        return [Trial.decode(obj) for obj in self.store.list(TRIAL).items]

    def ended(self, name: str = "demo", within_seconds: float = PATIENCE_SECONDS) -> Experiment:
        """Return the experiment once it is over and all its trials are."""
        eventually(lambda: self.is_over(name) and self.at_rest(), seconds=within_seconds)
        return self.experiment(name)

    def is_over(self, name: str = "demo") -> bool:
        conditions = self.experiment(name).status.conditions
        return bool(conditions) and conditions[-1].type in ("Succeeded", "Failed")

    def at_rest(self) -> bool:
        """Whether no trial is active and no job is left."""
        return not self.store.list(JOB).items and all(
            trial.status.conditions and trial.status.completion_time is not None for trial in self.trials()
        )

    # --- the jobs ---------------------------------------------------------------------------------------------------

    def _job_changed(self, event: InformerEvent[Object]) -> None:
        job = event.new
        if job is None or (job.get("status") or {}).get("conditions"):
            return
        try:
            trial = Trial.decode(self.store.get(TRIAL, event.key))
            self.end_job(job, trial, self._script(trial))
        except (NotFoundError, ConflictError):
            return  # deleted, or changed: another event follows

    def finish_jobs(self) -> None:
        """Have all jobs end well, those that run and those to come."""
        self._script = lambda _trial: JobEnd()
        for job in self.store.list(JOB).items:
            if (job.get("status") or {}).get("conditions"):
                continue
            with suppress(NotFoundError, ConflictError):
                self.end_job(job, Trial.decode(self.store.get(TRIAL, Key.of(job))), JobEnd())

    def end_job(self, job: Object, trial: Trial, end: JobEnd) -> None:
        if not end.ends:
            if not job.get("status"):
                self.store.update_status({**job, "status": {"active": 1}})
            return
        objective = trial.spec.objective.objective_metric_name if trial.spec.objective else ""
        self.observations.delete(trial.name)
        self.observations.report(trial.name, [MetricLog(ZERO_TIME, objective, value) for value in end.readings])
        if end.report:
            annotations = {**job["metadata"].get("annotations", {}), METRICS_REPORT_ANNOTATION: end.report}
            job = self.store.update({**job, "metadata": {**job["metadata"], "annotations": annotations}})
        condition = {"type": end.type, "status": "True", "reason": end.reason, "message": end.message}
        self.store.update_status({**job, "status": {"conditions": [condition]}})


def new_store() -> MemoryStore:
    """Return an empty store that knows which of our kinds have a status of their own."""
    return MemoryStore({EXPERIMENT, SUGGESTION, TRIAL, OPTIMIZATION_JOB, JOB})
