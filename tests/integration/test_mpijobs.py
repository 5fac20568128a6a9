"""MPIJobs with the real `mpirun`, where it is installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from katib.places.machine.jobs.kinds import JobKinds
from tests.support.local_jobs import home
from tests.support.memory_store import MemoryStore
from tests.unit.local.jobs.test_mpijob import an_mpijob

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)")

ALLOWED = ["--allow-run-as-root"] if os.geteuid() == 0 else []
KINDS = JobKinds()


def test_mpirun_starts_a_process_in_each_slot_of_all_workers(tmp_path: Path) -> None:
    job = an_mpijob("mpirun", *ALLOWED, "sh", "-c", f"touch {tmp_path}/$OMPI_COMM_WORLD_RANK", slotsPerWorker=2)
    job["metadata"] |= {"namespace": "ns"}
    with home(tmp_path, store=MemoryStore(set(KINDS))) as h:
        end = h.run(job)

    assert (end["type"], end["reason"]) == ("Succeeded", "MPIJobSucceeded")
    assert sorted(path.name for path in tmp_path.glob("[0-9]")) == ["0", "1", "2", "3"]


def test_a_job_fails_when_one_of_its_processes_does(tmp_path: Path) -> None:
    job = an_mpijob("mpirun", *ALLOWED, "sh", "-c", "[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 3", slotsPerWorker=1)
    job["metadata"] |= {"namespace": "ns"}
    with home(tmp_path, store=MemoryStore(set(KINDS))) as h:
        end = h.run(job)

    assert (end["type"], end["reason"]) == ("Failed", "MPIJobFailed")
