"""Callers that ask for a trial, served in the order in which they came.

Theory of operation. A request is answered in its own thread if a trial can be given at once. Otherwise it
waits in the line of its experiment, and one thread serves all lines whenever the store says that something has changed;
nothing looks again and again. A trial is given by one write: an assignment that waits becomes a trial with a lease, or
a trial whose lease has ended gets another one. Each compares: of two that give the same, one meets the other's write
and continues with the next. Waiting callers are counted in the experiment, so that so many assignments are made.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from katib.engine.controllers.experiment.plan import is_stopped
from katib.engine.controllers.experiment.trial_factory import trial_of
from katib.engine.controllers.kinds import EXPERIMENT, TRIAL, as_read, with_status
from katib.engine.controllers.trial.callers import CallersTrial, plan_callers_trial
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Object, ObjectStore, WholeWrites
from katib.errors import AlreadyExistsError, ConflictError, NotFoundError, invalid
from katib.model.conditions import has_ended
from katib.model.leases import Lease, fails_when_lost, lease_of, outcome_of
from katib.model.names import AHEAD_ANNOTATION, ASK_LABEL, ASKED_ANNOTATION, EXPERIMENT_LABEL, LEASE_ANNOTATION
from katib.model.trials import ahead_count, asked_count, is_asked, is_callers, is_chosen, trial_state
from katib.model.types import Experiment, Trial, TrialState
from katib.service.tuning.asked_view import AskedView
from katib.service.tuning.service import TrialForCaller
from katib.service.tuning.states import last_condition, running_condition
from katib.service.tuning.writing import until_written

_IDLE_SECONDS = 5.0
"""How long the thread that serves lines waits for more before it ends."""


@dataclass(slots=True, eq=False)
class AskRequest:
    """A request for a trial.

    Attributes:
        client: Name of the caller.
        lease_seconds: How long the caller is waited for.
        is_new: Whether it was not looked at yet.
    """

    request_id: str
    client: str
    lease_seconds: float
    answer: Future[TrialForCaller] = field(default_factory=Future)
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Giving:
    """Shared parts of the queues of a service.

    Attributes:
        ahead_of: How many assignments are to be kept ready for an experiment.
        on_made: Called with each new trial before it is stored.
    """

    clock: Clock
    ahead_of: Callable[[Experiment], int]
    on_made: Callable[[Trial], None]


class AskQueue:
    """The callers that ask for a trial of one experiment. Thread-safe."""

    def __init__(self, store: ObjectStore, key: Key, giving: Giving, wake: Callable[[AskQueue], None]) -> None:
        self._store = store
        self._key = key
        self._giving = giving
        self._wake = wake
        self._lock = threading.Lock()
        self._line: deque[AskRequest] = deque()
        self._is_changed, self._is_serving = True, False
        self._whole = store if isinstance(store, WholeWrites) else None
        self._view = AskedView(store, key, self._on_change)

    def ask(self, request: AskRequest) -> str:
        """Answer a request, now or later; return why that is later, a sentence.

        Raises:
            NotFoundError: There is no such experiment.
        """
        with self._lock:
            self._line.append(request)
            try:
                reason = self._serve()
            except BaseException:
                if request in self._line:
                    self._line.remove(request)
                raise
            return "" if request.answer.done() else reason

    def leave(self, request: AskRequest, reason: str) -> TrialForCaller:
        """Wait no longer; return the answer, which may have come in the meantime."""
        with self._lock:
            if request in self._line:
                self._line.remove(request)
                request.answer.set_result(TrialForCaller(None, reason=reason))
        return request.answer.result()

    def serve(self) -> None:
        """Answer those in the line that can be answered now; an error is the answer to all of them."""
        with self._lock:
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
                while self._line:
                    self._line.popleft().answer.set_exception(error)

    @property
    def can_wait(self) -> bool:
        """Whether a request that is not answered at once is answered later."""
        return self._whole is not None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits, and the experiment gives no more trials."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return not self._line and (not self._view.is_followed or self._view.is_over)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Follow the store no longer; the queue can still be used."""
        with self._lock:
            self._view.close()

    def _on_change(self) -> None:
        """Note that something was written, perhaps by this queue itself."""
        self._is_changed = True
        if self._is_serving:
            return  # whoever serves looks again before it ends
        if self._line:
            self._wake(self)
        elif self._lock.acquire(blocking=False):  # changes that none takes in would fill the memory
            try:
                self._view.follow()
            finally:
                self._lock.release()

    def _serve(self) -> str:
        """Answer all requests that can be answered, in order; return why the next one cannot."""
        reason, self._is_changed = "", True
        while self._line and self._is_changed:
            self._is_serving = True
            try:
                self._is_changed = False
                self._view.refresh()
                reason = self._serve_once()
            finally:
                self._is_serving = False
        return reason

    def _serve_once(self) -> str:
        while self._line:
            request = self._line[0]
            given = self._given(request)
            if not given.document and not given.is_over:
                self._have_made(len(self._line))
                return given.reason
            self._line.popleft()
            request.answer.set_result(given)
            if self._line:
                self._view.refresh()
        return ""

    def _given(self, request: AskRequest) -> TrialForCaller:
        """Give a trial, or say why there is none."""
        experiment, key = self._view.experiment, self._key
        if not is_asked(experiment):
            cause = "its trials run as jobs, by its spec.trialTemplate"
            remedy = "leave them to it, or remove the template"
            raise invalid(f"experiment {key.name}", cause, remedy, "ask-template")
        if is_chosen(experiment):
            cause, remedy = "its callers choose the parameters", "use the library that made it, such as Optuna"
            raise invalid(f"experiment {key.name}", cause, remedy, "ask-chosen")
        if request.is_new:
            labels = {ASK_LABEL: request.request_id, EXPERIMENT_LABEL: key.name}
            uid = experiment.metadata.uid
            for given in self._store.list(TRIAL, key.namespace, labels=labels, owner_uid=uid).items:
                return TrialForCaller(dict(given))
            request.is_new = False
        if experiment.metadata.deletion_timestamp is not None:
            return TrialForCaller(None, is_over=True, reason=f"experiment {key.name} is being deleted")
        if self._view.is_over:
            return TrialForCaller(None, is_over=True, reason=last_condition(experiment).message)
        if has_ended(experiment.status.conditions):
            return TrialForCaller(None, reason=f"experiment {key.name} had ended, and continues with its larger budget")
        if is_stopped(experiment):
            return TrialForCaller(
                None, reason=f"experiment {key.name} is stopped; `katib resume {key.name}` resumes it"
            )
        now = self._giving.clock.now()
        lease = Lease(
            request.client, request.request_id, request.lease_seconds, now + timedelta(seconds=request.lease_seconds)
        )
        stored = self._again(lease, now) or self._new(experiment, lease, now)
        return TrialForCaller(None, reason=_why_none(experiment)) if stored is None else TrialForCaller(dict(stored))

    def _again(self, lease: Lease, now: datetime) -> Object | None:
        """Give a trial that waits for a caller, such as one whose lease has ended."""
        for name in tuple(self._view.pending):
            try:
                trial = Trial.decode(self._store.get(TRIAL, Key(self._key.namespace, name)))
                if _is_free(trial, self._view.experiment, now):
                    change = {"labels": {ASK_LABEL: lease.ask_id}, "annotations": {LEASE_ANNOTATION: str(lease)}}
                    if self._whole is None:
                        return self._store.patch(as_read(trial), {"metadata": change})
                    status = plan_callers_trial(CallersTrial(_leased(trial, lease), now=now)).status
                    return self._whole.patch_whole(with_status(trial, status), {"metadata": change})
            except (ConflictError, NotFoundError):  # another caller got it, or its lease has just ended
                continue
        return None

    def _new(self, experiment: Experiment, lease: Lease, now: datetime) -> Object | None:
        """Make the trial of an assignment that waits, within the limits of the experiment."""
        view, spec = self._view, experiment.spec
        while (
            view.waiting
            and len(view.active) < max(spec.parallel_trial_count or 1, 1)
            and (spec.max_trial_count is None or view.total < spec.max_trial_count)
        ):
            assignment = next(iter(view.waiting.values()))
            view.take(assignment.name)
            trial = _leased(trial_of(experiment, assignment, None), lease)
            trial = structs.replace(trial, status=plan_callers_trial(CallersTrial(trial, now=now)).status)
            self._giving.on_made(trial)
            try:
                create = self._store.create if self._whole is None else self._whole.create_whole
                return create(trial.encode())
            except AlreadyExistsError:  # another caller got it
                continue
        return None

    def _have_made(self, count: int) -> None:
        """Have as many assignments made as callers wait for."""
        ahead = self._giving.ahead_of(self._view.experiment) if self._view.is_followed else 0
        total = self._view.total + count

        def lacks(experiment: Experiment) -> bool:
            return ahead_count(experiment) < ahead if ahead else asked_count(experiment) < total

        def attempt() -> None:
            found = self._store.get(EXPERIMENT, self._key)
            if lacks(Experiment.decode(found)):
                change = {AHEAD_ANNOTATION: str(ahead)} if ahead else {ASKED_ANNOTATION: str(total)}
                self._store.patch(found, {"metadata": {"annotations": change}})

        if lacks(self._view.experiment):
            until_written(attempt, self._key.name, "ask again")


class AskQueues:
    """The queues of all experiments, and the thread that serves them. Thread-safe."""

    def __init__(self, giving: Giving) -> None:
        self._giving = giving
        self._queues: dict[Key, AskQueue] = {}
        self._woken: dict[AskQueue, None] = {}
        self._condition = threading.Condition()
        self._is_running = False

    def queue_of(self, key: Key, store: ObjectStore) -> AskQueue:
        """Return the queue of an experiment.

        A store that is seen with the rights of one user has a queue for each request, in which nobody can wait.
        """
        queue = self._queues.get(key)
        if queue is None:
            if not isinstance(store, WholeWrites):
                return AskQueue(store, key, self._giving, self._wake)
            self._sweep()
            queue = self._queues.setdefault(key, AskQueue(store, key, self._giving, self._wake))
        return queue

    def _sweep(self) -> None:
        """Drop the queues that give no more."""
        for key, queue in tuple(self._queues.items()):
            if queue.is_idle:
                self._queues.pop(key, None)
                queue.close()

    def _wake(self, queue: AskQueue) -> None:
        with self._condition:
            self._woken[queue] = None
            self._condition.notify()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="asks", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._woken:
                    if not self._condition.wait(_IDLE_SECONDS) and not self._woken:
                        self._is_running = False
                        return
                woken, self._woken = self._woken, {}
            _serve(woken)


def _serve(queues: Iterable[AskQueue]) -> None:
    for queue in queues:
        queue.serve()


def _leased(trial: Trial, lease: Lease) -> Trial:
    """Return a trial that is given to a caller, not stored yet."""
    metadata = trial.metadata
    given = structs.replace(
        metadata,
        labels={**metadata.labels, ASK_LABEL: lease.ask_id},
        annotations={**metadata.annotations, LEASE_ANNOTATION: str(lease)},
    )
    return structs.replace(trial, metadata=given)


def _is_free(trial: Trial, experiment: Experiment, now: Any) -> bool:
    lease = lease_of(trial)
    return (
        is_callers(trial)
        and trial_state(trial) is TrialState.PENDING
        and trial.metadata.deletion_timestamp is None
        and experiment.metadata.uid in [owner.uid for owner in trial.metadata.owner_references]
        and outcome_of(trial) is None
        and (lease is None or (lease.until <= now and not fails_when_lost(trial)))
    )


def _why_none(experiment: Experiment) -> str:
    """Return why no trial of an experiment is free now."""
    status, parallel = experiment.status, max(experiment.spec.parallel_trial_count or 1, 1)
    running = running_condition(experiment)
    if running.status == "False" and running.message:
        return running.message
    if status.trials_running >= parallel:
        return f"as many trials as spec.parallelTrialCount allows, {parallel}, are being evaluated"
    budget = experiment.spec.max_trial_count
    if budget is not None and status.trials >= budget:
        return f"all {budget} trials are being evaluated, or have ended"
    return "the next trial is being made"
