"""Trials that post the status of Kubeflow's Trainer, as Transformers and the Kubeflow SDK do by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from katib.errors import UnavailableError
from katib.model.metrics import PROGRESS
from katib.model.types import ObjectiveSpec
from katib.places.cluster.injection import inject
from katib.places.cluster.installation_key import write_keys
from katib.wire.rpc.credentials import SERVER_NAME, DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from katib.wire.serving.certificates import issue
from tests.support.cli import KATIB, katib, katib_json
from tests.support.pods import TRIAL, injected_trial, injection_settings, pod
from tests.support.ports import free_port
from tests.support.waiting import eventually

POSTS = """
import json, os, ssl, sys, time, urllib.request

authorities = os.environ.get("KUBEFLOW_TRAINER_SERVER_CA_CERT")
context = ssl.create_default_context(cafile=authorities) if authorities else None

def post(step, loss):
    token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read().strip()
    metrics = [{"name": "loss", "value": str(loss)}, {"name": "current_step", "value": str(step)}]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status = {"progressPercentage": 10 * step, "lastUpdatedTime": now, "metrics": metrics}
    request = urllib.request.Request(
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
        data=json.dumps({"trainerStatus": status}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    urllib.request.urlopen(request, timeout=20, context=context).close()

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


needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("torch") is None, reason="transformers is missing"
)


@pytest.mark.slow
@needs_transformers
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


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain"])
@pytest.mark.parametrize(
    ("script", "metric"), [(POSTS, "loss"), pytest.param(WITH_TRANSFORMERS, "train_loss", marks=needs_transformers)]
)
def test_the_db_manager_of_a_cluster_takes_it_from_a_pod_as_the_webhook_makes_it(
    tmp_path: Path, script: str, metric: str, *, tls: bool
) -> None:
    """The pod is a process with the variables and the files of its container."""
    (log, status), tokens = (f"127.0.0.1:{free_port()}" for _ in range(2)), TokenSigner([b"k" * 32])
    write_keys(tmp_path / "keys", [b"k" * 32])
    issued = issue([SERVER_NAME, "127.0.0.1"], datetime.now(UTC), timedelta(days=1))
    (tmp_path / "tls.crt").write_bytes(issued.certificate.chain)
    (tmp_path / "tls.key").write_bytes(issued.certificate.key)
    authority = issued.authority.decode() if tls else ""
    options = ["--listen-address", log, "--status-address", status, "--key-file", str(tmp_path / "keys")]
    options += ["--tls-dir", str(tmp_path)] if tls else []
    trial = injected_trial(objective=ObjectiveSpec(type="minimize", objective_metric_name=metric))
    handed = DbManagerCredentials(tokens.token_of(TokenClaims(CallerRole.TRIAL, trial.namespace, TRIAL)), authority)
    injected = inject(pod("train"), trial, injection_settings(credentials=handed, status_address=status))
    controller = DbManagerCredentials(tokens.token_of(TokenClaims(CallerRole.CONTROLLER, trial.namespace)), authority)
    server = subprocess.Popen([*KATIB, "db-manager", "--url", f"sqlite:///{tmp_path / 'log.db'}", *options])
    try:
        with closing(DbManagerClient(log, credentials=controller)) as client:
            eventually(lambda: begins(client))
            assert in_its_container(injected, tmp_path, script, "0.1", "2", "0") == 0
            stored = client.read(TRIAL)
            client.end(TRIAL)
            in_its_container(injected, tmp_path, script, "0.1", "1", "0")

            assert client.read(TRIAL) == stored
    finally:
        server.terminate()
        assert server.wait(60) == 0
    assert {one.name for one in stored} == {metric, PROGRESS}


def begins(client: DbManagerClient) -> bool:
    try:
        client.begin(TRIAL)
    except UnavailableError:
        return False
    return True


def in_its_container(injected: Any, directory: Path, script: str, *arguments: str) -> int:
    """Run a script with what a pod gives its container: variables, and annotations as files; return its exit code."""
    program = injected["spec"]["containers"][0]
    places: dict[str, str] = {}
    for volume in injected["spec"]["volumes"]:
        for item in volume.get("downwardAPI", {}).get("items", ()):
            annotation = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
            mount = next(one for one in program["volumeMounts"] if one["name"] == volume["name"])
            places[mount["mountPath"]] = str(directory)
            (directory / item["path"]).write_text(injected["metadata"]["annotations"][annotation])
    given = {one["name"]: one["value"] for one in program["env"] if one["name"].startswith("KUBEFLOW_")}
    for name, value in given.items():
        for there, here in places.items():
            given[name] = value.replace(there, here)
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=directory, env={**os.environ, **given}, check=False).returncode
