"""Running an experiment once more: from its start, its failed trials only, or with a larger budget.

All of it happens while no controller writes: before the engine is started, or between the turns of its controllers. A
crash between two writes loses nothing: an experiment that has not gone on yet is taken up by the next call, and one
that was being set aside is there twice, its new form stopped and with a part of the trials.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Protocol, TypeVar

from msgspec import structs

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL, as_read, owner_entry, with_status
from katib.engine.controllers.suggestion.replies import waiting_assignments
from katib.engine.controllers.suggestion.states import restarting
from katib.engine.controllers.trial.plan import killed
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import NotFoundError, invalid
from katib.model.conditions import has_ended, set_condition, true_types, whole_second, without_condition
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.features.listed import FEATURES
from katib.model.names import (
    EXPERIMENT_LABEL,
    MAX_EXPERIMENT_NAME,
    PROGRAM_ANNOTATION,
    STOPPED,
    STOPPED_ANNOTATION,
    SUBMITTED_BUDGET_ANNOTATION,
)
from katib.model.trials import ACTIVE, ran_seconds, trial_state
from katib.model.types import (
    Experiment,
    ExperimentCondition,
    ExperimentStatus,
    Suggestion,
    SuggestionCondition,
    Trial,
    TrialAssignment,
    TrialState,
)
from katib.places.machine.program import PACKAGES, changed_files, program_now

REPLACED = "ExperimentReplaced"
"""Reason of the condition Failed of an experiment that was unfinished when it was restarted."""

T = TypeVar("T")


class Undisturbed(Protocol):
    """Calls functions while no controller writes."""

    def __call__(self, experiment: Key, work: Callable[[], T], /) -> T:
        """Call a function that writes an experiment; return what it returns."""


def at_once(_experiment: Key, work: Callable[[], T]) -> T:
    """Call a function where no controller runs."""
    return work()


_LOST = (TrialState.FAILED, TrialState.METRICS_UNAVAILABLE, TrialState.KILLED)


class Reruns:
    """Repeats experiments of one data directory. Fits `katib.service.tuning.repeating.Reruns`.

    Args:
        rename_events: Gives the events of an experiment to another name; takes a namespace and two names.
        undisturbed: Calls what writes an experiment, while no controller does, and returns what it returns.
        seconds_of: Returns how long a trial has run.
    """

    def __init__(
        self,
        store: ObjectStore,
        forget_readings: Callable[[str], None],
        rename_events: Callable[[str, str, str], None],
        clock: Clock,
        undisturbed: Undisturbed = at_once,
        seconds_of: Callable[[Trial], float] = lambda trial: ran_seconds(trial) or 0.0,
    ) -> None:
        self._store = store
        self._forget_readings = forget_readings
        self._rename_events = rename_events
        self._clock = clock
        self.undisturbed = undisturbed
        self._seconds_of = seconds_of

    def program_of(self, experiment: Experiment) -> Mapping[str, str]:
        """Return the files of its program now."""
        return program_now(experiment)

    def changed_files(self, experiment: Experiment, *, with_packages: bool) -> Sequence[str]:
        """Return which files of its program changed since it was submitted, or ran again."""
        kept = experiment.metadata.annotations.get(PROGRAM_ANNOTATION, "")
        changed = changed_files(kept, program_now(experiment)) if kept else []
        return [name for name in changed if with_packages or name != PACKAGES]

    def set_aside(self, key: Key) -> str:
        """Give an experiment, with its trials, the first free name with a number, and return that name.

        Its own name is free then. One that is unfinished ends as failed, and its running trials as killed.

        Raises:
            NotFoundError: There is no such experiment.
        """
        found = self._store.get(EXPERIMENT, key)
        aside = Key(key.namespace, self._free_name(key))
        old = Experiment.decode(found)
        copy = self._store.create(_renamed(found, aside.name))
        new = Experiment.decode(copy)
        trials = self._store.list(TRIAL, key.namespace, owner_uid=old.metadata.uid).items
        owner = [owner_entry(new)]
        for trial in trials:
            running = Trial.decode(trial)
            if trial_state(running) in ACTIVE:
                message, now = "Trial is stopped: its experiment was restarted", self._clock.now()
                status = killed(running.status, message, now, self._seconds_of(running))
                self._store.update_status(with_status(running, status))
            fresh = self._store.get(TRIAL, Key.of(trial))
            changes = {"labels": {EXPERIMENT_LABEL: aside.name}, "ownerReferences": owner}
            self._store.patch(fresh, {"metadata": changes})
        for confirming in self._store.list(EXPERIMENT, key.namespace, owner_uid=old.metadata.uid).items:
            self._store.patch(confirming, {"metadata": {"ownerReferences": [{**owner[0], "controller": False}]}})
        with suppress(NotFoundError):
            suggestion = self._store.get(SUGGESTION, key)
            stored = self._store.create(_renamed(suggestion, aside.name, owner))
            self._store.update_status({**stored, "status": suggestion.get("status", {})})
        self._store.update_status({**copy, "status": self._ended(old).encode()})
        self._rename_events(key.namespace, key.name, aside.name)
        found = self._store.patch(found, {"metadata": {"finalizers": None}})
        self._store.delete(EXPERIMENT, key, uid=old.metadata.uid)
        copy = self._store.get(EXPERIMENT, aside)
        stopped = (found["metadata"].get("annotations") or {}).get(STOPPED_ANNOTATION)
        self._store.patch(copy, {"metadata": {"annotations": {STOPPED_ANNOTATION: stopped}}})
        return aside.name

    def run_again(self, key: Key, program: Mapping[str, str], *, failed: bool = False, more: int = 0) -> Experiment:
        """Let an experiment that has ended continue; return it.

        Args:
            program: The files of its program now; where there are none, what is kept of them stays.
            failed: Whether the trials that failed, or were stopped with it, run again with their assignments.
            more: How many trials to add to its budget.

        Raises:
            InvalidError: It cannot be resumed.
            NotFoundError: There is no such experiment.
        """
        found = self._store.get(EXPERIMENT, key)
        experiment = with_defaults(decode_stored(found))
        changes: dict[str, Any] = {"annotations": {}}
        if failed:
            removed = self._release_lost_trials(found)
            for feature in FEATURES:
                changes["annotations"].update(feature.without(experiment.metadata.annotations, removed))
        if program:
            changes["annotations"][PROGRAM_ANNOTATION] = json.dumps(program, sort_keys=True)
        spec: dict[str, Any] = {}
        budget = experiment.spec.max_trial_count
        if more and budget is None:
            cause, remedy = "it has no maxTrialCount to raise", "use --restart or --retry-failed"
            raise invalid(f"experiment {key.name}", cause, remedy, "more-without-budget")
        if more and budget is not None:
            spec["maxTrialCount"] = budget + more
            if SUBMITTED_BUDGET_ANNOTATION not in experiment.metadata.annotations:
                changes["annotations"][SUBMITTED_BUDGET_ANNOTATION] = str(budget)
        found = self._store.patch(found, {"metadata": changes, "spec": spec} if spec else {"metadata": changes})
        self._open_suggestion(key)
        experiment = Experiment.decode(found)
        if not has_ended(experiment.status.conditions):
            return experiment
        conditions = set_condition(
            without_condition(experiment.status.conditions, ExperimentCondition.SUCCEEDED, ExperimentCondition.FAILED),
            ExperimentCondition.RESTARTING,
            "ExperimentRestarting",
            "Experiment is restarted",
            self._clock.now(),
        )
        status = structs.replace(experiment.status, conditions=conditions, completion_time=None)
        return Experiment.decode(self._store.update_status(with_status(experiment, status)))

    def _free_name(self, key: Key) -> str:
        taken = {Key.of(obj).name for obj in self._store.list(EXPERIMENT, key.namespace).items}
        names = (f"{key.name[: MAX_EXPERIMENT_NAME - len(str(n)) - 1]}-{n}" for n in count(1))
        return next(name for name in names if name not in taken)

    def _ended(self, experiment: Experiment) -> ExperimentStatus:
        if has_ended(experiment.status.conditions):
            return experiment.status
        now = self._clock.now()
        conditions = set_condition(
            experiment.status.conditions,
            ExperimentCondition.FAILED,
            REPLACED,
            "Experiment was unfinished when it was restarted",
            now,
        )
        return structs.replace(experiment.status, conditions=conditions, completion_time=whole_second(now))

    def _release_lost_trials(self, experiment: Object) -> Sequence[tuple[Trial, float]]:
        """Remove the trials that brought nothing, and give their assignments back to the Suggestion.

        Returns:
            Those trials, each with the seconds that it ran.
        """
        key = Key.of(experiment)
        suggestion = Suggestion.decode(self._store.get(SUGGESTION, key))
        listed = self._store.list(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}).items
        trials = [trial for trial in map(Trial.decode, listed) if trial_state(trial) in _LOST]
        names = {Key.of(trial).name for trial in listed}
        waiting = waiting_assignments(suggestion, names)
        known = {assignment.name for assignment in waiting}
        again = [
            TrialAssignment(
                name=trial.name,
                parameter_assignments=trial.spec.parameter_assignments,
                early_stopping_rules=trial.spec.early_stopping_rules,
                labels=trial.spec.labels,
            )
            for trial in trials
            if trial.name not in known
        ]
        status = structs.replace(suggestion.status, suggestions=(*again, *waiting))
        self._store.update_status(with_status(suggestion, status))
        removed = [(trial, self._seconds_of(trial)) for trial in trials]
        for trial in trials:
            self._forget_readings(trial.name)
            self._store.patch(as_read(trial), {"metadata": {"finalizers": None}})
            self._store.delete(TRIAL, Key(key.namespace, trial.name), uid=trial.metadata.uid)
        return removed

    def _open_suggestion(self, key: Key) -> None:
        """Take back that the Suggestion is over; one that failed is asked again."""
        with suppress(NotFoundError):
            suggestion = Suggestion.decode(self._store.get(SUGGESTION, key))
            over = (SuggestionCondition.SUCCEEDED, SuggestionCondition.FAILED)
            if true_types(suggestion.status.conditions) & set(over):
                conditions = without_condition(suggestion.status.conditions, *over)
                status = structs.replace(suggestion.status, conditions=restarting(conditions, self._clock.now()))
                self._store.update_status(with_status(suggestion, status))


def _renamed(found: Object, name: str, owners: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return a new object like one that is stored; an experiment is stopped until it is complete."""
    metadata = found["metadata"]
    kept = {field: metadata[field] for field in ("namespace", "labels", "finalizers") if field in metadata}
    annotations = dict(metadata.get("annotations") or {})
    if owners is None:
        annotations[STOPPED_ANNOTATION] = STOPPED
    new: dict[str, Any] = {**kept, "name": name, "annotations": annotations}
    if owners is not None:
        new["ownerReferences"] = owners
    return {**{field: value for field, value in found.items() if field not in ("metadata", "status")}, "metadata": new}
