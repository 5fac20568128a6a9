"""A store and a log that take writes only while we lead: a frozen controller must not act on what it knew before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from katib.api.metrics import MetricLog
from katib.api.types import Observation
from katib.controllers.ports import ObservationLog
from katib.errors import UnavailableError
from katib.runtime.objects import Key, Kind, Object, ObjectList, ObjectStore, Watch


class FencedStore:
    """Fits `ObjectStore`. Reads pass; writes raise UnavailableError while `may_write` says no."""

    def __init__(self, store: ObjectStore, may_write: Callable[[], bool]) -> None:
        self._store = store
        self._may_write = may_write

    def get(self, kind: Kind, key: Key) -> Object:
        """Return an object."""
        return self._store.get(kind, key)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        owner_uid: str | None = None,
    ) -> ObjectList:
        """Return the objects of a kind."""
        return self._store.list(kind, namespace, labels=labels, owner_uid=owner_uid)

    def watch(self, kind: Kind, since: str) -> Watch:
        """Stream the changes of a kind."""
        return self._store.watch(kind, since)

    def create(self, obj: Object) -> Object:
        """Store a new object."""
        self._require()
        return self._store.create(obj)

    def update(self, obj: Object) -> Object:
        """Replace everything but the status."""
        self._require()
        return self._store.update(obj)

    def update_status(self, obj: Object) -> Object:
        """Replace the status."""
        self._require()
        return self._store.update_status(obj)

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        """Delete an object."""
        self._require()
        self._store.delete(kind, key, uid=uid)

    def _require(self) -> None:
        _require(self._may_write())


class FencedLog:
    """Fits `katib.controllers.ports.ObservationLog`. Reads pass; the rest raises UnavailableError in the same way.

    No store compares and sets here: who woke up late would remove readings of a job that another controller started.
    """

    def __init__(self, log: ObservationLog, may_write: Callable[[], bool]) -> None:
        self._log = log
        self._may_write = may_write

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings."""
        _require(self._may_write())
        self._log.report(trial_name, logs)

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return what was observed."""
        return self._log.summarize(trial_name, metrics)

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial."""
        _require(self._may_write())
        self._log.delete(trial_name)


def _require(may_write: bool) -> None:
    if not may_write:
        raise UnavailableError("this controller does not lead any more; another one goes on")
