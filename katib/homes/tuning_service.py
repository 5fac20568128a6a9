"""The tuning service of either home: what users ask, answered from an object store and an observation log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from katib.api.algorithms import AlgorithmCatalog, AlgorithmInfo
from katib.api.conditions import COMPLETED_EXPERIMENT, true_types
from katib.api.loading import Submission as Loaded
from katib.api.metrics import MetricLog
from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import API_VERSION, Experiment
from katib.controllers.kinds import EXPERIMENT, TRIAL
from katib.errors import AlreadyExistsError, ConflictError, FieldError, InvalidError, NotFoundError
from katib.homes.changes import stream_changes
from katib.homes.deletion import Deletion
from katib.homes.ports import Aftermath, EventReader, Explainer, NoAftermath, ObservationReader, TrialOutput
from katib.homes.submission import Gate
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, Kind, Object, ObjectStore
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

UPDATE_ATTEMPTS = 20
"""The controllers write the status of a busy experiment ten times a second, and an update takes milliseconds."""

_PAGE_ROWS = 1 << 16


class ObjectTuningService:
    """Fits `katib.tuning.service.TuningService` over any object store. Thread-safe.

    Args:
        store: Objects.
        observations: Metrics.
        events: Notable moments.
        gate: Checks what is submitted.
        output: What trials print.
        explainer: Says why something does not progress.
        catalog: Algorithms.
        clock: Measures timeouts.
        namespace: Where a document goes that names no namespace and is given none.
        read_only: Why nothing may be changed; empty when it may.
        aftermath: What is left of a deleted experiment beside its objects.
        scoped: The store as seen through one namespace: all that the changes of an experiment need to watch.
        try_create: Raises what would keep a new object from being stored, beyond what the gate knows; stores nothing.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        observations: ObservationReader,
        events: EventReader,
        gate: Gate,
        output: TrialOutput,
        explainer: Explainer,
        catalog: AlgorithmCatalog,
        clock: Clock,
        namespace: str = DEFAULT_NAMESPACE,
        read_only: str = "",
        aftermath: Aftermath | None = None,
        scoped: Callable[[str], ObjectStore] | None = None,
        try_create: Callable[[Object], None] = lambda _obj: None,
    ) -> None:
        self._store = store
        self._observations = observations
        self._events = events
        self._gate = gate
        self._output = output
        self._explainer = explainer
        self._catalog = catalog
        self._clock = clock
        self._namespace = namespace
        self._read_only = read_only
        self._aftermath = aftermath or NoAftermath()
        self._scoped = scoped or (lambda _namespace: store)
        self._try_create = try_create

    # --- writing ------------------------------------------------------------------------------------------------------

    def validate(self, document: str, *, source: str, namespace: str | None = None) -> Sequence[str]:
        """Check a document."""
        submission = self._gate.load(document, source=source, namespace=namespace or self._namespace)
        admitted = self._gate.admit(submission)
        if not admitted.companions:  # they would have to be stored before the experiment could be tried
            self._try_create(admitted.experiment.encode())
        return admitted.notices

    def submit(self, document: str, *, source: str, namespace: str | None = None) -> Submission:
        """Create, resume or update an experiment."""
        self._refuse_when_read_only()
        submission = self._gate.load(document, source=source, namespace=namespace or self._namespace)
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

    def _resubmit(self, old: Experiment, submission: Loaded) -> Submission:
        if old.metadata.deletion_timestamp is not None:
            raise AlreadyExistsError(f'experiment "{old.name}" is being deleted; submit it again in a moment')
        new = self._gate.admit_update(submission, old)
        if new.spec == old.spec:
            ended = true_types(old.status.conditions) & COMPLETED_EXPERIMENT
            return Submission(old.encode(), "unchanged" if ended else "resumed")
        stored = self._store.update(old.model_copy(update={"spec": new.spec}).encode())
        return Submission(dict(stored), "updated")

    def _put(self, companion: Mapping[str, Any]) -> None:
        """Create a ConfigMap or Secret, or bring the stored one up to date."""
        try:
            self._store.create(companion)
        except AlreadyExistsError:
            stored = self._store.get(Kind.of(companion), Key.of(companion))
            self._store.update({**companion, "metadata": stored["metadata"]})

    def delete(self, namespace: str, experiment: str) -> None:
        """Delete an experiment and wait until it and its trials are gone, their processes included."""
        self._refuse_when_read_only()
        found = self._require(EXPERIMENT, Key(namespace, experiment))
        Deletion(self._scoped(namespace), found, self._aftermath, self._clock).run()

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
        optimum = (obj.get("status") or {}).get("currentOptimalTrial") or {}
        name = optimum.get("bestTrialName", "")
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
        return self._output.read(obj, follow=self._goes_on(key) if follow else None, tail_lines=tail_lines)

    def _goes_on(self, key: Key) -> Callable[[], bool]:
        def check() -> bool:
            obj = self._find(TRIAL, key)
            return obj is not None and state_of(dict(obj)) in ("Pending", "Running")

        return check

    def events(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return notable moments."""
        self._require(Kind(API_VERSION, kind), Key(namespace, name))
        return self._events.events_of(kind, namespace, name)

    def why(self, namespace: str, name: str) -> Diagnosis:
        """Explain an experiment or a trial."""
        return self._explainer.explain(namespace, name)

    def algorithms(self) -> Sequence[AlgorithmInfo]:
        """Return the algorithms offered."""
        return self._catalog.all()

    def changes(
        self, namespace: str, experiment: str, *, timeout_seconds: float | None = None, since: str = ""
    ) -> Iterator[Change]:
        """Yield the state, then every change."""
        key = Key(namespace, experiment)
        self._require(EXPERIMENT, key)
        store = self._scoped(namespace)
        yield from stream_changes(store, key, self._clock, timeout_seconds=timeout_seconds, since=since)

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


def _offset(cursor: str) -> int:
    if cursor and not cursor.isdigit():
        raise InvalidError([FieldError("cursor", f'"{cursor}" is none of this list', "start without one", "cursor")])
    return int(cursor or 0)
