"""JobSets and TrainJobs as real processes, judged by what is in the store and on the disk afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import NotFoundError
from katib.places.machine.jobs.conditions import end_of
from katib.places.machine.jobs.jobset.jobset import JOB_SET, TRAIN_JOB
from katib.places.machine.jobs.jobset.runtimes import RUNTIME
from katib.places.machine.jobs.kinds import JobKinds
from tests.support.local_jobs import Home, home
from tests.support.memory_store import MemoryStore
from tests.support.torchlike import MEETING
from tests.support.waiting import eventually


@contextmanager
def trainer(root: Path) -> Iterator[Home]:
    """Run a home whose jobs find their runtimes in its store."""
    store = MemoryStore({JOB_SET, TRAIN_JOB})

    def find(kind: Kind, key: Key) -> Object | None:
        try:
            return store.get(kind, key)
        except NotFoundError:
            return None

    with home(root, store=store, kinds=JobKinds(find)) as opened:
        yield opened


def train_job(name: str = "t", runtime: str = "torch-distributed", **spec: Any) -> dict[str, Any]:
    whole = {"runtimeRef": {"name": runtime}, **spec}
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": TRAIN_JOB.api_version, "kind": "TrainJob", "metadata": metadata, "spec": whole}


def jobset(*jobs: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": "t", "namespace": "ns"}
    return {**train_job(), "apiVersion": JOB_SET.api_version, "kind": "JobSet", "metadata": metadata,
            "spec": {"replicatedJobs": list(jobs), **spec}}  # fmt: skip


def replicated(name: str, script: str, **fields: Any) -> dict[str, Any]:
    container = {"name": "node", "command": ["sh", "-c", script]}
    return {"name": name, "template": {"spec": {"template": {"spec": {"containers": [container]}}}}, **fields}


def end(h: Home, kind: Kind = TRAIN_JOB, name: str = "t") -> tuple[str, str]:
    """Wait for a job to end; return type and reason of its final condition."""

    def final() -> Any:
        return end_of(h.store.get(kind, Key("ns", name)).get("status") or {})

    eventually(final, f"job {name} did not end")
    return final()["type"], final()["reason"]


def logs(h: Home, name: str = "t") -> dict[str, str]:
    """Return what each pod of a job printed, by its name without the random end."""
    found = (h.root / "ns" / name).glob("*/*.log")
    return {path.parent.name.rpartition("-")[0]: path.read_text() for path in sorted(found)}


def meeting(processes: int = 2) -> dict[str, Any]:
    return {"command": [sys.executable, "-c", MEETING], "numNodes": 2, "numProcPerNode": processes}


def test_two_nodes_of_two_processes_meet_in_two_jobs_at_once(tmp_path: Path) -> None:
    with trainer(tmp_path) as h:
        for name in ("t", "u"):
            h.submit(train_job(name, trainer=meeting()))
        ends = [end(h, name=name) for name in ("t", "u")]
        printed = {name: logs(h, name) for name in ("t", "u")}

    assert ends == [("Complete", "AllJobsCompleted")] * 2
    for name in ("t", "u"):
        assert printed[name].keys() == {f"{name}-node-0-0", f"{name}-node-0-1"}
        assert sorted(printed[name][f"{name}-node-0-1"].split()) == ["2:6", "3:6"]  # rank and sum of all ranks


def test_a_failed_node_ends_the_others_and_says_why(tmp_path: Path) -> None:
    script = 'if [ "$PET_NODE_RANK" = 1 ]; then echo no data; exit 3; fi; sleep 600'
    with trainer(tmp_path) as h:
        h.submit(train_job(trainer={"command": ["sh", "-c", script], "numNodes": 2}))
        assert end(h) == ("Failed", "FailedJobs")
        message = h.store.get(TRAIN_JOB, Key("ns", "t"))["status"]["conditions"][-1]["message"]

    assert "exited with 3" in message
    assert "no data" in message


def test_pods_of_a_jobset_say_how_often_their_index_failed(tmp_path: Path) -> None:
    told = {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"}
    script = f"echo $FAILURES; test -e {tmp_path}/again && exit 0; touch {tmp_path}/again; exit 1"
    job = replicated("w", script)
    spec = job["template"]["spec"]
    spec |= {"backoffLimitPerIndex": 1, "completions": 1}
    spec["template"]["spec"] |= {"restartPolicy": "Never"}
    spec["template"]["spec"]["containers"][0]["env"] = [{"name": "FAILURES", "valueFrom": {"fieldRef": told}}]
    with trainer(tmp_path) as h:
        h.submit(jobset(job))
        assert end(h, JOB_SET) == ("Completed", "AllJobsCompleted")
        printed = sorted(path.read_text().strip() for path in (h.root / "ns" / "t").glob("*/*.log"))

    assert printed == ["0", "1"]


def test_a_port_that_is_taken_is_changed_once(tmp_path: Path) -> None:
    script = (
        f"echo $PET_MASTER_PORT; if [ ! -e {tmp_path}/again ]; then touch {tmp_path}/again; "
        'echo "OSError: [Errno 98] Address already in use"; exit 1; fi'
    )
    with trainer(tmp_path) as h:
        h.submit(train_job(trainer={"command": ["sh", "-c", script]}))
        assert end(h) == ("Complete", "AllJobsCompleted")
        printed = [path.read_text().split()[0] for path in (h.root / "ns" / "t").glob("*/*.log")]

    assert len(set(printed)) == 2


def test_the_deadline_ends_all_processes(tmp_path: Path) -> None:
    trainer_ = {"command": ["sh", "-c", "sleep 600"], "numNodes": 2}
    with trainer(tmp_path) as h:
        h.submit(train_job(trainer=trainer_, activeDeadlineSeconds=1))

        assert end(h) == ("Failed", "DeadlineExceeded")


def test_initializers_fill_a_directory_that_the_nodes_see(tmp_path: Path) -> None:
    runtime = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [
        step("dataset-initializer", "dataset-initializer", "echo $STORAGE_URI >/workspace/data"),
        {**step("node", "trainer", "cat /workspace/data"),
         "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]},
    ]}}}  # fmt: skip
    with trainer(tmp_path) as h:
        h.submit({**train_job("mine"), "kind": RUNTIME.kind, "spec": runtime})
        job = train_job(trainer={}, initializer={"dataset": {"storageUri": "hf://digits"}})
        job["spec"]["runtimeRef"] = {"name": "mine", "kind": "TrainingRuntime"}
        h.submit(job)
        assert end(h) == ("Complete", "AllJobsCompleted")

        assert logs(h)["t-node-0-1"] == "hf://digits\n"


def step(name: str, label: str, script: str) -> dict[str, Any]:
    """Return a replicated job of a runtime whose only container bears its name."""
    mounts = {"volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    container = {"name": name, "command": ["sh", "-c", script], **mounts}
    pod = {"containers": [container], "volumes": [{"name": "initializer", "persistentVolumeClaim": {"claimName": "d"}}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": label}
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}


def test_a_jobset_starts_again_and_ends_what_is_left(tmp_path: Path) -> None:
    once = f"echo try; if [ ! -e {tmp_path}/again ]; then touch {tmp_path}/again; exit 1; fi"
    with trainer(tmp_path) as h:
        h.submit(
            jobset(
                replicated("server", "sleep 600"),
                replicated("worker", once, dependsOn=[{"name": "server", "status": "Ready"}]),
                successPolicy={"operator": "All", "targetReplicatedJobs": ["worker"]},
                failurePolicy={"maxRestarts": 1},
            )
        )
        assert end(h, JOB_SET) == ("Completed", "AllJobsCompleted")
        status = h.store.get(JOB_SET, Key("ns", "t"))["status"]
        directories = [path.name for path in (h.root / "ns" / "t").glob("t-*")]

    assert (status["restarts"], status["terminalState"]) == (1, "Completed")
    assert len([name for name in directories if name.startswith("t-worker-0-0-")]) == 2


def test_an_mpi_launcher_finds_all_slots_in_its_host_file(tmp_path: Path) -> None:
    spec = {"numNodes": 2, "numProcPerNode": 2, "command": ["sh", "-c", "cat $OMPI_MCA_orte_default_hostfile"]}
    with trainer(tmp_path) as h:
        h.submit(train_job(runtime="deepspeed-distributed", trainer=spec))
        assert end(h) == ("Complete", "AllJobsCompleted")

        assert logs(h) == {"t-launcher-0-0": "localhost slots=4\n"}
