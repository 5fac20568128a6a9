"""Run pytest, and rerun a few failed tests alone (used by `.ci/run`; nothing else sets `SECOND_CHANCE`).

`python -m tools.second_chance ARGUMENT...` runs pytest with these arguments. When at most three tests fail, these are
rerun: in one process, when nothing else runs any more, with the same seed. Tests that pass then do not fail the run.
They are a defect of the test or of the product nevertheless: a section at the end lists them, and `SAVED`, or the file
that `SAVED_TESTS` names, stores them, one per line. A test that fails again, more failures, and errors of collection
are
final: `failed.txt` beside that file stores them.
"""

# ruff: noqa: S603  # the arguments are the developer's own

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MOST = 3
"""If more tests fail, a briefly busy machine is not the reason."""

SAVED = "saved-tests/tests.txt"
"""File for the ids of saved tests, below the working directory, unless `SAVED_TESTS` names another one."""

VARIABLE = "SECOND_CHANCE"
"""If it is set, the targets of the Makefile that run tests run pytest through this module."""


class Failures:
    """A pytest plugin that records failures, in any process.

    Attributes:
        tests: Ids of the tests that failed, in order.
        outside: Files that could not be collected.
        repeated: Options of the run that the second run needs as well.
    """

    def __init__(self) -> None:
        self.tests: list[str] = []
        self.outside: list[str] = []
        self.repeated: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failed test, in any phase."""
        if report.failed and report.nodeid not in self.tests:
            self.tests.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that could not be collected."""
        if report.failed:
            self.outside.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Record the seed, that nothing runs in parallel, and whether `conftest.py` files were left out."""
        config = session.config
        seed = config.getoption("randomly_seed", None)
        self.repeated = [
            *([] if seed is None else [f"--randomly-seed={seed}"]),
            *(["-n", "0"] if config.pluginmanager.hasplugin("xdist") else []),
            *(["--noconftest"] if config.getoption("noconftest") else []),
        ]


def main(arguments: Sequence[str]) -> int:
    """Run the tests, and those that failed once more; return the exit code of pytest."""
    os.environ.pop(VARIABLE, None)  # tests start programs, too
    failures = Failures()
    code = int(pytest.main([*arguments], plugins=[failures]))
    saved = Path(os.environ.get("SAVED_TESTS", SAVED))
    if is_worth_another_look(code, failures):
        print(f"failed, and run once more, alone: {', '.join(failures.tests)}", flush=True)
        if not _fail_again(failures):
            _keep(failures.tests, saved)
            print(f"{' saved by a second try ':=^100}")
            tests = (f"failed once, passed alone: {test}" for test in failures.tests)
            print(*tests, f"kept in {saved}", sep="\n", flush=True)
            return 0
    _keep([*failures.outside, *failures.tests], saved.with_name("failed.txt"))
    return code


def is_worth_another_look(code: int, failures: Failures) -> bool:
    """Whether a run failed because of a few tests only."""
    return code == pytest.ExitCode.TESTS_FAILED and not failures.outside and 0 < len(failures.tests) <= MOST


def _keep(tests: Sequence[str], file: Path) -> None:
    if tests:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as kept:
            kept.writelines(f"{test}\n" for test in tests)


def _fail_again(failures: Failures) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", *failures.repeated, *failures.tests]
    return subprocess.run(command, check=False).returncode != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
