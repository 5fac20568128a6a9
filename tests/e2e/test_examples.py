"""What `make demo` and `make example-...` run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import environment, katib, katib_json

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_the_demo_finds_a_good_network(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "digits", tmp_path / "digits")
    experiment_file = tmp_path / "digits" / "experiment.yaml"
    text = experiment_file.read_text()
    assert "maxTrialCount: 16" in text
    experiment_file.write_text(text.replace("maxTrialCount: 16", "maxTrialCount: 8"))  # six of them at random

    done = katib("run", "digits/experiment.yaml", cwd=tmp_path, timeout=240)
    experiment = katib_json("get", "experiment", "digits", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Best trial: digits-" in done.stdout
    status = experiment["status"]
    assert status["trials"] == status["trialsSucceeded"] + status["trialsEarlyStopped"] == 8
    best = {metric["name"]: float(metric["max"]) for metric in status["currentOptimalTrial"]["observation"]["metrics"]}
    assert best["accuracy"] > 0.95


@pytest.mark.slow
def test_a_population_beats_as_many_trials_at_random(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "pbt", tmp_path / "pbt")
    done = katib("run", "pbt/experiment.yaml", "-q", cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    raw = yaml.safe_load((tmp_path / "pbt" / "experiment.yaml").read_text())
    raw["metadata"]["name"] = "random"
    raw["spec"]["algorithm"] = {
        "algorithmName": "random",
        "algorithmSettings": [{"name": "random_state", "value": "1"}],
    }
    container = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    container["command"][-1] = "--checkpoints=$(HERE)"
    container["env"] = [{"name": "HERE", "value": "/checkpoints"}]
    container["volumeMounts"] = [{"name": "own", "mountPath": "/checkpoints"}]
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["volumes"] = [{"name": "own", "emptyDir": {}}]
    (tmp_path / "pbt" / "random.yaml").write_text(yaml.safe_dump(raw))
    done = katib("run", "pbt/random.yaml", "-q", cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr

    population, random = (
        float(
            katib_json("get", "experiment", name, cwd=tmp_path)["status"]["currentOptimalTrial"]["observation"][
                "metrics"
            ][0]["min"]
        )
        for name in ("pbt", "random")
    )

    assert population < 0.2
    assert random > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["push", "prometheus", "tensorboard"])
def test_an_example_reports_a_curve_of_each_trial(tmp_path: Path, name: str) -> None:
    done, experiment = run_example(tmp_path, name, trials=3)
    status = experiment["status"]
    best = status["currentOptimalTrial"]
    objective = experiment["spec"]["objective"]["objectiveMetricName"]

    assert "Best trial: " in done
    assert status["trials"] == status["trialsSucceeded"] + status.get("trialsEarlyStopped", 0) == 3
    assert objective in {metric["name"] for metric in best["observation"]["metrics"]}
    assert len(katib_json("metrics", best["bestTrialName"], "--metric", objective, cwd=tmp_path)) > 1


@pytest.mark.slow
def test_the_example_of_early_stopping_saves_work(tmp_path: Path) -> None:
    done, experiment = run_example(tmp_path, "asha", trials=12)
    status = experiment["status"]
    saved = re.search(r"saved about (\d+)% of the readings", done)

    assert status["trials"] == status["trialsSucceeded"] + status["trialsEarlyStopped"] == 12
    assert status["trialsEarlyStopped"] > 0
    assert saved is not None
    assert int(saved[1]) > 10


@pytest.mark.slow
def test_the_example_of_enas_finds_a_good_network(tmp_path: Path) -> None:
    done, experiment = run_example(tmp_path, "enas", trials=8)
    status = experiment["status"]
    best = status["currentOptimalTrial"]
    told = {a["name"]: a["value"] for a in best["parameterAssignments"]}
    layers = json.loads(told["architecture"])

    assert status["trials"] == status["trialsSucceeded"] == 8
    assert f"Best trial: {best['bestTrialName']}" in done
    assert float(best["observation"]["metrics"][0]["max"]) > 0.7
    assert [len(layer) for layer in layers] == [1, 2, 3]
    assert {str(layer[0]) for layer in layers} == set(json.loads(told["nn_config"].replace("'", '"'))["embedding"])


@pytest.mark.slow
def test_the_example_of_darts_finds_a_genotype(tmp_path: Path) -> None:
    done, experiment = run_example(tmp_path, "darts", trials=1, replaced={'"20"': '"6"'})
    genotype = experiment["status"]["currentOptimalTrial"]["observation"]["metrics"][0]["latest"]

    assert experiment["status"]["trialsSucceeded"] == 1
    assert re.fullmatch(r"Genotype\(layers=\[\('convolution_5x5', 0\.\d+\), \('\w+', 0\.\d+\)\]\)", genotype)
    assert genotype in done


@pytest.mark.slow
def test_the_example_of_a_jobset_fits_a_line(tmp_path: Path) -> None:
    _, experiment = run_example(tmp_path, "jobs/jobset", trials=6)
    status = experiment["status"]

    assert status["trials"] == status["trialsSucceeded"] == 6
    assert float(status["currentOptimalTrial"]["observation"]["metrics"][0]["min"]) < 0.2


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("torchrun", path=environment()["PATH"]),
    reason="examples/jobs/trainjob/experiment.yaml: torch is not installed",
)
def test_the_example_of_a_train_job_trains_on_two_nodes(tmp_path: Path) -> None:
    _, experiment = run_example(tmp_path, "jobs/trainjob", trials=2)
    status = experiment["status"]

    assert status["trials"] == status["trialsSucceeded"] == 2
    assert float(status["currentOptimalTrial"]["observation"]["metrics"][0]["min"]) < 0.5


def run_example(
    directory: Path, name: str, *, trials: int, replaced: Mapping[str, str] | None = None
) -> tuple[str, Any]:
    """Run an example with fewer trials and other texts; return what was printed, and the experiment."""
    shutil.copytree(EXAMPLES / name, directory / name)
    file = directory / name / "experiment.yaml"
    text, count = re.subn(r"maxTrialCount: \d+", f"maxTrialCount: {trials}", file.read_text())
    assert count == 1
    for old, new in (replaced or {}).items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    done = katib("run", f"{name}/experiment.yaml", cwd=directory, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    (experiment,) = katib_json("get", "experiments", cwd=directory)["items"]
    return done.stdout, experiment
