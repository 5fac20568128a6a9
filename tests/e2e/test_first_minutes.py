"""What a newcomer meets: a program that fails, a Python that nobody activated, a run that was interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.cli import KATIB, environment, katib, katib_here
from tests.support.experiments import an_experiment
from tests.support.processes import Launch

LR = "${trialParameters.learningRate}"
NO_MODULE = "ModuleNotFoundError: No module named 'no_such_module'"


def a_program(*command: str, **spec: Any) -> dict[str, Any]:
    """Return an experiment whose trials run a command, and no more than that is said about their job."""
    raw = an_experiment(maxTrialCount=4, parallelTrialCount=1, **spec)
    container = {"name": "training", "image": "python", "command": [*command, LR]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"] = {"template": template}
    return raw


def write(directory: Path, raw: dict[str, Any]) -> str:
    (directory / "demo.yaml").write_text(yaml.safe_dump(raw))
    return "demo.yaml"


def not_activated() -> dict[str, str]:
    """Return the environment of a newcomer: no virtual environment, and of Python at most that of the system."""
    return {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}


def test_a_missing_module_is_told_at_once_with_the_python_that_ran_and_how_to_choose_another(tmp_path: Path) -> None:
    name = write(tmp_path, a_program("python", "-c", "print('hello'); import no_such_module", maxFailedTrialCount=3))

    done = katib("run", name, cwd=tmp_path, **not_activated())
    why = katib_here("why", "demo", cwd=tmp_path).stdout
    trial = katib_here("trials", "demo", "-o", "name", cwd=tmp_path).stdout.split()[0].removeprefix("trial/")
    described = katib_here("describe", trial, cwd=tmp_path).stdout

    alike = [line for line in done.stdout.splitlines() if "The first 2 trials failed the same way" in line]
    assert done.returncode == 1
    assert f"{trial} failed: {NO_MODULE}" in done.stdout
    assert "Job reason" not in done.stdout
    assert len(alike) == 1
    assert f"It ran with {sys.prefix}/bin/python." in alike[0]
    assert "choose another Python" in alike[0]
    assert f"Most common cause, 3 of 3 looked at: {NO_MODULE}" in why
    assert f"Failure:        {NO_MODULE}" in described


def test_python_is_the_one_that_runs_katib_where_no_environment_is_active(tmp_path: Path) -> None:
    script = "import sys, numpy; print(f'loss=1 {sys.prefix}')"
    name = write(tmp_path, a_program("python", "-c", script))

    done = katib("run", name, cwd=tmp_path, **not_activated())
    trial = katib_here("best", "demo", "-o", "name", cwd=tmp_path).stdout.strip().removeprefix("trial/")
    output = katib("logs", trial, cwd=tmp_path).stdout

    assert done.returncode == 0, done.stdout + done.stderr
    assert output == f"loss=1 {sys.prefix}\n"


def test_why_of_an_interrupted_run_tells_how_its_trials_failed(tmp_path: Path, launch: Launch) -> None:
    fail_once = f"test -e {tmp_path}/failed && exec sleep 60; touch {tmp_path}/failed; echo no such data; exit 3; :"
    name = write(tmp_path, a_program("sh", "-c", fail_once, maxFailedTrialCount=3))
    process = launch(
        [*KATIB, "run", name],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    started = 0
    while started < 2:  # the second trial runs, so the first has failed
        started += " started: " in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)

    why = katib_here("why", "demo", cwd=tmp_path).stdout

    assert process.returncode == 130
    assert "no engine is running" in why
    assert "failed: no such data (exit code 3)" in why
