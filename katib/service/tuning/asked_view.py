"""View of an experiment whose trials callers evaluate: read once, then followed change by change.

A store whose watches tell of changes is followed, so that what is known is never behind what was written: whoever looks
takes in the changes first, and the cost of a look does not grow with the number of trials. Any other store is read anew
at each look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.runtime.objects import EventType, Key, Kind, NotifyingWatch, Object, ObjectStore, WatchEvent
from katib.errors import ExpiredError
from katib.model.conditions import has_ended
from katib.model.names import EXPERIMENT_LABEL
from katib.model.restarts import awaits_restart
from katib.model.trials import ACTIVE, state_in
from katib.model.types import Experiment, Suggestion, TrialAssignment, TrialState


class AskedView:
    """One experiment, the assignments that no trial has taken, and its active trials. Used by one thread at a time.

    Args:
        on_change: Called by the thread that wrote, after every change of a followed store. It must not block.

    Attributes:
        active: Names of those that are pending or running.
        pending: Names of those that may be free for a caller, oldest first.
    """

    def __init__(self, store: ObjectStore, key: Key, on_change: Callable[[], None]) -> None:
        self._store = store
        self._key = key
        self._on_change = on_change
        self._watches: dict[Kind, NotifyingWatch] = {}
        self._is_closed = self._is_stale = False
        self._stored: Object = {}
        self._experiment: Experiment | None = None
        self._forget()

    def _forget(self) -> None:
        self._is_stale = False
        self.total = 0
        self.active: set[str] = set()
        self.pending: dict[str, None] = {}
        self._suggestion: Object | None = None  # a version that was not looked into
        self._waiting: dict[str, TrialAssignment] = {}
        self._taken: set[str] = set()  # names of the last assignments that trials have

    @property
    def experiment(self) -> Experiment:
        if self._experiment is None:
            self._experiment = Experiment.decode(self._stored)
        return self._experiment

    @property
    def waiting(self) -> Mapping[str, TrialAssignment]:
        """Assignments that no trial has taken by name of trial, oldest first."""
        obj, self._suggestion = self._suggestion, None
        if obj is not None:
            assignments = Suggestion.decode(obj).status.suggestions
            self._taken = {assignment.name for assignment in assignments if assignment.name in self._taken}
            self._waiting = {a.name: a for a in assignments if a.name not in self._taken}
        return self._waiting

    @property
    def is_followed(self) -> bool:
        """Whether the store tells of changes."""
        return bool(self._watches)

    @property
    def is_over(self) -> bool:
        """Whether the experiment gives no trials any more."""
        experiment = self.experiment
        is_deleted = experiment.metadata.deletion_timestamp is not None
        return is_deleted or (has_ended(experiment.status.conditions) and not awaits_restart(experiment))

    def refresh(self) -> None:
        """Bring the view up to date.

        Raises:
            NotFoundError: There is no such experiment any more.
        """
        self.follow()
        if self._is_stale or not self._watches:
            self._load()

    def follow(self) -> None:
        """Take in the changes of a followed store, without reading anything of it."""
        try:
            for kind, watch in self._watches.items():
                for event in watch.take():
                    self._apply(kind, event)
        except ExpiredError:
            self._is_stale = True

    def take(self, name: str) -> None:
        """Note that an assignment has a trial."""
        self._waiting.pop(name, None)
        self._taken.add(name)

    def close(self) -> None:
        """Follow the store no longer. Closing twice is fine."""
        self._is_closed = True
        self._unwatch()

    def _unwatch(self) -> None:
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.close()  # type: ignore[attr-defined]  # an ability of watches, which all can be closed

    def _load(self) -> None:
        """Read everything, and follow the store from there on if it can be followed."""
        self._unwatch()
        self._forget()
        self._read()
        if self.is_over:
            return
        listed = self._store.list(SUGGESTION, self._key.namespace, owner_uid=self._uid)
        if self._watch(SUGGESTION, listed.resource_version) and self._watch(EXPERIMENT, listed.resource_version):
            self._read()
        self._suggestion = next(iter(listed.items), None)
        for trial in self._trials():
            self._count(trial, 1)
        _ = self.waiting  # of the names that are taken, only those of these assignments are needed from here on

    def _read(self) -> None:
        self._set(self._store.get(EXPERIMENT, self._key))

    def _set(self, experiment: Object) -> None:
        self._stored, self._experiment = experiment, None
        self._uid: str = experiment["metadata"]["uid"]

    def _watch(self, kind: Kind, since: str) -> bool:
        """Follow a kind; return whether that can be done."""
        if self._is_closed:
            return False
        watch = self._store.watch(kind, since)
        if not isinstance(watch, NotifyingWatch):
            watch.close()
            return False
        self._watches[kind] = watch
        watch.tell(self._on_change)
        return True

    def _trials(self) -> Iterator[Object]:
        """Yield the trials of the experiment, followed from the first page on."""
        labels = {EXPERIMENT_LABEL: self._key.name}
        for page in self._store.pages(TRIAL, self._key.namespace, labels=labels):
            if self.is_followed and TRIAL not in self._watches:
                self._watch(TRIAL, page.resource_version)
            yield from filter(self._is_ours, page.items)

    def _apply(self, kind: Kind, event: WatchEvent) -> None:
        obj, is_gone = event.object, event.type is EventType.DELETED
        if kind == TRIAL:
            if self._is_ours(obj):
                self._count(obj, {EventType.ADDED: 1, EventType.DELETED: -1}.get(event.type, 0))
        elif Key.of(obj) != self._key:
            pass
        elif kind == SUGGESTION:
            self._suggestion = {} if is_gone else obj
        elif is_gone or obj["metadata"]["uid"] != self._uid:
            self._is_stale = True
        else:
            self._set(obj)

    def _is_ours(self, trial: Object) -> bool:
        metadata: Any = trial["metadata"]
        return (
            (metadata.get("labels") or {}).get(EXPERIMENT_LABEL) == self._key.name
            and metadata.get("namespace", "") == self._key.namespace
            and self._uid in [owner.get("uid") for owner in metadata.get("ownerReferences") or ()]
        )

    def _count(self, obj: Object, more: int) -> None:
        name, state = obj["metadata"]["name"], None if more < 0 else state_in(obj)
        self.total += more
        self.take(name)
        self.active.discard(name)
        self.pending.pop(name, None)
        if state in ACTIVE:
            self.active.add(name)
        if state is TrialState.PENDING:
            self.pending[name] = None
