"""The tuning service of one machine: what users ask, answered from the stores."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from katib.api.algorithms import AlgorithmCatalog, AlgorithmInfo
from katib.api.conditions import COMPLETED_EXPERIMENT, true_types
from katib.api.metrics import MetricLog
from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import API_VERSION, Experiment
from katib.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.diagnosing import Diagnostician
from katib.engine.submission import Gate
from katib.engine.trial_files import TrialFiles
from katib.errors import AlreadyExistsError, ConflictError, FieldError, InvalidError, NotFoundError, UnavailableError
from katib.observations.ports import ObservationReader
from katib.runtime.clock import Clock
from katib.runtime.objects import EventType, Key, Kind, Object, ObjectStore, Watch, WatchEvent
from katib.stores.events import EventLog, EventSubject
from katib.tuning.reading import state_of
from katib.tuning.service import (
    DEFAULT_NAMESPACE,
    Change,
    Diagnosis,
    Json,
    Page,
    RecordedEvent,
    Submission,
)

DELETE_TIMEOUT_SECONDS = 60.0
"""Longer than the default grace period of 30 s that running trials have to end."""

UPDATE_ATTEMPTS = 20
"""The controllers write the status of a busy experiment ten times a second, and an update takes milliseconds."""

_PAGE_ROWS = 1 << 16


class LocalTuningService:
    """Fits `katib.tuning.service.TuningService`. Thread-safe.

    Args:
        store: Objects.
        observations: Metrics.
        events: Notable moments.
        gate: Checks what is submitted.
        files: Output of trials.
        diagnostician: Explains.
        catalog: Algorithms.
        clock: Measures timeouts.
        read_only: Why nothing may be changed; empty when it may.
        await_end: Waits until no process of a deleted trial is left; tells whether that was in time.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        observations: ObservationReader,
        events: EventLog,
        gate: Gate,
        files: TrialFiles,
        diagnostician: Diagnostician,
        catalog: AlgorithmCatalog,
        clock: Clock,
        read_only: str = "",
        await_end: Callable[[Key, float], bool] = lambda _trial, _seconds: True,
    ) -> None:
        self._store = store
        self._observations = observations
        self._events = events
        self._gate = gate
        self._files = files
        self._diagnostician = diagnostician
        self._catalog = catalog
        self._clock = clock
        self._read_only = read_only
        self._await_end = await_end

    # --- writing ------------------------------------------------------------------------------------------------------

    def validate(self, document: str, *, source: str, namespace: str | None = None) -> Sequence[str]:
        """Check a document."""
        submission = self._gate.load(document, source=source, namespace=namespace or DEFAULT_NAMESPACE)
        return self._gate.admit(submission).notices

    def submit(self, document: str, *, source: str, namespace: str | None = None) -> Submission:
        """Create, resume or update an experiment."""
        self._refuse_when_read_only()
        submission = self._gate.load(document, source=source, namespace=namespace or DEFAULT_NAMESPACE)
        key = Key(submission.experiment.namespace, submission.experiment.name)
        for _ in range(UPDATE_ATTEMPTS):
            old = self._find(EXPERIMENT, key) if key.name else None
            if old is None:
                break
            with suppress(ConflictError):  # its status was written this moment
                return self._resubmit(Experiment.decode(old), submission)
        else:
            raise ConflictError(f'experiment "{key.name}" keeps changing; submit it again in a moment')
        admitted = self._gate.admit(submission)
        for companion in admitted.companions:
            self._put(companion)
        stored = self._store.create(admitted.experiment.encode())
        return Submission(dict(stored), "created", admitted.notices)

    def _resubmit(self, old: Experiment, submission: Any) -> Submission:
        if old.metadata.deletion_timestamp is not None:
            raise AlreadyExistsError(f'experiment "{old.name}" is being deleted; submit it again in a moment')
        new = self._gate.admit_update(submission, old)
        if new.spec == old.spec:
            ended = true_types(old.status.conditions) & COMPLETED_EXPERIMENT
            return Submission(old.encode(), "unchanged" if ended else "resumed")
        stored = self._store.update(old.model_copy(update={"spec": new.spec}).encode())
        return Submission(dict(stored), "updated")

    def _put(self, companion: Json) -> None:
        """Create a ConfigMap or Secret, or bring the stored one up to date."""
        try:
            self._store.create(companion)
        except AlreadyExistsError:
            stored = self._store.get(Kind.of(companion), Key.of(companion))
            self._store.update({**companion, "metadata": stored["metadata"]})

    def delete(self, namespace: str, experiment: str) -> None:
        """Delete an experiment and wait until it and its trials are gone, their processes included."""
        self._refuse_when_read_only()
        key = Key(namespace, experiment)
        uid = self._require(EXPERIMENT, key)["metadata"]["uid"]
        deadline = self._clock.monotonic() + DELETE_TIMEOUT_SECONDS
        listed = self._store.list(TRIAL, namespace, owner_uid=uid)
        trials = [Key.of(trial) for trial in listed.items]
        with self._store.watch(TRIAL, listed.resource_version) as watch:
            self._store.delete(EXPERIMENT, key, uid=uid)
            self._await_deletion(watch, key, uid, set(trials), deadline)
        for trial in trials:
            if not self._await_end(trial, deadline - self._clock.monotonic()):
                raise _still_ending(key)
        self._events.forget(namespace, experiment)
        for trial in trials:
            if self._find(TRIAL, trial) is None:  # else the name is in use again, and so is the directory
                self._files.remove(trial)

    def _await_deletion(self, watch: Watch, key: Key, uid: str, left: set[Key], deadline: float) -> None:
        """Wait until the experiment and its trials are gone; look at all of them only when none is known to be left."""
        while left or self._is_left(key, uid):
            if self._clock.monotonic() > deadline:
                raise _still_ending(key)
            event = watch.next(0.1)
            if event is not None and event.type is EventType.DELETED:
                left.discard(Key.of(event.object))

    def _is_left(self, key: Key, uid: str) -> bool:
        found = self._find(EXPERIMENT, key)
        if found is not None and found["metadata"]["uid"] == uid:
            return True
        return bool(self._store.list(TRIAL, key.namespace, owner_uid=uid).items)

    def _refuse_when_read_only(self) -> None:
        if self._read_only:
            raise InvalidError([FieldError("--data-dir", self._read_only, "start `katib serve` there", "read-only")])

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, kind: str, namespace: str, name: str) -> Json:
        """Return an object."""
        return dict(self._require(Kind(API_VERSION, kind), Key(namespace, name)))

    def experiments(self, namespace: str | None = None) -> Sequence[Json]:
        """Return all experiments."""
        return [dict(obj) for obj in self._store.list(EXPERIMENT, namespace).items]

    def trials(
        self,
        namespace: str,
        experiment: str,
        *,
        states: Sequence[str] = (),
        limit: int = 500,
        cursor: str = "",
    ) -> Page:
        """Return a page of trials."""
        key = Key(namespace, experiment)
        self._require(EXPERIMENT, key)
        found = [dict(t) for t in self._trials_of(key) if not states or state_of(dict(t)) in states]
        first = _offset(cursor)
        items = tuple(found[first : first + limit])
        after = first + len(items)
        return Page(items, str(after) if after < len(found) else "", len(found))

    def best(self, namespace: str, experiment: str) -> Json | None:
        """Return the best trial."""
        obj = self._require(EXPERIMENT, Key(namespace, experiment))
        name = (obj.get("status") or {}).get("currentOptimalTrial", {}).get("bestTrialName", "")
        found = self._find(TRIAL, Key(namespace, name)) if name else None
        return None if found is None else dict(found)

    def metrics(self, namespace: str, trial: str, *, metric: str = "", limit: int = 100_000) -> Sequence[MetricLog]:
        """Return the newest readings of a trial."""
        self._require(TRIAL, Key(namespace, trial))
        readings: list[MetricLog] = []
        cursor = ""
        while True:
            page, cursor = self._observations.read(trial, metric_name=metric, limit=_PAGE_ROWS, cursor=cursor)
            readings.extend(page)
            del readings[:-limit]
            if not cursor:
                return readings

    def logs(
        self, namespace: str, trial: str, *, follow: bool = False, tail_lines: int | None = None
    ) -> Iterator[bytes]:
        """Yield what the trial printed."""
        key = Key(namespace, trial)
        obj = self._require(TRIAL, key)
        container = obj["spec"].get("primaryContainerName", "")
        return self._files.read(key, container, follow=self._goes_on(key) if follow else None, tail_lines=tail_lines)

    def _goes_on(self, key: Key) -> Callable[[], bool]:
        def check() -> bool:
            obj = self._find(TRIAL, key)
            return obj is not None and state_of(dict(obj)) in ("Pending", "Running")

        return check

    def events(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return notable moments."""
        self._require(Kind(API_VERSION, kind), Key(namespace, name))
        return [
            RecordedEvent(e.time, e.subject.kind, e.subject.name, e.warning, e.reason, e.message, e.count)
            for e in self._events.of(EventSubject(kind, namespace, name, name))
        ]

    def why(self, namespace: str, name: str) -> Diagnosis:
        """Explain an experiment or a trial."""
        return self._diagnostician.explain(namespace, name)

    def algorithms(self) -> Sequence[AlgorithmInfo]:
        """Return the algorithms offered."""
        return self._catalog.all()

    def changes(
        self, namespace: str, experiment: str, *, timeout_seconds: float | None = None, since: str = ""
    ) -> Iterator[Change]:
        """Yield the state, then every change."""
        key = Key(namespace, experiment)
        self._require(EXPERIMENT, key)
        revision = since
        if not since:
            listed = self._store.list(TRIAL, namespace, labels={EXPERIMENT_LABEL: experiment})
            revision = listed.resource_version
            yield Change("ADDED", dict(self._require(EXPERIMENT, key)))
            for i, trial in enumerate(listed.items, 1):
                yield Change("ADDED", dict(trial), revision if i == len(listed.items) else "")
        yield from self._follow(key, revision, timeout_seconds)

    def _follow(self, key: Key, revision: str, timeout_seconds: float | None) -> Iterator[Change]:
        deadline = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        with ExitStack() as stack:
            merged: queue.SimpleQueue[WatchEvent | BaseException] = queue.SimpleQueue()
            seen = dict.fromkeys((EXPERIMENT, TRIAL), revision)
            for kind in (EXPERIMENT, TRIAL):
                watch = stack.enter_context(self._store.watch(kind, revision))
                threading.Thread(target=_pump, args=(watch, merged), name="changes", daemon=True).start()
            while True:
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return
                try:
                    event = merged.get(timeout=left)
                except queue.Empty:
                    return
                if isinstance(event, BaseException):
                    raise event
                seen[Kind.of(event.object)] = event.resource_version
                if not _concerns(event.object, key):
                    continue
                # The two streams are not in step: going on from the one that lags repeats changes, but loses none.
                yield Change(event.type.value, dict(event.object), min(seen.values(), key=int))
                if event.type == "DELETED" and Kind.of(event.object) == EXPERIMENT:
                    return

    # --- objects ------------------------------------------------------------------------------------------------------

    def _trials_of(self, key: Key) -> tuple[Object, ...]:
        return self._store.list(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}).items

    def _find(self, kind: Kind, key: Key) -> Object | None:
        with suppress(NotFoundError):
            return self._store.get(kind, key)
        return None

    def _require(self, kind: Kind, key: Key) -> Object:
        obj = self._find(kind, key)
        if obj is None:
            raise NotFoundError(f'{kind.kind.lower()} "{key.name}" is not in namespace {key.namespace}')
        return obj


def _pump(watch: Watch, merged: queue.SimpleQueue[WatchEvent | BaseException]) -> None:
    """Move the events of one watch into the merged stream until the watch is closed."""
    try:
        while (event := watch.next()) is not None:
            merged.put(event)
    except Exception as error:  # noqa: BLE001 - it is raised where the stream is read
        merged.put(error)


def _concerns(obj: Object, key: Key) -> bool:
    if Kind.of(obj) == EXPERIMENT:
        return Key.of(obj) == key
    labels = obj["metadata"].get("labels") or {}
    return Key(obj["metadata"].get("namespace", ""), labels.get(EXPERIMENT_LABEL, "")) == key


def _still_ending(key: Key) -> UnavailableError:
    return UnavailableError(
        f"experiment {key}: its trials have not ended within {DELETE_TIMEOUT_SECONDS:g} s; "
        "they are still being stopped, look again later"
    )


def _offset(cursor: str) -> int:
    if cursor and not cursor.isdigit():
        raise InvalidError([FieldError("cursor", f'"{cursor}" is none of this list', "start without one", "cursor")])
    return int(cursor or 0)
