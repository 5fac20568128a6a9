"""Kueue's Workloads of trials' jobs.

Kueue suspends a job with a queue, creates a Workload owned by the job, and resumes the job once the queue has capacity.
The conditions of the Workload tell why it waits, or was evicted. Kueue may assign a queue to a job without one. So
Workloads are followed from the first job on that names a queue or is suspended, if the cluster has Kueue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from katib.engine.controllers.kinds import key_of
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.model.job_kinds import IN_QUEUE, queue_of
from katib.model.types import Trial
from katib.service.tuning.states import is_suspended_trial

WORKLOADS = tuple(Kind(f"kueue.x-k8s.io/{version}", "Workload") for version in ("v1beta2", "v1beta1"))
"""In order of preference: newer versions of Kueue serve both."""

_LONGEST_REASON = 500
"""Kueue lists every flavor that does not fit."""


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """The relevant facts about a Workload.

    Attributes:
        job: Its owner, with the name of its trial; without a name if it has no owner.
        reason: Why it waits; empty if not stated, and once it is admitted.
    """

    job: Key
    queue: str
    reason: str


def workload_facts(workload: Object) -> WorkloadFacts:
    metadata = workload["metadata"]
    owner: Mapping[str, Any] = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    queue = (workload.get("spec") or {}).get("queueName") or ""
    return WorkloadFacts(Key(metadata.get("namespace", ""), owner.get("name", "")), queue, waiting_reason(workload))


def waiting_reason(workload: Object) -> str:
    """Return why the job of a Workload does not run, in Kueue's words: why it was evicted, and what it waits for."""
    status = workload.get("status") or {}
    said = {each["type"]: each for each in status.get("conditions") or ()}
    if _holds(said.get("Admitted")) and not _holds(said.get("Evicted")):
        return ""
    text = "; ".join(dict.fromkeys(_sentences(said, status)))
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."


def _sentences(said: Mapping[str, Mapping[str, Any]], status: Mapping[str, Any]) -> Iterator[str]:
    evicted, reserved = said.get("Evicted"), said.get("QuotaReserved")
    if evicted is not None and _holds(evicted):
        yield _words(evicted)
    if reserved is not None and not _holds(reserved):
        yield _words(reserved)
    for check in status.get("admissionChecks") or ():
        if check.get("state") != "Ready":
            yield f"admission check {check.get('name')}: {_words(check) or check.get('state')}"


def _holds(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _words(condition: Mapping[str, Any]) -> str:
    return " ".join(str(condition.get("message") or condition.get("reason") or "").split()).rstrip(".")


class Workloads:
    """Follows Kueue's Workloads, if served, once a trial may have one. Thread-safe."""

    def __init__(self, store: ObjectStore, serves: Callable[[Kind], bool], clock: Clock) -> None:
        self._store = store
        self._serves = serves
        self._clock = clock
        self._wake: Callable[[Key], None] = lambda _key: None
        self._lock = Lock()
        self._informer: Informer[WorkloadFacts] | None = None
        self._is_wanted = self._is_stopped = False

    def on_change(self, wake: Callable[[Key], None]) -> None:
        """Register a callback for jobs whose Workload changed."""
        self._wake = wake

    def are_served(self) -> bool:
        """Return whether the cluster has Kueue, which starts jobs with a queue. If so, follow its Workloads.

        Raises:
            UnavailableError: The API server does not answer.
        """
        kind = next(filter(self._serves, WORKLOADS), None)
        if kind is not None:
            self._follow(kind)
        return kind is not None

    def look(self) -> None:
        """Follow Workloads if a trial needs it whose job an earlier controller created, or Kueue queued."""
        if self._is_wanted and self._informer is None:
            self._is_wanted = False
            self.are_served()

    def words_of(self, trial: Trial) -> str:
        """Return the queue of a trial's job while Kueue suspends it, and the cause as far as known.

        Empty if it is in no queue, or the cluster has no Kueue.
        """
        queue, reason = queue_of(trial.spec.run_spec or {}), ""
        if self._informer is None:
            self._is_wanted = self._is_wanted or bool(queue) or is_suspended_trial(trial)
            return ""
        for facts in self._informer.group(key_of(trial)):
            queue, reason = facts.queue or queue, facts.reason
        return f"{IN_QUEUE}{queue}{f': {reason}' if reason else ''}" if queue else ""

    def start(self) -> None:
        """Do nothing: Workloads are followed on demand."""

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
        if self._informer is not None:
            self._informer.stop()

    def _follow(self, kind: Kind) -> None:
        with self._lock:
            if self._informer is not None or self._is_stopped:
                return
            informer = Informer(self._store, kind, workload_facts, lambda facts: facts.job, clock=self._clock)
            informer.add_handler(self._changed)
            informer.start()
            self._informer = informer

    def _changed(self, event: InformerEvent[WorkloadFacts]) -> None:
        facts = event.new or event.old
        if event.old != event.new and facts is not None:
            self._wake(facts.job)  # a foreign one is not the key of a trial, and costs nothing
