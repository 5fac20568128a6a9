"""The changes of one experiment and its trials as a stream that can be left and taken up again.

A cursor, a place in the stream, is one revision per kind: revisions of different kinds cannot be compared.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import EventType, Key, Kind, Object, ObjectStore
from katib.errors import NotFoundError
from katib.model.names import EXPERIMENT_LABEL
from katib.service.tuning.kind_watches import KindWatches
from katib.service.tuning.service import BOOKMARK, Change


def stream_changes(
    store: ObjectStore, key: Key, clock: Clock, *, timeout_seconds: float | None, since: str
) -> Iterator[Change]:
    """Yield an experiment and its trials as they are, unless `since` names a place to resume from, then every change.

    Raises:
        NotFoundError: There is no such experiment; with the first item.
        ExpiredError: `since` is too old.
    """
    deadline = None if timeout_seconds is None else clock.monotonic() + timeout_seconds
    delivered = since or (yield from _opening(store, key))
    experiments, _, trials = delivered.partition(",")
    with KindWatches(store, {EXPERIMENT: experiments, TRIAL: trials}, clock) as watches:
        while True:
            left = None if deadline is None else deadline - clock.monotonic()
            event = watches.next(left) if left is None or left > 0 else None
            place = f"{watches.revisions[EXPERIMENT]},{watches.revisions[TRIAL]}"
            if event is not None and concerns(event.object, key):
                delivered = place
                yield Change(event.type.value, event.object, place, event.struct)
                if event.type is EventType.DELETED and Kind.of(event.object) == EXPERIMENT:
                    return
            elif left is not None and left <= 0:
                if place != delivered:  # only others changed, but who continues from an old place may find it forgotten
                    yield Change(BOOKMARK, {}, place)
                return


def _opening(store: ObjectStore, key: Key) -> Generator[Change, None, str]:
    """Yield everything as it is, the experiment first; return the place of the next change.

    Trials come a page at a time, so that no reader of a large experiment has to hold all of them. The first change that
    carries a cursor is the last one.
    """
    experiments = store.list(EXPERIMENT, key.namespace)
    experiment = next((obj for obj in experiments.items if Key.of(obj) == key), None)
    if experiment is None:
        raise NotFoundError(f'experiment "{key.name}" is not in namespace {key.namespace}')
    last: Object = experiment
    cursor = ""
    for page in store.pages(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}):
        cursor = f"{experiments.resource_version},{page.resource_version}"
        for trial in page.items:
            yield Change("ADDED", last)
            last = trial
    yield Change("ADDED", last, cursor)
    return cursor


def concerns(obj: Object, key: Key) -> bool:
    """Return whether an Experiment is this one, or a Trial one of its trials."""
    if obj["kind"] == EXPERIMENT.kind:
        return Key.of(obj) == key
    labels = obj["metadata"].get("labels") or {}
    return Key(obj["metadata"].get("namespace", ""), labels.get(EXPERIMENT_LABEL, "")) == key
