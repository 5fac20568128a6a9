"""Trials that were evaluated elsewhere, taken into an experiment as if callers of it had ended them.

Theory of operation. Such a trial is created with its outcome: no caller gets it, and the trial controller ends it as
any other. Its name follows from its id, so that the same trial is taken once, however often it is sent. The number of
trials that were asked for counts it, too, for the controllers make as many as that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from katib.engine.controllers.experiment.trial_factory import trial_of
from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.objects import Key, ObjectStore
from katib.errors import AlreadyExistsError, FieldError, InvalidError, TerminalError, invalid
from katib.model.conditions import COMPLETED_EXPERIMENT, true_types
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.leases import Outcome
from katib.model.metrics import BatchId, MetricLog, parse_value
from katib.model.names import ASKED_ANNOTATION, BY_USER, CHOSEN_BY_LABEL, OUTCOME_ANNOTATION, trial_name
from katib.model.trials import asked_count, is_asked, objective_names
from katib.model.types import Experiment, ParameterAssignment, TrialAssignment
from katib.model.wording import shown
from katib.service.tuning.adding import point_errors
from katib.service.tuning.ports import CallersLog
from katib.service.tuning.service import EndedTrial
from katib.service.tuning.trial_pages import find_trials
from katib.service.tuning.writing import until_written

MOST_AT_ONCE = 1_000
_REPORTER = "elsewhere"


def add_ended_trials(store: ObjectStore, callers: CallersLog | None, key: Key, trials: Sequence[EndedTrial]) -> int:
    """Take trials into an experiment without trial template; return how many of them are new.

    Args:
        trials: At most MOST_AT_ONCE.

    Raises:
        InvalidError: Jobs evaluate the trials of the experiment, it has ended, or anything wrong with the trials, all
            errors at once; then none is taken.
        NotFoundError: There is no such experiment.
    """
    experiment = with_defaults(decode_stored(store.get(EXPERIMENT, key)))
    if not is_asked(experiment):
        cause = "its trials run as jobs, by its spec.trialTemplate"
        raise invalid(f"experiment {key.name}", cause, "name one without a template", "ask-template")
    if callers is None:
        raise TerminalError("this service takes no readings of callers, and so no trials that were evaluated elsewhere")
    if true_types(experiment.status.conditions) & COMPLETED_EXPERIMENT:
        raise invalid(f"experiment {key.name}", "it has ended", "raise spec.maxTrialCount first", "add-trial-ended")
    if errors := list(_errors(experiment, trials)):
        raise InvalidError(errors)
    log = callers.log.within(key.namespace)
    new = 0
    for trial in trials:
        name = name_of_ended(key.namespace, key.name, trial.id)
        if trial.readings:
            log.report(name, trial.readings, BatchId(_REPORTER, 0))
        try:
            store.create(_object_of(experiment, name, trial))
            new += 1
        except AlreadyExistsError:
            continue

    def count() -> None:
        found = store.get(EXPERIMENT, key)
        total = find_trials(store, key, states=frozenset(), order="age", limit=1, cursor="").total
        asked = asked_count(Experiment.decode(found))
        wanted = max(asked + new, total)  # the total heals what a crash between the trials and their number left
        if wanted != asked:
            store.patch(found, {"metadata": {"annotations": {ASKED_ANNOTATION: str(wanted)}}})

    until_written(count, key.name, "send the trials again")
    return new


def name_of_ended(namespace: str, experiment: str, identity: str) -> str:
    """Return the name that a trial that was evaluated elsewhere has here."""
    return trial_name(namespace, experiment, f"{_REPORTER}/{identity}")


def _object_of(experiment: Experiment, name: str, trial: EndedTrial) -> dict[str, Any]:
    assignments = tuple(ParameterAssignment(name=key, value=value) for key, value in trial.assignments.items())
    labels = {CHOSEN_BY_LABEL: BY_USER}
    assignment = TrialAssignment(name=name, parameter_assignments=assignments, labels=labels)
    made = trial_of(experiment, assignment, None).encode()
    outcome = Outcome("", trial.ended, trial.values, trial.failure, trial.stopped, trial.began)
    made["metadata"].setdefault("annotations", {})[OUTCOME_ANNOTATION] = str(outcome)
    return made


def _errors(experiment: Experiment, trials: Sequence[EndedTrial]) -> Iterator[FieldError]:
    """Yield why trials cannot be taken."""
    if len(trials) > MOST_AT_ONCE:
        yield FieldError("trials", f"{len(trials)} are given", f"send at most {MOST_AT_ONCE} at once", "ended-count")
    names = [] if experiment.spec.objective is None else objective_names(experiment.spec.objective)
    for i, trial in enumerate(trials):
        path = f"trials[{i}]"
        chosen = tuple(ParameterAssignment(name=key, value=value) for key, value in trial.assignments.items())
        for error in point_errors(experiment, chosen):
            yield FieldError(f"{path}.{error.path}", error.cause, error.remedy, error.origin)
        readings = [*trial.readings, *(MetricLog(trial.ended, name, text) for name, text in trial.values.items())]
        for reading in readings:
            if not reading.name or parse_value(reading.value) is None:
                cause = f"{shown(reading.value)} is not a number"
                yield FieldError(f"{path}.values[{shown(reading.name)}]", cause, "give a number", "report-value")
        if trial.failure is None and not trial.stopped:
            for name in sorted(set(names) - {reading.name for reading in readings}):
                remedy = "give it, or say that the trial failed"
                yield FieldError(f"{path}.values", f'"{name}" is missing', remedy, "tell-objective")
