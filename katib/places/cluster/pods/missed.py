"""Pods that the webhook missed, and the trials that own them.

The webhook labels the pods of a trial at creation. The pods to check are therefore unlabelled pods of jobs: pods of a
ReplicaSet, StatefulSet or DaemonSet have its label. The API server filters out all others; a watch costs nothing while
no pod is missed. The owners of a pod do not change, so each pod is looked up once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from katib.engine.controllers.kinds import POD
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import ForbiddenError
from katib.model.names import TRIAL_LABEL
from katib.model.types import Trial
from katib.places.cluster.pods.owners import OwningTrial

MISSED_SELECTOR = f"!{TRIAL_LABEL},!pod-template-hash,!controller-revision-hash"
"""Selects pods without a trial's label that may have been missed."""


_log = logging.getLogger(__name__)

FindTrial = Callable[[Object, str], OwningTrial | None]
"""Returns the trial among a pod's owners, given its namespace; None if there is none.

May raise ForbiddenError and UnavailableError.
"""


@dataclass(frozen=True, slots=True)
class MissedPod:
    """The relevant part of a pod without a trial's label."""

    key: Key
    uid: str
    owners: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[str, ...] = ()
    phase: str = ""
    is_going: bool = False


def missed_pod(pod: Object) -> MissedPod:
    """Return the relevant part of a pod; identity only if it cannot belong to a trial."""
    metadata, key = pod["metadata"], Key.of(pod)
    owners, labels = metadata.get("ownerReferences") or (), metadata.get("labels") or {}
    if not owners or TRIAL_LABEL in labels:
        return MissedPod(key, metadata["uid"])
    return MissedPod(
        key=key,
        uid=metadata["uid"],
        owners=tuple(owners),
        labels=labels,
        containers=tuple(str(container.get("name")) for container in pod["spec"].get("containers") or ()),
        phase=(pod.get("status") or {}).get("phase", ""),
        is_going="deletionTimestamp" in metadata,
    )


def concerns(pod: MissedPod, trial: Trial) -> bool:
    """Return whether metrics of a trial would have been collected from a pod.

    A failed pod no longer matters: its job has failed with it, or another pod replaces it.
    """
    is_primary = trial.spec.primary_pod_labels.items() <= pod.labels.items()
    is_read = trial.spec.primary_container_name in pod.containers
    return is_primary and is_read and not pod.is_going and pod.phase != "Failed"


class MissedPods:
    """Cache of the pods without a trial's label. Thread-safe.

    Args:
        store: Store of pods; restrict it to `MISSED_SELECTOR`.
        find_trial: Finds the trial among a pod's owners.
    """

    def __init__(self, store: ObjectStore, find_trial: FindTrial, clock: Clock) -> None:
        self.informer = Informer(
            store, POD, missed_pod, lambda pod: pod.key.namespace if pod.owners else None, clock=clock
        )
        self.informer.add_handler(self._forget_deleted)
        self._find_trial = find_trial
        self._lock = Lock()
        self._owners: dict[str, str] = {}

    def on_new(self, wake: Callable[[], None]) -> None:
        """Register a callback for new pods to check. Call before the informer starts."""

        def changed(event: InformerEvent[MissedPod]) -> None:
            if event.old is None and event.new is not None and event.new.owners:
                wake()

        self.informer.add_handler(changed)

    def is_any_in(self, namespace: str) -> bool:
        """Return whether a namespace has pods that may belong to a trial. Costs nothing."""
        return self.informer.count(namespace) > 0

    def by_trial(self, namespace: str) -> Mapping[str, Sequence[MissedPod]]:
        """Return the pods of trials in a namespace, by the trial's uid.

        Pods whose owners may not be read are left out for now.

        Raises:
            UnavailableError: An owner cannot be read now.
        """
        found: dict[str, list[MissedPod]] = defaultdict(list)
        for pod in self.informer.group(namespace):
            if uid := self._trial_uid(pod):
                found[uid].append(pod)
        return found

    def _trial_uid(self, pod: MissedPod) -> str:
        """Return the uid of the trial of a pod; empty if it has none, or its owners may not be read."""
        with self._lock:
            known = self._owners.get(pod.uid)
        if known is not None:
            return known
        try:
            trial = self._find_trial({"metadata": {"ownerReferences": pod.owners}}, pod.key.namespace)
        except ForbiddenError as error:
            _log.debug("Owners of a pod not read", extra={"pod": str(pod.key), "cause": str(error)})
            return ""
        uid = "" if trial is None else trial.uid
        with self._lock:
            self._owners[pod.uid] = uid
        return uid

    def _forget_deleted(self, event: InformerEvent[MissedPod]) -> None:
        if event.new is None and event.old is not None:
            with self._lock:
                self._owners.pop(event.old.uid, None)
