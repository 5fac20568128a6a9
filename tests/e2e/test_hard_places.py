"""What the product does when the machine, its files or a suggestion service fail it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import (
    KATIB,
    ServerProcess,
    a_server,
    environment,
    katib,
    katib_here,
    katib_json,
    marked_processes,
    rows,
)
from tests.support.experiments import a_template, an_experiment
from tests.support.processes import Launch
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom-algorithm"


def write(directory: Path, raw: dict[str, Any]) -> str:
    path = directory / f"{raw['metadata']['name']}.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path.name


def start_run(launch: Launch, directory: Path, raw: dict[str, Any], marker: str = "") -> subprocess.Popen[str]:
    return launch(
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


def stored_counts(directory: Path, data: str = ".katib") -> list[int]:
    query = "select count(*) from observation_logs group by trial_name"
    return [count for (count,) in rows(directory / data, query)]


LINES = "for i in 1 2 3; do echo loss=0.$i; sleep 0.1; done; echo ${trialParameters.learningRate}"


def test_a_database_locked_while_trials_end_loses_nothing(tmp_path: Path, launch: Launch) -> None:
    process = start_run(launch, tmp_path, an_experiment(command=LINES, maxTrialCount=8, parallelTrialCount=2))
    logs = tmp_path / ".katib/trials"
    eventually(lambda: any(logs.rglob("*.log")))
    with closing(sqlite3.connect(tmp_path / ".katib/katib.db", isolation_level=None, timeout=60)) as intruder:
        intruder.execute("BEGIN IMMEDIATE")
        eventually(lambda: all(log.read_text().count("\n") == 4 for log in logs.rglob("*.log")), "the programs' end")
        intruder.execute("ROLLBACK")
    output, errors = process.communicate(timeout=180)

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


def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_space_again(small_disk: Path, launch: Launch) -> None:
    ballast = small_disk / "ballast"
    process = start_run(launch, small_disk, an_experiment(command=LINES, maxTrialCount=6, parallelTrialCount=2))
    try:
        assert process.stdout is not None
        next(line for line in process.stdout if "(1/6)" in line)
        fill(ballast)
        assert process.stderr is not None
        assert next((line for line in process.stderr if "full" in line), ""), process.communicate()
        assert "the disk is full" in katib("why", "demo", cwd=small_disk).stdout
    finally:
        ballast.unlink(missing_ok=True)
    output, errors = process.communicate(timeout=180)

    assert process.returncode == 0, output + errors
    assert "Traceback" not in output + errors
    assert states(small_disk) == ["Succeeded"] * 6
    assert stored_counts(small_disk) == [3] * 6


def test_a_trial_whose_files_fill_the_disk_is_ended_and_named_and_the_others_go_on(
    small_disk: Path, launch: Launch
) -> None:
    fills = f"if mkdir {small_disk}/first; then cat /dev/zero >$KATIB_TRIAL_DIR/big; sleep 1000; fi; {LINES}"
    raw = an_experiment(command=fills, maxTrialCount=4, parallelTrialCount=2, maxFailedTrialCount=2)
    output, errors = start_run(launch, small_disk, raw).communicate(timeout=180)

    assert "Traceback" not in output + errors
    assert sorted(states(small_disk)) == ["Failed", "Succeeded", "Succeeded", "Succeeded"], output + errors
    assert re.search(r"failed: the disk is full, and pod \S+ has filled it .* /\S+/big with \d\.\d MiB", output)


def ended_run(directory: Path) -> Path:
    """Run an experiment of one trial to its end and return the database file."""
    raw = an_experiment(command="echo loss=1 ${trialParameters.learningRate}", maxTrialCount=1, parallelTrialCount=1)
    done = katib_here("run", write(directory, raw), "-q", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory / ".katib/katib.db"


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    database = ended_run(tmp_path)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update schema_versions set version = 99")
    before = database.read_bytes()

    for command in (["run", "demo.yaml"], ["serve", "--port", "0"], ["trials", "demo"]):
        done = katib_here(*command, cwd=tmp_path)

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

    done = katib_here(*command, cwd=tmp_path)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "katib.db" in done.stderr
    assert "bug" not in done.stderr


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    name = write(tmp_path, an_experiment())

    done = katib_here("run", name, "--data-dir", tmp_path / "file/data", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path}/file/data: ")
    assert ": not a directory; " in done.stderr


@pytest.mark.parametrize("moved", [".katib", "."], ids=["the directory", "the folder that holds it"])
def test_a_run_whose_data_directory_is_moved_ends_and_goes_on_where_it_is(
    tmp_path: Path, launch: Launch, moved: str
) -> None:
    marker, here, there = f"test-{os.urandom(8).hex()}", tmp_path / "here", tmp_path / "there"
    here.mkdir()
    process = start_run(launch, here, an_experiment(command=LINES, maxTrialCount=8, parallelTrialCount=2), marker)
    assert process.stdout is not None
    next(line for line in process.stdout if "(2/8)" in line)
    (here / moved).resolve().rename(there)
    errors = process.communicate(timeout=180)[1]
    new = there / (".katib" if moved == "." else "")

    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith(f"error: {here}/.katib: moved to {new} ")
    assert f"--data-dir {new}" in errors.splitlines()[-1]
    assert not (here / ".katib").exists()
    assert not marked_processes(f"TEST_MARKER={marker}")

    done = katib("run", next(tmp_path.glob("*/demo.yaml")), "--data-dir", new, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert stored_counts(new.parent, new.name) == [3] * 8
    assert [log.read_text().count("\n") for log in (new / "trials").rglob("*.log")] == [4] * 8
    assert not (here / ".katib").exists()


def test_a_run_whose_data_directory_is_removed_ends_and_does_not_make_it_again(tmp_path: Path, launch: Launch) -> None:
    marker = f"test-{os.urandom(8).hex()}"
    process = start_run(launch, tmp_path, an_experiment(command=LINES, maxTrialCount=8, parallelTrialCount=2), marker)
    assert process.stdout is not None
    next(line for line in process.stdout if "(2/8)" in line)
    eventually(lambda: shutil.rmtree(tmp_path / ".katib", ignore_errors=True) or not (tmp_path / ".katib").exists())
    errors = process.communicate(timeout=180)[1]

    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith(f"error: {tmp_path}/.katib: removed ")
    assert not (tmp_path / ".katib").exists()
    assert not marked_processes(f"TEST_MARKER={marker}")


def test_a_second_engine_on_a_data_directory_is_refused(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        done = katib("serve", "--port", "0", cwd=tmp_path)
        assert server.process is not None

        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert f"(process {server.process.pid}: katib serve)" in done.stderr
        assert katib_here("get", "--server", server.url, cwd=tmp_path).returncode == 0


def test_a_killed_run_goes_on_with_the_same_command(tmp_path: Path, launch: Launch) -> None:
    marker = f"test-{os.urandom(8).hex()}"
    raw = an_experiment(command=LINES, maxTrialCount=6, parallelTrialCount=2)
    process = start_run(launch, tmp_path, raw, marker)
    assert process.stdout is not None
    for line in process.stdout:
        if "(2/6)" in line:
            break
    process.kill()
    process.communicate()
    eventually(lambda: not marked_processes(f"TEST_MARKER={marker}"))

    done = katib("run", "demo.yaml", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["Succeeded"] * 6
    assert stored_counts(tmp_path) == [3] * 6


def test_a_killed_suggestion_service_is_replaced(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        apply(server, an_experiment(command=LINES, maxTrialCount=6, parallelTrialCount=1))
        for _ in range(2):
            pids = eventually(lambda: services_of(server))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda killed=pids: not {*killed} & {*services_of(server)})  # type: ignore[misc]  # mypy/16227
        eventually(lambda: state(server) == "Succeeded")

        assert states(tmp_path) == ["Succeeded"] * 6


def services_of(server: ServerProcess) -> list[int]:
    found = marked_processes(f"TEST_MARKER={server.marker}")
    return [pid for pid, command in found if "suggestion_services" in command]


NONSENSE = {
    "too-few": ("n - 1", "1 assignments were given where 2 were asked for"),
    "too-many": ("n + 1", "3 assignments were given where 2 were asked for"),
    "out-of-range": ("('lr', '7')", "lr: 7 is not between 0.01 and 0.1"),
    "malformed": ("('lr', 'x')", 'lr: "x" is not a number'),
    "another-name": ("('momentum', '0.05')", 'unknown parameter "momentum"'),
    "hangs": ("hang", "hangs waits for 2 assignments from the suggestion service hangs"),
}
"""What an algorithm of this name replies, and why its experiment does not progress."""
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


def test_services_that_answer_nonsense_hold_up_nobody_else(tmp_path: Path) -> None:
    for name in ("api_pb2.py", "api_pb2_grpc.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    (tmp_path / "service.py").write_text(SERVICE)
    algorithms = [
        {"name": name, "command": ["{python}", "service.py", reply, "{port}"]} for name, (reply, _) in NONSENSE.items()
    ]
    (tmp_path / "katib.yaml").write_text(yaml.safe_dump({"algorithms": algorithms}))
    template = a_template("echo loss=1 ${trialParameters.learningRate}")
    with a_server(tmp_path, "--config", "katib.yaml") as server:
        for name in NONSENSE:
            algorithm = {"algorithmName": name}
            apply(server, an_experiment(name=name, algorithm=algorithm, maxTrialCount=2, parallelTrialCount=2))
        eventually(lambda: sum("service.py" in command for command in server.descendants()) == len(NONSENSE))
        apply(server, an_experiment(trialTemplate=template))
        eventually(lambda: state(server) == "Succeeded")

        for name, (_, why) in NONSENSE.items():
            eventually(lambda name=name, why=why: why in said_why(server, name))  # type: ignore[misc]  # mypy/16227
            assert katib_json("trials", name, "--server", server.url, cwd=tmp_path)["items"] == []
        assert "Traceback" not in (tmp_path / "server.log").read_text()


def said_why(server: ServerProcess, name: str) -> str:
    return katib_here("why", name, "--server", server.url, cwd=server.directory).stdout


def apply(server: ServerProcess, raw: dict[str, Any]) -> None:
    done = katib_here("apply", write(server.directory, raw), "--server", server.url, cwd=server.directory)
    assert done.returncode == 0, done.stderr


def state(server: ServerProcess, name: str = "demo") -> str:
    """Return the newest condition of an experiment."""
    raw = katib_json("get", "experiment", name, "--server", server.url, cwd=server.directory)
    conditions = [c["type"] for c in raw.get("status", {}).get("conditions", []) if c["status"] == "True"]
    return conditions[-1] if conditions else ""


def test_a_trial_whose_output_fills_the_disk_fails_and_the_others_go_on(small_disk: Path, launch: Launch) -> None:
    """Which also shows that its log has made room: nobody else does."""
    floods = "if [ ${trialParameters.learningRate} = 0.02 ]; then yes words without an end; fi; " + LINES
    raw = an_experiment(command=floods, algorithm={"algorithmName": "grid"}, maxTrialCount=4, parallelTrialCount=2)
    raw["spec"]["parameters"] = [
        {"name": "lr", "parameterType": "discrete", "feasibleSpace": {"list": ["0.01", "0.02", "0.03", "0.04"]}}
    ]
    output, errors = start_run(launch, small_disk, raw).communicate(timeout=180)

    assert "Traceback" not in output + errors
    assert sorted(states(small_disk)) == ["Failed", "Succeeded", "Succeeded", "Succeeded"], output + errors
    [failed] = [line for line in output.splitlines() if " failed: " in line]
    assert "and pod demo-" in failed
    name = failed.split()[1]
    assert "the disk is full" in katib("why", name, cwd=small_disk).stdout
    kept = katib("logs", name, cwd=small_disk).stdout
    assert "words without an end\n" in kept
    assert len(kept) < 20_000  # its end, with what is missing if a write failed before it was ended
