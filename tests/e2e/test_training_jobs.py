"""Experiments whose trials are jobs of several replicas, as a user runs them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.support.cli import katib, katib_json

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "jobs"

TRAIN = """
import os, socket, sys, time
lr, rank, size = float(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        total = 0.0
        for _ in range(size - 1):
            connection, _ = server.accept()
            with connection:
                total += float(connection.makefile().readline())
    print(f"loss={total}")
else:
    print("loss=-1")
    while True:
        try:
            with socket.create_connection(address) as connection:
                connection.sendall(f"{(lr - 0.3) ** 2}\\n".encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
"""
"""Workers send their losses to the master, which prints the sum; what they print themselves would be better."""

EXPERIMENT = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: gang}
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  algorithm: {algorithmName: random}
  parallelTrialCount: 2
  maxTrialCount: 4
  maxFailedTrialCount: 0
  parameters:
    - {name: lr, parameterType: double, feasibleSpace: {min: "0.1", max: "0.5"}}
  trialTemplate:
    primaryContainerName: pytorch
    trialParameters: [{name: lr, reference: lr}]
    trialSpec:
      apiVersion: kubeflow.org/v1
      kind: PyTorchJob
      spec:
        runPolicy: {backoffLimit: 0}
        pytorchReplicaSpecs:
          Master:
            replicas: 1
            template: &replica
              spec:
                containers:
                  - {name: pytorch, image: any, command: [python, train.py, "${trialParameters.lr}"]}
          Worker:
            replicas: 2
            template: *replica
"""


def test_an_experiment_of_pytorch_jobs_reads_the_metrics_of_the_masters(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)

    done = katib("run", "experiment.yaml", cwd=tmp_path, timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    status = katib_json("get", "experiment", "gang", cwd=tmp_path)["status"]
    assert (status["trials"], status["trialsSucceeded"]) == (4, 4)
    [metric] = status["currentOptimalTrial"]["observation"]["metrics"]
    lr = float(status["currentOptimalTrial"]["parameterAssignments"][0]["value"])
    assert float(metric["latest"]) == pytest.approx(2 * (lr - 0.3) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "file", "framework", "name"),
    [
        ("pytorchjob", "experiment.yaml", "torch", "pytorchjob"),
        ("pytorchjob", "torchrun.yaml", "torch", "torchrun"),
        ("tfjob", "experiment.yaml", "tensorflow", "tfjob"),
        ("xgboostjob", "experiment.yaml", "xgboost", "xgboostjob"),
        ("xgboostjob", "lightgbm.yaml", "lightgbm", "lightgbm"),
        ("jaxjob", "experiment.yaml", "jax", "jaxjob"),
        ("paddlejob", "experiment.yaml", "paddle", "paddlejob"),
        ("mpijob", "experiment.yaml", "mpi4py", "mpijob"),
    ],
    ids=["pytorch", "torchrun", "tensorflow", "xgboost", "lightgbm", "jax", "paddle", "mpi"],
)
def test_the_example_of_a_framework_tunes_for_real(
    tmp_path: Path, folder: str, file: str, framework: str, name: str
) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"examples/jobs/{folder}/{file}: {framework} is not installed")
    if framework == "mpi4py" and shutil.which("mpirun") is None:
        pytest.skip(f"examples/jobs/{folder}/{file}: mpirun is not installed (Debian: openmpi-bin)")
    shutil.copytree(EXAMPLES / folder, tmp_path / folder)

    done = katib("run", f"{folder}/{file}", cwd=tmp_path, timeout=600)

    assert done.returncode == 0, done.stdout + done.stderr
    status = katib_json("get", "experiment", name, cwd=tmp_path)["status"]
    assert status["trials"] == status["trialsSucceeded"] >= 3
