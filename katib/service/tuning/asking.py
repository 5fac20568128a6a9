"""Ask and tell: trials that callers evaluate, and the readings and ends that they report.

Theory of operation. A caller that asks gets a trial with a lease in it (`katib.service.tuning.ask_queues`). Every write
compares the revision, so that a trial is given once and ended once. A request is known by its id: that of an ask is a
label of the trial that it got, that of a tell is in the outcome that it wrote, and readings are stored under that of
their report.

If the log is at hand, and the store writes an object whole, `tell` does the controllers' work at once, by
the same plan: the last readings are stored, then the outcome and the state of the trial in one write. Elsewhere `tell`
writes the outcome, and the controllers do the rest.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from katib.engine.controllers.kinds import TRIAL, key_of, with_status
from katib.engine.controllers.trial.callers import CallersTrial, plan_callers_trial
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.controllers.trial.plan import STOPPING_WORDS, is_stopping
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Object, ObjectStore, WholeWrites
from katib.errors import Backoff, FieldError, InvalidError, TerminalError, invalid
from katib.model.algorithms import AlgorithmCatalog
from katib.model.leases import Outcome, lease_of, outcome_of
from katib.model.metrics import BatchId, MetricLog, parse_value
from katib.model.names import LEASE_ANNOTATION, OUTCOME_ANNOTATION
from katib.model.trials import ACTIVE, is_callers, objective_names, trial_state
from katib.model.types import CollectorKind, Experiment, Trial
from katib.model.wording import shown
from katib.service.tuning.ask_queues import AskQueue, AskQueues, AskRequest, Giving
from katib.service.tuning.ports import Namespaces, Records
from katib.service.tuning.service import (
    LONGEST_LEASE_SECONDS,
    LONGEST_METRIC,
    MOST_VALUES,
    REQUEST_ID,
    SHORTEST_LEASE_SECONDS,
    Ask,
    CallerAnswer,
    Renew,
    Report,
    Tell,
    TrialForCaller,
)
from katib.service.tuning.states import last_condition, running_condition, state_of
from katib.service.tuning.writing import until_written

Values = Mapping[str, float | str]

ASK_PAUSES = Backoff(0.001, 0.25, factor=1.5)
"""Between two looks for a free trial if the store does not report changes: most are made within milliseconds,
others when a trial of minutes has ended."""

LONGEST_FAILURE = 2_000
_LARGEST_STEP = 2**63 - 1

_AHEAD = 64
"""Assignments kept ready if the algorithm does not learn: a request to it then makes half of them."""

_REMEMBERED_TRIALS = 10_000
_LOCKS = 64

_RENEWED_SHARE = 0.25
"""A report renews a lease of which so much has passed: one write for each reading would be in vain."""


@dataclass(frozen=True, slots=True)
class AskedTrial:
    """A trial that was asked for. Thread-safe.

    Attributes:
        reason: Why the trial is not there yet, a sentence.
    """

    queue: AskQueue
    request: AskRequest
    reason: str

    @property
    def answer(self) -> Future[TrialForCaller] | None:
        """The coming trial; None if the caller has to ask again."""
        return self.request.answer if self.queue.can_wait or self.request.answer.done() else None

    def leave(self) -> TrialForCaller:
        """Wait no longer; return the answer."""
        return self.queue.leave(self.request, self.reason)


class AskingService(Protocol):
    """An ability of a tuning service: to take a request for a trial without a thread that waits for the answer."""

    @property
    def answers_at_once(self) -> bool:
        """Whether the calls of callers wait for nothing but each other's writes."""

    def ask_later(self, request: Ask) -> AskedTrial:
        """Give a trial to a caller, now or as soon as there is one. Raises as `TuningService.ask`."""


class CallersTrials:
    """Gives trials to callers and takes their readings and ends. Thread-safe.

    Args:
        records: Metrics, and the log for the readings of callers.
        catalog: Says which algorithms learn from trials that ended.
    """

    def __init__(self, namespaces: Namespaces, records: Records, catalog: AlgorithmCatalog, clock: Clock) -> None:
        self._scoped = namespaces.store_of
        self._observations = records.observations
        self._callers = records.callers
        self._catalog = catalog
        self._clock = clock
        self._queues = AskQueues(Giving(clock, self._ahead_of, self._note_made))
        self._logs = None if records.callers is None else TrialLogs(records.callers.log)
        self._unreported: OrderedDict[Key, None] = OrderedDict()  # trials made here, of which there are no readings
        self._ends = [threading.Lock() for _ in range(_LOCKS)]

    def ask_later(self, key: Key, request: Ask) -> AskedTrial:
        """Give a trial of an experiment to a caller, now or as soon as there is one."""
        _check_request(request.request_id)
        lease_seconds = request.lease_seconds
        if not SHORTEST_LEASE_SECONDS <= lease_seconds <= LONGEST_LEASE_SECONDS:
            remedy = f"use {SHORTEST_LEASE_SECONDS:g} to {LONGEST_LEASE_SECONDS:g}"
            raise invalid("leaseSeconds", f"{shown(lease_seconds)} is not a lease", remedy, "lease-seconds")
        client = _plain(request.client)[:LONGEST_METRIC] or "a caller"
        waiting = AskRequest(request.request_id, client, lease_seconds)
        queue = self._queues.queue_of(key, self._scoped(key.namespace))
        return AskedTrial(queue, waiting, queue.ask(waiting))

    def report(self, key: Key, request: Report) -> CallerAnswer:
        texts, step, request_id, ask_id = _texts(request.values), request.step, request.request_id, request.ask_id
        if step is not None and not 0 <= step <= _LARGEST_STEP:
            raise invalid("step", f"{shown(step)} is not a step", "use a whole number from 0", "report-step")
        if request_id:
            _check_request(request_id)
        store = self._scoped(key.namespace)
        trial = _callers_trial(store.get(TRIAL, key))
        if (answer := _over(trial)) is not None:
            return answer
        if outcome_of(trial) is not None or trial_state(trial) not in ACTIVE:
            cause = f"its caller has ended it ({state_of(trial)})"
            raise invalid(f"trial {key.name}", cause, "report before you tell", "report-ended")
        self._check_holder(trial, ask_id)
        if self._callers is None:
            raise TerminalError("this service takes no readings of callers; give the last ones with `tell`")
        answer = None
        if not isinstance(store, WholeWrites):  # whoever may not change the trial may not report either
            answer = self._alive(key, trial, ask_id, always=True)
        now = self._clock.now()
        readings = [MetricLog(now, name, text, step) for name, text in texts.items()]
        batch = BatchId(request_id, 0) if request_id else None
        self._unreported.pop(key, None)
        self._callers.log.within(key.namespace).report(key.name, readings, batch)
        self._callers.on_report(trial)
        return answer or self._alive(key, trial, ask_id)

    def tell(self, key: Key, request: Tell) -> CallerAnswer:
        texts = _texts(request.values) if request.values else {}
        request_id, failure, stopped = request.request_id, request.failure, request.stopped
        if request_id:
            _check_request(request_id)
        if failure is not None and stopped:
            raise invalid("stopped", "it is given beside failure", "give one of them", "tell-twofold")
        failure = None if failure is None else _plain(failure)[:LONGEST_FAILURE]
        store = self._scoped(key.namespace)
        outcome = Outcome(request_id or uuid.uuid4().hex, self._clock.now(), texts, failure, stopped)

        def attempt() -> CallerAnswer:
            found = store.get(TRIAL, key)
            trial = _callers_trial(found)
            if (before := outcome_of(trial)) is not None:
                if request_id and before.tell_id == request_id:
                    return _answer(trial)
                cause = f"it was ended already ({state_of(trial)})"
                raise invalid(f"trial {key.name}", cause, "tell each trial once", "tell-twice")
            if trial_state(trial) not in ACTIVE:
                return _over(trial) or _answer(trial)
            self._check_holder(trial, request.ask_id)
            if failure is None and not stopped and not is_stopping(trial):
                self._check_objectives(trial, texts)
            return self._end(store, found, trial, outcome)

        with self._ends[hash(key) % _LOCKS]:  # of two that tell, only the first stores its readings
            return until_written(attempt, key.name, "tell the trial again")

    def _end(self, store: ObjectStore, found: Object, trial: Trial, outcome: Outcome) -> CallerAnswer:
        """Write an outcome, and the state of the trial if that can be done here."""
        change = {"metadata": {"annotations": {OUTCOME_ANNOTATION: str(outcome)}}}
        if self._logs is None or self._callers is None or not isinstance(store, WholeWrites):
            store.patch(found, change)
            return _answer(trial)
        annotations = {**trial.metadata.annotations, OUTCOME_ANNOTATION: str(outcome)}
        told = structs.replace(trial, metadata=structs.replace(trial.metadata, annotations=annotations))
        report = self._logs.conclude(told, is_empty=key_of(trial) in self._unreported)
        plan = plan_callers_trial(CallersTrial(told, report.observation, now=self._clock.now()))
        ended = structs.replace(told, status=plan.status)
        store.patch_whole(with_status(ended, plan.status), change)
        self._unreported.pop(key_of(trial), None)
        if plan.event is not None:
            self._callers.on_end(ended, plan.event)
        return CallerAnswer(state_of(ended), _answer(trial).stop)

    def renew(self, key: Key, request: Renew) -> CallerAnswer:
        """Give a sign of life."""
        trial = _callers_trial(self._scoped(key.namespace).get(TRIAL, key))
        if outcome_of(trial) is not None or trial_state(trial) not in ACTIVE:
            return _over(trial) or _answer(trial)
        self._check_holder(trial, request.ask_id)
        return self._alive(key, trial, request.ask_id, always=True)

    # --- leases -------------------------------------------------------------------------------------------------------

    def _ahead_of(self, experiment: Experiment) -> int:
        """Return how many assignments to keep ready: some if later ones would not know more."""
        algorithm, parallel = experiment.spec.algorithm, experiment.spec.parallel_trial_count or 1
        info = None if algorithm is None else self._catalog.find(algorithm.algorithm_name)
        learns = info is None or info.reads_history or experiment.spec.early_stopping is not None
        return 0 if learns else max(_AHEAD, 2 * parallel)

    def _note_made(self, trial: Trial) -> None:
        self._unreported[key_of(trial)] = None
        if len(self._unreported) > _REMEMBERED_TRIALS:
            self._unreported.popitem(last=False)

    def _check_holder(self, trial: Trial, ask_id: str) -> None:
        lease = lease_of(trial)
        if lease is None:
            raise invalid(f"trial {trial.name}", "it was given to no caller", "ask for it first", "trial-not-asked")
        if ask_id and lease.ask_id != ask_id:
            cause = f"it was given to {lease.client} after your lease had ended"
            raise invalid(f"trial {trial.name}", cause, "ask for another one", "lease-lost")

    def _alive(self, key: Key, trial: Trial, ask_id: str, *, always: bool = False) -> CallerAnswer:
        """Renew a lease, and answer."""
        lease, now = lease_of(trial), self._clock.now()
        if lease is None:
            return _answer(trial)
        passed = lease.seconds - (lease.until - now).total_seconds()
        if not always and passed < lease.seconds * _RENEWED_SHARE:
            return _answer(trial)
        store = self._scoped(key.namespace)

        def attempt() -> CallerAnswer:
            found = store.get(TRIAL, key)
            current = _callers_trial(found)
            held = lease_of(current)
            if held is None or outcome_of(current) is not None or trial_state(current) not in ACTIVE:
                return _over(current) or _answer(current)
            self._check_holder(current, ask_id)
            renewed = str(held.renewed(self._clock.now()))
            store.patch(found, {"metadata": {"annotations": {LEASE_ANNOTATION: renewed}}})
            return _answer(current)

        return until_written(attempt, key.name, "try again")

    def _check_objectives(self, trial: Trial, texts: Mapping[str, str]) -> None:
        """Refuse an end without a value that was not reported either: the caller would learn of it much later."""
        if trial.spec.objective is None or trial.spec.metrics_collector.kind == CollectorKind.NONE:
            return
        log = self._observations.within(trial.namespace)
        missing = [
            name
            for name in objective_names(trial.spec.objective)
            if name not in texts and not log.count(trial.name, metric_name=name)
        ]
        if missing:
            remedy = "give it, or say that the trial failed"
            raise InvalidError(
                FieldError("values", f'"{name}" is missing and was not reported', remedy, "tell-objective")
                for name in missing
            )


def _callers_trial(found: Object) -> Trial:
    trial = Trial.decode(found)
    if not is_callers(trial):
        cause, remedy = "its job evaluates it", "report from inside it, with katib.report"
        raise invalid(f"trial {trial.name}", cause, remedy, "trial-of-a-job")
    return trial


def _over(trial: Trial) -> CallerAnswer | None:
    """Return the answer to the caller of a trial that was ended by others; None for any other."""
    if outcome_of(trial) is not None or trial_state(trial) in ACTIVE:
        return None
    return CallerAnswer(state_of(trial), last_condition(trial).message)


def _answer(trial: Trial) -> CallerAnswer:
    stop = running_condition(trial).message.removeprefix(STOPPING_WORDS) if is_stopping(trial) else ""
    return CallerAnswer(state_of(trial), stop)


# --- arguments --------------------------------------------------------------------------------------------------------


def _check_request(request_id: str) -> None:
    if not re.fullmatch(REQUEST_ID, request_id):
        remedy = "use at most 63 letters, digits, -, _ and ., with a letter or a digit at both ends"
        raise invalid("requestId", f"{shown(request_id)} cannot name a request", remedy, "request-id")


def _texts(values: Values) -> dict[str, str]:
    if not 0 < len(values) <= MOST_VALUES:
        raise invalid("values", f"there are {len(values)}", f"give 1 to {MOST_VALUES} readings", "report-count")
    errors, texts = [], {}
    for name, value in values.items():
        path = f"values[{shown(name)}]"
        text = float.__repr__(float(value)) if isinstance(value, int | float) else str(value)
        if not 0 < len(name) <= LONGEST_METRIC or not name.isprintable() or name != name.strip():
            remedy = f"use up to {LONGEST_METRIC} printable characters"
            errors.append(FieldError(path, "it is not the name of a metric", remedy, "report-name"))
        if parse_value(text) is None:
            errors.append(FieldError(path, f"{shown(value)} is not a number", "give a number", "report-value"))
        texts[name] = text
    if errors:
        raise InvalidError(errors)
    return texts


def _plain(text: str) -> str:
    """Return text of a caller on one line."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
