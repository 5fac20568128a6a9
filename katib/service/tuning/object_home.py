"""The objects of a home as they are: for writers of any kind of object, not only of experiments.

The rules are those of every other way in: an experiment passes the gate of submissions, a job the rules of its home.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, JOB, NAMESPACE, OPTIMIZATION_JOB, SUGGESTION, TRIAL
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore, SlicedStore
from katib.engine.stores.event_queue import StoredEvent
from katib.engine.stores.semantics import merged
from katib.errors import FieldError, InvalidError, invalid
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.job_kinds import suspend_field
from katib.model.json_values import check_plain, same_json
from katib.model.loading import FileText, LoadedDocument, Submission, decode_experiment
from katib.model.optimization_jobs import decode_optimization_job, read_optimization_job
from katib.model.templates.devices import device_errors
from katib.model.templates.job_schema import check_job_schema
from katib.model.validation.update import changed_counts
from katib.service.tuning.ports import TimedOutput
from katib.service.tuning.service import TuningService
from katib.service.tuning.submission import Gate, Home

Json = dict[str, Any]

SECRET = Kind("v1", "Secret")
LEASE = Kind("coordination.k8s.io/v1", "Lease")
EVENT = Kind("v1", "Event")
_PLAIN = frozenset({CONFIG_MAP, SECRET, LEASE, EVENT})
"""Kinds that are only stored and read; nothing acts on them."""

RUNTIME_KINDS = frozenset({"TrainingRuntime", "ClusterTrainingRuntime"})

_UNKNOWN = "field-unknown"
_FIRST_DOT = re.compile(r"(?:^|(?<=, ))\.")
"""Before the paths of a job that is not part of another object."""

_KEPT = ("finalizers", "managedFields", "ownerReferences")
"""Metadata of a new experiment that its author may set, but a submitted file may not."""

_CHANGEABLE = ("activeDeadlineSeconds", "backoffLimit", "parallelism", "suspend", "ttlSecondsAfterFinished")
"""Fields in the spec of a job that may change while it is there; `runPolicy` of the training kinds as a whole."""


@dataclass(frozen=True, slots=True)
class AdmittedObject:
    """An object that may be stored as it is.

    Attributes:
        notices: Sentences that its author should know.
        unknown: Fields that no type knows. They are not stored.
    """

    obj: Json
    notices: tuple[str, ...] = ()
    unknown: tuple[FieldError, ...] = ()


class Admission(Protocol):
    """The rules by which objects are written. Thread-safe."""

    def new(self, obj: Json) -> AdmittedObject:
        """Return a new object, which has a name, and a namespace if its kind has them.

        Raises:
            InvalidError: It may not be stored, with everything that is wrong.
        """

    def changed(self, old: Object, new: Json) -> AdmittedObject:
        """Return an object that may take the place of its stored state. Raises as `new`."""


class SlicedObjects(ObjectStore, SlicedStore, Protocol):
    """Objects, also a slice at a time."""


@dataclass(frozen=True, slots=True)
class ObjectHome:
    """Interface of a home for readers and writers of its objects.

    Attributes:
        objects: All objects, to be read and watched.
        written: Store of the objects that users write.
        status_kinds: Kinds whose status is written apart from the rest.
        service: Deletes an experiment with all that it leaves.
        events: Returns the newest notable moments of a namespace, or of all for None, oldest first; those after a
            moment if one is given.
        runtimes: Training runtimes of the cluster's kind that came with the installation; those that are stored under
            their names come before them.
        structures: By kind of job, the fields of its spec as `katib.places.machine.findings` writes them.
    """

    objects: SlicedObjects
    written: ObjectStore
    admission: Admission
    status_kinds: frozenset[Kind]
    service: TuningService
    output: TimedOutput
    events: Callable[[str | None, datetime | None], Sequence[StoredEvent]]
    runtimes: tuple[Object, ...] = ()
    structures: Mapping[Kind, Mapping[str, Any]] = field(default_factory=dict)
    defaults: Mapping[Kind, Callable[[Object], Json]] = field(default_factory=dict)


class ObjectAdmission:
    """Fits `Admission` for a home with a gate.

    Args:
        gate: Admits experiments and runtimes.
        find: Finds objects that others refer to.
    """

    def __init__(self, gate: Gate, home: Home, find: Callable[[Kind, Key], Object | None]) -> None:
        self._gate = gate
        self._home = home
        self._find = find

    def new(self, obj: Json) -> AdmittedObject:
        """Admit a new object by the rules of its kind."""
        if errors := check_plain(obj):
            raise InvalidError(errors)
        kind = Kind.of(obj)
        if kind == EXPERIMENT:
            return self._new_experiment(obj)
        if kind in (TRIAL, SUGGESTION):
            remedy = "create the Experiment" + (", or use katib trial" if kind == TRIAL else "")
            raise invalid("kind", f"a {kind.kind} is made by its experiment", remedy, "kind-made")
        if kind == OPTIMIZATION_JOB:
            submission, unknown = _without_unknown(decode_optimization_job(obj, Key.of(obj).namespace))
            admitted = self._gate.admit(self._gate.received(submission))
            return AdmittedObject(submission.job or obj, admitted.notices, unknown)
        return self._admitted(obj)

    def changed(self, old: Object, new: Json) -> AdmittedObject:
        """Admit a changed object by the rules of its kind."""
        if errors := check_plain(new):
            raise InvalidError(errors)
        if Kind.of(old) == OPTIMIZATION_JOB:
            new = {**new, "spec": read_optimization_job(new)[0].spec.encode()}  # as it was stored, with defaults
        if same_json(old.get("spec"), new.get("spec")) and Kind.of(old) not in _PLAIN:
            return AdmittedObject(new)  # labels, finalizers: these may change whatever else would be refused by now
        kind = Kind.of(old)
        if kind == EXPERIMENT:
            return self._changed_experiment(old, new)
        if kind in (TRIAL, SUGGESTION):
            raise invalid("spec", "it is written by the controllers alone", "undo the change", "update-immutable")
        if kind == OPTIMIZATION_JOB:
            if not same_json({**old["spec"], "suspend": None}, {**new["spec"], "suspend": None}):
                remedy = "create a job of another name"
                raise invalid("spec", "it cannot be changed, but for suspend", remedy, "update-immutable")
            return AdmittedObject(new)
        if kind not in _PLAIN and kind.kind not in RUNTIME_KINDS:
            _check_job_change(old, new)
        return self._admitted(new)

    def _new_experiment(self, raw: Json) -> AdmittedObject:
        submission, unknown = _read(raw)
        submission = self._gate.received(submission)
        admitted = self._gate.admit(submission)
        obj = admitted.experiment.encode()
        obj["metadata"] |= {name: value for name, value in raw["metadata"].items() if name in _KEPT}
        return AdmittedObject(obj, admitted.notices, unknown)

    def _changed_experiment(self, stored: Object, raw: Json) -> AdmittedObject:
        submission, unknown = _read(raw)
        old = with_defaults(decode_stored(stored))
        new = self._gate.admit_update(submission, old)
        spec = merged(stored.get("spec"), changed_counts(old, new))
        return AdmittedObject({**raw, "spec": spec}, unknown=unknown)

    def _admitted(self, obj: Json) -> AdmittedObject:
        kind = Kind.of(obj)
        if kind.kind in RUNTIME_KINDS:
            document = LoadedDocument(kind.kind, 1, obj)
            self._gate.runtimes(FileText.of([document], kind.kind), source=kind.kind, namespace=Key.of(obj).namespace)
            return AdmittedObject(obj)
        if kind in (CONFIG_MAP, SECRET):
            return AdmittedObject(_with_data(obj))
        if kind in (LEASE, EVENT):
            if broken := list(_lease_errors(obj) if kind == LEASE else _event_errors(obj)):
                raise InvalidError(broken)
            return AdmittedObject(obj)
        if kind == NAMESPACE:
            return AdmittedObject({**obj, "spec": {}, "status": {"phase": "Active"}})
        structure = [*(check_job_schema(obj, "") if kind == JOB else ()), *device_errors(obj.get("spec"), "spec")]
        errors, notices = self._home.check_job(obj, self._find)
        found = [replace(error, path=error.path.lstrip(".")) for error in dict.fromkeys([*structure, *errors])]
        if wrong := [error for error in found if error.origin != _UNKNOWN]:
            raise InvalidError(wrong)
        return AdmittedObject(obj, tuple(_FIRST_DOT.sub("", notice) for notice in notices), tuple(found))


def _read(raw: Json) -> tuple[Submission, tuple[FieldError, ...]]:
    """Return an experiment as it was read, and apart from it the fields that no type knows."""
    return _without_unknown(decode_experiment(raw, Key.of(raw).namespace))


def _without_unknown(submission: Submission) -> tuple[Submission, tuple[FieldError, ...]]:
    unknown = tuple(error for error in submission.errors if error.origin == _UNKNOWN)
    wrong = tuple(error for error in submission.errors if error.origin != _UNKNOWN)
    return replace(submission, errors=wrong), unknown


def _with_data(obj: Json) -> Json:
    """Return a ConfigMap or Secret with the plain texts of a Secret among its data, as an API server keeps them."""
    errors = [
        FieldError(f"{field}[{key}]", f"{value!r:.100} is not text", "put it in quotes", "value-type")
        for field in ("data", "binaryData", "stringData")
        for key, value in (obj.get(field) or {}).items()
        if not isinstance(value, str)
    ]
    if errors:
        raise InvalidError(errors)
    plain: Mapping[str, str] = obj.get("stringData") or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
    rest = {name: value for name, value in obj.items() if name != "stringData"}
    if Kind.of(obj) == SECRET:
        rest.setdefault("type", "Opaque")
    return {**rest, "data": {**(obj.get("data") or {}), **encoded}} if encoded else rest


def _lease_errors(lease: Json) -> Iterator[FieldError]:
    spec = lease.get("spec") or {}
    if not isinstance(spec, dict):
        yield FieldError("spec", f"{spec!r:.100} is not a map", "give a map", "value-type")
        return
    for name in ("holderIdentity", "acquireTime", "renewTime"):
        if not isinstance(spec.get(name, ""), str | None):
            yield FieldError(f"spec.{name}", f"{spec[name]!r:.100} is not text", "put it in quotes", "value-type")
    for name, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        number = spec.get(name)
        if number is not None and (type(number) is not int or number < least):
            yield FieldError(f"spec.{name}", f"{number!r:.100} is not allowed", f"give {least} or more", "lease-number")


def _event_errors(event: Json) -> Iterator[FieldError]:
    subject = event.get("involvedObject")
    if not isinstance(subject, dict):
        yield FieldError("involvedObject", "it is missing, or is not a map", "name the object", "event-subject")
    elif (place := subject.get("namespace")) not in (None, "", Key.of(event).namespace):
        path, remedy = "involvedObject.namespace", "create the event in the namespace of its object"
        yield FieldError(path, f"{place!r:.100} is not the namespace of the event", remedy, "event-subject")


def _check_job_change(old: Object, new: Json) -> None:
    """Raise unless only such fields of a job changed as may change while it is there."""
    field = suspend_field(old)
    changeable = {*_CHANGEABLE, *(field[1:2] if field else ())}
    before, after = old.get("spec") or {}, new.get("spec")
    after = after if isinstance(after, dict) else {}
    if Kind.of(old) == JOB and before.get("completionMode") == "Indexed":
        changeable.add("completions")
        if not same_json(before.get("completions"), after.get("completions")) and not same_json(
            after.get("completions"), after.get("parallelism")
        ):
            cause, remedy = "of an Indexed Job it changes with parallelism", "set both to the same number"
            raise invalid("spec.completions", cause, remedy, "update-completions")
    errors = [
        FieldError(f"spec.{name}", "it cannot be changed", "delete the job and create it again", "update-immutable")
        for name in {**before, **after}
        if name not in changeable and not same_json(before.get(name), after.get(name))
    ]
    if errors:
        raise InvalidError(errors)
