"""What a killed server leaves, and what it takes up again."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import ServerProcess, katib, katib_json, rows
from tests.support.experiments import an_experiment
from tests.support.stores import eventually

TRIALS = 50
READINGS = 5
KILLS = 20

# Five readings that depend on the assignment alone, over a tenth of a second.
COMMAND = (
    "for step in 1 2 3 4 5; do echo step=$step loss=$(awk 'BEGIN {x = ${trialParameters.learningRate} - 0.04; "
    "printf \"%.12f\", x * x + 1 / '$step'}'); sleep 0.02; done"
)


def experiment_file(directory: Path) -> Path:
    raw = an_experiment(
        command=COMMAND,
        algorithm={
            "algorithmName": "tpe",
            "algorithmSettings": [{"name": "random_state", "value": "3"}],
        },
        maxTrialCount=TRIALS,
        parallelTrialCount=1,
    )
    path = directory / "demo.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def assignments(trials: list[dict[str, Any]]) -> list[str]:
    return [trial["spec"]["parameterAssignments"][0]["value"] for trial in trials]


def items(listing: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = listing["items"] if isinstance(listing, dict) else listing
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_killed_twenty_times_runs_every_trial_once(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    done = katib("run", experiment_file(undisturbed), "-q", cwd=undisturbed, timeout=120)
    assert done.returncode == 0, done.stderr

    disturbed = tmp_path / "disturbed"
    disturbed.mkdir()
    path = experiment_file(disturbed)
    moments = random.Random(1)
    server = ServerProcess(disturbed)
    server.start()
    server.wait_until_ready()
    applied = katib("apply", path, "--server", server.url, cwd=disturbed)
    assert applied.returncode == 0, applied.stderr
    for _ in range(KILLS):
        time.sleep(moments.uniform(0.0, 1.0))
        server.kill()
        eventually(lambda: not server.descendants(), 10)
        server.start()
        if moments.random() < 0.7:  # some are killed while they start
            server.wait_until_ready()
    server.wait_until_ready()
    eventually(lambda: _is_over(server, disturbed), 120)
    experiment = katib_json("get", "experiment", "demo", "--server", server.url, cwd=disturbed)
    assert server.stop() in (0, 130)
    eventually(lambda: not server.descendants(), 10)

    reference = katib_json("get", "experiment", "demo", "--data-dir", undisturbed / ".katib", cwd=undisturbed)
    expected = items(katib_json("get", "trials", "--data-dir", undisturbed / ".katib", cwd=undisturbed))
    trials = items(katib_json("get", "trials", "--data-dir", disturbed / ".katib", cwd=disturbed))
    names = [trial["metadata"]["name"] for trial in trials]
    assert len(names) == len(set(names)) == TRIALS
    assert experiment["status"]["trialsSucceeded"] == TRIALS
    assert assignments(trials) == assignments(expected)
    stored = rows(disturbed / ".katib", "select trial_name, count(*) from observation_logs group by trial_name")
    assert dict(stored) == dict.fromkeys(names, READINGS)
    best = experiment["status"]["currentOptimalTrial"]
    assert best["bestTrialName"] == reference["status"]["currentOptimalTrial"]["bestTrialName"]


def _is_over(server: ServerProcess, directory: Path) -> bool:
    experiment = katib_json("get", "experiment", "demo", "--server", server.url, cwd=directory)
    time.sleep(0.5)
    return bool(experiment["status"]["conditions"][-1]["type"] == "Succeeded")
