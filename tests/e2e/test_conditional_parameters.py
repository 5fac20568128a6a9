"""An experiment in which a parameter has a value only next to certain values of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import katib, katib_json
from tests.support.experiments import a_choice, a_double, an_experiment

TRAIN = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", required=True)
parser.add_argument("--momentum", type=float)
parser.add_argument("--lr", type=float, required=True)
a = parser.parse_args()
is_sgd = a.optimizer == "sgd"
assert (a.momentum is not None) == is_sgd and ("MOMENTUM" in os.environ) == is_sgd, a
assert (os.environ["NESTEROV"] == "never") != is_sgd
print("loss=%r" % ((a.lr - 0.05) ** 2 + ((a.momentum - 0.9) ** 2 if is_sgd else 0.5)))
"""


def placeholder(name: str) -> str:
    return f"${{trialParameters.{name}}}"


def optimizers(algorithm: str) -> dict[str, Any]:
    """Return an experiment with two parameters of `sgd` alone: one is left out, one has a text in its place."""
    names = ("optimizer", "momentum", "lr", "nesterov")
    entries = [{"name": name, "reference": name} for name in names]
    entries[-1]["otherwise"] = "never"
    container = {
        "name": "main",
        "image": "python",
        "command": ["python", "train.py", *(f"--{name}={placeholder(name)}" for name in names[:3])],
        "env": [{"name": name.upper(), "value": placeholder(name)} for name in ("momentum", "nesterov")],
    }
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod}}
    when = {"when": {"parameter": "optimizer", "values": ["sgd"]}}
    return an_experiment(
        algorithm={"algorithmName": algorithm, "algorithmSettings": [{"name": "random_state", "value": "1"}]},
        parameters=[
            {**a_double("momentum", low="0", high="0.9", step="0.3"), **when},
            a_choice("optimizer", ["adam", "sgd"]),
            a_double("lr", step="0.03"),
            {**a_choice("nesterov", ["yes", "no"]), **when},
        ],
        trialTemplate={"primaryContainerName": "main", "trialParameters": entries, "trialSpec": job},
        maxTrialCount=12,
    )


@pytest.mark.parametrize("algorithm", ["multivariate-tpe", "grid"])
def test_momentum_is_tuned_for_sgd_and_absent_for_adam(tmp_path: Path, algorithm: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(optimizers(algorithm)))

    done = katib("run", "x.yaml", cwd=tmp_path, timeout=240)
    trials = katib_json("trials", "demo", cwd=tmp_path)["items"]
    table = katib("trials", "demo", cwd=tmp_path).stdout

    assert done.returncode == 0, done.stderr
    assert {trial["status"]["conditions"][-1]["type"] for trial in trials} == {"Succeeded"}
    names = [[pair["name"] for pair in trial["spec"]["parameterAssignments"]] for trial in trials]
    assert len(names) == 12
    assert sorted({tuple(one) for one in names}) == [("momentum", "optimizer", "lr", "nesterov"), ("optimizer", "lr")]
    assert sum("momentum=" in line for line in table.splitlines()) == sum("momentum" in one for one in names)
    assert "optimizer=sgd" in done.stdout.partition("Best trial:")[2]
