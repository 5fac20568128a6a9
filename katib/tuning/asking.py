"""Ask and tell: trials that are given to callers, and what callers say of them.

Theory of operation. The controllers make trials, as many as callers have asked for; who asks takes one that is free, by
writing a lease into it, and raises the number of those asked for where none is. Every write compares the revision, so
that a trial is given once and ended once. A request is known by its id: that of an ask is a label of the trial that it
got, that of a tell is in the outcome that it wrote, and readings are stored under that of their report.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from katib.api.algorithms import AlgorithmCatalog
from katib.api.conditions import COMPLETED_EXPERIMENT, true_types
from katib.api.leases import (
    Lease,
    Outcome,
    asked_count,
    fails_when_lost,
    is_asked,
    is_callers,
    is_chosen,
    lease_of,
    outcome_of,
)
from katib.api.loading import FileText, experiment_of
from katib.api.metrics import BatchId, MetricLog, parse_value
from katib.api.names import ASK_LABEL, ASKED_ANNOTATION, EXPERIMENT_LABEL, LEASE_ANNOTATION, OUTCOME_ANNOTATION
from katib.api.trials import ACTIVE, TrialState, objective_names, trial_state
from katib.api.types import CollectorKind, Experiment, Trial
from katib.api.wording import shown
from katib.backoff import Backoff
from katib.controllers.experiment.plan import is_stopped
from katib.controllers.kinds import EXPERIMENT, TRIAL
from katib.controllers.trial.plan import STOPPING_WORDS, is_stopping
from katib.errors import ConflictError, FieldError, InvalidError, TerminalError, invalid
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, Object, ObjectStore
from katib.tuning.ports import Namespaces, Records
from katib.tuning.reading import last_condition, running_condition, state_of
from katib.tuning.service import DEFAULT_NAMESPACE, CallerAnswer, GivenTrial
from katib.tuning.trial_pages import find_trials
from katib.tuning.writing import until_written

Values = Mapping[str, float | str]

ASK_PAUSES = Backoff(0.001, 0.25, factor=1.5)
"""Between two looks for a free trial: most are made within milliseconds, others when a trial of minutes has ended."""

SHORTEST_LEASE_SECONDS, LONGEST_LEASE_SECONDS = 1.0, 7 * 86_400.0
MOST_VALUES = 1_000
LONGEST_FAILURE = 2_000
_LONGEST_NAME = 255
_LARGEST_STEP = 2**63 - 1

_REQUEST_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""What a label may be."""

_LEAST_FREE = 10

_AHEAD = 1_000
"""For how many trials one request counts where the algorithm does not learn: the next ones are there when asked for."""

_REMEMBERED_REQUESTS = 10_000
_RENEWED_SHARE = 0.25
"""A report renews a lease of which so much has passed: one write for each reading would be in vain."""


class CallersTrials:
    """Gives trials to callers and takes what they say of them. Thread-safe.

    Args:
        namespaces: The objects of each namespace.
        records: Metrics, and what takes the readings of callers.
        catalog: Says which algorithms learn from trials that ended.
        clock: Measures leases.
    """

    def __init__(self, namespaces: Namespaces, records: Records, catalog: AlgorithmCatalog, clock: Clock) -> None:
        self._scoped = namespaces.store_of
        self._observations = records.observations
        self._callers = records.callers
        self._catalog = catalog
        self._clock = clock
        self._counting = threading.Lock()  # callers of one service write their number in turns
        self._counted: OrderedDict[str, None] = OrderedDict()  # requests for which a trial was asked for already

    def ask(self, key: Key, *, request_id: str, client: str, lease_seconds: float) -> GivenTrial:
        """Give a trial of an experiment to a caller."""
        _check_request("requestId", request_id)
        _check_lease(lease_seconds)
        client = _plain(client)[:_LONGEST_NAME] or "a caller"
        store = self._scoped(key.namespace)
        found = store.get(EXPERIMENT, key)
        experiment = Experiment.decode(found)
        if not is_asked(experiment):
            cause, remedy = (
                "its trials run as jobs, by its spec.trialTemplate",
                "leave them to it, or remove the template",
            )
            raise invalid(f"experiment {key.name}", cause, remedy, "ask-template")
        if is_chosen(experiment):
            cause, remedy = "its callers choose the parameters", "use the library that made it, such as Optuna"
            raise invalid(f"experiment {key.name}", cause, remedy, "ask-chosen")
        labels = {ASK_LABEL: request_id, EXPERIMENT_LABEL: key.name}
        for given in store.list(TRIAL, key.namespace, labels=labels, owner_uid=experiment.metadata.uid).items:
            return GivenTrial(dict(given))
        if experiment.metadata.deletion_timestamp is not None:
            return GivenTrial({}, is_over=True, reason=f"experiment {key.name} is being deleted")
        if true_types(experiment.status.conditions) & COMPLETED_EXPERIMENT:
            return GivenTrial({}, is_over=True, reason=last_condition(experiment).message)
        if is_stopped(experiment):
            return GivenTrial({}, reason=f"experiment {key.name} is stopped; `katib resume {key.name}` lets it go on")
        lease = Lease(client, request_id, lease_seconds, self._clock.now() + timedelta(seconds=lease_seconds))
        for candidate in self._free(store, experiment, key):
            try:
                change = {"labels": {ASK_LABEL: request_id}, "annotations": {LEASE_ANNOTATION: str(lease)}}
                return GivenTrial(dict(store.patch(candidate, {"metadata": change})))
            except ConflictError:  # another caller got it, or its lease has just ended
                continue
        self._have_one_made(store, key, experiment, request_id)
        return GivenTrial({}, reason=_why_none(experiment))

    def report(self, key: Key, values: Values, *, step: int | None, request_id: str, ask_id: str) -> CallerAnswer:
        """Store readings of a trial."""
        texts = _texts(values)
        _check_step(step)
        if request_id:
            _check_request("requestId", request_id)
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
        now = self._clock.now()
        readings = [MetricLog(now, name, text, step) for name, text in texts.items()]
        batch = BatchId(request_id, 0) if request_id else None
        self._callers.log.within(key.namespace).report(key.name, readings, batch)
        self._callers.on_report(trial)
        return self._alive(key, trial, ask_id)

    def tell(
        self, key: Key, values: Values, *, failure: str | None, stopped: bool, request_id: str, ask_id: str
    ) -> CallerAnswer:
        """End a trial."""
        texts = _texts(values) if values else {}
        if request_id:
            _check_request("requestId", request_id)
        if failure is not None and stopped:
            raise invalid("stopped", "it is given beside failure", "give one of them", "tell-twofold")
        failure = None if failure is None else _plain(failure)[:LONGEST_FAILURE]
        store = self._scoped(key.namespace)
        outcome = Outcome(request_id, self._clock.now(), texts, failure, stopped)

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
            self._check_holder(trial, ask_id)
            if failure is None and not stopped and not is_stopping(trial):
                self._check_objectives(trial, texts)
            store.patch(found, {"metadata": {"annotations": {OUTCOME_ANNOTATION: str(outcome)}}})
            return _answer(trial)

        return until_written(attempt, key.name, "tell the trial again")

    def renew(self, key: Key, *, ask_id: str) -> CallerAnswer:
        """Give a sign of life."""
        trial = _callers_trial(self._scoped(key.namespace).get(TRIAL, key))
        if outcome_of(trial) is not None or trial_state(trial) not in ACTIVE:
            return _over(trial) or _answer(trial)
        self._check_holder(trial, ask_id)
        return self._alive(key, trial, ask_id, always=True)

    # --- leases -------------------------------------------------------------------------------------------------------

    def _free(self, store: ObjectStore, experiment: Experiment, key: Key) -> list[Object]:
        """Return the trials that can be given now, the oldest first."""
        now = self._clock.now()
        limit = max(experiment.spec.parallel_trial_count or 1, _LEAST_FREE)
        states = frozenset({TrialState.PENDING})
        found = find_trials(store, key, states=states, order="age", limit=limit, cursor="").items
        return [obj for obj in found if _is_free(Trial.decode(obj), experiment, now)]

    def _have_one_made(self, store: ObjectStore, key: Key, experiment: Experiment, request_id: str) -> None:
        """Count a request among the trials that were asked for, once."""
        request = f"{key}/{experiment.metadata.uid}/{request_id}"
        if request in self._counted:
            return
        more = self._counted_for(experiment)

        def attempt() -> None:
            found = store.get(EXPERIMENT, key)
            count = str(asked_count(Experiment.decode(found)) + more)
            store.patch(found, {"metadata": {"annotations": {ASKED_ANNOTATION: count}}})

        with self._counting:
            if request in self._counted:  # sent twice at once
                return
            until_written(attempt, key.name, "ask again")
            self._counted[request] = None
            if len(self._counted) > _REMEMBERED_REQUESTS:
                self._counted.popitem(last=False)

    def _counted_for(self, experiment: Experiment) -> int:
        """Return for how many trials a request counts: many where none would know more for being made later.

        The parallelism limits how many of them are there at a time.
        """
        algorithm = experiment.spec.algorithm
        info = None if algorithm is None else self._catalog.find(algorithm.algorithm_name)
        return 1 if info is None or info.reads_history else _AHEAD

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


def check_runs_by_itself(file: FileText) -> None:
    """Refuse an experiment that nothing but a caller would evaluate; what else is wrong with it is left to others.

    Raises:
        InvalidError: It has no trial template.
    """
    try:
        submission = experiment_of(file.documents, file.source, DEFAULT_NAMESPACE)
    except InvalidError:
        return
    if is_asked(submission.experiment) and not submission.errors:
        cause = "it is missing, so that its trials would wait for a program that asks for them"
        remedy = "describe the object that each trial runs as, or see `katib ask`"
        raise invalid("spec.trialTemplate", cause, remedy, "template-missing")


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


def _callers_trial(found: Object) -> Trial:
    """Return a trial that a caller evaluates.

    Raises:
        InvalidError: A job evaluates it.
    """
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


# --- arguments --------------------------------------------------------------------------------------------------------


def _check_request(path: str, request_id: str) -> None:
    if not _REQUEST_ID.fullmatch(request_id):
        remedy = "use at most 63 letters, digits, -, _ and ., with a letter or a digit at both ends"
        raise invalid(path, f"{shown(request_id)} cannot name a request", remedy, "request-id")


def _check_lease(seconds: float) -> None:
    if not SHORTEST_LEASE_SECONDS <= seconds <= LONGEST_LEASE_SECONDS:
        remedy = f"use {SHORTEST_LEASE_SECONDS:g} to {LONGEST_LEASE_SECONDS:g}"
        raise invalid("leaseSeconds", f"{shown(seconds)} is not a lease", remedy, "lease-seconds")


def _check_step(step: int | None) -> None:
    if step is not None and not 0 <= step <= _LARGEST_STEP:
        raise invalid("step", f"{shown(step)} is not a step", "use a whole number from 0", "report-step")


def _texts(values: Values) -> dict[str, str]:
    """Return readings as text by name.

    Raises:
        InvalidError: Some of them cannot be stored; all errors at once.
    """
    if not 0 < len(values) <= MOST_VALUES:
        raise invalid("values", f"there are {len(values)}", f"give 1 to {MOST_VALUES} readings", "report-count")
    errors, texts = [], {}
    for name, value in values.items():
        path = f"values[{shown(name)}]"
        text = float.__repr__(float(value)) if isinstance(value, int | float) else str(value)
        if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
            remedy = f"use up to {_LONGEST_NAME} printable characters"
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
