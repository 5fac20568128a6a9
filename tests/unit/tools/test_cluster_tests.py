"""How a cluster for tests is recognized: by its processes, whose numbers may have passed on to others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import cluster_tests
from tools.cluster_tests import is_running


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
