"""What the product does when the machine, its files or a suggestion service fail it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import KATIB, ServerProcess, a_server, environment, katib, katib_json, marked_processes, rows
from tests.support.experiments import a_template, an_experiment
from tests.support.stores import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom-algorithm"


def write(directory: Path, raw: dict[str, Any]) -> str:
    path = directory / f"{raw['metadata']['name']}.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path.name


def start_run(directory: Path, raw: dict[str, Any], marker: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*KATIB, "run", write(directory, raw)],
        cwd=directory,
        env=environment(TEST_MARKER=marker),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def states(directory: Path) -> list[str]:
    listed = katib_json("trials", "demo", cwd=directory)["items"]
    return [[c["type"] for c in t["status"]["conditions"] if c["status"] == "True"][-1] for t in listed]


def stored_counts(directory: Path) -> list[int]:
    query = "select count(*) from observation_logs group by trial_name"
    return [count for (count,) in rows(directory / ".katib", query)]


LINES = "for i in 1 2 3; do echo loss=0.$i; sleep 0.1; done; echo ${trialParameters.learningRate}"


@pytest.mark.slow
def test_a_database_locked_for_ten_seconds_loses_nothing(tmp_path: Path) -> None:
    process = start_run(tmp_path, an_experiment(command=LINES, maxTrialCount=8, parallelTrialCount=2))
    eventually(lambda: (tmp_path / ".katib/trials").exists() and any((tmp_path / ".katib/trials").rglob("*.log")), 10)
    with closing(sqlite3.connect(tmp_path / ".katib/katib.db", isolation_level=None, timeout=30)) as intruder:
        intruder.execute("BEGIN IMMEDIATE")
        time.sleep(10)
        intruder.execute("ROLLBACK")
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 0, output + errors
    assert "Traceback" not in output + errors
    assert states(tmp_path) == ["Succeeded"] * 8
    assert stored_counts(tmp_path) == [3] * 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Write a file until its file system is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_space_again(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    process = start_run(small_disk, an_experiment(command=LINES, maxTrialCount=6, parallelTrialCount=2))
    try:
        assert process.stdout is not None
        next(line for line in process.stdout if "(1/6)" in line)
        fill(ballast)
        time.sleep(2)
        if process.poll() is not None:
            raise AssertionError(process.communicate())
    finally:
        ballast.unlink(missing_ok=True)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 0, output + errors
    assert "Traceback" not in output + errors
    assert "full" in errors
    assert states(small_disk) == ["Succeeded"] * 6
    assert stored_counts(small_disk) == [3] * 6


def ended_run(directory: Path) -> Path:
    """Run an experiment of one trial to its end and return the database file."""
    raw = an_experiment(command="echo loss=1 ${trialParameters.learningRate}", maxTrialCount=1, parallelTrialCount=1)
    done = katib("run", write(directory, raw), "-q", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory / ".katib/katib.db"


@pytest.mark.parametrize("command", [["run", "demo.yaml"], ["serve", "--port", "0"], ["trials", "demo"]], ids=" ".join)
def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path, command: list[str]) -> None:
    database = ended_run(tmp_path)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update schema_versions set version = 99")
    before = database.read_bytes()

    done = katib(*command, cwd=tmp_path, timeout=20)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "written by a newer version (schema 99" in done.stderr
    assert "upgrade katib or use another --data-dir" in done.stderr
    assert database.read_bytes() == before


@pytest.mark.parametrize("command", [["run", "demo.yaml"], ["trials", "demo"]], ids=" ".join)
def test_a_damaged_database_is_named_in_one_line(tmp_path: Path, command: list[str]) -> None:
    database = ended_run(tmp_path)
    for leftover in database.parent.glob("katib.db-*"):
        leftover.unlink()
    database.write_bytes(b"this is no database" * 1000)

    done = katib(*command, cwd=tmp_path, timeout=20)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "katib.db" in done.stderr
    assert "bug" not in done.stderr


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    name = write(tmp_path, an_experiment())

    done = katib("run", name, "--data-dir", tmp_path / "file/data", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (
        1,
        f"error: {tmp_path}/file/data: cannot be made: not a directory; use another --data-dir\n",
    )


def test_a_second_engine_on_a_data_directory_is_refused(tmp_path: Path) -> None:
    name = write(tmp_path, an_experiment())
    with a_server(tmp_path) as server:
        done = katib("run", name, cwd=tmp_path)
        assert server.process is not None

        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert f"another engine (process {server.process.pid}) is at work" in done.stderr
        assert katib("get", "--server", server.url, cwd=tmp_path).returncode == 0


def test_a_killed_run_goes_on_with_the_same_command(tmp_path: Path) -> None:
    marker = f"test-{os.urandom(8).hex()}"
    raw = an_experiment(command=LINES, maxTrialCount=6, parallelTrialCount=2)
    process = start_run(tmp_path, raw, marker)
    assert process.stdout is not None
    for line in process.stdout:
        if "(2/6)" in line:
            break
    process.kill()
    process.communicate()
    eventually(lambda: not marked_processes(f"TEST_MARKER={marker}"), 5)

    done = katib("run", "demo.yaml", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["Succeeded"] * 6
    assert stored_counts(tmp_path) == [3] * 6


def test_a_killed_suggestion_service_is_replaced(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        apply(server, an_experiment(command=LINES, maxTrialCount=6, parallelTrialCount=1))
        for _ in range(2):
            pids = eventually(lambda: services_of(server), 10) or services_of(server)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        eventually(lambda: state(server) == "Succeeded", 30)

        assert states(tmp_path) == ["Succeeded"] * 6


def services_of(server: ServerProcess) -> list[int]:
    found = marked_processes(f"TEST_MARKER={server.marker}")
    return [pid for pid, command in found if "suggestion_services" in command]


REPLIES = {
    "too few": "n - 1",
    "too many": "n + 1",
    "out of range": "('lr', '7')",
    "malformed": "('lr', 'x')",
    "another name": "('momentum', '0.05')",
    "hangs": "hang",
}
WHY = {
    "n - 1": "1 assignments were given where 2 were asked for",
    "n + 1": "3 assignments were given where 2 were asked for",
    "('lr', '7')": "lr: 7 is not between 0.01 and 0.1",
    "('lr', 'x')": 'lr: "x" is not a number',
    "('momentum', '0.05')": 'unknown parameter "momentum"',
    "hang": "odd waits for 2 assignments from the suggestion service odd",
}
SERVICE = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import api_pb2 as pb, api_pb2_grpc, grpc
reply, port = sys.argv[1:]

class Service(api_pb2_grpc.SuggestionServicer):
    def ValidateAlgorithmSettings(self, request, context):
        return pb.ValidateAlgorithmSettingsReply()

    def GetSuggestions(self, request, context):
        n, pair = request.current_request_number, ("lr", "0.05")
        if reply == "hang":
            threading.Event().wait()
        value = eval(reply)
        n, pair = (value, pair) if isinstance(value, int) else (n, value)
        assignment = pb.ParameterAssignment(name=pair[0], value=pair[1])
        one = pb.GetSuggestionsReply.ParameterAssignments(assignments=[assignment])
        return pb.GetSuggestionsReply(parameter_assignments=[one] * n)

server = grpc.server(ThreadPoolExecutor())
api_pb2_grpc.add_SuggestionServicer_to_server(Service(), server)
server.add_insecure_port(f"127.0.0.1:{port}")
server.start()
server.wait_for_termination()
"""


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_service_that_answers_nonsense_holds_up_nobody_else(tmp_path: Path, reply: str) -> None:
    for name in ("api_pb2.py", "api_pb2_grpc.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    (tmp_path / "service.py").write_text(SERVICE)
    algorithm = {"name": "odd", "command": ["{python}", "service.py", reply, "{port}"]}
    (tmp_path / "katib.yaml").write_text(yaml.safe_dump({"algorithms": [algorithm]}))
    odd = an_experiment(name="odd", algorithm={"algorithmName": "odd"}, maxTrialCount=2, parallelTrialCount=2)
    template = a_template("echo loss=1 ${trialParameters.learningRate}")
    with a_server(tmp_path, "--config", "katib.yaml") as server:
        apply(server, odd)
        eventually(lambda: any("service.py" in c for c in server.descendants()), 10)
        apply(server, an_experiment(trialTemplate=template))
        eventually(lambda: state(server) == "Succeeded", 10)
        said = katib("why", "odd", "--server", server.url, cwd=tmp_path).stdout

        assert WHY[reply] in said
        assert katib_json("trials", "odd", "--server", server.url, cwd=tmp_path)["items"] == []
        assert "Traceback" not in (tmp_path / "server.log").read_text()


def apply(server: ServerProcess, raw: dict[str, Any]) -> None:
    done = katib("apply", write(server.directory, raw), "--server", server.url, cwd=server.directory)
    assert done.returncode == 0, done.stderr


def state(server: ServerProcess, name: str = "demo") -> str:
    """Return the newest condition of an experiment."""
    raw = katib_json("get", "experiment", name, "--server", server.url, cwd=server.directory)
    conditions = [c["type"] for c in raw.get("status", {}).get("conditions", []) if c["status"] == "True"]
    return conditions[-1] if conditions else ""
