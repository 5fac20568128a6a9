"""The lines at the end of a run of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
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


def test_what_is_not_installed_is_named_with_what_to_install_and_how_many_tests_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.skips", "-n", "2", f"--rootdir={tmp_path}"]

    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    lines = [line for line in done.stdout.splitlines() if line.startswith("left out")]
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines == [
        "left out, 3 tests that did not run: PostgreSQL is not installed (Debian: postgresql)",
        "left out, 1 test that did not run: mpirun is not installed (Debian: openmpi-bin)",
    ]
