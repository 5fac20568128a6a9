"""What an engine leaves for the next one to know about a job whose pods go on, and how the next one finds it.

The place where the pods run keeps the note of a job as long as they run. A later version may read it: fields that it
does not know are ignored, fields that are missing have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from katib.local.jobs.run import JobRun
from katib.local.pods.objects import PodPlan
from katib.runtime.objects import Key, Kind

_PLAIN = (bool, int, str, type(None))


@dataclass(frozen=True, slots=True)
class RunNote:
    """All that is needed to go on with a job beside its object, its processes and their logs.

    Attributes:
        api_version: Of the job.
        kind: Likewise.
        namespace: Likewise.
        name: Likewise.
        uid: Likewise.
        began: From when its deadline counts, on the monotonic clock of the machine.
        memory: What its kind remembers.
        addresses: Ports of its pods.
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
            run: The job.
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
        """Of the job."""
        return Key(self.namespace, self.name)

    @property
    def job_kind(self) -> Kind:
        """Of the job."""
        return Kind(self.api_version, self.kind)

    def encode(self) -> bytes:
        """Return it as bytes."""
        return msgspec.msgpack.encode(self, enc_hook=str)


def is_plain(memory: Mapping[str, Any]) -> bool:
    """Return whether what a kind remembers can be left in a note."""
    return all(isinstance(value, _PLAIN) for value in memory.values())


def decoded(data: bytes) -> RunNote | None:
    """Return what an engine left of a job; None where it cannot be read."""
    try:
        return msgspec.msgpack.decode(data, type=RunNote, dec_hook=_path)
    except (msgspec.MsgspecError, ValueError, TypeError):
        return None


def _path(type_: type, value: Any) -> Any:
    return Path(value) if type_ is Path else value
