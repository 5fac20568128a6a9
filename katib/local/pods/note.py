"""The file in which a pod writes down what it is: which job began it, what it runs, how it ended.

`pod.json` has one JSON object in each line, and what a later line says is added to what stands before it. A line is
written at once and nothing is ever written over, so that a crash at any moment leaves all that stood there. The first
line is there before any process of the pod is. Earlier versions wrote all of it as one object.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from katib.errors import UnavailableError
from katib.local.pods.objects import PodPlan, pod_object
from katib.local.pods.records import PodRecord
from katib.runtime.clock import SteadyTime

Json = dict[str, Any]

_FILE = "pod.json"


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
        plan.directory.mkdir(parents=True, exist_ok=True)
        _append(plan.directory, note)
    except OSError as error:
        cause = f"cannot write {plan.directory}: {error.strerror}"
        raise UnavailableError(f"{cause}; free space or change its rights") from error


def note_processes(plan: PodPlan, *processes: Json) -> None:
    """Write down that a pod has begun, and the processes that it has started on this machine."""
    with contextlib.suppress(OSError):  # the disk is full; the pod does not need its note
        _append(plan.directory, {"processes": processes})


def note_end(plan: PodPlan, end: PodRecord, steady: SteadyTime, *, is_measured: bool) -> None:
    """Write down how a pod ended: replicas are known by it when their pods are gone with the job.

    Args:
        plan: What was decided about it.
        end: How it ended.
        steady: Where its times were measured.
        is_measured: Whether the objective metric was found in what it wrote.
    """
    with contextlib.suppress(OSError):
        _append(plan.directory, {"pod": pod_object(plan, end, steady), "isMeasured": is_measured})


def read_note(directory: Path) -> Json:
    """Return what the pod of a directory wrote down.

    It has `job` once the job is about to start it, and `processes` or `pod` once it has begun. Earlier versions wrote
    it when it had begun, without `job`.

    Raises:
        OSError: There is no such file, or it cannot be read.
        ValueError: Nothing in it can be understood.
    """
    note: Json = {}
    for line in (directory / _FILE).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # cut off by a crash, or by a full disk
            added = json.loads(line)
            if isinstance(added, dict):
                if "processes" in added:
                    added["processes"] = [*note.get("processes", ()), *added["processes"]]
                note |= added
    if not note:
        raise ValueError(f"{directory / _FILE} says nothing")
    return note


def _append(directory: Path, said: Json) -> None:
    with (directory / _FILE).open("a") as file:
        file.write(f"\n{json.dumps(said)}")  # the break comes first: the line before may have been cut off
