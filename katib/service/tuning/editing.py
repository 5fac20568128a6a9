"""Changing an experiment that exists: its counts, its marks, a stop, a pause; marking and pausing a trial."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import UNSET, UnsetType, structs

from katib.engine.controllers.experiment.plan import is_stopped
from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    KatibError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
    invalid,
)
from katib.model.conditions import has_ended
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.job_kinds import IN_QUEUE, nested, suspend_field, value_at
from katib.model.marks import MarkChanges, annotations_of, validate_marks
from katib.model.names import (
    ENGINE_ANNOTATION,
    EXPERIMENT_LABEL,
    PAUSED,
    PAUSED_ANNOTATION,
    STOPPED,
    STOPPED_ANNOTATION,
)
from katib.model.trials import ACTIVE, trial_state, waiting_words
from katib.model.types import Experiment, ExperimentSpec, Trial
from katib.model.validation.update import COUNTS, validate_update
from katib.model.wording import one_of
from katib.service.tuning.service import EditExperiment, EditTrial
from katib.service.tuning.writing import until_written

_FIELDS = dict(zip(ExperimentSpec.__struct_encode_fields__, ExperimentSpec.__struct_fields__, strict=True))
COUNT_FIELDS = {name: _FIELDS[name] for name in COUNTS}
"""Field by name in JSON."""

_JOB_SECONDS = 5.0
"""How long a new trial may take to get its job."""
_LOOK_SECONDS = 0.1


def edit_experiment(
    store: ObjectStore,
    key: Key,
    *,
    counts: Mapping[str, int | None],
    stopped: bool | None = None,
    marks: MarkChanges | None = None,
) -> Object:
    """Change the counts of an experiment, stop it, let it continue, or mark it; return it as stored.

    One that is stopped makes no further trial; running ones continue to their ends. Raising `maxTrialCount` of one that
    has used up its budget takes it up again if its resume policy allows that.

    Args:
        counts: New value by field of the spec, such as `maxTrialCount`; None takes a limit away.
        stopped: Whether it is to be stopped; None leaves that as it is. An interrupted one continues unless it is.
        marks: New tags and notes; None leaves them as they are.

    Raises:
        InvalidError: The change is not allowed.
        NotFoundError: There is no such experiment.
    """
    for name in counts:
        if name not in COUNTS:
            raise invalid(f"spec.{name}", "it cannot be changed", f"change {one_of(COUNTS)}", "update-immutable")

    _check(marks)

    def attempt() -> Object:
        found = store.get(EXPERIMENT, key)
        old = with_defaults(decode_stored(found))
        if old.metadata.deletion_timestamp is not None:
            raise AlreadyExistsError(f'experiment "{old.name}" is being deleted')
        changes = _changes(old, counts, stopped, marks or MarkChanges())
        return store.patch(found, changes) if changes else found

    return until_written(attempt, key.name, "try again")


def edited_experiment(store: ObjectStore, request: EditExperiment) -> Experiment:
    """Change an experiment as a request says."""
    given = {wire: getattr(request, name) for wire, name in COUNT_FIELDS.items()}
    counts = {wire: value for wire, value in given.items() if value is not UNSET}
    stopped = None if isinstance(request.stopped, UnsetType) else request.stopped
    key = Key(request.namespace, request.name)
    return Experiment.read(edit_experiment(store, key, counts=counts, stopped=stopped, marks=_marks_in(request)))


def edited_trial(store: ObjectStore, request: EditTrial) -> Trial:
    """Pause, resume or mark a trial as a request says."""
    key, marks = Key(request.namespace, request.name), _marks_in(request)
    if not isinstance(request.paused, UnsetType):
        trial = suspend_trial(store, key, suspended=request.paused)
        if marks == MarkChanges():
            return trial
    return mark_trial(store, key, marks)


def _marks_in(request: EditExperiment | EditTrial) -> MarkChanges:
    given = {name: getattr(request, name, UNSET) for name in ("tags", "notes", "views")}
    return MarkChanges(**{name: value for name, value in given.items() if value is not UNSET})


def mark_trial(store: ObjectStore, key: Key, marks: MarkChanges) -> Trial:
    """Set tags and notes of a trial; return it as stored.

    Raises:
        InvalidError: A mark is not valid.
        NotFoundError: There is no such trial.
    """
    _check(marks)

    def attempt() -> Trial:
        found = store.get(TRIAL, key)
        annotations = _new_annotations(Trial.read(found).metadata.annotations, marks)
        return Trial.read(store.patch(found, {"metadata": {"annotations": annotations}}) if annotations else found)

    return until_written(attempt, key.name, "try again")


def _check(marks: MarkChanges | None) -> None:
    if marks is not None and (errors := validate_marks(marks)):
        raise InvalidError(errors)


def _new_annotations(held: Mapping[str, str], marks: MarkChanges) -> dict[str, str | None]:
    return {name: text for name, text in annotations_of(marks, held).items() if held.get(name) != text}


def _changes(old: Experiment, counts: Mapping[str, int | None], stopped: bool | None, marks: MarkChanges) -> Object:
    """Return the patch, checked; empty if nothing changes."""
    spec = structs.replace(old.spec, **{COUNT_FIELDS[name]: value for name, value in counts.items()})
    errors = validate_update(old, with_defaults(structs.replace(old, spec=spec)))
    if errors:
        raise InvalidError(errors)
    changes: dict[str, Any] = {}
    differ = {name: value for name, value in counts.items() if getattr(old.spec, COUNT_FIELDS[name]) != value}
    if differ:
        changes["spec"] = differ
    annotations = _new_annotations(old.metadata.annotations, marks)
    if stopped is not None and stopped != is_stopped(old):
        if stopped and has_ended(old.status.conditions):
            raise invalid(f"experiment {old.name}", "it has ended", "there is nothing to stop", "stop-ended")
        annotations[STOPPED_ANNOTATION] = STOPPED if stopped else None
    if stopped is False and ENGINE_ANNOTATION in old.metadata.annotations:
        annotations[ENGINE_ANNOTATION] = None
    if annotations:
        changes["metadata"] = {"annotations": annotations}
    return changes


def _set_suspended(store: ObjectStore, job: Object, path: tuple[str, ...], *, suspended: bool) -> None:
    if bool(value_at(job, path)) is suspended:
        return
    if bool(value_at(store.patch(job, nested(path, suspended)), path)) is not suspended:
        cause = f"the API server dropped {'.'.join(path)} of its {Kind.of(job).kind}, which it does not know"
        remedy = "a newer Kubernetes or operator is needed for it"
        raise invalid(f"trial {Key.of(job).name}", cause, remedy, "suspend-unknown")


def _note(*, suspended: bool) -> Object:
    return {"metadata": {"annotations": {PAUSED_ANNOTATION: PAUSED if suspended else None}}}


def suspend_trial(store: ObjectStore, key: Key, *, suspended: bool) -> Trial:
    """Note on a trial that a user suspends it, and set the field of its job that does; return the Trial.

    The note is first, so that a user without the right to write it suspends no job.
    The pods of a suspended job end, which is no failure, and another trial may run in its place. One that continues
    starts its pods again, from the beginning or from a checkpoint.

    Raises:
        InvalidError: The trial has ended, nothing suspends a job of its kind, or Kueue decides when it continues.
        NotFoundError: There is no such trial.
        UnavailableError: Its job is not there yet, or not any more.
    """

    def attempt() -> Trial:
        found = store.get(TRIAL, key)
        trial = Trial.read(found)
        what = f"trial {key.name}"
        if trial_state(trial) not in ACTIVE:
            remedy = f"there is nothing to {'suspend' if suspended else 'resume'}"
            raise invalid(what, "it has ended", remedy, "suspend-ended")
        if (words := waiting_words(trial)).startswith(IN_QUEUE):
            remedy = "Kueue decides when it runs; to hold it back, set spec.active of its Workload to false"
            raise invalid(what, f"it {words.partition(':')[0]}", remedy, "suspend-queued")
        run_spec = trial.spec.run_spec or {}
        kind, path = Kind.of(run_spec), suspend_field(run_spec)
        if not path:
            cause = f"{kind.kind} ({kind.api_version}) has no field that suspends it"
            remedy = "only a Job, a JobSet, a TrainJob and the training jobs of kubeflow.org can be suspended"
            raise invalid(what, cause, remedy, "suspend-kind")
        job: Object = {}
        with suppress(NotFoundError):
            job = store.get(kind, key)
        owners = (job.get("metadata") or {}).get("ownerReferences") or ()
        if trial.metadata.uid not in (owner.get("uid") for owner in owners):
            raise UnavailableError(f"{what} has no {kind.kind} now; try again in a moment")
        is_noted = (PAUSED_ANNOTATION in trial.metadata.annotations) is suspended
        noted = found if is_noted else store.patch(found, _note(suspended=suspended))
        try:
            _set_suspended(store, job, path, suspended=suspended)
        except (ConflictError, OutcomeUnknownError):
            raise  # it is tried again, or may be suspended
        except KatibError:
            if not is_noted:
                with suppress(KatibError):
                    store.patch(noted, _note(suspended=not suspended))
            raise
        return Trial.read(noted)

    return until_written(attempt, key.name, "try again")


def suspend_experiment(store: ObjectStore, key: Key, suspended: bool) -> None:
    """Stop an experiment and suspend its trials, or let all continue; finished steps stay if one cannot.

    Raises:
        InvalidError: The experiment has ended, or its trials cannot be suspended.
        NotFoundError: There is no such experiment.
        UnavailableError: A trial has no job yet.
    """
    _suspend_all(store, key, [], suspended=suspended)


def pause_experiment(store: ObjectStore, key: Key, clock: Clock, *, paused: bool) -> tuple[Object, tuple[str, ...]]:
    """Stop an experiment and pause its trials, or let all continue; return it and the names of these trials.

    All or nothing: after an error or an interrupt (KeyboardInterrupt), all steps are undone.

    Raises:
        InvalidError: The experiment has ended, or its trials cannot be suspended.
        NotFoundError: There is no such experiment.
        UnavailableError: A trial has had no job for some seconds.
    """
    tried: list[str] = []
    was_stopped = is_stopped(Experiment.read(store.get(EXPERIMENT, key)))
    try:
        changed = _suspend_all(store, key, tried, suspended=paused, clock=clock)
    except BaseException:
        for name in tried:
            with suppress(KatibError):
                suspend_trial(store, Key(key.namespace, name), suspended=not paused)
        with suppress(KatibError):
            edit_experiment(store, key, counts={}, stopped=was_stopped)
        raise
    return store.get(EXPERIMENT, key), changed


def _suspend_all(
    store: ObjectStore, key: Key, tried: list[str], *, suspended: bool, clock: Clock | None = None
) -> tuple[str, ...]:
    """Stop an experiment and suspend its trials, or let all continue; return the names of these trials.

    The experiment is stopped first and continues last, so that no trial starts in the place of one that is suspended.
    With a clock, a new trial is given some seconds to get its job. A trial that ends meanwhile has ended.

    Args:
        tried: Receives the name of each trial before it is changed.
        suspended: Whether to suspend or to resume.
        clock: Measures the seconds; None: no trial is waited for.
    """
    changed, deadline = [], None if clock is None else clock.monotonic() + _JOB_SECONDS
    if suspended:
        edit_experiment(store, key, counts={}, stopped=True)
    for found in store.list(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}).items:
        trial = Trial.read(found)
        if trial_state(trial) in ACTIVE and (PAUSED_ANNOTATION in trial.metadata.annotations) is not suspended:
            tried.append(trial.name)
            if _has_suspended(store, Key.of(found), clock, deadline, suspended=suspended):
                changed.append(trial.name)
    if not suspended:
        edit_experiment(store, key, counts={}, stopped=False)
    return tuple(changed)


def _has_suspended(
    store: ObjectStore, key: Key, clock: Clock | None, deadline: float | None, *, suspended: bool
) -> bool:
    """Suspend or resume a trial; return False if it has ended."""
    pause = threading.Condition()
    while True:
        try:
            suspend_trial(store, key, suspended=suspended)
        except UnavailableError:
            if clock is None or deadline is None or clock.monotonic() >= deadline:
                raise
            with pause:
                clock.wait(pause, _LOOK_SECONDS)
        except NotFoundError:
            return False
        except InvalidError as error:
            if error.errors[0].origin != "suspend-ended":
                raise
            return False
        else:
            return True
