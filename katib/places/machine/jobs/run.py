"""The controller's state of one job, and its note for the next engine if pods outlive this one.

The place of the pods keeps the note of a job as long as they run. A later version may read it: fields that it
does not know are ignored, fields that are missing have their defaults.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from katib.engine.runtime.objects import Key, Kind, Object
from katib.model.json_values import without_nulls
from katib.places.machine.jobs.conditions import conditions_of, end_of, with_foreign
from katib.places.machine.jobs.kind import JobKind
from katib.places.machine.jobs.networks import LocalWiring, NamedWiring
from katib.places.machine.pods.environment import HOST_NETWORK
from katib.places.machine.pods.place import AnyPod
from katib.places.machine.pods.plans import PodPlan
from katib.places.machine.pods.records import PodRecord


class JobStanding(NamedTuple):
    """Whether a job runs, the reason if it waits, and its nodes and cards."""

    runs: bool = False
    waiting: str = ""
    place: str = ""


_NOTHING_RUNS = JobStanding()


@dataclass(slots=True)
class JobRun:
    """One job, from its first sight to its end. Used by the thread that reconciles its key.

    Attributes:
        job: The newest object we know, as watched or as our last write returned it, without fields that are null: they
            mean the same as absent ones.
        directory: The directory of the directories of its pods.
        pods: All pods it had, oldest first; emptied when the job is over.
        status: As it should be; the next plan starts from it, whatever the cache says. `take_status` sets it.
        is_over: Whether the job has succeeded or failed by that status.
        started_at: From when the deadline counts, in steady time.
        unwritten_since: When the status began to differ from the stored one, on the monotonic clock.
        waiting: Why nothing is started, for people.
        reported: The standing that was last reported.
        unreported: The standing to report once it has held for a moment, and its begin, on the monotonic clock.
        explanation_written: Whether the explanation of the monitors is written into the job.
        has_several: Whether it has several pods on purpose.
        is_connected: Whether that network was made; like the next one, it belongs to the loop of the pods.
        unconnected: Pods that wait for it, and how they start.
        restarted: Pods as they were when a container of them had failed and was started again; the loop adds to it.
        retrying: The words of the status about a failed try, until it is stored.
        is_kept: Whether its pods outlive this engine.
        first_kept: Position of the first pod for the note: those before it have ended, and the readings that
            they reported were discarded, or stay as they are.
        kept: The content of the last note, to see changes.
        is_interrupted: Whether its pods end so that it begins again from its checkpoint, also by the next engine.
        is_held: Whether nothing of it is to begin, as its experiment is stopped.
        superseded: Revisions that our own writes replaced; the cache may still show one of them.
    """

    job: Object
    kind: JobKind
    wiring: LocalWiring | NamedWiring
    directory: Path
    network: str = HOST_NETWORK
    has_several: bool = False
    uid: str = field(init=False)
    pods: list[AnyPod] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    is_over: bool = False
    started_at: datetime | None = None
    unwritten_since: float | None = None
    waiting: str = ""
    reported: JobStanding = _NOTHING_RUNS
    unreported: tuple[JobStanding, float] | None = None
    explanation_written: bool = False
    memory: Mapping[str, Any] = field(default_factory=dict)
    restarted: deque[PodRecord] = field(default_factory=deque)
    retrying: str = ""
    is_kept: bool = False
    first_kept: int = 0
    kept: tuple[object, ...] = ()
    stopped: set[str] = field(default_factory=set)
    is_interrupted: bool = False
    is_held: bool = False
    superseded: set[str] = field(default_factory=set)
    is_connected: bool = False
    unconnected: list[tuple[list[AnyPod], Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.uid = self.job["metadata"]["uid"]
        self.job = _without_nulls(self.job)
        self.take_status(dict(self.job.get("status") or {}))

    @property
    def standing(self) -> JobStanding:
        """How it stands now."""
        runs, waiting = False, ""
        places: dict[str, None] = {}
        for pod in self.pods:
            if pod.record.is_running:
                runs = True
                places[pod.record.place] = None
            elif not pod.record.is_finished:
                waiting = waiting or pod.record.waiting
        if runs:
            return JobStanding(runs=True, place=", ".join(filter(None, places)))
        return JobStanding(waiting=waiting or self.waiting)

    def take_status(self, status: dict[str, Any]) -> None:
        """Set the status that the job should have."""
        self.status = status
        self.is_over = end_of(status) is not None

    def observe(self, job: Object) -> None:
        """Take the object from the cache, unless it is older than our own last write."""
        version = job["metadata"]["resourceVersion"]
        if version != self.job["metadata"]["resourceVersion"] and version not in self.superseded:
            before, self.job = self.job, _without_nulls(job)
            stored = [conditions_of(each.get("status") or {}) for each in (before, self.job)]
            own = conditions_of(self.status)
            if (conditions := with_foreign(own, *stored)) != own:
                self.status = {**self.status, "conditions": list(conditions)}

    def wrote(self, job: Object) -> None:
        """Take the object as our write returned it, or as it was read because that write was refused."""
        before, metadata = self.job["metadata"], job["metadata"]
        self.superseded.add(before["resourceVersion"])
        if metadata["generation"] != before["generation"]:
            self.job = _without_nulls(job)
        else:
            self.job = {**self.job, **_without_nulls({"metadata": metadata, "status": job.get("status") or {}})}

    def unfinished_pods(self) -> list[AnyPod]:
        """Return the pods that have not come to their end."""
        return [pod for pod in self.pods if not pod.record.is_finished]


def _without_nulls(job: Object) -> Object:
    """Return a job without fields that are null; few have any, which its text says sooner than its values do."""
    return without_nulls(job) if b"null" in msgspec.json.encode(job) else job


_PLAIN = (bool, int, str, type(None))


@dataclass(frozen=True, slots=True)
class RunNote:
    """All that is needed to continue with a job beside its object, its processes and their logs.

    Attributes:
        began: From when its deadline counts, on the monotonic clock of the machine.
        pods: Those that it had since its log began or went on, oldest first.
        stopped: Names of pods that it ended.
        interrupted: Whether it begins again from its checkpoint once they have ended.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    began: float | None
    memory: dict[str, Any]
    addresses: tuple[tuple[str, str, int], ...]
    pods: tuple[PodPlan, ...]
    stopped: frozenset[str] = field(default_factory=frozenset)
    interrupted: bool = False

    @classmethod
    def of(cls, run: JobRun, monotonic: float, steady: datetime) -> RunNote:
        """Return the note of a job.

        Args:
            monotonic: Now, on the monotonic clock of the machine.
            steady: Now, in steady time.
        """
        (api_version, kind), key = run.kind.kind, Key.of(run.job)
        began = None if run.started_at is None else monotonic - (steady - run.started_at).total_seconds()
        pods, ports = tuple(pod.plan for pod in run.pods[run.first_kept :]), run.wiring.ports()
        memory, stopped = dict(run.memory), frozenset(run.stopped)
        owner, interrupted = (api_version, kind, key.namespace, key.name, run.uid), run.is_interrupted
        return cls(*owner, began, memory, ports, pods, stopped, interrupted)

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def job_kind(self) -> Kind:
        return Kind(self.api_version, self.kind)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self, enc_hook=str)


def is_plain(memory: Mapping[str, Any]) -> bool:
    """Return whether the memory of a kind can be written into a note."""
    return all(isinstance(value, _PLAIN) for value in memory.values())


def decoded(data: bytes) -> RunNote | None:
    """Return the note that an engine left of a job; None if it cannot be read."""
    try:
        return msgspec.msgpack.decode(
            data, type=RunNote, dec_hook=lambda type_, value: Path(value) if type_ is Path else value
        )
    except (msgspec.MsgspecError, ValueError, TypeError):
        return None
