"""Trials whose parameters their callers choose, one after the other in the course of a trial (define by run).

Theory of operation. The search is the caller's; storage, display and export are as for any experiment. Such an
Experiment has no trial template, and its label says that callers choose. A caller makes a trial, sets its parameters,
reports readings and ends it. Each call is stored when it returns: the trial and its end in the Trial object, readings
in the observation log, and what comes in small pieces, such as parameters, beside the object as attributes, which wake
no controller. The object gets the parameters with the end of the trial, or some tenths of a second after they were set.
The search space of the Experiment grows with the values of trials.

Trials are numbered from 0, and their names end with their numbers; an experiment is numbered by a revision of the
store, which comes once. What was read or written is kept in memory, since this process is the only one that writes;
trials that have ended are kept packed, as nothing changes them any more.
A trial has no lease that could end: whether its caller is alive is for callers to find out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import msgpack, structs

from katib.engine.controllers.cached_trial import packed, unpacked
from katib.engine.controllers.experiment.plan import is_stopped
from katib.engine.controllers.kinds import EXPERIMENT, TRIAL, key_of, owned_by, with_status
from katib.engine.controllers.trial.callers import CallersTrial, plan_callers_trial
from katib.engine.controllers.trial.plan import TrialEvent
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Object, ObjectStore, WholeWrites
from katib.errors import AlreadyExistsError, NotFoundError, TerminalError, invalid
from katib.model.conditions import has_ended
from katib.model.defaults import with_defaults
from katib.model.leases import ENDLESS_SECONDS, Lease, Outcome, lease_of, outcome_of
from katib.model.metrics import MetricLog
from katib.model.names import (
    BY_CALLER,
    CHOSEN_BY_LABEL,
    EVALUATED_BY_LABEL,
    EXPERIMENT_LABEL,
    FIRST_FAILURES_ANNOTATION,
    LEASE_ANNOTATION,
    NUMBER_LABEL,
    OUTCOME_ANNOTATION,
    TITLE_ANNOTATION,
    TRIAL_FINALIZER,
    name_of_title,
)
from katib.model.summary import observation_of
from katib.model.trials import ACTIVE, is_chosen, trial_state
from katib.model.types import (
    AlgorithmSpec,
    Experiment,
    ExperimentSpec,
    FeasibleSpace,
    MetricsCollectorSpec,
    ObjectiveSpec,
    ObjectMeta,
    ParameterAssignment,
    ParameterSpec,
    ParameterType,
    Trial,
    TrialSpec,
    TrialState,
)
from katib.service.tuning.ports import Attributes, CallersLog
from katib.service.tuning.writing import until_written

R = TypeVar("R")

_PARAMETER = "parameter"
_STARTED = "started"
"""Kinds of attributes that are ours; callers use others."""

_LOGS_AT_ONCE = 500


class WholeStore(ObjectStore, WholeWrites, Protocol):
    """A store that writes an object and its status at once."""


class Choice(NamedTuple):
    """A parameter of a trial.

    Attributes:
        text: Its value, as assignments have it.
        detail: Data of its caller, of any form.
    """

    text: str
    detail: str


@dataclass(slots=True)
class ChosenTrial:
    """A trial as its callers see it. Not to be changed by them.

    Attributes:
        number: Its place among the trials of its experiment.
        state: Pending until a caller starts it; then Running, and in the end Succeeded, EarlyStopped or Failed.
        values: Of the objectives, in their order; empty without.
        readings: Of the first objective, the last one of each step.
        attributes: By kind and name.
    """

    number: int
    state: TrialState = TrialState.RUNNING
    values: tuple[float, ...] = ()
    started: datetime | None = None
    completed: datetime | None = None
    parameters: dict[str, Choice] = field(default_factory=dict)
    readings: dict[int, float] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    stored: Object | None = None
    """Its object as it was written last; None when it has to be read again."""
    uid: str = ""
    is_written: bool = True
    """Whether its object has all parameters."""

    @property
    def is_over(self) -> bool:
        return self.state not in ACTIVE


class _Ended(NamedTuple):
    """An ended trial in memory: its first fields, in their order."""

    number: int
    state: TrialState
    values: tuple[float, ...]
    started: datetime | None
    completed: datetime | None
    parameters: dict[str, Choice]
    readings: dict[int, float]
    attributes: dict[str, dict[str, str]]


_ENDED = msgpack.Decoder(_Ended)


@dataclass(slots=True)
class ChosenExperiment:
    """An experiment as callers see it. Not to be changed by them."""

    number: int
    title: str
    key: Key
    objective: ObjectiveSpec
    attributes: dict[str, dict[str, str]]
    experiment: Experiment
    parameters: dict[str, ParameterSpec]
    going: dict[int, ChosenTrial] = field(default_factory=dict)
    next_number: int = 0
    """The number that the next trial gets."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _ended: dict[int, bytes] = field(default_factory=dict)
    _sample: bytes = b""

    def keep(self, trial: ChosenTrial) -> None:
        """Remember a trial, packed if it has ended."""
        number = trial.number
        self.next_number = max(self.next_number, number + 1)
        if not trial.is_over:
            self.going[number] = trial
            return
        text = msgpack.encode([getattr(trial, name) for name in _Ended._fields])
        self._sample = self._sample or text
        self._ended[number] = packed(text, self._sample)
        self.going.pop(number, None)

    def find(self, number: int) -> ChosenTrial | None:
        """Return a trial; None when there is none. Changes of one that has ended are lost."""
        if (going := self.going.get(number)) is not None or (data := self._ended.get(number)) is None:
            return going
        return ChosenTrial(*_ENDED.decode(unpacked(data, self._sample)))

    def trial_key(self, number: int) -> Key:
        return Key(self.key.namespace, f"{self.key.name}-{number}")


class ChosenTrials:
    """Keeps experiments whose parameters are chosen by callers, in one namespace. Thread-safe.

    Trials are named by the numbers of their experiment and their own. Every call raises NotFoundError if there is no
    experiment, or trial, of a number, and TerminalError if a trial to be changed has ended.

    Args:
        callers: Takes readings, and hears of trials that end.
        delete: Deletes an experiment, by namespace and name, and waits until it is gone.
        clock: Stamps starts and ends.
    """

    def __init__(
        self,
        store: WholeStore,
        attributes: Attributes,
        callers: CallersLog,
        delete: Callable[[str, str], None],
        clock: Clock,
        namespace: str,
    ) -> None:
        self._store = store
        self._attributes = attributes
        self._log = callers.log.within(namespace)
        self._on_end = callers.on_end
        self._delete = delete
        self._clock = clock
        self._namespace = namespace
        self._lock = threading.Lock()
        self._known: dict[int, ChosenExperiment] = {}

    # --- experiments --------------------------------------------------------------------------------------------------

    def create(self, title: str, objective: ObjectiveSpec, algorithm: str) -> int:
        """Make an experiment and return its number.

        Args:
            title: Its name for callers, of any characters.

        Raises:
            AlreadyExistsError: There is one of this title, or of the name that it stands for.
        """
        metadata = ObjectMeta(
            name=name_of_title(title),
            namespace=self._namespace,
            labels={CHOSEN_BY_LABEL: BY_CALLER},
            annotations={TITLE_ANNOTATION: title, FIRST_FAILURES_ANNOTATION: "0"},
        )
        spec = ExperimentSpec(objective=objective, algorithm=AlgorithmSpec(algorithm_name=algorithm))
        stored = self._store.create(with_defaults(Experiment(metadata=metadata, spec=spec)).encode())
        return self._number(stored)

    def find(self, title: str) -> int:
        """Return the number of the experiment of a title.

        Raises:
            TerminalError: The experiment of that name is another one.
        """
        found = self._store.get(EXPERIMENT, Key(self._namespace, name_of_title(title)))
        if not is_chosen(Experiment.decode(found)):
            raise TerminalError(f'experiment "{Key.of(found).name}" chooses its parameters itself; take another name')
        return self._number(found)

    def experiments(self) -> list[ChosenExperiment]:
        """Return all experiments, in order of their numbers."""
        listed = self._store.list(EXPERIMENT, self._namespace, labels={CHOSEN_BY_LABEL: BY_CALLER})
        present = [found for found in listed.items if "deletionTimestamp" not in found["metadata"]]
        return [self.experiment(number) for number in sorted(map(self._number, present))]

    def experiment(self, number: int) -> ChosenExperiment:
        """Return an experiment; its trials are read at the first time."""
        with self._lock:
            if (known := self._known.get(number)) is None:
                known = self._known[number] = self._read(number)
            return known

    def delete(self, number: int) -> None:
        """Delete an experiment with its trials and wait until they are gone."""
        self._delete(*self.experiment(number).key)
        with self._lock:
            self._known.pop(number, None)

    def set_attribute(self, number: int, kind: str, name: str, value: str) -> None:
        """Keep an attribute of an experiment."""
        known = self.experiment(number)
        with known.lock:
            self._attributes.put(known.experiment.metadata.uid, [(kind, name, value)])
            known.attributes.setdefault(kind, {})[name] = value

    # --- trials -------------------------------------------------------------------------------------------------------

    def create_trial(
        self, number: int, given: ChosenTrial | None = None, specs: Mapping[str, ParameterSpec] | None = None
    ) -> int:
        """Make a trial and return its number.

        Args:
            given: The trial without its number; None: it runs from now on.
            specs: Distribution of its parameters, by name.

        Raises:
            InvalidError: A parameter was of another kind before.
            TerminalError: The experiment has ended or is stopped.
        """
        known, now = self.experiment(number), self._clock.now()
        with known.lock:
            self._check_takes_trials(known)
            trial = ChosenTrial(known.next_number, started=now)
            if given is not None:
                trial = _copy(given, trial.number)
                self._widen(known, specs or {})
            while True:
                made, event = _object_of(known, trial, now)
                try:
                    trial.stored = self._store.create_whole(made.encode())
                    break
                except AlreadyExistsError:  # of an experiment whose name ends with the number, or added by a user
                    trial.number += 1
            trial.uid = trial.stored["metadata"]["uid"]
            self._keep(known, trial)
            known.keep(trial)
            self._announce(made, event)
            return trial.number

    def trial(self, number: int, trial: int) -> ChosenTrial:
        known = self.experiment(number)
        with known.lock:
            found = known.find(trial)
        if found is None:
            raise NotFoundError(f"experiment {number} has no trial {trial}")
        return found

    def read(self, number: int, trial: int, render: Callable[[int, ChosenTrial], R]) -> R:
        """Return the result of a function of an experiment's number and one of its trials, at one moment."""
        with self.experiment(number).lock:
            return render(number, self.trial(number, trial))

    def read_all(
        self, number: int, wanted: Iterable[int], first: int, render: Callable[[int, ChosenTrial], R]
    ) -> list[R]:
        """Return the result of a function of the wanted trials, and of all from a number on."""
        known = self.experiment(number)
        with known.lock:
            chosen = sorted({*wanted, *range(first, known.next_number)})
            return [render(number, found) for one in chosen if (found := known.find(one)) is not None]

    def choose(self, number: int, trial: int, choice: Choice, spec: ParameterSpec) -> None:
        """Set a parameter of a trial.

        Args:
            spec: Its distribution. The search space gets the parameter, or is widened.

        Raises:
            InvalidError: The parameter was of another kind before.
        """
        known = self.experiment(number)
        with known.lock:
            chosen = self._open(number, trial)
            self._widen(known, {spec.name: spec})
            self._attributes.put(chosen.uid, [(_PARAMETER, spec.name, json.dumps(choice))])
            chosen.parameters[spec.name] = choice
            chosen.is_written = False

    def report(self, number: int, trial: int, step: int, value: float) -> None:
        """Store a reading of the first objective; it replaces the one of the same step."""
        known = self.experiment(number)
        with known.lock:
            chosen = self._open(number, trial)
            metric = known.objective.objective_metric_name
            reading = MetricLog(self._clock.now(), metric, float.__repr__(value), step)
            self._log.report(known.trial_key(trial).name, [reading])
            chosen.readings[step] = value

    def set_trial_attribute(self, number: int, trial: int, kind: str, name: str, value: str) -> None:
        known = self.experiment(number)
        with known.lock:
            chosen = self._open(number, trial)
            self._attributes.put(chosen.uid, [(kind, name, value)])
            chosen.attributes.setdefault(kind, {})[name] = value

    def turn(self, number: int, trial: int, state: TrialState, values: Sequence[float] = ()) -> bool:
        """Start a trial that is pending, or end one as Succeeded, EarlyStopped or Failed.

        Args:
            values: Of its objectives, if it ends with some.

        Returns:
            Whether it was this call that did so: a trial that runs is not started once more.
        """
        known = self.experiment(number)
        with known.lock:
            chosen, now = self._open(number, trial), self._clock.now()
            if state is TrialState.RUNNING:
                if chosen.state is not TrialState.PENDING:
                    return False
                self._write(known, chosen, {LEASE_ANNOTATION: _lease(now)}, now)
                chosen.started = now
            elif state is TrialState.PENDING:
                if chosen.state is not TrialState.PENDING:
                    raise TerminalError(f"trial {trial} runs already and cannot wait again")
            else:
                outcome = _outcome(known, state, tuple(values), now)
                self._conclude(known, chosen, outcome)
                self._write(known, chosen, {OUTCOME_ANNOTATION: str(outcome)}, now)
                chosen.completed, chosen.values = now, tuple(values)
            chosen.state = state
            known.keep(chosen)
            return True

    def flush(self) -> None:
        """Write the parameters of trials that continue into their objects."""
        for known in list(self._known.values()):
            with known.lock:
                waiting = [trial for trial in known.going.values() if not trial.is_written]
            for trial in waiting:
                with known.lock:
                    if not trial.is_written and not trial.is_over:
                        self._write(known, trial, {}, self._clock.now())

    # --- what others change -------------------------------------------------------------------------------------------

    def note(self, key: Key, trial: Trial | None) -> None:
        """Apply an outcome decided elsewhere, such as the end of its experiment; None: the trial is gone."""
        name, _, text = key.name.rpartition("-")
        if not text.isdigit() or (trial is not None and (not is_chosen(trial) or trial_state(trial) in ACTIVE)):
            return
        for known in list(self._known.values()):
            found = known.going.get(int(text)) if known.key == Key(key.namespace, name) else None
            if found is not None:
                found.state, found.completed = TrialState.FAILED, self._clock.now()

    def forget(self, experiment: Key) -> None:
        with self._lock:
            for number in [number for number, known in self._known.items() if known.key == experiment]:
                del self._known[number]

    # --- parts --------------------------------------------------------------------------------------------------------

    def _number(self, found: Object) -> int:
        """Return the number of an experiment, which gets one if it has none yet."""
        key = Key.of(found)

        def attempt() -> int:
            current = self._store.get(EXPERIMENT, key)
            metadata = current["metadata"]
            if (text := metadata.get("labels", {}).get(NUMBER_LABEL)) is None:
                text = metadata["resourceVersion"]
                self._store.patch(current, {"metadata": {"labels": {NUMBER_LABEL: text}}})
            return int(text)

        text = found["metadata"].get("labels", {}).get(NUMBER_LABEL)
        return until_written(attempt, key.name, "try again") if text is None else int(text)

    def _read(self, number: int) -> ChosenExperiment:
        found = self._store.list(EXPERIMENT, self._namespace, labels={NUMBER_LABEL: str(number)}).items
        if not found or "deletionTimestamp" in found[0]["metadata"]:
            raise NotFoundError(f"there is no experiment with the number {number}")
        experiment = Experiment.decode(found[0])
        uid, key = experiment.metadata.uid, key_of(experiment)
        title = experiment.metadata.annotations.get(TITLE_ANNOTATION, experiment.name)
        parameters = {spec.name: spec for spec in experiment.spec.parameters}
        objective = experiment.spec.objective or ObjectiveSpec()
        known = ChosenExperiment(number, title, key, objective, {}, experiment, parameters)
        for kind, name, value in self._attributes.of(uid):
            known.attributes.setdefault(kind, {})[name] = value
        trials, by_uid = dict[int, ChosenTrial](), dict[str, ChosenTrial]()
        ends: dict[str, datetime | None] = {}
        for obj in self._store.list(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}, owner_uid=uid).items:
            trial, ends[obj["metadata"]["name"]] = _read_trial(known, Trial.decode(obj))
            by_uid[trial.uid] = trials[trial.number] = trial
        for name, reading in self._readings(list(ends), objective.objective_metric_name):
            if reading.step is not None and reading.time != ends[name]:
                trials[_number_of(name)].readings[reading.step] = float(reading.value)
        for trial_uid, kind, name, value in self._attributes.of_owned(uid):
            trial = by_uid[trial_uid]
            if kind == _PARAMETER:
                trial.parameters[name] = Choice(*json.loads(value))
            elif kind == _STARTED:
                trial.started = datetime.fromisoformat(value)
            else:
                trial.attributes.setdefault(kind, {})[name] = value
        for trial in trials.values():
            trial.is_written = trial.is_over
            known.keep(trial)
        return known

    def _readings(self, names: Sequence[str], metric: str) -> Iterator[tuple[str, MetricLog]]:
        """Yield the readings of trials, those of each in the order in which they were reported."""
        for first in range(0, len(names), _LOGS_AT_ONCE):
            cursors = dict.fromkeys(names[first : first + _LOGS_AT_ONCE], 0)
            while cursors:
                changes = self._log.changes(cursors, metric)
                yield from ((change.trial_name, change.reading) for change in changes)
                cursors = {change.trial_name: change.cursor for change in changes}

    def _open(self, number: int, trial: int) -> ChosenTrial:
        """Return a trial that may be changed."""
        found = self.trial(number, trial)
        if found.is_over:
            raise TerminalError(f"trial {trial} has ended and cannot be changed")
        return found

    def _check_takes_trials(self, known: ChosenExperiment) -> None:
        current = Experiment.decode(self._store.get(EXPERIMENT, known.key))
        if has_ended(current.status.conditions):
            raise TerminalError(f'experiment "{known.key.name}" has ended; raise its spec.maxTrialCount first')
        if is_stopped(current):
            name = known.key.name
            raise TerminalError(f'experiment "{name}" is stopped; `katib resume {name}` resumes it')

    def _keep(self, known: ChosenExperiment, trial: ChosenTrial) -> None:
        """Store the readings and attributes of a new trial."""
        kept = [(_PARAMETER, name, json.dumps(choice)) for name, choice in trial.parameters.items()]
        kept += [(kind, *pair) for kind, pairs in trial.attributes.items() for pair in pairs.items()]
        if trial.state is TrialState.PENDING and trial.started is not None:
            kept.append((_STARTED, "", trial.started.isoformat()))
        if kept:
            self._attributes.put(trial.uid, kept)
        if trial.is_over:
            self._conclude(
                known, trial, _outcome(known, trial.state, trial.values, trial.completed or self._clock.now())
            )
        if trial.readings:
            metric, now = known.objective.objective_metric_name, self._clock.now()
            readings = [MetricLog(now, metric, float.__repr__(value), step) for step, value in trial.readings.items()]
            self._log.report(known.trial_key(trial.number).name, readings)

    def _conclude(self, known: ChosenExperiment, trial: ChosenTrial, outcome: Outcome) -> None:
        """Store the values at the end as readings, at the step that was reported last."""
        step = max(trial.readings, default=None)
        readings = [MetricLog(outcome.time, name, text, step) for name, text in outcome.values.items()]
        if readings:
            self._log.report(known.trial_key(trial.number).name, readings)

    def _write(
        self, known: ChosenExperiment, trial: ChosenTrial, annotations: Mapping[str, str], now: datetime
    ) -> None:
        """Write annotations, all parameters and the status that follows into the object of a trial."""
        key = known.trial_key(trial.number)
        changes: dict[str, Any] = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
        if not trial.is_written:
            changes["spec"] = {"parameterAssignments": [one.encode() for one in _assignments(trial)]}

        def attempt() -> None:
            found = trial.stored or self._store.get(TRIAL, key)
            trial.stored = None  # whatever comes of it, another one is to be read next time
            made = Trial.decode(found)
            if trial_state(made) not in ACTIVE:
                raise TerminalError(f"trial {key.name} has ended and cannot be changed")
            metadata = structs.replace(made.metadata, annotations={**made.metadata.annotations, **annotations})
            made, event = _planned(structs.replace(made, metadata=metadata), known, trial, now)
            stored = self._store.patch_whole(with_status(made, made.status), changes)
            trial.stored = stored if trial_state(made) in ACTIVE else None  # nothing will change it any more
            self._announce(made, event)

        until_written(attempt, key.name, "try again")
        trial.is_written = True

    def _announce(self, trial: Trial, event: TrialEvent | None) -> None:
        if event is not None:
            self._on_end(trial, event)

    def _widen(self, known: ChosenExperiment, specs: Mapping[str, ParameterSpec]) -> None:
        """Widen the search space to the values of trials."""
        wider = {name: _wider(known.parameters.get(name), spec) for name, spec in specs.items()}
        if all(known.parameters.get(name) == spec for name, spec in wider.items()):
            return
        parameters = {**known.parameters, **wider}

        def attempt() -> None:
            found = self._store.get(EXPERIMENT, known.key)
            self._store.patch(found, {"spec": {"parameters": [spec.encode() for spec in parameters.values()]}})

        until_written(attempt, known.key.name, "try again")
        known.parameters = parameters


_STATES = {
    (False, False): TrialState.SUCCEEDED,
    (False, True): TrialState.EARLY_STOPPED,
    (True, False): TrialState.FAILED,
}
"""By whether the outcome is a failure, and whether the caller stopped."""


def _number_of(name: str) -> int:
    return int(name.rpartition("-")[2])


def _read_trial(known: ChosenExperiment, trial: Trial) -> tuple[ChosenTrial, datetime | None]:
    """Return a trial from its object, and the time of its last readings, which are its values."""
    made = ChosenTrial(_number_of(trial.name), uid=trial.metadata.uid)
    lease, outcome, state = lease_of(trial), outcome_of(trial), trial_state(trial)
    if lease is not None:
        made.started = lease.until - timedelta(seconds=lease.seconds)
    if outcome is None:
        made.state = TrialState.PENDING if lease is None else TrialState.RUNNING
        if state not in ACTIVE:
            made.state, made.completed = TrialState.FAILED, trial.status.completion_time
        return made, None
    made.completed = outcome.time
    made.state = _STATES[outcome.failure is not None, outcome.stopped]
    terms = [outcome.values.get(term.name) for term in known.objective.terms]
    made.values = tuple(float(text) for text in terms if text is not None)
    return made, outcome.time if outcome.values else None


def _copy(given: ChosenTrial, number: int) -> ChosenTrial:
    attributes = {kind: dict(pairs) for kind, pairs in given.attributes.items()}
    return ChosenTrial(
        number,
        given.state,
        given.values,
        given.started,
        given.completed,
        dict(given.parameters),
        dict(given.readings),
        attributes,
    )


def _object_of(known: ChosenExperiment, trial: ChosenTrial, now: datetime) -> tuple[Trial, TrialEvent | None]:
    """Return the object of a new trial, and the event to record if it has ended already."""
    annotations = {}
    if trial.started is not None and trial.state is not TrialState.PENDING:
        annotations[LEASE_ANNOTATION] = _lease(trial.started)
    experiment = known.experiment
    metadata = ObjectMeta(
        name=known.trial_key(trial.number).name,
        namespace=known.key.namespace,
        labels={EXPERIMENT_LABEL: known.key.name, EVALUATED_BY_LABEL: BY_CALLER, CHOSEN_BY_LABEL: BY_CALLER},
        annotations=annotations,
        owner_references=(owned_by(experiment),),
        finalizers=(TRIAL_FINALIZER,),
    )
    spec = TrialSpec(
        objective=known.objective,
        parameter_assignments=_assignments(trial),
        metrics_collector=experiment.spec.metrics_collector_spec or MetricsCollectorSpec(),
    )
    made, event = _planned(Trial(metadata=metadata, spec=spec), known, trial, trial.started or now)
    if trial.is_over:
        outcome = _outcome(known, trial.state, trial.values, trial.completed or now)
        metadata = structs.replace(metadata, annotations={**annotations, OUTCOME_ANNOTATION: str(outcome)})
        made, event = _planned(structs.replace(made, metadata=metadata), known, trial, outcome.time)
    return made, event


def _planned(
    made: Trial, known: ChosenExperiment, trial: ChosenTrial, now: datetime
) -> tuple[Trial, TrialEvent | None]:
    """Return an object with the status that follows from its annotations, and the event to record."""
    observation, outcome = None, outcome_of(made)
    if outcome is not None:
        metric = known.objective.objective_metric_name
        texts = [(metric, float.__repr__(value)) for _, value in sorted(trial.readings.items())]
        observation = observation_of(known.objective.metric_names, [*texts, *outcome.values.items()])
    plan = plan_callers_trial(CallersTrial(made, observation, now=now))
    return structs.replace(made, status=plan.status), plan.event


def _assignments(trial: ChosenTrial) -> tuple[ParameterAssignment, ...]:
    return tuple(ParameterAssignment(name=name, value=choice.text) for name, choice in trial.parameters.items())


def _lease(started: datetime) -> str:
    return str(Lease("a caller", "", ENDLESS_SECONDS, started + timedelta(seconds=ENDLESS_SECONDS)))


def _outcome(known: ChosenExperiment, state: TrialState, values: tuple[float, ...], time: datetime) -> Outcome:
    names = (term.name for term in known.objective.terms)
    texts = {name: float.__repr__(value) for name, value in zip(names, values, strict=False)}
    failure = "" if state is TrialState.FAILED else None
    return Outcome("", time, texts, failure, stopped=state is TrialState.EARLY_STOPPED)


def _wider(old: ParameterSpec | None, new: ParameterSpec) -> ParameterSpec:
    """Return a parameter that covers both."""
    if old is None or old == new:
        return new
    before, space = old.feasible_space, new.feasible_space
    path = f"parameter {old.name}"
    if old.parameter_type != new.parameter_type or before.distribution != space.distribution:
        words = f"it was {_kind(old)} in earlier trials and is {_kind(new)} now"
        raise invalid(path, words, "use another name for it", "chosen-kind")
    if old.parameter_type == ParameterType.CATEGORICAL:
        if before.list != space.list:
            words = "its choices are not those of earlier trials, in their order"
            raise invalid(path, words, "use another name for it", "chosen-list")
        return old
    return structs.replace(
        old,
        feasible_space=FeasibleSpace(
            min=min(before.min, space.min, key=float),
            max=max(before.max, space.max, key=float),
            step=before.step if before.step == space.step else "",
            distribution=before.distribution,
        ),
    )


def _kind(spec: ParameterSpec) -> str:
    return f"{spec.parameter_type} {spec.feasible_space.distribution}".strip()
