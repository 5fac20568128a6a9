"""Training jobs as real processes that talk to each other over the addresses that they are told."""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from katib.engine.runtime.objects import Key, Object
from katib.errors import NotFoundError
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.conditions import end_of
from katib.places.machine.jobs.kind import JobKind
from katib.places.machine.jobs.replicated.frameworks import PyTorchJob, TFJob
from katib.places.machine.jobs.replicated.training_kind import TrainingKind
from katib.places.machine.pods.plans import read_note
from katib.places.machine.processes.proc import is_running
from tests.support.golden import Golden
from tests.support.local_jobs import PRIMARY, Home, Monitors, Owner, home
from tests.support.local_jobs import job as batch_job
from tests.support.memory_store import MemoryStore
from tests.support.training_jobs import replica, training_job
from tests.support.waiting import eventually

PYTORCH, TF = PyTorchJob(), TFJob()
PYTORCH.late_seconds = TF.late_seconds = 0.3
KINDS: tuple[JobKind, ...] = (PYTORCH, TF)

MEETING = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        heard = []
        for _ in range(size - 1):
            connection, _ = server.accept()
            with connection:
                heard.append(int(connection.makefile().readline()))
    print("heard", sorted(heard), "on", address[1])
else:
    while True:
        try:
            with socket.create_connection(address) as connection:
                connection.sendall(f"{rank}\\n".encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
"""
"""Workers tell the master their ranks."""

CLUSTER = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]

def place(text):
    host, _, port = text.rpartition(":")
    return host, int(port)

def ask(text):
    while True:
        try:
            with socket.create_connection(place(text)) as connection:
                return connection.makefile().readline().strip()
        except ConnectionRefusedError:
            time.sleep(0.01)

own = f'{task["type"]}-{task["index"]}'
with socket.create_server(place(cluster[task["type"]][task["index"]])) as server:
    import threading
    def serve():
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"{own}\\n".encode())
    threading.Thread(target=serve, daemon=True).start()
    if task["type"] == "ps":
        time.sleep(600)
    print(own, "hears", [ask(text) for role in sorted(cluster) for text in cluster[role]], flush=True)
    peers = [text for text in cluster["worker"]]
    done = f'{os.environ["DONE"]}-{own}'
    open(done, "w").close()
    while not all(os.path.exists(f'{os.environ["DONE"]}-worker-{i}') for i in range(len(peers))):
        time.sleep(0.01)
os._exit(0)
"""
"""Every worker asks every replica of the cluster for its name; parameter servers never end."""


def program(text: str, kind: TrainingKind = PYTORCH, **variables: str) -> dict[str, Any]:
    """Return a container that runs a Python program."""
    env = [{"name": name, "value": value} for name, value in variables.items()]
    command = [sys.executable, "-I", "-S", "-c", text.replace("$(", "$$(")]
    return {"name": kind.container, "image": "none", "command": command, "env": env}


def shell(script: str) -> dict[str, Any]:
    return {"name": "pytorch", "image": "none", "command": ["sh", "-c", script.replace("$$", "$$$$")]}


def pytorch_job(
    master: dict[str, Any], worker: dict[str, Any], *, name: str = "j", restart: str = "Never", workers: int = 2,
    master_pod: dict[str, Any] | None = None, **policy: Any,
) -> dict[str, Any]:  # fmt: skip
    roles = {
        "Master": replica(1, master, policy=restart, **(master_pod or {})),
        "Worker": replica(workers, worker, policy=restart),
    }
    return training_job(PYTORCH, name=name, policy=policy, **roles)


class Machine:
    """A home that knows training jobs."""

    def __init__(self, home_: Home, kind: TrainingKind) -> None:
        self.home = home_
        self.kind = kind.kind

    def submit(self, job: dict[str, Any]) -> None:
        self.home.submit(job)

    def status(self, name: str = "j") -> dict[str, Any]:
        return dict(self.home.store.get(self.kind, Key("n", name)).get("status") or {})

    def end(self, name: str = "j") -> dict[str, Any]:
        """Return the final condition of a job."""
        return eventually(lambda: end_of(self.status(name)) or {}, f"job {name} to end", picture=self.picture)

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        self.submit(job)
        return self.end(job["metadata"]["name"])

    def change(self, change: Callable[[dict[str, Any]], None]) -> None:
        job = copy.deepcopy(dict(self.home.store.get(self.kind, Key("n", "j"))))
        change(job["spec"].setdefault("runPolicy", {}))
        self.home.store.update(job)

    def delete(self) -> None:
        self.home.store.delete(self.kind, Key("n", "j"))

    def exists(self) -> bool:
        try:
            self.status()
        except NotFoundError:
            return False
        return True

    def log(self, pod: str, name: str = "j") -> str:
        """Return what a pod printed so far, nothing when it has not started."""
        directory = self.home.root / "n" / name / pod
        return "".join(path.read_text() for path in directory.glob("*.log"))

    def holds(self, type_: str) -> bool:
        return any(c["type"] == type_ and c["status"] == "True" for c in self.status().get("conditions", ()))

    def pids(self) -> list[int]:
        """Return the processes that pods had so far."""
        found = []
        for path in self.home.root.glob("n/*/*/pod.json"):
            with suppress(ValueError):  # it is being made
                found += [process["pid"] for process in read_note(path.parent).get("processes", ())]
        return found

    def picture(self) -> str:
        logs = {str(path): path.read_text() for path in self.home.root.rglob("*.log")}
        return json.dumps([self.status(), logs], indent=1)


@contextmanager
def machine(root: Path, kind: TrainingKind = PYTORCH, **options: Any) -> Iterator[Machine]:
    store = MemoryStore({k.kind for k in KINDS})
    with home(root, store=store, kinds=KINDS, **options) as found:
        yield Machine(found, kind)


class TestAddresses:
    def test_a_master_and_its_workers_meet(self, tmp_path: Path) -> None:
        with machine(tmp_path) as m:
            end = m.run(pytorch_job(program(MEETING), program(MEETING)))

            assert (end["type"], end["reason"]) == ("Succeeded", "PyTorchJobSucceeded")
            assert m.log("j-master-0").startswith("heard [1, 2] on")

    def test_two_jobs_at_once_do_not_meet_each_other(self, tmp_path: Path) -> None:
        with machine(tmp_path) as m:
            m.submit(pytorch_job(program(MEETING), program(MEETING), name="a"))
            m.submit(pytorch_job(program(MEETING), program(MEETING), name="b"))

            assert {m.end("a")["type"], m.end("b")["type"]} == {"Succeeded"}
            assert m.log("a-master-0", "a") != m.log("b-master-0", "b")

    def test_programs_that_read_tf_config_hear_each_other_and_servers_are_stopped(self, tmp_path: Path) -> None:
        task = program(CLUSTER, TF, DONE=str(tmp_path / "done"))
        with machine(tmp_path, TF) as m:
            end = m.run(training_job(TF, PS=replica(2, task), Worker=replica(2, task)))

            assert end["type"] == "Succeeded"
            heard = "hears ['ps-0', 'ps-1', 'worker-0', 'worker-1']"
            assert (m.log("j-worker-0"), m.log("j-worker-1")) == (f"worker-0 {heard}\n", f"worker-1 {heard}\n")
            assert "stopped then: ps-0, ps-1" in end["message"]
            assert not any(map(is_running, m.pids()))
            assert m.status()["replicaStatuses"]["PS"]["succeeded"] == 2

    def test_a_port_that_somebody_takes_meanwhile_costs_no_try(self, tmp_path: Path) -> None:
        master = f"""
import os, time
print(os.environ["MASTER_PORT"], flush=True)
while not os.path.exists({str(tmp_path / "taken")!r}):
    time.sleep(0.01)
{MEETING}"""
        with machine(tmp_path) as m:
            m.submit(pytorch_job(program(master), program(MEETING), backoffLimit=0))
            port = int(eventually(lambda: m.log("j-master-0"), "the master's port"))
            with socket.create_server(("127.0.0.1", port)):
                (tmp_path / "taken").touch()
                end = m.end()

            assert end["type"] == "Succeeded"
            assert "heard [1, 2]" in m.log("j-master-0.2")
            assert str(port) not in m.log("j-master-0.2")

    def test_a_worker_that_fails_before_the_master_says_so_costs_no_try_either(self, tmp_path: Path) -> None:
        master = f"""
import os, time
print(os.environ["MASTER_PORT"], flush=True)
while not os.path.exists({str(tmp_path / "taken")!r}):
    time.sleep(0.01)
time.sleep(0.2)
{MEETING}"""
        worker = f"""
import os, sys, time
while not os.path.exists({str(tmp_path / "taken")!r}):
    time.sleep(0.01)
if not os.path.exists({str(tmp_path / "again")!r}):
    open({str(tmp_path / "again")!r}, "w").close()
    sys.exit("the master does not know me")
{MEETING}"""
        with machine(tmp_path) as m:
            m.submit(pytorch_job(program(master), program(worker), workers=1))
            port = int(eventually(lambda: m.log("j-master-0"), "the master's port"))
            with socket.create_server(("127.0.0.1", port)):
                (tmp_path / "taken").touch()
                end = m.end()

            assert end["type"] == "Succeeded"
            assert "the master does not know me" in m.log("j-worker-0")
            assert "heard [1]" in m.log("j-master-0.2")

    def test_workers_start_after_the_program_of_the_master(self, tmp_path: Path) -> None:
        first = {
            "name": "prepare",
            "image": "none",
            "command": ["sh", "-c", f"sleep 0.2; echo init >>{tmp_path}/order"],
        }
        job = pytorch_job(
            shell(f"echo master >>{tmp_path}/order; sleep 0.5"),
            shell(f"echo worker >>{tmp_path}/order"),
            master_pod={"initContainers": [first]},
        )
        with machine(tmp_path) as m:
            m.run(job)

            assert (tmp_path / "order").read_text().split()[0] == "init"
            assert sorted((tmp_path / "order").read_text().split()[1:]) == ["master", "worker", "worker"]


class TestMetrics:
    def test_only_the_training_container_of_each_replica_is_offered_with_its_labels(self, tmp_path: Path) -> None:
        offered = []

        class LabelledMonitors(Monitors):
            def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> Any:
                offered.append((directory.name, container, pod_labels.get("training.kubeflow.org/job-role")))
                return super().open(job, pod_labels, container, directory)

        with machine(tmp_path, monitors=LabelledMonitors()) as m:
            m.run(pytorch_job(shell("true"), shell("true"), workers=1))

            assert sorted(offered) == [("j-master-0", "pytorch", "master"), ("j-worker-0", "pytorch", None)]

    def test_a_trial_that_is_stopped_early_ends_all_replicas(self, tmp_path: Path, golden: Golden) -> None:
        class MasterMonitors(Monitors):
            def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> Any:
                if "training.kubeflow.org/job-role" not in pod_labels:
                    return None
                return super().open(job, pod_labels, PRIMARY, directory)

        monitors = MasterMonitors({"stop_when": b"hopeless"})
        with machine(tmp_path, monitors=monitors) as m:
            end = m.run(pytorch_job(shell("echo hopeless; sleep 600"), shell("sleep 600")))

            assert (end["type"], end["reason"]) == ("Succeeded", "EarlyStopped")
            golden(end["message"])
            assert not any(map(is_running, m.pids()))


class TestFailures:
    def test_a_worker_that_is_killed_is_replaced(self, tmp_path: Path) -> None:
        worker = shell(
            f"echo x >>{tmp_path}/tries; test -e {tmp_path}/again || {{ touch {tmp_path}/again; kill -9 $$; }}"
        )
        master = shell(f"while [ $(wc -l <{tmp_path}/tries) -lt 2 ]; do sleep 0.01; done")
        (tmp_path / "tries").touch()
        with machine(tmp_path) as m:
            assert m.run(pytorch_job(master, worker, workers=1, restart="ExitCode"))["type"] == "Succeeded"
            assert (tmp_path / "tries").read_text() == "x\nx\n"

    def test_a_worker_that_fails_by_itself_fails_the_job(self, tmp_path: Path) -> None:
        with machine(tmp_path) as m:
            end = m.run(pytorch_job(shell("sleep 600"), shell("echo no data; exit 1"), restart="ExitCode"))

            assert (end["type"], end["reason"]) == ("Failed", "PyTorchJobFailed")
            assert end["message"].endswith(": no data")
            assert not any(map(is_running, m.pids()))

    def test_on_failure_a_program_is_started_again_in_its_pod_up_to_the_limit(self, tmp_path: Path) -> None:
        master = shell(f"echo x >>{tmp_path}/tries; exit 1")
        with machine(tmp_path) as m:
            end = m.run(pytorch_job(master, shell("sleep 600"), workers=1, restart="OnFailure", backoffLimit=3))

            assert (end["type"], end["reason"]) == ("Failed", "PyTorchJobFailed")
            assert "limit of 3" in end["message"]
            assert len((tmp_path / "tries").read_text()) in {6, 8}  # the third restart may be stopped before it prints

    def test_without_a_limit_a_program_that_always_fails_is_given_up(self, tmp_path: Path) -> None:
        master = shell(f"echo x >>{tmp_path}/tries; exit 1")
        with machine(tmp_path) as m:
            end = m.run(pytorch_job(master, shell("sleep 600"), workers=1, restart="OnFailure"))

            assert end["reason"] == "PyTorchJobTooManyRestarts"
            assert (tmp_path / "tries").read_text() == 6 * "x\n"

    def test_a_worker_that_hangs_after_the_master_succeeded_is_stopped(self, tmp_path: Path, golden: Golden) -> None:
        with machine(tmp_path) as m:
            end = m.run(pytorch_job(shell("true"), shell("sleep 600"), workers=1))

            assert end["type"] == "Succeeded"
            golden(end["message"])
            assert not any(map(is_running, m.pids()))

    def test_replicas_that_are_lost_with_the_guard_start_again(self, tmp_path: Path) -> None:
        wait = shell(f"echo x >>{tmp_path}/starts; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done")
        with machine(tmp_path) as m:
            m.submit(pytorch_job(wait, wait, workers=1, backoffLimit=0))
            starts = tmp_path / "starts"
            eventually(lambda: starts.exists() and len(starts.read_text()) == 4, "both to start")
            connection = m.home.processes._connection
            assert connection is not None
            os.kill(connection.pid, signal.SIGKILL)
            # One that is lost may start in its place before the job asks for all to start again.
            eventually(lambda: len(starts.read_text()) >= 8, "both to start again", picture=m.picture)
            (tmp_path / "go").touch()

            assert m.end()["type"] == "Succeeded"

    def test_a_program_that_is_not_there_fails_the_job_and_stops_the_others(self, tmp_path: Path) -> None:
        wrong = {"name": "pytorch", "image": "none", "command": ["/no/such/program"]}
        with machine(tmp_path) as m:
            end = m.run(pytorch_job(shell("sleep 600"), wrong, restart="OnFailure"))

            assert (end["type"], end["reason"]) == ("Failed", "PodCannotStart")
            assert "/no/such/program" in end["message"]
            assert not any(map(is_running, m.pids()))


class TestRunPolicy:
    def test_a_job_is_suspended_and_resumed(self, tmp_path: Path) -> None:
        wait = shell(f"echo x >>{tmp_path}/starts; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done")
        with machine(tmp_path) as m:
            m.submit(pytorch_job(wait, wait, workers=1))
            starts = tmp_path / "starts"
            eventually(lambda: starts.exists() and len(starts.read_text()) == 4, "both to start")
            m.change(lambda policy: policy.update(suspend=True))
            eventually(lambda: m.holds("Suspended") and not any(map(is_running, m.pids())), "the job to be suspended")
            assert "startTime" not in m.status()
            (tmp_path / "go").touch()
            m.change(lambda policy: policy.update(suspend=False))

            assert m.end()["type"] == "Succeeded"
            assert len(starts.read_text()) == 8

    def test_a_deadline_in_mid_gang_ends_all(self, tmp_path: Path) -> None:
        first = {"name": "slow", "image": "none", "command": ["sleep", "600"]}
        job = pytorch_job(
            shell("sleep 600"), shell("sleep 600"), master_pod={"initContainers": [first]}, activeDeadlineSeconds=1
        )
        with machine(tmp_path) as m:
            end = m.run(job)

            assert (end["type"], end["reason"]) == ("Failed", "PyTorchJobFailed")
            assert "deadline of 1 s" in end["message"]
            assert not any(map(is_running, m.pids()))

    def test_a_deadline_ends_a_job_whose_master_never_listens(self, tmp_path: Path) -> None:
        with machine(tmp_path) as m:
            end = m.run(pytorch_job(shell("sleep 600"), program(MEETING), activeDeadlineSeconds=1))

            assert (end["type"], end["reason"]) == ("Failed", "PyTorchJobFailed")
            assert "deadline of 1 s" in end["message"]
            assert not any(map(is_running, m.pids()))

    @pytest.mark.parametrize("code", [0, 1])
    def test_with_a_time_to_live_of_zero_the_job_is_removed(self, tmp_path: Path, code: int) -> None:
        with machine(tmp_path) as m:
            m.submit(pytorch_job(shell(f"exit {code}"), shell("true"), ttlSecondsAfterFinished=0))

            eventually(lambda: not m.exists(), "the job to be removed")

    def test_it_stays_while_its_trial_needs_it(self, tmp_path: Path) -> None:
        needed = [True]
        with machine(tmp_path, owner=Owner(tmp_path, releases=lambda: not needed[0])) as m:
            m.run(pytorch_job(shell("true"), shell("true"), ttlSecondsAfterFinished=0))
            assert m.exists()
            needed[0] = False

            eventually(lambda: not m.exists(), "the job to be removed")

    def test_a_job_of_another_kind_has_its_name_once_nothing_of_it_is_left(self, tmp_path: Path) -> None:
        key, pytorch = Key("n", "j"), KINDS[0].kind
        stubborn, short = shell(f"trap '' TERM; touch {tmp_path}/up; sleep 600"), {"terminationGracePeriodSeconds": 1}
        with home(tmp_path, store=MemoryStore({JOB, pytorch})) as h:
            h.submit(pytorch_job(stubborn, shell("sleep 600"), workers=1, master_pod=short))
            eventually((tmp_path / "up").exists, "it to start")
            h.store.delete(pytorch, key)
            second = batch_job(shell(f"ls {h.root}/n/j"))
            h.submit({**second, "metadata": {"name": key.name, "namespace": key.namespace}})

            eventually(lambda: end_of(h.store.get(JOB, key).get("status") or {}), "the second one to end")
            (log,) = h.root.joinpath(*key).glob("*/*.log")
            assert "j-master-0" not in log.read_text()
            eventually(lambda: not h.runner.runs(key), "it to be over")

    def test_deleting_the_job_ends_all_replicas(self, tmp_path: Path) -> None:
        with machine(tmp_path) as m:
            m.submit(pytorch_job(shell("sleep 600"), shell("sleep 600")))
            eventually(lambda: len(m.pids()) == 3, "all to start")

            m.delete()

            eventually(lambda: not any(map(is_running, m.pids())), "all replicas to end")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where the files of trials are: a file system with room for few files."""
    place = tmp_path / "trials"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("room", [0, 4, 5], ids=["for nothing", "for one directory", "for two directories"])
def test_a_gang_waits_whole_while_the_disk_is_full(tmp_path: Path, small_disk: Path, room: int) -> None:
    for number in range(os.statvfs(small_disk).f_ffree - room):
        (small_disk / f"ballast-{number}").touch()
    with machine(tmp_path) as m:
        m.submit(pytorch_job(program(MEETING), program(MEETING)))
        waiting = eventually(lambda: m.home.runner.waiting_reason("n", "j"), "the job to wait", picture=m.picture)
        assert "No space left on device" in waiting
        assert m.pids() == []
        for ballast in small_disk.glob("ballast-*"):
            ballast.unlink()

        assert m.end()["type"] == "Succeeded"
        assert sum(log.read_text().startswith("heard [1, 2] on") for log in small_disk.rglob("*.log")) == 1
