"""What a newcomer meets: a program that fails, a Python that nobody activated, a run that was interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.cli import KATIB, environment, katib, katib_here, katib_json
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

    done = katib("run", name, cwd=tmp_path, cold=True, **not_activated())
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
    assert f": {NO_MODULE}" in why
    assert f"Failure:        {NO_MODULE}" in described


def test_python_is_the_one_that_runs_katib_where_no_environment_is_active(tmp_path: Path) -> None:
    script = "import sys, numpy; print(f'loss=1 {sys.prefix}')"
    name = write(tmp_path, a_program("python", "-c", script))

    done = katib("run", name, cwd=tmp_path, cold=True, **not_activated())
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
    for event in (" failed: ", " started: "):  # the first trial may fail too early for its start to be shown
        while event not in process.stdout.readline():
            pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)

    why = katib_here("why", "demo", cwd=tmp_path).stdout

    assert process.returncode == 130
    assert "no engine is running" in why
    assert "no such data" in why


def test_a_service_that_is_killed_again_and_again_ends_nothing_and_the_same_command_goes_on(
    tmp_path: Path, launch: Launch
) -> None:
    """As by a kernel without memory: the run says once what it waits for."""
    service = (
        f"test -e {tmp_path}/cure || kill -9 $$; "
        "exec {python} -m suggestion_services --algorithm random --address {address}"
    )
    config = {"algorithms": [{"name": "random", "command": ["sh", "-c", service]}]}
    (tmp_path / "katib.yaml").write_text(json.dumps(config))
    name = write(tmp_path, a_program("sh", "-c", "echo loss=1; :"))
    command = ["run", name, "--config", "katib.yaml"]
    process = launch(
        [*KATIB, *command], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(2)][1]
    why = katib_here("why", "demo", cwd=tmp_path).stdout
    process.send_signal(signal.SIGINT)
    left, _ = process.communicate(timeout=180)
    (tmp_path / "cure").touch()
    done = katib(*command, cwd=tmp_path)

    killed = 'demo waits for its algorithm: suggestion service "random" was killed by SIGKILL'
    assert told.endswith(f"{killed}\n")
    assert killed not in left
    assert process.returncode == 130
    assert killed in why
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 4 trials" in done.stdout


def test_further_metrics_of_the_best_trial_are_those_of_its_best_reading(tmp_path: Path) -> None:
    script = "echo loss=3 accuracy=0.7; echo loss=1 accuracy=0.9; echo loss=2 accuracy=0.1; :"
    objective = {"type": "minimize", "objectiveMetricName": "loss", "additionalMetricNames": ["accuracy"]}
    name = write(tmp_path, a_program("sh", "-c", script, objective=objective))

    assert katib("run", name, cwd=tmp_path).returncode == 0
    csv = katib_here("best", "demo", "-o", "csv", cwd=tmp_path).stdout.splitlines()
    described = katib_here("describe", "demo", cwd=tmp_path).stdout
    why = katib_here("why", "demo", cwd=tmp_path).stdout
    experiment = katib_json("get", "experiment", "demo", cwd=tmp_path)

    table = ["AT THE BEST MIN MAX LATEST", "loss 1 1 3 2", "accuracy 0.9 0.1 0.9 0.1"]
    for printed in (katib_here("best", "demo", cwd=tmp_path).stdout, described):
        assert [" ".join(line.split()) for line in printed.partition("Best trial:")[2].splitlines()][1:4] == table
    assert csv[0].startswith("trial,loss,accuracy,")
    assert csv[1].split(",")[1:3] == ["1", "0.9"]
    assert "with loss=1, accuracy=0.9 (" in why
    assert experiment["status"]["currentOptimalTrial"]["observation"] == {
        "metrics": [
            {"name": "loss", "min": "1", "max": "3", "latest": "2"},
            {"name": "accuracy", "min": "0.1", "max": "0.9", "latest": "0.1"},
        ],
        "atBest": [{"name": "accuracy", "value": "0.9"}],
    }
