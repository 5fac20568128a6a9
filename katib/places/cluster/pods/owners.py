"""The trial of a pod, found through the owners of its owners, each cached for a while."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import Backoff, ForbiddenError, KindNotInstalledError, NotFoundError

REMEMBERED_SECONDS = 30.0
"""Owners of an object do not change in practice; a job may create a thousand pods at once."""

_NEVER_OF_TRIALS = frozenset(
    {
        Kind("apps/v1", "ReplicaSet"),
        Kind("apps/v1", "StatefulSet"),
        Kind("apps/v1", "DaemonSet"),
        Kind("v1", "ReplicationController"),
        Kind("batch/v1", "CronJob"),
        Kind("v1", "Node"),
    }
)
"""Owners that run forever, unlike trials.

Most pods of a cluster have one of these, so they are not even read, and the controller needs no right to read them.
"""

REFUSAL = Backoff(5.0, 300.0)
"""How long a forbidden kind is not read again for patient callers.

A namespace may hold hundreds of pods of such a kind, and rights are granted manually.
"""

_MAX_REMEMBERED = 2_000
_MAX_DEPTH = 10
"""More layers than any job has (TrainJob, JobSet, Job are three); ends cycles, too."""


class _Owner(NamedTuple):
    kind: Kind
    namespace: str
    name: str
    uid: str


class OwningTrial(NamedTuple):
    """The trial that owns an object, as named by its owner references. Another trial may have that name now."""

    key: Key
    uid: str


class _Finding(NamedTuple):
    """Cached trial of an object, with its expiry."""

    trial: OwningTrial | None
    until: float


class _Refusal(NamedTuple):
    """A forbidden kind in a namespace: the error, the number of failures, and until when patient callers wait."""

    error: ForbiddenError
    failures: int
    until: float


class TrialFinder:
    """Finds the trials of pods. Thread-safe.

    Args:
        clock: Measures the age of cached results.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._findings: OrderedDict[_Owner, _Finding] = OrderedDict()
        self._refusals: OrderedDict[tuple[Kind, str], _Refusal] = OrderedDict()

    def trial_of(self, pod: Object, namespace: str, *, patient: bool = False) -> OwningTrial | None:
        """Return the trial among the owners of a pod, at any depth; None if there is none.

        Args:
            pod: The pod, or any object: only its owners are used.
            patient: Whether a refusal is cached for a while, for repeated calls.

        Raises:
            ForbiddenError: An owner may not be read.
            UnavailableError: An owner cannot be read now.
        """
        return self._walk(pod, namespace, _MAX_DEPTH, patient=patient)

    def _walk(self, obj: Object, namespace: str, depth: int, *, patient: bool) -> OwningTrial | None:
        references = obj.get("metadata", {}).get("ownerReferences") or ()
        controller_first = sorted(references, key=lambda reference: not reference.get("controller"))
        named = (_owner(reference, namespace) for reference in controller_first)
        owners = [owner for owner in named if owner.kind not in _NEVER_OF_TRIALS]
        direct = next((owner for owner in owners if owner.kind == TRIAL), None)
        if direct is not None:
            return OwningTrial(Key(namespace, direct.name), direct.uid)
        return self._through(owners, depth - 1, patient=patient) if depth else None

    def _through(self, owners: list[_Owner], depth: int, *, patient: bool) -> OwningTrial | None:
        refusal: ForbiddenError | None = None
        for owner in owners:
            try:
                if found := self._beyond(owner, depth, patient=patient):
                    return found
            except ForbiddenError as error:
                refusal = error  # another owner may lead to the trial
        if refusal is not None:
            raise refusal
        return None

    def _beyond(self, owner: _Owner, depth: int, *, patient: bool) -> OwningTrial | None:
        now = self._clock.monotonic()
        with self._lock:
            finding = self._findings.get(owner)
        if finding is not None and now < finding.until:
            return finding.trial
        obj = self._read(owner, patient=patient)
        trial = None if obj is None else self._walk(obj, owner.namespace, depth, patient=patient)
        with self._lock:
            self._findings[owner] = _Finding(trial, now + REMEMBERED_SECONDS)
            self._findings.move_to_end(owner)
            while len(self._findings) > _MAX_REMEMBERED:
                self._findings.popitem(last=False)
        return trial

    def _read(self, owner: _Owner, *, patient: bool) -> Object | None:
        place = (owner.kind, owner.namespace)
        if patient:
            with self._lock:
                refusal = self._refusals.get(place)
            if refusal is not None and self._clock.monotonic() < refusal.until:
                raise refusal.error
        try:
            found = self._store.get(owner.kind, Key(owner.namespace, owner.name))
        except (NotFoundError, KindNotInstalledError):
            return None
        except ForbiddenError as error:
            self._remember_refusal(place, error)
            raise
        with self._lock:
            self._refusals.pop(place, None)
        return found if found.get("metadata", {}).get("uid") == owner.uid else None

    def _remember_refusal(self, place: tuple[Kind, str], error: ForbiddenError) -> None:
        now = self._clock.monotonic()
        with self._lock:
            last = self._refusals.get(place)
            if last is not None and now < last.until:
                return  # an impatient caller asked concurrently
            failures = 1 if last is None else last.failures + 1
            self._refusals[place] = _Refusal(error, failures, now + REFUSAL.pause_seconds(failures))
            if len(self._refusals) > _MAX_REMEMBERED:
                self._refusals.popitem(last=False)


def _owner(reference: Mapping[str, Any], namespace: str) -> _Owner:
    kind = Kind(str(reference.get("apiVersion", "")), str(reference.get("kind", "")))
    return _Owner(kind, namespace, str(reference.get("name", "")), str(reference.get("uid", "")))
