"""Commands that ask a cluster: which one, in which namespace, and what does not go together with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.golden import Golden
from tests.support.processes import Launch
from tests.support.tuning import MemoryTuningService, document
from tests.support.warm import FAKE_ENGINE
from tests.unit.cli.conftest import Katib
from tests.unit.cli.test_serve import serve

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 60


@pytest.fixture
def played(service: MemoryTuningService) -> MemoryTuningService:
    """A cluster in which `demo` ran in the namespace of the context, `team`."""
    service.submit(document("demo"), source="demo.yaml", namespace="team")
    service.play("team", "demo")
    return service


@pytest.mark.parametrize(
    "words",
    [
        ("get",),
        ("get", "demo"),
        ("get", "trials"),
        ("describe", "demo"),
        ("best", "demo"),
        ("trials", "demo"),
        ("metrics", "demo-0000"),
        ("logs", "demo-0000"),
        ("watch", "demo"),
        ("delete", "demo"),
    ],
    ids=" ".join,
)
def test_commands_ask_the_cluster_about_the_namespace_of_its_context(
    katib: Katib, cluster: ModuleType, played: MemoryTuningService, words: tuple[str, ...]
) -> None:
    result = katib(*words, "--context", "production")

    assert (result.code, result.err) == (0, "")
    assert result.out
    assert cluster.asked == [(None, "production", "")]


def test_a_named_namespace_counts_more_than_that_of_the_context(
    katib: Katib, cluster: ModuleType, played: MemoryTuningService
) -> None:
    result = katib("best", "demo", "--context", "production", "-n", "elsewhere")

    assert result.code == 2
    assert "elsewhere" in result.err


def test_a_kubeconfig_alone_means_its_current_context(
    katib: Katib, cluster: ModuleType, played: MemoryTuningService, tmp_path: Path
) -> None:
    (tmp_path / "config").touch()
    katib("get", "--kubeconfig", "config", "--db-manager", "db:6789")

    assert cluster.asked == [(Path("config"), None, "db:6789")]


@pytest.mark.parametrize(
    "words",
    [
        ("get", "--context", "c", "--server", "http://x"),
        ("get", "--context", "c", "--data-dir", "d"),
        ("get", "--context", "c", "--token", "t"),
        ("run", "demo.yaml", "--context", "c", "--data-dir", "d"),
        ("tune", "-p", "a=0..1", "--minimize", "b", "--context", "c", "--on", "slurm", "--", "job.yaml"),
        ("serve", "--cluster", "--data-dir", "d"),
        ("serve", "--context", "c"),
    ],
    ids=" ".join,
)
def test_what_does_not_go_together_is_refused(
    katib: Katib, cluster: ModuleType, file: Path, words: tuple[str, ...]
) -> None:
    result = katib(*words)

    assert result.code == 2
    assert result.err.count("\n") == 1
    assert cluster.asked == []


def test_a_named_cluster_counts_more_than_a_server_of_the_environment(
    katib: Katib, cluster: ModuleType, played: MemoryTuningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    katib("get")

    assert cluster.asked == []

    monkeypatch.setenv("KATIB_SERVER", "http://127.0.0.1:1")

    assert "demo" in katib("get", "--context", "c").out


def test_a_context_in_the_environment_is_asked_unless_another_place_is_typed(
    katib: Katib, cluster: ModuleType, played: MemoryTuningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KATIB_CONTEXT", "c")

    assert "demo" in katib("get").out
    assert "demo" in katib("get", "--context", "d").out
    katib("get", "--data-dir", "elsewhere")
    assert cluster.asked == [(None, "c", ""), (None, "d", "")]


def test_files_are_checked_and_applied_in_the_namespace_of_the_context(
    katib: Katib, cluster: ModuleType, file: Path, service: MemoryTuningService
) -> None:
    result = katib("validate", "demo.yaml", "--context", "c")

    assert (result.code, result.out) == (0, "demo.yaml: ok\n")
    assert cluster.asked == [(None, "c", "")]

    assert katib("apply", "demo.yaml", "--context", "c").code == 0
    assert len(service.experiments("team")) == 1


def test_a_run_in_a_cluster_is_followed_to_its_end_and_later_commands_are_told_with_its_place(
    katib: Katib, cluster: ModuleType, file: Path, golden: Golden
) -> None:
    result = katib("run", "demo.yaml", "--context", "c")

    assert result.code == 0
    golden(result.out.splitlines()[-3:])

    assert "katib why demo -n other --context c" in katib("run", "demo.yaml", "--context", "c", "-n", "other").out


def test_ctrl_c_leaves_the_experiment_running_and_says_how_to_end_it(
    file: Path, launch: Launch, golden: Golden
) -> None:
    process = launch(
        [*FAKE_ENGINE, "run", str(file), "--context", "c"],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FAKE_PAUSE": "600"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any("demo-0000 started" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)

    assert process.returncode == 130
    golden(err)


def test_a_server_can_answer_for_a_cluster(tmp_path: Path, golden: Golden) -> None:
    with serve(tmp_path, "--cluster", "--context", "c") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)

    assert process.returncode == 0
    golden(err)
    assert not (tmp_path / ".katib").exists()


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    katib: Katib, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def without_kubernetes(_name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'kubernetes'", name="kubernetes")

    monkeypatch.setattr("katib.places.cluster.__getattr__", without_kubernetes)
    result = katib("get", "--context", "c")

    assert result.code == 2
    golden(result.err)


def test_the_help_imports_nothing_of_a_cluster() -> None:
    program = (
        "import sys; from katib.doors.cli import main; main(['get', '--help']); main(['--help']);"
        "print([name for name in sys.modules if name.startswith(('kubernetes', 'katib.places.cluster'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"
