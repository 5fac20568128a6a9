"""The changes of one experiment and its trials as a stream that can be left and taken up again."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Self

from katib.api.names import EXPERIMENT_LABEL
from katib.controllers.kinds import EXPERIMENT, TRIAL
from katib.errors import NotFoundError
from katib.runtime.clock import Clock
from katib.runtime.objects import EventType, Key, Kind, Object, ObjectStore
from katib.tuning.kind_watches import KindWatches
from katib.tuning.service import BOOKMARK, Change


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the stream: one revision per kind, because revisions of different kinds cannot be compared."""

    experiments: str
    trials: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor."""
        experiments, _, trials = text.partition(",")
        return cls(experiments, trials)

    def __str__(self) -> str:
        return f"{self.experiments},{self.trials}"


def stream_changes(
    store: ObjectStore, key: Key, clock: Clock, *, timeout_seconds: float | None, since: str
) -> Iterator[Change]:
    """Yield an experiment and its trials as they are, unless `since` says where to go on, then every change.

    Raises:
        NotFoundError: There is no such experiment; with the first item.
        ExpiredError: `since` is too old.
    """
    deadline = None if timeout_seconds is None else clock.monotonic() + timeout_seconds
    cursor = Cursor.parse(since)
    if not since:
        cursor = yield from _opening(store, key)
    delivered = cursor
    with KindWatches(store, {EXPERIMENT: cursor.experiments, TRIAL: cursor.trials}, clock) as watches:
        while True:
            left = None if deadline is None else deadline - clock.monotonic()
            event = watches.next(left) if left is None or left > 0 else None
            place = Cursor(watches.revisions[EXPERIMENT], watches.revisions[TRIAL])
            if event is not None and concerns(event.object, key):
                delivered = place
                yield Change(event.type.value, event.object, str(place))
                if event.type is EventType.DELETED and Kind.of(event.object) == EXPERIMENT:
                    return
            elif left is not None and left <= 0:
                if place != delivered:  # only others changed, but who goes on from an old place may find it forgotten
                    yield Change(BOOKMARK, {}, str(place))
                return


def _opening(store: ObjectStore, key: Key) -> Generator[Change, None, Cursor]:
    """Yield everything as it is, the experiment first; return where the changes go on.

    Trials come a page at a time, so that no reader of a large experiment has to hold all of them. The first change that
    carries a cursor is the last one.
    """
    experiments = store.list(EXPERIMENT, key.namespace)
    experiment = next((obj for obj in experiments.items if Key.of(obj) == key), None)
    if experiment is None:
        raise NotFoundError(f'experiment "{key.name}" is not in namespace {key.namespace}')
    last: Object = experiment
    cursor = Cursor(experiments.resource_version, "")
    for page in store.pages(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}):
        cursor = Cursor(experiments.resource_version, page.resource_version)
        for trial in page.items:
            yield Change("ADDED", last)
            last = trial
    yield Change("ADDED", last, str(cursor))
    return cursor


def concerns(obj: Object, key: Key) -> bool:
    """Return whether an Experiment is this one, or a Trial one of its trials."""
    if obj["kind"] == EXPERIMENT.kind:
        return Key.of(obj) == key
    labels = obj["metadata"].get("labels") or {}
    return Key(obj["metadata"].get("namespace", ""), labels.get(EXPERIMENT_LABEL, "")) == key
