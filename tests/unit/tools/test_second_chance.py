"""Runs of the tests: the second chance of those that fail, the lines at the end, and the cluster they run in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.golden import Golden
from tools import cluster_tests
from tools.cluster_tests import is_running
from tools.second_chance import MOST, VARIABLE, Failures, is_worth_another_look

ROOT = Path(__file__).resolve().parents[3]

ONCE = """
import os
from pathlib import Path
import pytest

def is_first(name):
    seen = Path(__file__).with_name(name)
    return not seen.exists() and seen.touch() is None

def test_fails():
    assert not is_first("call")

@pytest.fixture
def world():
    assert not is_first("world")

def test_fails_before_its_call(world): pass

def test_ends_its_process():
    if is_first("process"):
        os._exit(1)

def test_passes():
    assert not Path(__file__).with_name("passed").exists()
    Path(__file__).with_name("passed").touch()
"""
ALWAYS = """
import random
from pathlib import Path

def test_always_fails():
    with Path(__file__).with_name("drawn").open("a") as drawn:
        print(random.random(), file=drawn)
    assert False
"""
BROKEN = "import nowhere\n"


SIDE_BY_SIDE = "-p xdist -p pytest_randomly"


def run(
    directory: Path, *arguments: str, plugins: str = SIDE_BY_SIDE, **files: str
) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "tools.second_chance", "-q", *arguments]
    variables = {
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        VARIABLE: "1",
        "SAVED_TESTS": str(directory / "saved.txt"),
    }
    environment = {**os.environ, **variables, "PYTEST_ADDOPTS": f"{plugins} -p no:cacheprovider"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_a_few_that_fail_once_are_named_and_forgiven(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "2", once=ONCE)

    assert done.returncode == 0, done.stdout + done.stderr
    section = done.stdout.partition(" saved by a second try ")[2].splitlines()
    saved = [line.partition(": ")[2] for line in section if line.startswith("failed once, passed alone: ")]
    assert sorted(saved) == [
        "test_once.py::test_ends_its_process",
        "test_once.py::test_fails",
        "test_once.py::test_fails_before_its_call",
    ]
    assert (tmp_path / "saved.txt").read_text().splitlines() == saved


def test_the_second_try_leaves_out_what_the_first_left_out(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(BROKEN)

    done = run(tmp_path, "--noconftest", plugins="-p pytest_randomly", once=ONCE.replace("os._exit(1)", "assert False"))

    assert done.returncode == 0, done.stdout + done.stderr
    assert len((tmp_path / "saved.txt").read_text().splitlines()) == 3


def test_one_that_fails_again_with_the_same_seed_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "0", always=ALWAYS)

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "passed alone" not in done.stdout
    assert not (tmp_path / "saved.txt").exists()
    assert (tmp_path / "failed.txt").read_text() == "test_always.py::test_always_fails\n"
    first, second = (tmp_path / "drawn").read_text().splitlines()
    assert first == second


def test_a_file_that_cannot_be_imported_has_no_second_chance(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "1", always=ALWAYS, broken=BROKEN)

    assert done.returncode != 0
    assert "once more" not in done.stdout
    assert (tmp_path / "failed.txt").read_text().startswith("test_broken.py\n")


@pytest.mark.parametrize(
    ("code", "count", "outside", "worth"),
    [
        (pytest.ExitCode.TESTS_FAILED, 1, False, True),
        (pytest.ExitCode.TESTS_FAILED, MOST, False, True),
        (pytest.ExitCode.TESTS_FAILED, MOST + 1, False, False),
        (pytest.ExitCode.TESTS_FAILED, 0, False, False),
        (pytest.ExitCode.TESTS_FAILED, 1, True, False),
        (pytest.ExitCode.INTERRUPTED, 1, False, False),
        (pytest.ExitCode.INTERNAL_ERROR, 1, False, False),
        (pytest.ExitCode.NO_TESTS_COLLECTED, 0, False, False),
        (pytest.ExitCode.OK, 0, False, False),
    ],
)
def test_only_a_few_failed_tests_are_worth_another_look(code: int, count: int, *, outside: bool, worth: bool) -> None:
    failures = Failures()
    failures.tests = [f"test_x.py::test_{n}" for n in range(count)]
    failures.outside = ["test_y.py"] * outside

    assert is_worth_another_look(code, failures) is worth


def test_tests_on_a_cluster_have_a_second_chance_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runners = []

    def note(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        runners.append(command[2])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", note)
    for variable in ("", "1"):
        monkeypatch.setenv(VARIABLE, variable)
        assert cluster_tests._pytest(["tests/cluster"], {}) == 0

    assert runners == ["pytest", "tools.second_chance"]


@pytest.mark.parametrize(("variable", "runner"), [("", "pytest"), ("1", "tools.second_chance")])
@pytest.mark.parametrize("target", ["test", "test-slow"])
def test_make_runs_plain_pytest_unless_it_is_asked_for_a_second_chance(target: str, variable: str, runner: str) -> None:
    command = ["make", "--dry-run", target, f"{VARIABLE}={variable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert f".venv/bin/python -m {runner} -q -m " in done.stdout


def test_marked_tests_are_in_the_folders_that_their_runs_collect() -> None:
    slow = re.search(r"^SLOW := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert slow is not None
    folders = {"slow": [*slow[1].split(), "tests/cluster"], "cluster": [*cluster_tests.WITHOUT_PODS, "tests/cluster"]}
    files = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    found = {mark: [path for path, text in files.items() if f"mark.{mark}" in text] for mark in folders}

    elsewhere = {
        mark: [path for path in paths if not any(path.is_relative_to(ROOT / folder) for folder in folders[mark])]
        for mark, paths in found.items()
    }
    assert elsewhere == {"slow": [], "cluster": []}
    assert all(found.values())


TESTS = """
import pytest

@pytest.fixture
def server():
    pytest.skip("PostgreSQL is not installed (Debian: postgresql)")

@pytest.mark.parametrize("number", range(3))
def test_of_a_server(server, number): ...

@pytest.mark.skipif(True, reason="mpirun is not installed (Debian: openmpi-bin)")
def test_of_processes(): ...

@pytest.mark.skip("only root mounts a file system")
def test_of_root(): ...

def test_that_passes(): ...
"""


def test_what_is_not_installed_is_named_with_what_to_install_and_how_many_tests_did_not_run(
    tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.skips", "-n", "2", f"--rootdir={tmp_path}"]

    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    lines = [line for line in done.stdout.splitlines() if line.startswith("left out")]
    assert done.returncode == 0, done.stdout + done.stderr
    golden(lines)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cluster_tests, "STATE", tmp_path)
    (tmp_path / "run").mkdir()
    return tmp_path


@pytest.fixture
def waiting(request: pytest.FixtureRequest, state: Path) -> Iterator[int]:
    """A process that waits, called with an argument of the parameter, in which `STATE` stands for the directory."""
    argument = request.param.replace("STATE", str(state))
    command = [sys.executable, "-c", "print(flush=True), input()", argument]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # by now its command line can be read
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    ("waiting", "runs"),
    [("--config=STATE/kubelet.yaml", True), ("--config=/elsewhere/kubelet.yaml", False)],
    ids=["its-own", "another"],
    indirect=["waiting"],
)
def test_a_cluster_runs_when_its_kubelet_does_and_not_when_its_number_is_anothers(
    state: Path, waiting: int, *, runs: bool
) -> None:
    (state / "run" / "kubelet.pid").write_text(f"{waiting}\n")

    assert is_running() is runs


@pytest.mark.parametrize("text", [None, "", "many", "999999999"], ids=["missing", "empty", "no-number", "nobodys"])
def test_a_cluster_does_not_run_without_a_kubelet(state: Path, text: str | None) -> None:
    if text is not None:
        (state / "run" / "kubelet.pid").write_text(text)

    assert not is_running()
