"""Plans of pods, and their notes in the directories of jobs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

from katib.errors import UnavailableError
from katib.model.files.directories import make_below
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.image_runs import ImageRun
from katib.places.machine.pods.requests import Request
from katib.places.machine.processes.handle import ProcessHandle

Json = dict[str, Any]


class ContainerRole(Enum):
    """The role of a container in its pod."""

    INIT = auto()
    SIDECAR = auto()
    MAIN = auto()


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """The plan of a container.

    Attributes:
        restart_on_failure: Whether it is started again when it failed.
        restart_always: Whether it is started again whenever it ends.
        volumes: Directories outside of the pod's own that must exist.
        image: Its image, which a runtime runs in place of the command; None: the command is a process of this machine.
    """

    role: ContainerRole
    command: ContainerCommand
    directory: Path
    restart_on_failure: bool
    restart_always: bool
    volumes: tuple[Path, ...] = ()
    image: ImageRun | None = None


PULLING = "pulling image"


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Everything decided about a pod before it starts.

    Attributes:
        after: ContainerRole of the pod of its gang whose containers must have started before its own; empty for none.
        containers: In the order in which they start.
        cannot_start: Why it cannot start at all; then there are no containers.
        holder: For whom it leases resources, as shown to users of other engines.
        group: The group in which its processes outlive this engine, or at least their output; empty: neither does.
        slots: How many processes it starts by MPI, each with its share of the request, wherever its host files say.
        checkpoint: The folder of its trial's checkpoint; None if that keeps none.
    """

    name: str
    index: int | None
    uid: str
    labels: dict[str, str]
    directory: Path
    containers: tuple[ContainerPlan, ...]
    grace_seconds: float
    request: Request
    cannot_start: str = ""
    role: str = ""
    after: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    holder: str = ""
    replica: str = ""
    group: str = ""
    slots: int = 0
    checkpoint: Path | None = None


def replica_of(role: str, index: int | None) -> str:
    """Return the name of a replica within its job, as `worker-1`; empty for a pod that has neither role nor index."""
    return "-".join(filter(None, (role.lower(), "" if index is None else str(index))))


def pulling_words(image: str) -> str:
    """Return that an image is being fetched, as the rest of a sentence about a pod."""
    return f'{PULLING} "{image}"'


NOTE_FILE = "pod.json"


def is_ours(path: Path, directory: Path, containers: Iterable[str]) -> bool:
    """Return whether we write a file of a pod's directory: the note of the pod, its logs and their times."""
    names = (NOTE_FILE, *(f"{container}.{end}" for container in containers for end in ("log", "times.")))
    return path.parent == directory and path.name.startswith(names)


def begin_note(plan: PodPlan, job_uid: str) -> None:
    """Write down which pod it is, and that a job of this uid is about to start it.

    Raises:
        UnavailableError: The disk cannot be written.
    """
    note = {
        "job": job_uid,
        "name": plan.name,
        "uid": plan.uid,
        "role": plan.role,
        "index": plan.index,
        "replica": plan.replica,
        "labels": plan.labels,
        "containers": [container.command.name for container in plan.containers],
        "inImage": any(container.image is not None for container in plan.containers),
    }
    try:
        make_below(plan.directory.parents[2], plan.directory)
        append_note(plan.directory, note)
    except OSError as error:
        cause = f"cannot write {plan.directory}: {error.strerror}"
        raise UnavailableError(f"{cause}; free space or change its rights") from error


def note_processes(plan: PodPlan, container: str = "", handle: ProcessHandle | None = None) -> None:
    """Write down that a pod has begun, and a process that it has started on this machine, to clean up by hand."""
    processes: list[Json] = []
    if handle is not None:
        known = {"pid": handle.pid, "startTime": handle.start_time, "program": handle.program}
        processes = [{"container": container, **known}]
    with contextlib.suppress(OSError):  # the disk is full; the pod does not need its note
        append_note(plan.directory, {"processes": processes})


def read_note(directory: Path) -> Json:
    """Return the note of the pod of a directory.

    It has `job` once the job is about to start it, and `processes` or `pod` once it has begun. Earlier versions wrote
    it when it had begun, without `job`.

    Raises:
        OSError: There is no such file, or it cannot be read.
        ValueError: Nothing in it can be understood.
    """
    note: Json = {}
    for line in (directory / NOTE_FILE).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # cut off by a crash, or by a full disk
            added = json.loads(line)
            if isinstance(added, dict):
                if "processes" in added:
                    added["processes"] = [*note.get("processes", ()), *added["processes"]]
                note |= added
    if not note:
        raise ValueError(f"{directory / NOTE_FILE} says nothing")
    return note


def append_note(directory: Path, said: Json) -> None:
    with (directory / NOTE_FILE).open("a") as file:
        file.write(f"\n{json.dumps(said)}")  # the break comes first: the line before may have been cut off
