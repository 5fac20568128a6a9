"""Pods of jobs as objects in the store, so that people and programs see them as on a cluster.

Level-triggered: a pod is written as its record is at that moment, and a write that fails is tried
again. Nothing here decides anything, and no job waits for it:

- a pod that is gone with its job within a moment is never written, so that a trial of milliseconds costs nothing more;
- several changes within a tenth of a second are one write;
- the last state of a pod is written before the end of its job, so that watchers see how it ended;
- objects go with their job, by their owner. Objects of an engine that was killed are removed by the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from katib.engine.controllers.kinds import POD
from katib.engine.runtime.clock import Clock, SteadyTime
from katib.engine.runtime.controller import DONE, Controller, ReconcileResult
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import AlreadyExistsError, ConflictError, KatibError, NotFoundError
from katib.places.machine.pods.place import AnyPod
from katib.places.machine.pods.records import PodPhase

APPEAR_SECONDS = 0.5
"""How long a pod has to be there before it is worth a write: most of those that are gone sooner are of tiny trials."""

CHANGE_SECONDS = 0.1
"""How long changes are collected; also when the pods of a job with several roles appear, which are always worth it."""

_ALL = Key("", "")
"""Stands for the stored pods of all jobs."""

_OVER = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})

Labels = Callable[[Object], Mapping[str, str]]
"""For a job: labels that its pods have because of the trial that it runs."""


@dataclass(slots=True)
class _Followed:
    """A job with its pods and their stored objects.

    Attributes:
        appears_at: When its pods are written first, on the monotonic clock.
        stored: By name, the object as our last write returned it, and the uid that the pod itself goes by.
        is_over: Whether no further pod comes and no status of the job either.
    """

    job: Object
    appears_at: float
    pods: list[AnyPod] = field(default_factory=list)
    stored: dict[str, tuple[str, Object]] = field(default_factory=dict)
    is_over: bool = False


class PodObjects:
    """Writes the pods of jobs to the store. `changed` may be called from any thread, the rest from one.

    Args:
        labels: Labels that the pods of a job have besides their own.
        thread: Writes the objects, between the turns of others.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        steady: SteadyTime,
        labels: Labels,
        thread: SharedThread,
    ) -> None:
        self._store = store
        self._clock = clock
        self._steady = steady
        self._labels = labels
        self._followed: dict[Key, _Followed] = {}
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        self._controller = Controller("local-pod-objects", self._write, self._queue, thread=thread)

    def start(self) -> None:
        """Start writing. Pods that an earlier engine left unfinished are gone, and so are their objects then."""
        self._queue.add(_ALL)
        self._controller.start()

    def stop(self) -> None:
        """Write how the pods are now, and stop."""
        self._controller.stop()
        for key, followed in list(self._followed.items()):
            if followed.stored:
                with contextlib.suppress(KatibError):  # the next start looks through what is stored
                    self._write(key)

    def discard(self, job: Object) -> None:
        """Remove the objects of the pods of a job that was cut off and starts from scratch.

        Raises:
            UnavailableError: The store does not answer.
        """
        for pod in self._store.list(POD, Key.of(job).namespace, owner_uid=job["metadata"]["uid"]).items:
            self._remove(pod)

    def follow(self, job: Object, pods: Sequence[AnyPod]) -> None:
        """Show pods that a job has from now on."""
        key = Key.of(job)
        followed = self._followed.get(key)
        if followed is None or followed.job["metadata"]["uid"] != job["metadata"]["uid"]:
            seconds = CHANGE_SECONDS if pods[0].plan.role else APPEAR_SECONDS  # a job has roles or has none
            followed = self._followed[key] = _Followed(job, self._clock.monotonic() + seconds)
            self._queue.add_after(key, seconds)
        else:
            self.changed(key)
        followed.pods.extend(pods)

    def changed(self, key: Key, *, is_over: bool = False) -> None:
        """Have it written soon that a pod of a job has changed, or that the job is over and this is the last of it."""
        if (followed := self._followed.get(key)) is not None:
            followed.is_over = followed.is_over or is_over
            if self._clock.monotonic() >= followed.appears_at:
                self._queue.add_after(key, CHANGE_SECONDS)

    def conclude(self, key: Key) -> None:
        """Write the last state of the pods that are shown: their job is about to end, and they may go with it."""
        if (followed := self._followed.get(key)) is not None and followed.stored:
            with contextlib.suppress(KatibError):  # it is written again as soon as that is possible
                self._write(key)

    def forget(self, key: Key) -> None:
        """Write nothing more of a job that is gone: the objects of its pods went with it."""
        if self._followed.pop(key, None) is not None:
            self._queue.cancel(key)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, key: Key) -> ReconcileResult:
        if key == _ALL:
            ours = {stored["metadata"]["uid"] for f in list(self._followed.values()) for _, stored in f.stored.values()}
            for pod_object in self._store.list(POD).items:
                if pod_object["status"]["phase"] not in _OVER and pod_object["metadata"]["uid"] not in ours:
                    self._remove(pod_object)  # its engine was killed
            return DONE
        followed = self._followed.get(key)
        if followed is None:
            return DONE
        if (left := followed.appears_at - self._clock.monotonic()) > 0:
            return ReconcileResult(left)
        pods = list(followed.pods)
        for name, pod in {pod.plan.name: pod for pod in pods}.items():  # the newest one of each name
            self._write_pod(followed, name, pod)
        if followed.is_over and all(pod.record.is_finished for pod in pods) and self._followed.get(key) is followed:
            self._followed.pop(key, None)
        return DONE

    def _write_pod(self, followed: _Followed, name: str, pod: AnyPod) -> None:
        from katib.places.machine.pods.objects import pod_object

        uid, stored = followed.stored.get(name, ("", {}))
        if uid == pod.plan.uid and stored["status"]["phase"] in _OVER:
            return
        before = stored.get("status") or {} if uid == pod.plan.uid else {}
        wanted = pod_object(pod.plan, pod.record, self._steady, self._clock.now(), before)
        if uid == pod.plan.uid:
            if stored.get("status") == wanted["status"]:
                return
            try:
                followed.stored[name] = uid, self._store.update({**stored, "status": wanted["status"]})
            except (ConflictError, NotFoundError):  # it was changed or removed meanwhile
                del followed.stored[name]
                uid = ""
            else:
                return
        obj = self._complete(followed.job, wanted)
        if uid:
            self._remove(stored)
        try:
            created = self._store.create(obj)
        except AlreadyExistsError:
            self._remove(obj)
            created = self._store.create(obj)
        followed.stored[name] = pod.plan.uid, created

    def _complete(self, job: Object, pod: dict[str, Any]) -> Object:
        metadata = pod["metadata"]
        owner = {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        whole = {
            **metadata,
            "namespace": Key.of(job).namespace,
            "labels": {**metadata["labels"], **self._labels(job)},
            "ownerReferences": [owner],
        }
        return {**pod, "metadata": whole}

    def _remove(self, pod: Object) -> None:
        with contextlib.suppress(NotFoundError):
            self._store.delete(POD, Key.of(pod))
