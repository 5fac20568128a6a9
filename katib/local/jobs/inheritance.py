"""What an engine leaves for the next one to know about a job whose pods go on, and how the next one finds it.

The note of a job lies with the guard: it is there exactly as long as the processes are. A later version may read it:
fields that it does not know are ignored, fields that are missing have their defaults.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from katib.local.jobs.run import JobRun
from katib.local.pods.objects import PodPlan
from katib.local.processes.client import Processes
from katib.local.processes.connection import KeptProcess
from katib.runtime.objects import Key, Kind

_PLAIN = (bool, int, str, type(None))
_END_SECONDS = 10.0


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
        pods: All that it had, oldest first.
        stopped: Names of pods that it ended.
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
        pods, ports = tuple(pod.plan for pod in run.pods), run.wiring.ports()
        memory, stopped = dict(run.memory), frozenset(run.stopped)
        return cls(api_version, kind, key.namespace, key.name, run.uid, began, memory, ports, pods, stopped)

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


PodProcesses = Mapping[str, Sequence[KeptProcess]]
"""Processes of a pod by the name of their container, the oldest first."""


class KeptRun(NamedTuple):
    """A job whose pods went on.

    Attributes:
        group: Of its processes.
        note: What the engine before left; None where it cannot be read.
        programs: Its processes.
    """

    group: str
    note: RunNote | None
    programs: tuple[KeptProcess, ...]

    def by_pod(self) -> Mapping[str, PodProcesses]:
        """Return the processes by the uid of their pod."""
        found: dict[str, dict[str, list[KeptProcess]]] = defaultdict(lambda: defaultdict(list))
        for program in sorted(self.programs, key=lambda program: program.key):
            pod, container, *_ = program.name
            found[pod][container].append(program)
        return found


def is_plain(memory: Mapping[str, Any]) -> bool:
    """Return whether what a kind remembers can be left in a note."""
    return all(isinstance(value, _PLAIN) for value in memory.values())


def kept_runs(processes: Processes) -> Iterator[KeptRun]:
    """Yield what the engine before has left running, job by job."""
    inherited = processes.inherited
    if inherited is None:
        return
    for group in dict.fromkeys([*inherited.notes, *(program.group for program in inherited.programs)]):
        programs = tuple(program for program in inherited.programs if program.group == group)
        yield KeptRun(group, _decoded(inherited.notes.get(group, b"")), programs)


def end_all(runs: Iterable[KeptRun], processes: Processes) -> None:
    """End processes that belong to no job any more."""
    ending = []
    for run in runs:
        for program in run.programs:
            os.close(program.output)
            ending.append(processes.kill_tree(processes.attach(program, lambda *_: None)))
        processes.forget(run.group)
    wait(ending, _END_SECONDS)


def _decoded(data: bytes) -> RunNote | None:
    try:
        return msgspec.msgpack.decode(data, type=RunNote, dec_hook=_path)
    except (msgspec.MsgspecError, ValueError, TypeError):
        return None


def _path(type_: type, value: Any) -> Any:
    return Path(value) if type_ is Path else value
