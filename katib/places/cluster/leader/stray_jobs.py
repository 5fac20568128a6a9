"""Jobs of trials without the label by which jobs are followed: created before it existed, or by Katib.

Caches follow only labelled jobs, so all others cost nothing. When a kind is first followed, its unlabelled jobs are
listed once, page by page and metadata only. Those of trials are remembered, and the Trial controller reads them by name
until they are gone. They are not labelled: that would require the right to change foreign objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from katib.engine.controllers.job_caches import JobCaches
from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.controller import DONE, Controller, ReconcileResult
from katib.engine.runtime.objects import Key, Kind, Object, ObjectList
from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import ExpiredError, UnavailableError

ListUnlabelled = Callable[[Kind], Iterator[ObjectList]]
"""Yields the objects of a kind without the label of jobs, a page at a time; their metadata is enough."""


class StrayJobs:
    """Finds the strays of each followed kind once, in a background thread with retries.

    Args:
        unlabelled: Lists jobs without the label.
        caches: Caches that announce followed kinds and receive the strays.
    """

    def __init__(self, unlabelled: ListUnlabelled, caches: JobCaches, clock: Clock) -> None:
        self._unlabelled = unlabelled
        self._caches = caches
        self._wake: Callable[[Key], None] = lambda _trial: None
        queue: WorkQueue[Key] = WorkQueue(clock=clock)
        self._controller = Controller("stray-jobs", self._survey, queue)
        caches.on_follow(lambda kind: queue.add(Key(*kind)))

    def on_found(self, wake: Callable[[Key], None]) -> None:
        """Register a callback for each stray job, to wake its trial. Call before the start."""
        self._wake = wake

    def start(self) -> None:
        self._controller.start()

    def stop(self) -> None:
        self._controller.stop()

    def _survey(self, key: Key) -> ReconcileResult:
        kind = Kind(*key)
        try:
            for page in self._unlabelled(kind):
                for job in filter(_is_of_trial, page.items):
                    self._caches.strays.add((kind, Key.of(job)))
                    self._wake(Key.of(job))
        except ExpiredError as error:  # some are found already; the retry starts over
            raise UnavailableError(str(error)) from error
        return DONE


def _is_of_trial(job: Object) -> bool:
    owners = job["metadata"].get("ownerReferences") or ()
    return any((owner.get("apiVersion"), owner.get("kind")) == TRIAL for owner in owners)
