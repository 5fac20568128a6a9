"""What a newer version stored survives that an older one reads and writes it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from katib.api.conditions import set_condition
from katib.api.types import Experiment, Resource, Suggestion, Trial
from katib.controllers.kinds import with_status

NEWS = {"fromTheFuture": {"a": [1, None]}}
CONDITIONS = [
    {"type": "Created", "status": "True", "reason": "r", "message": "m", **NEWS},
    {"type": "Running", "status": "True", "reason": "r", "message": "m", **NEWS},
]
METRICS = {"metrics": [{"name": "loss", "latest": "1", **NEWS}], **NEWS}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Trial, {"conditions": CONDITIONS, "observation": METRICS, **NEWS}),
        (Experiment, {"conditions": CONDITIONS, "currentOptimalTrial": {"observation": METRICS, **NEWS}, **NEWS}),
        (Suggestion, {"conditions": CONDITIONS, "suggestions": [{"name": "t", **NEWS}], **NEWS}),
    ],
)
def test_unknown_fields_of_a_status_and_of_its_entries_are_kept_by_a_write(
    kind: type[Resource], status: dict[str, Any]
) -> None:
    read: Any = kind.decode({"metadata": {"name": "a"}, "status": status})
    now = datetime(2030, 1, 1, tzinfo=UTC)
    ended = set_condition(read.status.conditions, "Running", "Ended", "over", now, holds=False)
    written = with_status(read, structs.replace(read.status, conditions=ended))["status"]

    assert {**written, "conditions": []} == {**status, "conditions": []}
    assert [condition["fromTheFuture"] for condition in written["conditions"]] == [NEWS["fromTheFuture"]] * 2
    assert written["conditions"][1]["status"] == "False"


def test_what_others_stored_is_read_as_far_as_it_fits_and_encoded_as_it_was() -> None:
    stored = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Trial",
        "metadata": {"name": "t", "creationTimestamp": "yesterday", "labels": {"a": 1, "b": "2"}, "managedFields": []},
        "spec": {"objective": None, "parameterAssignments": [3, {"name": "x", "value": 1}], **NEWS},
        "status": {"startTime": "2030-01-01T00:00:00Z", "conditions": None, **NEWS},
    }

    read = Trial.read(stored)

    assert (read.name, read.metadata.creation_timestamp, read.metadata.labels) == ("t", None, {"b": "2"})
    assert [(pair.name, pair.value) for pair in read.spec.parameter_assignments] == [("", ""), ("x", "1")]
    assert read.status.start_time == datetime(2030, 1, 1, tzinfo=UTC)
    assert read.encode() == stored
    assert structs.replace(read, kind="Trial").encode() != stored


READ_AT_ONCE = """
import sys, threading
from katib.api.types import Experiment, Suggestion, Trial

def read(kind):
    start.wait()
    kind.decode({"metadata": {"name": "a"}})

sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
threads = [threading.Thread(target=read, args=(kind,)) for kind in (Trial, Experiment, Suggestion, Trial) * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_read_the_first_object_at_once_do_not_crash_the_interpreter() -> None:
    """Without the lock of `prepare` half of these processes are ended by a segmentation fault."""
    for _ in range(6):
        assert subprocess.run([sys.executable, "-c", READ_AT_ONCE], check=False).returncode == 0
