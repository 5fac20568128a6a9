"""What a killed server leaves, and what it takes up again."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.rest.client import HttpTuningService
from tests.support.cli import a_server, katib, katib_here, katib_json, rows
from tests.support.experiments import an_experiment
from tests.support.waiting import eventually

TRIALS = 20
READINGS = 5
KILLS = 6

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
def test_a_server_killed_again_and_again_runs_every_trial_once(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    done = katib("run", experiment_file(undisturbed), "-q", cwd=undisturbed, timeout=240)
    assert done.returncode == 0, done.stderr

    disturbed = tmp_path / "disturbed"
    disturbed.mkdir()
    path = experiment_file(disturbed)
    moments = random.Random(1)
    with a_server(disturbed) as server:
        applied = katib_here("apply", path, "--server", server.url, cwd=disturbed)
        assert applied.returncode == 0, applied.stderr
        for _ in range(KILLS):
            time.sleep(moments.uniform(0.0, 1.0))
            server.kill()
            eventually(lambda: not server.descendants())
            server.start()
            if moments.random() < 0.7:  # some are killed while they start
                server.wait_until_ready()
        server.wait_until_ready()
        with HttpTuningService(server.url, server.token) as service:
            eventually(lambda: _is_over(service.get("Experiment", "default", "demo")), seconds=240, every=0.1)
        experiment = katib_json("get", "experiment", "demo", "--server", server.url, cwd=disturbed)
        assert server.stop() in (0, 130)
        eventually(lambda: not server.descendants())

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


def _is_over(experiment: Mapping[str, Any]) -> bool:
    return bool(experiment["status"]["conditions"][-1]["type"] == "Succeeded")


# A trial with a good value ends by itself; every other one reports a hopeless one and would go on, deaf to SIGTERM.
HOPELESS = (
    "awk 'BEGIN {exit !(${trialParameters.learningRate} < 0.04)}' && echo loss=0.1 && exit; "
    "echo loss=0.9; trap '' TERM; while :; do sleep 0.1; done"
)
BOUND = {"algorithmName": "threshold", "algorithmSettings": [{"name": "bound", "value": "0.5"}]}


@pytest.mark.slow
def test_a_server_killed_while_it_stops_trials_stops_each_of_them_once(tmp_path: Path) -> None:
    raw = an_experiment(command=HOPELESS, earlyStopping=BOUND, maxTrialCount=8, parallelTrialCount=2)
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(raw))
    moments = random.Random(5)
    with a_server(tmp_path) as server:
        applied = katib_here("apply", path, "--server", server.url, cwd=tmp_path)
        assert applied.returncode == 0, applied.stderr
        for _ in range(3):
            time.sleep(moments.uniform(0.5, 2.0))
            server.kill()
            eventually(lambda: not server.descendants())
            server.start()
            server.wait_until_ready()
        with HttpTuningService(server.url, server.token) as service:
            eventually(lambda: _is_over(service.get("Experiment", "default", "demo")), seconds=240, every=0.1)
        assert server.stop() in (0, 130)
        eventually(lambda: not server.descendants())

    trials = items(katib_json("get", "trials", "--data-dir", tmp_path / ".katib", cwd=tmp_path))
    good = {trial["metadata"]["name"] for trial in trials if float(assignments([trial])[0]) < 0.04}
    states = {trial["metadata"]["name"]: trial["status"]["conditions"][-1]["type"] for trial in trials}
    stored = rows(tmp_path / ".katib", "select trial_name, count(*) from observation_logs group by trial_name")
    assert states == {name: "Succeeded" if name in good else "EarlyStopped" for name in states}
    assert dict(stored) == dict.fromkeys(states, 1)
    assert len(states) == 8
