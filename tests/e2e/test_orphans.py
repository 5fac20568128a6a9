"""Programs of trials that continue without their server, and the next engine that continues with them."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.doors.rest.client import HttpTuningService
from katib.model.types import Experiment
from katib.places.machine import open_engine
from katib.places.machine.processes.remains import EngineRecord
from katib.service.tuning.states import is_completed
from tests.support.cli import ServerProcess, a_server, katib, katib_here, katib_json, rows
from tests.support.experiments import an_experiment
from tests.support.waiting import eventually

STEPS = 40
"""Readings of a trial, one every 0.05 s."""

# Each start is noted, so that a trial that ran twice is seen; every third trial fails with a code of its own.
PROGRAM = """
import os, sys, time
with open("starts", "a") as file:
    file.write(os.environ["KATIB_TRIAL_NAME"] + "\\n")
number = open("starts").read().split().index(os.environ["KATIB_TRIAL_NAME"]) + 1
for step in range(1, int(sys.argv[2]) + 1):
    print(f"lr={sys.argv[1]} loss={step / 1000}", flush=True)
    time.sleep(0.05)
sys.exit(7 if number % 3 == 0 else 0)
"""


def submit(server: ServerProcess, *, trials: int, parallel: int = 2, steps: int = STEPS, **spec: Any) -> None:
    (server.directory / "program.py").write_text(PROGRAM)
    (server.directory / "starts").touch()
    raw = an_experiment(maxTrialCount=trials, parallelTrialCount=parallel, maxFailedTrialCount=trials, **spec)
    container = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "-I", "-S", "program.py", "${trialParameters.learningRate}", str(steps)]
    container.pop("args", None)
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["backoffLimit"] = 0
    path = server.directory / "demo.yaml"
    path.write_text(yaml.safe_dump(raw))
    applied = katib_here("apply", path, "--server", server.url, cwd=server.directory)
    assert applied.returncode == 0, applied.stderr


def wait_for_starts(directory: Path, count: int) -> None:
    eventually(lambda: len((directory / "starts").read_text().split()) >= count, f"{count} starts")


def wait_for_end(server: ServerProcess) -> None:
    def is_over() -> bool:
        return is_completed(service.get(Experiment, "default", "demo"))

    with HttpTuningService(server.url, server.token) as service:
        eventually(is_over, "the end", seconds=240, every=0.1)


def guard_of(directory: Path) -> int:
    record = EngineRecord.read(directory / ".katib/run/engine.json")
    assert record is not None
    return record.guard_pid


def check(directory: Path, *, trials: int, steps: int = STEPS) -> None:
    """Every trial ran once, has all its readings in order, and ended as its program did."""
    listing = katib_json("get", "trials", "--data-dir", directory / ".katib", cwd=directory)
    found = listing["items"] if isinstance(listing, dict) else listing
    names = [trial["metadata"]["name"] for trial in found]
    started = (directory / "starts").read_text().split()
    stored: dict[str, list[str]] = {}
    query = "select trial_name, value from observation_logs where metric_name = 'loss' order by trial_name, time, id"
    for name, value in rows(directory / ".katib", query):
        stored.setdefault(name, []).append(value)
    ends = {trial["metadata"]["name"]: trial["status"]["conditions"][-1]["type"] for trial in found}
    wanted = {name: "Failed" if number % 3 == 0 else "Succeeded" for number, name in enumerate(started, start=1)}

    assert len(names) == trials
    assert sorted(started) == sorted(names)
    assert stored == {name: [str(step / 1000) for step in range(1, steps + 1)] for name in names}
    assert ends == wanted
    for name in names:
        assert ends[name] == "Succeeded" or "exit code 7" in str(found[names.index(name)]["status"])


@pytest.mark.parametrize(
    ("kills", "trials"), [(4, 4), pytest.param(20, 14, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_trials_go_on_while_their_server_is_killed_again_and_again(tmp_path: Path, kills: int, trials: int) -> None:
    moments = random.Random(kills)
    with a_server(tmp_path) as server:
        submit(server, trials=trials)
        wait_for_starts(tmp_path, 1)
        for _ in range(kills):
            time.sleep(moments.uniform(0.0, 1.0))
            server.kill()
            time.sleep(moments.uniform(0.0, 0.5))
            server.start()
            if moments.random() < 0.7:  # some are killed while they start
                server.wait_until_ready()
        server.wait_until_ready()
        wait_for_end(server)
        assert server.stop() in (0, 130)
        eventually(lambda: not server.descendants())

    check(tmp_path, trials=trials)


def test_an_upgrade_costs_no_trial(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        submit(server, trials=2)
        wait_for_starts(tmp_path, 2)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert "continue" in (tmp_path / "server.log").read_text()
        assert len(server.descendants()) == 2
        eventually(lambda: not server.descendants(), "the end of the programs")

        server.start()
        server.wait_until_ready()
        wait_for_end(server)
        assert server.stop() in (0, 130)

    check(tmp_path, trials=2)


def test_after_the_grace_period_nothing_is_left_and_trials_are_restarted(tmp_path: Path) -> None:
    with a_server(tmp_path, "--orphans", "1s") as server:
        submit(server, trials=1, parallel=1, steps=100)
        wait_for_starts(tmp_path, 1)
        server.kill()
        assert server.descendants()
        eventually(lambda: not server.descendants(), "the end of everything")

        server.start()
        server.wait_until_ready()
        wait_for_end(server)
        assert server.stop() in (0, 130)

    started = (tmp_path / "starts").read_text().split()
    assert len(started) == 2
    assert len(set(started)) == 1
    assert rows(tmp_path / ".katib", "select count(*) from observation_logs where metric_name = 'loss'") == [(100,)]


def test_where_the_guard_is_killed_as_well_nothing_is_left_running(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        submit(server, trials=1, parallel=1, steps=1000)
        wait_for_starts(tmp_path, 1)
        server.kill()
        os.kill(guard_of(tmp_path), signal.SIGKILL)

        eventually(lambda: not server.descendants(), "the end of everything")


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        submit(server, trials=1, parallel=1, steps=1000)
        wait_for_starts(tmp_path, 1)

        assert server.stop() in (0, 130)

        assert not server.descendants()


def test_a_run_goes_on_with_what_a_killed_server_left(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        submit(server, trials=2)
        wait_for_starts(tmp_path, 2)
        server.kill()

        done = katib("run", tmp_path / "demo.yaml", "-q", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        eventually(lambda: not server.descendants())
    check(tmp_path, trials=2)


MEMBER = """
import os, time
rank = os.environ["RANK"]
with open("starts", "a") as file:
    file.write(f"{rank} {os.environ['MASTER_PORT']}\\n")
for step in range(1, 61):
    if rank == "0":
        print(f"lr={os.environ['LR']} loss={step / 1000}", flush=True)
    time.sleep(0.05)
"""


def test_the_replicas_of_a_training_job_go_on_together(tmp_path: Path) -> None:
    (tmp_path / "member.py").write_text(MEMBER)
    (tmp_path / "starts").touch()
    program = {
        "name": "pytorch",
        "image": "none",
        "command": ["python", "-I", "-S", "member.py"],
        "env": [{"name": "LR", "value": "${trialParameters.learningRate}"}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    replicas = {
        type_: {"replicas": count, "template": {"spec": {"containers": [program]}}}
        for type_, count in (("Master", 1), ("Worker", 2))
    }
    raw = an_experiment(maxTrialCount=1, parallelTrialCount=1)
    spec = {"pytorchReplicaSpecs": replicas}
    raw["spec"]["trialTemplate"] |= {
        "primaryContainerName": "pytorch",
        "trialSpec": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec},
    }
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(raw))
    with a_server(tmp_path) as server:
        applied = katib_here("apply", tmp_path / "demo.yaml", "--server", server.url, cwd=tmp_path)
        assert applied.returncode == 0, applied.stderr
        wait_for_starts(tmp_path, 6)
        for _ in range(2):
            server.kill()
            server.start()
            server.wait_until_ready()
        wait_for_end(server)
        assert server.stop() in (0, 130)
        eventually(lambda: not server.descendants())

    starts = (tmp_path / "starts").read_text().splitlines()
    query = "select value from observation_logs where metric_name = 'loss' order by time, id"
    assert sorted(line.split()[0] for line in starts) == ["0", "1", "2"]
    assert len({line.split()[1] for line in starts}) == 1
    assert [value for (value,) in rows(tmp_path / ".katib", query)] == [str(step / 1000) for step in range(1, 61)]
    (trial,) = katib_json("get", "trials", "--data-dir", tmp_path / ".katib", cwd=tmp_path)["items"]
    assert trial["status"]["conditions"][-1]["type"] == "Succeeded"


def test_a_command_that_runs_nothing_leaves_the_programs_alone(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        submit(server, trials=1, parallel=1)
        wait_for_starts(tmp_path, 1)
        server.kill()

        with open_engine(tmp_path / ".katib", own_process=False):
            pass

        server.start()
        server.wait_until_ready()
        wait_for_end(server)
        assert server.stop() in (0, 130)
    check(tmp_path, trials=1)
