"""Deleting an experiment and waiting until nothing of it is left."""

from __future__ import annotations

from contextlib import suppress

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import EventType, Key, Object, ObjectStore
from katib.errors import NotFoundError, UnavailableError
from katib.model.names import EXPERIMENT_LABEL
from katib.service.tuning.kind_watches import KindWatches
from katib.service.tuning.ports import Aftermath

DELETE_TIMEOUT_SECONDS = 60.0
"""How long nothing may go: longer than the default grace period of 30 s that running trials have to end."""

_LOOK_SECONDS = 1.0
"""How often the store is asked when no change tells that something went."""


class Deletion:
    """Deletes one experiment.

    Args:
        aftermath: Traces that outlive the objects.
        clock: Measures how long nothing has gone.
    """

    def __init__(self, store: ObjectStore, experiment: Object, aftermath: Aftermath, clock: Clock) -> None:
        self._store = store
        self._key = Key.of(experiment)
        self._uid: str = experiment["metadata"]["uid"]
        self._aftermath = aftermath
        self._clock = clock
        self._deadline = clock.monotonic() + DELETE_TIMEOUT_SECONDS

    def run(self) -> None:
        """Delete it and return when it, its trials and their processes are gone.

        Raises:
            UnavailableError: Nothing was removed for too long; it will be later.
        """
        listed = self._store.list(TRIAL, self._key.namespace, labels=self._labels(), owner_uid=self._uid)
        trials = [Key.of(trial) for trial in listed.items]
        found = self._store.list(EXPERIMENT, self._key.namespace)
        with KindWatches(
            self._store, {EXPERIMENT: found.resource_version, TRIAL: listed.resource_version}, self._clock
        ) as watches:
            self._store.delete(EXPERIMENT, self._key, uid=self._uid)
            self._await_objects(watches, {self._uid, *(trial["metadata"]["uid"] for trial in listed.items)})
        if not self._aftermath.wait(self._key, trials, self._left()):
            raise self._late("its trials have not ended")
        self._aftermath.forget(self._key, [trial for trial in trials if not self._is_taken(trial)])

    def _await_objects(self, watches: KindWatches, uids: set[str]) -> None:
        """Follow the changes; look at all objects only when none is known to be left, or nothing happens."""
        while uids or self._is_left():
            if self._left() <= 0:
                raise self._late("it and its trials are not gone")
            event = watches.next(min(_LOOK_SECONDS, max(self._left(), 0.0)))
            if event is None and not self._is_left():
                return
            if event is not None and event.type is EventType.DELETED:
                uids.discard(event.object["metadata"]["uid"])
                self._deadline = self._clock.monotonic() + DELETE_TIMEOUT_SECONDS

    def _is_left(self) -> bool:
        with suppress(NotFoundError):
            if self._store.get(EXPERIMENT, self._key)["metadata"]["uid"] == self._uid:
                return True
        owned = self._store.list(TRIAL, self._key.namespace, labels=self._labels(), owner_uid=self._uid)
        return bool(owned.items)

    def _is_taken(self, trial: Key) -> bool:
        """Return whether a new trial has the name already."""
        with suppress(NotFoundError):
            self._store.get(TRIAL, trial)
            return True
        return False

    def _labels(self) -> dict[str, str]:
        return {EXPERIMENT_LABEL: self._key.name}

    def _left(self) -> float:
        return self._deadline - self._clock.monotonic()

    def _late(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"experiment {self._key}: {what}, and for {DELETE_TIMEOUT_SECONDS:g} s nothing of it went; "
            "they are still being stopped, look again later"
        )
