"""Trials that post the status of Kubeflow's Trainer, as Transformers and the Kubeflow SDK do by themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.cli import katib, katib_json

POSTS = """
import json, os, sys, time, urllib.request

def post(step, loss):
    token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read().strip()
    metrics = [{"name": "loss", "value": str(loss)}, {"name": "current_step", "value": str(step)}]
    status = {"progressPercentage": 10 * step, "metrics": metrics}
    request = urllib.request.Request(
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
        data=json.dumps({"trainerStatus": status}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    urllib.request.urlopen(request, timeout=20).close()

assert os.path.exists(os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
x = float(sys.argv[1])
for step in range(1, int(sys.argv[2]) + 1):
    post(step, x + 1 / step)
    time.sleep(float(sys.argv[3]))
"""


def tune(cwd: Path, *options: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return katib("tune", "--minimize", "loss", "--name", "mine", *options, "--", *command, cwd=cwd)


def test_a_status_is_what_the_trial_reports(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(POSTS)
    done = tune(tmp_path, "-p", "x=1,2", "--trials", "2", command=[sys.executable, "train.py", "{x}", "3", "0"])

    assert done.returncode == 0, done.stderr
    readings = katib_json("metrics", katib_json("best", "mine", cwd=tmp_path)["metadata"]["name"], cwd=tmp_path)
    assert [(one["metric"], one["step"]) for one in readings][:2] == [("loss", 1), ("progressPercentage", 1)]
    assert [one["value"] for one in readings if one["metric"] == "progressPercentage"] == ["10", "20", "30"]


@pytest.mark.slow
def test_early_stopping_reads_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(POSTS)
    command = [sys.executable, "train.py", "{x}", "12", "0.25"]
    options = ("--early-stopping", "medianstop", "--trials", "5", "--parallel", "1", "--algorithm", "grid")
    done = tune(tmp_path, "-p", "x=1,2,3,40,50", *options, command=command)

    assert done.returncode == 0, done.stderr
    states = [one["status"]["conditions"][-1]["type"] for one in katib_json("trials", "mine", cwd=tmp_path)["items"]]
    assert "EarlyStopped" in states


WITH_TRANSFORMERS = """
import sys
import torch
from transformers import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}

data = [{"x": torch.ones(4) * i, "labels": torch.ones(1) * i} for i in range(16)]
arguments = TrainingArguments("out", num_train_epochs=2, logging_steps=1, learning_rate=float(sys.argv[1]))
Trainer(model=Net(), args=arguments, train_dataset=data).train()
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None or find_spec("torch") is None, reason="transformers is missing")
def test_a_script_of_transformers_reports_without_a_line_changed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WITH_TRANSFORMERS)
    done = katib(
        *("tune", "-p", "lr=0.001,0.01", "--minimize", "train_loss", "--trials", "2", "--name", "mine", "--"),
        *(sys.executable, "train.py", "{lr}"),
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    best = katib_json("best", "mine", cwd=tmp_path)
    readings = katib_json("metrics", best["metadata"]["name"], cwd=tmp_path)
    assert {"train_loss", "progressPercentage"} == {one["metric"] for one in readings}
    assert readings[-1]["value"] == "100"
