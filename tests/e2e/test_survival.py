"""What a killed server leaves, and what it takes up again."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import survive
from katib.doors.rest.client import HttpTuningService
from katib.model.types import Experiment
from katib.places.machine.processes.remains import EngineRecord
from tests.support.cli import ServerProcess, a_server, katib, katib_here, katib_json, marked_processes, rows
from tests.support.experiments import an_experiment
from tests.support.waiting import eventually

ENDING = ("--orphans", "0")
"""Programs end with their server; see test_orphans.py for those that continue."""

TRIALS = 20
READINGS = 5
KILLS = 6

# Five readings that depend on the assignment alone, over a tenth of a second.
COMMAND = (
    "for step in 1 2 3 4 5; do echo step=$step loss=$(awk 'BEGIN {x = ${trialParameters.learningRate} - 0.04; "
    "printf \"%.12f\", x * x + 1 / '$step'}'); sleep 0.02; done"
)


def experiment_file(directory: Path) -> Path:
    raw = an_experiment(
        command=COMMAND,
        algorithm={"algorithmName": "tpe", "algorithmSettings": [{"name": "random_state", "value": "3"}]},
        maxTrialCount=TRIALS,
        parallelTrialCount=1,
    )
    path = directory / "demo.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def assignments(trials: list[dict[str, Any]]) -> list[str]:
    return [trial["spec"]["parameterAssignments"][0]["value"] for trial in trials]


def items(listing: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = listing["items"] if isinstance(listing, dict) else listing
    return found


@pytest.mark.slow
def test_a_server_killed_again_and_again_runs_every_trial_once(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    done = katib("run", experiment_file(undisturbed), "-q", cwd=undisturbed, timeout=240)
    assert done.returncode == 0, done.stderr

    disturbed = tmp_path / "disturbed"
    disturbed.mkdir()
    path = experiment_file(disturbed)
    moments = random.Random(1)
    with a_server(disturbed, *ENDING) as server:
        applied = katib_here("apply", path, "--server", server.url, cwd=disturbed)
        assert applied.returncode == 0, applied.stderr
        for _ in range(KILLS):
            time.sleep(moments.uniform(0.0, 1.0))
            server.kill()
            eventually(lambda: not server.descendants())
            server.start()
            if moments.random() < 0.7:  # some are killed while they start
                server.wait_until_ready()
        server.wait_until_ready()
        with HttpTuningService(server.url, server.token) as service:
            eventually(lambda: _is_over(service.get(Experiment, "default", "demo")), seconds=240, every=0.1)
        experiment = katib_json("get", "experiment", "demo", "--server", server.url, cwd=disturbed)
        assert server.stop() in (0, 130)
        eventually(lambda: not server.descendants())

    reference = katib_json("get", "experiment", "demo", "--data-dir", undisturbed / ".katib", cwd=undisturbed)
    expected = items(katib_json("get", "trials", "--data-dir", undisturbed / ".katib", cwd=undisturbed))
    trials = items(katib_json("get", "trials", "--data-dir", disturbed / ".katib", cwd=disturbed))
    names = [trial["metadata"]["name"] for trial in trials]
    assert len(names) == len(set(names)) == TRIALS
    assert experiment["status"]["trialsSucceeded"] == TRIALS
    assert assignments(trials) == assignments(expected)
    stored = rows(disturbed / ".katib", "select trial_name, count(*) from observation_logs group by trial_name")
    assert dict(stored) == dict.fromkeys(names, READINGS)
    best = experiment["status"]["currentOptimalTrial"]
    assert best["bestTrialName"] == reference["status"]["currentOptimalTrial"]["bestTrialName"]


def _is_over(experiment: Experiment) -> bool:
    return experiment.status.conditions[-1].type == "Succeeded"


# A trial with a good value ends by itself; every other one reports a hopeless one and would continue, deaf to SIGTERM.
HOPELESS = (
    "awk 'BEGIN {exit !(${trialParameters.learningRate} < 0.04)}' && echo loss=0.1 && exit; "
    "echo loss=0.9; trap '' TERM; while :; do sleep 0.1; done"
)
BOUND = {"algorithmName": "threshold", "algorithmSettings": [{"name": "bound", "value": "0.5"}]}


@pytest.mark.slow
def test_a_server_killed_while_it_stops_trials_stops_each_of_them_once(tmp_path: Path) -> None:
    raw = an_experiment(command=HOPELESS, earlyStopping=BOUND, maxTrialCount=8, parallelTrialCount=2)
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(raw))
    moments = random.Random(5)
    with a_server(tmp_path, *ENDING) as server:
        applied = katib_here("apply", path, "--server", server.url, cwd=tmp_path)
        assert applied.returncode == 0, applied.stderr
        for _ in range(3):
            time.sleep(moments.uniform(0.5, 2.0))
            server.kill()
            eventually(lambda: not server.descendants())
            server.start()
            server.wait_until_ready()
        with HttpTuningService(server.url, server.token) as service:
            eventually(lambda: _is_over(service.get(Experiment, "default", "demo")), seconds=240, every=0.1)
        assert server.stop() in (0, 130)
        eventually(lambda: not server.descendants())

    trials = items(katib_json("get", "trials", "--data-dir", tmp_path / ".katib", cwd=tmp_path))
    good = {trial["metadata"]["name"] for trial in trials if float(assignments([trial])[0]) < 0.04}
    states = {trial["metadata"]["name"]: trial["status"]["conditions"][-1]["type"] for trial in trials}
    stored = rows(tmp_path / ".katib", "select trial_name, count(*) from observation_logs group by trial_name")
    assert states == {name: "Succeeded" if name in good else "EarlyStopped" for name in states}
    assert dict(stored) == dict.fromkeys(states, 1)
    assert len(states) == 8


GANG_TRIALS = 12
GANG_KILLS = 20
MEMBERS = 3

# The master meets its workers at each step and prints all readings at its end. Who is killed comes back and continues.
MEMBER = """
import os, socket, sys, time
lr, rank, size = float(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
with open("ports", "a") as file:
    file.write(f"{address[1]}\\n")

def finished():
    with open("finished", "a+") as file:
        file.seek(0)
        return len(set(file))

if rank == 0:
    with socket.create_server(address) as server:
        for step in range(5):
            members = {}
            while len(members) < size - 1:
                connection, _ = server.accept()
                if (word := connection.makefile().readline()):
                    members[int(word)] = connection
            time.sleep(0.1)
            if step < 4:
                for connection in members.values():
                    connection.close()
        while finished() >= int(sys.argv[2]) and not os.path.exists("calm"):
            time.sleep(0.02)
        with open("finished", "a") as file:
            file.write(f"{lr}\\n")
        sys.stdout.write("".join(f"loss={(lr - 0.04) ** 2 + 1 / step:.12f}\\n" for step in range(1, 6)))
        sys.stdout.flush()
        for connection in members.values():
            try:
                connection.sendall(b"end")
            except OSError:
                pass
    os._exit(0)
while True:
    try:
        with socket.create_connection(address) as connection:
            connection.sendall(f"{rank}\\n".encode())
            if connection.recv(3) == b"end":
                break
    except OSError:
        time.sleep(0.01)
"""


def gang_file(directory: Path) -> Path:
    program = {
        "name": "pytorch",
        "image": "none",
        "command": ["python", "-I", "-S", "member.py", "${trialParameters.learningRate}", str(GANG_TRIALS - 2)],
    }
    raw = an_experiment(maxTrialCount=GANG_TRIALS, parallelTrialCount=2, maxFailedTrialCount=0)
    replicas = {
        type_: {"replicas": count, "restartPolicy": "ExitCode", "template": {"spec": {"containers": [program]}}}
        for type_, count in (("Master", 1), ("Worker", MEMBERS - 1))
    }
    raw["spec"]["trialTemplate"] |= {
        "primaryContainerName": "pytorch",
        "trialSpec": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": replicas}},
    }
    (directory / "member.py").write_text(MEMBER)
    path = directory / "demo.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def members(server: ServerProcess, *ranks: str) -> list[int]:
    """Return the processes of replicas with these ranks."""
    found = []
    for pid, command in marked_processes(f"TEST_MARKER={server.marker}"):
        with suppress(OSError):
            told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if "member.py" in command and any(f"RANK={rank}".encode() in told for rank in ranks):
                found.append(pid)
    return sorted(found)


def kill_one(server: ServerProcess, what: str, choose: random.Random) -> None:
    """Kill the engine, the guard, a master or a worker; a killed engine is started again."""
    if what == "engine":
        server.kill()
        eventually(lambda: not server.descendants())
        server.start()
        server.wait_until_ready()
    elif what == "guard":
        record = eventually(lambda: EngineRecord.read(server.directory / ".katib/run/engine.json"), "a guard")
        with suppress(ProcessLookupError):  # the next one has not been noted yet
            os.kill(record.guard_pid, signal.SIGKILL)
    else:
        ranks = ("0",) if what == "master" else ("1", "2")
        with suppress(ProcessLookupError):  # it ended by itself this moment
            os.kill(choose.choice(eventually(lambda: members(server, *ranks), f"a {what}")), signal.SIGKILL)


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


@pytest.mark.slow
def test_gangs_whose_parts_are_killed_again_and_again_end_every_trial_once(tmp_path: Path) -> None:
    path = gang_file(tmp_path)
    moments = random.Random(7)
    kinds = ["engine"] * 4 + ["guard"] * 4 + ["worker"] * 6 + ["master"] * 6
    moments.shuffle(kinds)
    assert len(kinds) == GANG_KILLS
    with a_server(tmp_path, *ENDING) as server:
        applied = katib_here("apply", path, "--server", server.url, cwd=tmp_path)
        assert applied.returncode == 0, applied.stderr
        for what in kinds:
            time.sleep(moments.uniform(0.0, 0.6))
            kill_one(server, what, moments)
        (tmp_path / "calm").touch()
        with HttpTuningService(server.url, server.token) as service:
            eventually(lambda: _is_over(service.get(Experiment, "default", "demo")), every=0.1)
        experiment = katib_json("get", "experiment", "demo", "--server", server.url, cwd=tmp_path)
        eventually(lambda: not members(server, "0", "1", "2"), "all replicas to end")
        assert server.stop() in (0, 130)
        eventually(lambda: not server.descendants())

    trials = items(katib_json("get", "trials", "--data-dir", tmp_path / ".katib", cwd=tmp_path))
    names = [trial["metadata"]["name"] for trial in trials]
    stored = rows(tmp_path / ".katib", "select trial_name, count(*) from observation_logs group by trial_name")
    assert len(set(names)) == len(names) == GANG_TRIALS
    assert experiment["status"]["trialsSucceeded"] == experiment["status"]["trials"] == GANG_TRIALS
    assert dict(stored) == dict.fromkeys(names, READINGS)
    ports = {int(port) for port in (tmp_path / "ports").read_text().split()}
    assert len(ports) >= 2
    assert [port for port in ports if not is_free(port)] == []


@pytest.mark.slow
def test_kills_and_pauses_of_a_run_lose_no_promoted_trial_and_no_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--algorithm", "asha", "--algorithm", "pbt", "--kills", "2", "--trials", "7", "--keep"]

    assert survive.main([*options, str(tmp_path)]) == 0, capsys.readouterr().out
