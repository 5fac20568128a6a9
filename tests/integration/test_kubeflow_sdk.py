"""The Kubeflow SDK, unmodified, on the Kubernetes API of one machine: train a function, and optimize it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubeflow.optimizer", reason="`make test-doors` installs it")

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.optimizer import Objective, OptimizerClient, Search, TrialConfig
from kubeflow.trainer import CustomTrainer, TrainerClient, TrainJobTemplate

from tests.support.kube import EXPERIMENTS, World, kube_world
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def train(lr: str = "0.1") -> None:
    import time

    time.sleep(1)  # a pod that is gone within half a second is never shown
    print(f"loss={float(lr)}")  # noqa: T201 - where its metric is read


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An engine whose programs find a torchrun, which here is Python itself: PyTorch is large."""
    programs = tmp_path_factory.mktemp("bin")
    (programs / "torchrun").write_text('#!/bin/sh\nexec python3 "$@"\n')
    (programs / "torchrun").chmod(0o755)
    here = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        os.chdir(tmp_path_factory.mktemp("work"))
        with kube_world(tmp_path_factory.mktemp("data"), starts=True) as made:
            yield made
        os.chdir(here)


@pytest.fixture
def config(world: World) -> Any:
    return KubernetesBackendConfig(config_file=str(world.server.kubeconfig))


def test_a_function_is_trained_with_a_shipped_runtime(config: Any) -> None:
    client = TrainerClient(config)
    runtimes = [runtime.name for runtime in client.list_runtimes()]
    trainer = CustomTrainer(func=train, func_args={"lr": "0.3"}, num_nodes=1)
    name = client.train(runtime=client.get_runtime("torch-distributed"), trainer=trainer)
    client.wait_for_job_status(name, timeout=60, polling_interval=1)
    lines = list(client.get_job_logs(name))
    client.delete_job(name)

    assert "torch-distributed" in runtimes
    assert lines == ["loss=0.3"]
    assert name not in [job.name for job in client.list_jobs()]


def test_a_function_is_optimized(config: Any, world: World) -> None:
    client, trainers = OptimizerClient(config), TrainerClient(config)
    name = client.optimize(
        trial_template=TrainJobTemplate(
            trainer=CustomTrainer(func=train, num_nodes=1), runtime=trainers.get_runtime("torch-distributed")
        ),
        search_space={"lr": Search.uniform(0.01, 0.05)},
        objectives=[Objective(metric="loss", direction="minimize")],
        trial_config=TrialConfig(num_trials=3, parallel_trials=2),
    )
    eventually(lambda: client.get_job(name).status == "Complete")
    best = client.get_best_results(name)

    assert len(client.get_job(name).trials) == 3
    assert best.metrics[0].min == best.parameters["lr"]  # each trial ran its own script
    assert list(Path.cwd().iterdir()) == []
    assert [line.partition("=")[0] for line in client.get_job_logs(name)] == ["loss"]
    assert [job.name for job in client.list_jobs()] == [name]
    assert client.get_job_events(name)
    client.delete_job(name)
    eventually(lambda: not world.http.get(EXPERIMENTS).json()["items"])
